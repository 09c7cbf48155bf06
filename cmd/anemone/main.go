// Command anemone converts checkpoints into Core ML packages for Apple's
// Neural Engine, runs such packages anywhere, and checks them.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"anemone"
	"anemone/internal/arch"
)

// Exit statuses.
const (
	exitFailed      = 1   // the work failed; for check, the package is not good enough
	exitUsage       = 2   // wrong arguments; for check, the comparison could not be made
	exitInterrupted = 130 // what shells make of an interrupt
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
	return execute(ctx, args, os.Stdin, os.Stdout, os.Stderr)
}

// execute is run on any streams.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	out := &output{w: stdout}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(out)
	root.SetErr(stderr)
	addCompletion(root)
	cmd, err := root.ExecuteContextC(ctx)
	status := 0
	if err != nil {
		status = exitFailed
		var se *statusError
		if errors.As(err, &se) {
			status = se.status
		} else if strings.HasPrefix(err.Error(), "unknown command ") { // cobra's, which has no type
			status = exitUsage
			err = fmt.Errorf("%w\nSee 'anemone --help'.", err)
		}
	}
	if out.err != nil && (err == nil || err.Error() == "" || errors.Is(err, out.err)) {
		// What was to be said did not arrive, whatever it was. To check and to
		// the linter, 1 would say that they found something.
		err, status = out.err, exitFailed
		if verdict(cmd) {
			status = exitUsage
		}
		if errors.Is(err, syscall.EPIPE) {
			return status // the reader has enough, and knows
		}
		err = fmt.Errorf("standard output: %w", err)
	}
	switch {
	case err == nil:
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, interrupted(cmd))
		status = exitInterrupted
	case err.Error() != "":
		fmt.Fprintf(stderr, "anemone: %s\n", printable(message(err)))
	}
	return status
}

// verdict reports whether a command's exit status 1 is a finding.
func verdict(c *cobra.Command) bool {
	lint := c.Flags().Lookup("lint")
	return c.Name() == "check" || lint != nil && lint.Changed
}

// output remembers the first error of writing, which most of what prints does
// not look at, and writes nothing after it. It keeps a terminal from obeying
// what files of strangers say.
type output struct {
	w   io.Writer
	err error
}

func (o *output) Write(b []byte) (int, error) {
	if o.err != nil {
		return 0, o.err
	}
	if _, o.err = io.WriteString(o.w, printable(string(b))); o.err != nil {
		return 0, o.err
	}
	return len(b), nil
}

// printable returns text with control characters other than tabs and ends of
// lines written out, such as \x1b.
func printable(s string) string {
	hostile := func(r rune) bool { return unicode.IsControl(r) && r != '\n' && r != '\t' }
	if !strings.ContainsFunc(s, hostile) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		if hostile(r) {
			fmt.Fprintf(&b, "\\x%02x", r)
			continue
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		b.WriteString(s[i : i+n]) // bytes that are not UTF-8 stay
	}
	return b.String()
}

// message words an error for people. The sentinels that programs look for add
// nothing to what the error says, and system calls are nobody's concern.
func message(err error) string {
	s := err.Error()
	for _, sentinel := range []error{errors.ErrUnsupported, arch.ErrUnsupported, fs.ErrNotExist} {
		s = strings.ReplaceAll(s, ": "+sentinel.Error(), "")
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		s = strings.ReplaceAll(s, pe.Error(), pe.Path+": "+plain(pe.Err))
	}
	var le *os.LinkError
	if errors.As(err, &le) {
		s = strings.ReplaceAll(s, le.Error(), le.New+": "+plain(le.Err))
	}
	return s
}

// plain words an error of the operating system.
func plain(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "no such file or folder"
	case errors.Is(err, fs.ErrExist):
		return "it exists already"
	}
	return err.Error()
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
computes.

Exit status: 0 done, 1 the work failed (for check and inspect --lint: something
is not as it should be), 2 wrong arguments (for check: the comparison could not be
made), 130 interrupted.`,
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
		return &statusError{exitUsage, fmt.Errorf("%w\nSee '%s --help'.", flagError(err), c.CommandPath())}
	})
	root.AddCommand(newConvert(), newRun(), newCheck(), newInspect(), newPredict(), newCompile(), newDecompile(), newDemo(), newVersion())
	root.SetHelpCommand(newHelp(root))
	return root
}

// addCompletion adds cobra's command, which remembers the output that root has
// now.
func addCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		if c.Name() == "completion" {
			c.Args = cobra.ArbitraryArgs
			c.RunE = func(c *cobra.Command, _ []string) error {
				return &statusError{exitUsage, fmt.Errorf("want a shell: bash, zsh, fish or powershell\nUsage: %s SHELL", c.CommandPath())}
			}
		}
	}
}

func newVersion() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  args(cobra.NoArgs),
		Run:   func(cmd *cobra.Command, _ []string) { fmt.Fprintln(cmd.OutOrStdout(), "anemone", version()) },
	}
}

// newHelp is cobra's help command, but for the exit status of what is unknown.
func newHelp(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about a command",
		ValidArgsFunction: func(*cobra.Command, []string, string) (names []string, _ cobra.ShellCompDirective) {
			for _, c := range root.Commands() {
				names = append(names, c.Name())
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, a []string) error {
			c, rest, err := root.Find(a)
			if err != nil || len(rest) > 0 {
				return &statusError{exitUsage, fmt.Errorf("there is no command %q\nSee 'anemone --help'.", strings.Join(a, " "))}
			}
			c.InitDefaultHelpFlag()
			return c.Help()
		},
	}
}

var invalidArgument = regexp.MustCompile(`^invalid argument ("(?:[^"\\]|\\.)*") for "(?:-\w, )?(--[\w-]+)" flag: (?s:(.*))$`)

// flagError words an error of a flag's value. The type of pflag's error says
// no more than its text.
func flagError(err error) error {
	m := invalidArgument.FindStringSubmatch(err.Error())
	if m == nil {
		return err
	}
	want := m[3]
	var number *strconv.NumError
	if errors.As(err, &number) {
		want = "want a number"
		switch number.Func {
		case "ParseInt", "Atoi":
			want = "want a whole number"
		case "ParseUint":
			want = "want a whole number, 0 or more"
		case "ParseBool":
			want = "want true or false"
		}
		if errors.Is(number, strconv.ErrRange) {
			want += ", and a smaller one"
		}
	}
	return fmt.Errorf("%s %s: %s", m[2], m[1], want)
}

// args words cobra's complaints about arguments and makes them usage errors.
// What the arguments are is read from the command's usage line.
func args(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, a []string) error {
		if check(c, a) == nil {
			return nil
		}
		var err error
		word := regexp.MustCompile(`^[A-Z][A-Z0-9.a-z]*`).FindString(strings.TrimPrefix(c.Use, c.Name()+" "))
		switch {
		case len(a) == 0:
			err = fmt.Errorf("%s is missing", word)
		case word == "":
			err = fmt.Errorf("%s takes no arguments, found %q", c.CommandPath(), a[0])
		default:
			err = fmt.Errorf("want one %s, found %q and %q", word, a[0], a[1])
		}
		return &statusError{exitUsage, fmt.Errorf("%w\nUsage: %s", err, c.UseLine())}
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
