// Command anemone converts checkpoints into Core ML packages for Apple's
// Neural Engine, runs such packages anywhere, and checks them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"anemone"
)

// Exit statuses.
const (
	exitFailed = 1 // the work failed; for check, the package is not good enough
	exitUsage  = 2 // wrong arguments; for check, the comparison could not be made
)

// statusError is an error with an exit status of its own. A nil err means
// that everything to say has been said.
type statusError struct {
	status int
	err    error
}

func (e *statusError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *statusError) Unwrap() error { return e.err }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second interrupt ends the program at once.
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, os.Args[1:]))
}

// run executes a command line and returns the exit status.
func run(ctx context.Context, args []string) int {
	root := newRoot()
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return 0
	}
	status := exitFailed
	var se *statusError
	if errors.As(err, &se) {
		status = se.status
	} else if strings.HasPrefix(err.Error(), "unknown command ") { // cobra's, which has no type
		status = exitUsage
	}
	switch {
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(root.ErrOrStderr(), interrupted(cmd))
		status = 130
	case err.Error() != "":
		fmt.Fprintf(root.ErrOrStderr(), "anemone: %v\n", err)
	}
	return status
}

// interrupted returns what to say about a command that was interrupted.
func interrupted(cmd *cobra.Command) string {
	switch cmd.Name() {
	case "convert", "compile", "decompile", "predict": // those that write files
		return "interrupted: nothing was left half-written"
	}
	return "interrupted"
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "anemone",
		Short: "Language models for Apple's Neural Engine: convert, run, check",
		Long: `Anemone turns Hugging Face checkpoints into Core ML packages for Apple's Neural
Engine (layout ANEMLL 0.3.5), on any system and without Xcode or Python, runs
such packages on any system, and proves that they compute what the checkpoint
computes.`,
		Example: `  anemone demo                                  convert, check and run a tiny model
  anemone convert Qwen3-0.6B -o Qwen3-0.6B-ane  make a package
  anemone check Qwen3-0.6B-ane --hf Qwen3-0.6B  hold it to the checkpoint
  anemone run Qwen3-0.6B-ane "Why is the sky blue?"`,
		Version:       version(),
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("anemone {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return &statusError{exitUsage, fmt.Errorf("%w\nSee '%s --help'.", err, c.CommandPath())}
	})
	root.AddCommand(newConvert(), newRun(), newCheck(), newInspect(), newPredict(), newCompile(), newDecompile(), newDemo())
	return root
}

// args turns cobra's complaints about arguments into usage errors.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, a []string) error {
		if err := check(c, a); err != nil {
			return &statusError{exitUsage, fmt.Errorf("%w\nUsage: %s", err, c.UseLine())}
		}
		return nil
	}
}

func version() string {
	v := anemone.Version
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" && len(s.Value) >= 12 {
				v += " (" + s.Value[:12] + ")"
			}
		}
		v += " " + info.GoVersion
	}
	return v
}
