package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/rollout/command"
	"github.com/weirmesh/weir/internal/rollout/view"
	"github.com/weirmesh/weir/internal/screen"
)

// rolloutCommands are the commands for Rollouts that a run or a cluster carries out.
func rolloutCommands(s streams) []*cobra.Command {
	all := []*cobra.Command{newRolloutList(s), newRolloutGet(s), newRolloutStatus(s), newRolloutHistory(s)}
	for _, v := range []struct {
		verb                 command.Verb
		short, long, example string
	}{
		{command.Promote, "Go on with a step that waits", `Promote goes on with a step that waits for somebody, or that lasts for a time.
With --full all steps that are left are skipped, and all requests go to the new
version. With --step N the release goes to that step, forward or back. Of a run
whose steps are all complete, promote says that the stable Service has the new
version, at the addresses that it had before.`, "  weir rollout promote shop\n  weir rollout promote shop --full\n  weir rollout promote shop --step 2"},
		{command.Pause, "Stop a release where it is", "Pause stops a release where it is, until resume. Requests go on as they do.", "  weir rollout pause shop"},
		{command.Resume, "Go on with a release that was paused", `Resume goes on with a release that was paused by pause. A step that waits until
somebody approves it needs promote as well.`, "  weir rollout resume shop"},
		{command.Abort, "Send all requests to the stable version", `Abort sends all requests to the stable version. The release begins again by
retry, or with another version.`, "  weir rollout abort shop"},
		{command.Undo, "Go back to the version before", `Undo goes back to the version before. In a cluster it gives the workload the pod
template of that version again, and nothing else: midway the release is taken
back, afterwards the version before is released step by step. Of a run it works
as long as the stable Service still has the version before: Weir changes no
endpoints.`, "  weir rollout undo shop"},
		{command.Retry, "Begin an aborted release again", "Retry begins a release that was aborted again, with its first step.", "  weir rollout retry shop"},
		{command.Restart, "Begin with the first step again", `Restart begins a release with its first step again. Of a run it is also for a new
version that runs at the addresses of the one before, which Weir cannot see.`, "  weir rollout restart shop"},
	} {
		all = append(all, newRolloutVerb(s, v.verb, v.short, v.long, v.example))
	}
	return all
}

func oneRollout(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return flags.Errorf("which Rollout? Give one NAME or NAMESPACE/NAME")
	}
	return nil
}

func newRolloutList(s streams) *cobra.Command {
	a := newRolloutAPI(s)
	cmd := &cobra.Command{
		Use: "list", Short: "List Rollouts and how far they are", Args: noArgs,
		Long: `List shows Rollouts: the step that each is in, the share of the requests that its
new version should get, and of a run the share that it got lately.`,
		Example: "  weir rollout list\n  weir rollout list -w",
	}
	output := outputFlag(cmd, "text", "json", "yaml")
	watch := cmd.Flags().BoolP("watch", "w", false, "show it again whenever it changes")
	a.flags(cmd, true)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := a.open(""); err != nil {
			return err
		}
		defer a.close()
		text := func(l view.List) string {
			if len(l.Rollouts) == 0 {
				return "There are no Rollouts" + a.within() + ".\n"
			}
			return l.Table(screen.Of(s.out))
		}
		if *watch {
			return a.watch(cmd.Context(), func(time.Time) (any, string, bool, error) {
				l, err := a.list(cmd.Context())
				return l, text(l), false, err
			})
		}
		l, err := a.list(cmd.Context())
		if err != nil {
			return err
		}
		return a.print(output.Value, l, text(l), screen.Of(s.out))
	}
	return cmd
}

func newRolloutGet(s streams) *cobra.Command {
	a := newRolloutAPI(s)
	cmd := &cobra.Command{
		Use: "get NAME", Short: "Show a Rollout: its step, its versions, what each gets", Args: oneRollout,
		Long: `Get shows a Rollout: its step, the share of the requests that its new version
should get beside the share that it got, its versions with their endpoints or in
a cluster their pods, and what happened last.`,
		Example: "  weir rollout get shop\n  weir rollout get shop -w",
	}
	output := outputFlag(cmd, "text", "json", "yaml")
	watch := cmd.Flags().BoolP("watch", "w", false, "show it again whenever it changes")
	a.flags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.open(args[0]); err != nil {
			return err
		}
		defer a.close()
		if *watch {
			return a.watch(cmd.Context(), func(now time.Time) (any, string, bool, error) {
				r, err := a.get(cmd.Context())
				return r, r.Tree(screen.Of(s.out), now), false, err
			})
		}
		r, err := a.get(cmd.Context())
		if err != nil {
			return err
		}
		return a.print(output.Value, r, r.Tree(screen.Of(s.out), time.Now()), screen.Of(s.out))
	}
	return cmd
}

