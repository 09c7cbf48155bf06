package main

import (
	"fmt"
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
				dir := out
				if dir == "" {
					dir = filepath.Dir(filepath.Clean(src))
				}
				return anemone.Compile(cmd.Context(), src, dir, o)
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
				src = filepath.Clean(src)
				dir := out
				if dir == "" {
					dir = filepath.Dir(src)
				}
				name := filepath.Base(src)
				dst := filepath.Join(dir, strings.TrimSuffix(name, filepath.Ext(name))+".mlpackage")
				return dst, anemone.Decompile(cmd.Context(), src, dst, o)
			})
		},
	}
	cmd.Flags().StringVarP(&out, "output", "o", "", "folder for the packages (default: beside the source)")
	cmd.Flags().BoolVar(&overwrite, "overwrite", false, "replace packages that are there")
	return cmd
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
