package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/screen"
)

// Exit codes; docs/cli.md lists them.
const (
	exitOK      = 0
	exitFailed  = 1
	exitUsage   = 2
	exitNoMatch = 3
)

// exitCodes documents them in help and docs.
var exitCodes = []struct {
	code    int
	meaning string
}{
	{exitOK, "everything went well; for check, of files or a cluster: nothing was found at or above --fail-on"},
	{exitFailed, "the command failed; for check: something was found; for demo: a request failed; for rollout plan: a step cannot be carried out as it is written"},
	{exitUsage, "the command line is wrong, or a path or kubeconfig cannot be read"},
	{exitNoMatch, "explain: no Gateway, no listener or no rule takes the request; with --from: a workload denies it, or none gets it"},
}

// exitError ends the process with a code; a nil err prints nothing.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// streams are the process's, or a test's, and the front ends that it has.
type streams struct {
	in       io.Reader
	out, err io.Writer
	dialects dialect.List
	// plugin means that kubectl runs it: commands ask a cluster unless they are told otherwise.
	plugin bool
}

// Program is Weir with some front ends; none is all of them (dialect.All).
type Program struct{ Dialects dialect.List }

func (p Program) dialects() dialect.List {
	if p.Dialects == nil {
		return dialect.All()
	}
	return p.Dialects
}

// plugin is the first argument of "kubectl weir": weir whose commands ask a cluster.
const plugin = "kubectl-weir"

// Arguments are those of a process's command line. A binary of the name kubectl-weir is weir of a cluster, so that kubectl
// has it as "kubectl weir", and kubectl-traffic is its command traffic.
func Arguments(argv []string) []string {
	if len(argv) == 0 {
		return nil
	}
	if name := strings.TrimSuffix(filepath.Base(argv[0]), ".exe"); name == plugin || name == trafficPlugin {
		return append([]string{name}, argv[1:]...)
	}
	return argv[1:]
}

// Main is Program.Main with all front ends.
func Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	return Program{}.Main(args, stdin, stdout, stderr)
}

// Main runs a command line and returns the exit code.
func (p Program) Main(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := streams{in: stdin, out: stdout, err: stderr, dialects: p.dialects()}
	if len(args) > 0 && args[0] == plugin {
		s.plugin, args = true, args[1:]
	}
	root := newRoot(s)
	root.SetArgs(args)
	cmd, err := root.ExecuteC()
	if err == nil {
		return exitOK
	}
	exit := &exitError{exitFailed, err}
	if usage := (*flags.Fault)(nil); errors.As(err, &usage) {
		exit.code = exitUsage
	}
	errors.As(err, &exit)
	if exit.err != nil {
		_ = screen.Screen{}.Print(stderr, "weir: "+errorText(exit.err)+"\n")
		if exit.code == exitUsage {
			fmt.Fprintf(stderr, "See %q.\n", cmd.CommandPath()+" --help")
		}
	}
	return exit.code
}

func newRoot(s streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "weir COMMAND",
		Short: "Route, split and mirror HTTP traffic by Gateway API files",
		Long: `Weir is an HTTP gateway in one binary. It reads Gateway API YAML from files and
folders, without any cluster, and splits, mirrors, matches and measures real
traffic by it.`,
		Example: `  weir demo                                    see it at work, nothing to set up
  weir check routes/                           what is wrong with these files?
  weir run routes/                             serve them; changes apply at once
  weir explain routes/ -- GET http://shop.example/cart -H 'x-beta: yes'`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          onlyCommands,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.DisableFlagsInUseLine = true
	if s.plugin {
		root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl weir"}
	}
	root.SetUsageFunc(usage)
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &exitError{exitUsage, err} })
	root.AddCommand(
		newRun(s), newController(s), newProxy(s), newSidecar(s), newRedirect(s), newCheck(s), newStatus(s), newDump(s), newDiff(s), newExplain(s), newAccess(s), newRollout(s), newTraffic(s, "traffic"), newTraffic(s, trafficPlugin), newDemo(s), newEcho(s), newIdentity(s), newInject(s), newConvert(s), newVersion(s), newCompletion(s),
	)
	completeChoices(root)
	for _, cmd := range append(root.Commands(), root) {
		cmd.SuggestionsMinimumDistance = 2
	}
	root.CompletionOptions.DisableDefaultCmd = true
	root.SetHelpCommand(&cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Show help for a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			found, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return flags.Errorf("unknown command %q", args[0])
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	})
	return root
}

// atLeastOnePath is the Args of commands that read configuration.
func atLeastOnePath(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return flags.Errorf("which files or folders? Give at least one PATH, or - for the standard input")
	}
	return nil
}

func noArgs(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return flags.Errorf("unexpected argument %q", args[0])
	}
	return nil
}

// outputFlag adds -o with the formats; the first is the default.
func outputFlag(cmd *cobra.Command, formats ...string) *flags.Choice {
	c := flags.NewChoice(formats...)
	cmd.Flags().VarP(&c, "output", "o", "format of the output")
	return &c
}

// completeChoices has shells complete the values of flags that have a fixed set of them, by their types: "a|b|c".
func completeChoices(cmd *cobra.Command) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if allowed := strings.Split(f.Value.Type(), "|"); len(allowed) > 1 {
			// It fails for a flag that the command does not have, or has been given one.
			_ = cmd.RegisterFlagCompletionFunc(f.Name, cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
		}
	})
	for _, c := range cmd.Commands() {
		completeChoices(c)
	}
}

// usage prints how a command is used, and under the root's commands the exit codes. It is a function and not a template
// of cobra's: text/template looks methods up by name, so with it the linker must keep all exported methods of the whole
// program.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	b.WriteString("Usage:\n  " + cmd.UseLine() + "\n")
	if cmd.HasExample() {
		b.WriteString("\nExamples:\n" + cmd.Example + "\n")
	}
	if cmd.HasAvailableSubCommands() {
		b.WriteString("\nCommands:\n")
		for _, c := range cmd.Commands() {
			if c.IsAvailableCommand() {
				fmt.Fprintf(&b, "  %-*s %s\n", c.NamePadding(), c.Name(), c.Short)
			}
		}
		if !cmd.HasParent() {
			b.WriteString("\nExit codes:\n" + exitCodeLines())
		}
		fmt.Fprintf(&b, "\n\"%s COMMAND --help\" says more about a command.\n", cmd.CommandPath())
	}
	if cmd.HasParent() && cmd.HasAvailableLocalFlags() {
		b.WriteString("\nFlags:\n" + strings.TrimRight(cmd.LocalFlags().FlagUsagesWrapped(100), " \n") + "\n")
	}
	_, err := io.WriteString(cmd.OutOrStderr(), b.String())
	return err
}

func exitCodeLines() string {
	var b strings.Builder
	for _, e := range exitCodes {
		fmt.Fprintf(&b, "  %d  %s\n", e.code, e.meaning)
	}
	return b.String()
}

// lasting is the RunE of a command that runs until a signal ends it.
func lasting(run func(ctx context.Context, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		ctx, stop := process.Interrupted(cmd.Context())
		defer stop()
		return run(ctx, args)
	}
}

// fromEnvironment lets the environment set each flag that the command line does not set, and mentions that in the
// flag's usage.
func fromEnvironment(cmd *cobra.Command) {
	flags.NameEnvironment(cmd.Flags())
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) error { return flags.ReadEnvironment(cmd.Flags()) }
}
