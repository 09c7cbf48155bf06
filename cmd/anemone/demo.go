package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"anemone"
	"anemone/testdata"
)

func newDemo() *cobra.Command {
	var keep, prompt string
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Convert, check and run a tiny model that comes with the program",
		Long: `Demo does the main job from end to end on a checkpoint that is embedded in the
program, a Qwen3 of about a million parameters that was trained on generated
stories: it converts it with the defaults, holds the package to the checkpoint's
own float32 computation, and lets it tell a story.`,
		Example: `  anemone demo
  anemone demo --keep demo      # leaves demo/tiny-qwen3 and demo/tiny-qwen3-ane`,
		Args: args(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd, keep, prompt)
		},
	}
	cmd.Flags().StringVar(&keep, "keep", "", "`FOLDER` to make and keep; what an earlier demo left there is replaced (default: a temporary one)")
	cmd.Flags().StringVar(&prompt, "prompt", "Tell me a story about a fox and a lantern.", "what to ask")
	return cmd
}

func demo(cmd *cobra.Command, keep, prompt string) error {
	ctx, w := cmd.Context(), cmd.OutOrStdout()
	dir := keep
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "anemone-demo-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	checkpoint, output := filepath.Join(dir, "tiny-qwen3"), filepath.Join(dir, "tiny-qwen3-ane")
	files, err := fs.Sub(testdata.TinyQwen3, "checkpoints/tiny-qwen3")
	if err != nil {
		return err
	}
	if err := extract(checkpoint, files); err != nil {
		return err
	}

	fmt.Fprintf(w, "1. convert %s (defaults: context 512, batches of 64, 6-bit tables per 8 channels)\n", checkpoint)
	start := time.Now()
	o := anemone.DefaultConvertOptions()
	o.Overwrite = true // that of an earlier demo
	r, err := anemone.Convert(ctx, checkpoint, output, o)
	if err != nil {
		return err
	}
	printConversion(w, r, false)

	fmt.Fprintln(w, "\n2. check the package against the checkpoint's own float32 computation")
	p, err := anemone.Open(output, anemone.OpenOptions{})
	if err != nil {
		return err
	}
	defer p.Close()
	report, err := p.Check(ctx, anemone.CheckOptions{Checkpoint: checkpoint})
	if err != nil {
		return err
	}
	printComparison(w, &checkOutput{Package: output, Numerics: "fp32", Report: report})
	if !report.Passed {
		return &statusError{exitFailed, nil}
	}

	fmt.Fprintf(w, "\n3. run it: %q\n", prompt)
	s, err := p.NewSession()
	if err != nil {
		return err
	}
	zero := 0.0
	for e, err := range s.Generate(ctx, anemone.Request{
		Messages: []anemone.Message{{Role: "user", Content: prompt}},
		Sampling: anemone.Sampling{Temperature: &zero},
	}) {
		if err != nil {
			return err
		}
		fmt.Fprint(w, e.Text)
		if e.Kind == anemone.EventEnd {
			fmt.Fprintf(w, "\n(%s, %.0f tokens/s)\n", counted(e.Stats.Generated, "token"), e.Stats.DecodeRate)
		}
	}
	fmt.Fprintf(w, "\ndone in %s", durationText(time.Since(start)))
	if keep != "" {
		fmt.Fprintf(w, ": the checkpoint is in %s, the package in %s", checkpoint, output)
	}
	fmt.Fprintln(w)
	return nil
}

// extract writes files into a folder, over those of an earlier time.
func extract(dir string, files fs.FS) error {
	return fs.WalkDir(files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		dst := filepath.Join(dir, filepath.FromSlash(path))
		if d.IsDir() {
			return os.MkdirAll(dst, 0o777)
		}
		b, err := fs.ReadFile(files, path)
		if err != nil {
			return err
		}
		return os.WriteFile(dst, b, 0o666)
	})
}
