package cli

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/flags"
)

func newRollout(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rollout COMMAND",
		Short: "Look at progressive releases and control them",
		Long: `Rollout has the commands for Rollouts (rollouts.kruise.io), which release a new
version of a workload step by step. Plan reads files; the others ask the admin
endpoint of a "weir run" that carries Rollouts out; with --kubeconfig or
--context they ask a cluster, with your rights there. As "kubectl weir rollout"
they ask the cluster unless --admin names a run. docs/rollouts.md says more.`,
		Args: onlyCommands,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.DisableFlagsInUseLine = true
	cmd.AddCommand(newRolloutPlan(s))
	cmd.AddCommand(rolloutCommands(s)...)
	return cmd
}

// onlyCommands is the Args of a command that has others below it and does nothing itself.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := ""
	if like := cmd.SuggestionsFor(args[0]); len(like) > 0 {
		slices.SortStableFunc(like, func(a, b string) int { return common(args[0], b) - common(args[0], a) })
		hint = fmt.Sprintf("; did you mean %q?", like[0])
	}
	return flags.Errorf("unknown command %q%s", args[0], hint)
}

// common is how many bytes two words begin alike with.
func common(a, b string) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}