func newRolloutStatus(s streams) *cobra.Command {
	a := newRolloutAPI(s)
	cmd := &cobra.Command{
		Use: "status NAME", Short: "Wait until a release is over, and say how it ended", Args: oneRollout,
		Long: `Status prints how a Rollout stands, again whenever that changes, until nothing is
being released. Its exit code is 0 if the Rollout is healthy then, and 1 if the
release was aborted, or --timeout passed.`,
		Example: "  weir rollout status shop\n  weir rollout status shop --watch=false",
	}
	watch := cmd.Flags().BoolP("watch", "w", true, "wait until the release is over")
	timeout := cmd.Flags().Duration("timeout", 0, "`time` after which to give up; 0 is never")
	a.flags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.open(args[0]); err != nil {
			return err
		}
		defer a.close()
		ctx := cmd.Context()
		if *timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, *timeout)
			defer cancel()
		}
		var last view.Rollout
		over := func() bool {
			return !*watch || last.State == view.Healthy || last.State == view.Aborted || last.State == view.Disabled
		}
		lines := a.admin
		lines.streams.out = plainWriter{s.out}
		err := lines.watch(ctx, func(time.Time) (any, string, bool, error) {
			r, err := a.get(ctx)
			if err != nil {
				return nil, "", false, err
			}
			last = r
			return r.Line(), r.Line() + "\n", over(), nil
		})
		switch {
		case err != nil:
			return err
		case errors.Is(ctx.Err(), context.DeadlineExceeded):
			return fmt.Errorf("the release is not over after %s", *timeout)
		case last.State == view.Aborted:
			return &exitError{code: exitFailed}
		}
		return nil
	}
	return cmd
}

// plainWriter hides that a writer is a terminal: what is written is lines, one under the other.
type plainWriter struct{ io.Writer }

func newRolloutHistory(s streams) *cobra.Command {
	a := newRolloutAPI(s)
	cmd := &cobra.Command{
		Use: "history NAME", Short: "List the last releases of a Rollout", Args: oneRollout,
		Long: `History lists the last releases of a Rollout, the newest first: of a run the
endpoints of each new version, and how it ended; in a cluster the revisions that
are kept of the workload, with their images and pods.`,
		Example: "  weir rollout history shop",
	}
	output := outputFlag(cmd, "text", "json", "yaml")
	a.flags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := a.open(args[0]); err != nil {
			return err
		}
		defer a.close()
		v, text, err := a.history(cmd.Context(), screen.Of(s.out), time.Now())
		if err != nil {
			return err
		}
		return a.print(output.Value, v, text, screen.Of(s.out))
	}
	return cmd
}

func newRolloutVerb(s streams, verb command.Verb, short, long, example string) *cobra.Command {
	a := newRolloutAPI(s)
	cmd := &cobra.Command{Use: string(verb) + " NAME", Short: short, Long: long, Example: example, Args: oneRollout}
	c := command.Command{Verb: verb}
	if verb == command.Promote {
		cmd.Flags().BoolVar(&c.Full, "full", false, "skip all steps that are left")
		cmd.Flags().IntVar(&c.Step, "step", 0, "`number` of the step to go to, from 1")
	}
	a.flags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if cmd.Flags().Changed("step") && c.Step < 1 {
			return flags.Errorf("--step %d: steps count from 1", c.Step)
		}
		if err := a.open(args[0]); err != nil {
			return err
		}
		defer a.close()
		text, err := a.do(cmd.Context(), c)
		if err != nil {
			return fmt.Errorf("%s %s/%s: %w", verb, a.namespace, a.name, err)
		}
		return screen.Of(s.out).Print(s.out, text+"\n")
	}
	return cmd
}
