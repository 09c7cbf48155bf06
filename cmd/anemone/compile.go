package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"anemone"
)

func newCompile() *cobra.Command {
	var out string
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "compile MODEL.mlpackage...",
		Short: "Write compiled .mlmodelc bundles, which Core ML loads as they are",
		Long: `Compile does for ML Programs what "xcrun coremlcompiler compile" does, on any
system: it writes X.mlmodelc for each X.mlpackage (or X.mlmodel). The weights
are shared with the source where the file system can do that, else copied.`,
		Example: `  anemone compile qwen_lm_head.mlpackage
  anemone compile package/*.mlpackage -o package`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			return each(cmd, a, func(src string, o anemone.CompileOptions) (string, error) {
				o.Overwrite = overwrite
				if err := wantModel(src, false); err != nil {
					return "", err
				}
				dir := out
				if dir == "" {
					dir = filepath.Dir(filepath.Clean(src))
				}
				dst, err := anemone.Compile(cmd.Context(), src, dir, o)
				return dst, exists(err, filepath.Join(dir, renamed(src, ".mlmodelc")))
			})
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "folder for the bundles (default: beside the source)")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace bundles that are there")
	return cmd
}

func newDecompile() *cobra.Command {
	var out string
	var overwrite bool
	cmd := &cobra.Command{
		Use:   "decompile MODEL.mlmodelc...",
		Short: "Write .mlpackage bundles from compiled ones",
		Long: `Decompile is the reverse of compile: it writes X.mlpackage for each X.mlmodelc
that holds an ML Program, so that coremltools and Xcode can read it.`,
		Example: `  anemone decompile qwen_lm_head.mlmodelc
  anemone decompile package/*.mlmodelc -o editable`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(cmd *cobra.Command, a []string) error {
			return each(cmd, a, func(src string, o anemone.CompileOptions) (string, error) {
				o.Overwrite = overwrite
				if err := wantModel(src, true); err != nil {
					return "", err
				}
				dir := out
				if dir == "" {
					dir = filepath.Dir(filepath.Clean(src))
				}
				dst := filepath.Join(dir, renamed(src, ".mlpackage"))
				return dst, exists(anemone.Decompile(cmd.Context(), src, dst, o), dst)
			})
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "folder for the packages (default: beside the source)")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace packages that are there")
	return cmd
}

// renamed returns the name of a bundle with another extension.
func renamed(src, ext string) string {
	if abs, err := filepath.Abs(src); err == nil { // "." has no name
		src = abs
	}
	name := filepath.Base(src)
	return strings.TrimSuffix(name, filepath.Ext(name)) + ext
}

// exists words the error for a bundle that is there.
func exists(err error, dst string) error {
	if !errors.Is(err, fs.ErrExist) {
		return err
	}
	return &worded{fmt.Sprintf("%s is there already: choose another folder (-o) or replace it (--overwrite)", dst), err}
}

// wantModel says what is wrong with a path that is plainly not a compiled
// bundle, or not a package or specification.
func wantModel(src string, compiled bool) error {
	st, err := os.Stat(src)
	if err != nil {
		return err
	}
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(src, name))
		return err == nil
	}
	is := map[bool]string{true: "compiled", false: "a package"}
	want := map[bool]string{true: "a compiled bundle (.mlmodelc)", false: "a .mlpackage or .mlmodel"}
	ext := map[bool]string{true: ".mlmodelc", false: ".mlpackage"}
	switch {
	case !compiled && has("coremldata.bin"), compiled && has("Manifest.json"):
		return fmt.Errorf("%s is already %s", src, is[!compiled])
	case has("meta.yaml"):
		return fmt.Errorf("%s holds several models: give them, %s", src, filepath.Join(src, "*"+ext[compiled]))
	case st.IsDir() && !has("coremldata.bin") && !has("Manifest.json"), !st.IsDir() && (compiled || filepath.Ext(src) != ".mlmodel"):
		return fmt.Errorf("%s: want %s", src, want[compiled])
	}
	return nil
}

// each does one model after the other and says where it went.
func each(cmd *cobra.Command, models []string, do func(src string, o anemone.CompileOptions) (string, error)) error {
	bar := newProgress(cmd.ErrOrStderr(), false)
	defer bar.done()
	for _, src := range models {
		o := anemone.CompileOptions{Progress: func(done, total int64, name string) {
			bar.update(func() string { return fmt.Sprintf("%s: %s of %s", src, bytesText(done), bytesText(total)) })
		}}
		dst, err := do(src, o)
		bar.done()
		if err != nil {
			return err
		}
		fmt.Fprintln(cmd.OutOrStdout(), dst)
	}
	return nil
}
