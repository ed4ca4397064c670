package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/rollout/local"
	"github.com/weirmesh/weir/internal/rollout/view"
	"github.com/weirmesh/weir/internal/screen"
)

// rolloutAdmin asks the admin endpoint of "weir run" about Rollouts.
type rolloutAdmin struct {
	admin
	namespace string
}

// rolloutCommands are the commands for Rollouts that a process carries out.
func rolloutCommands(s streams) []*cobra.Command {
	all := []*cobra.Command{newRolloutList(s), newRolloutGet(s), newRolloutStatus(s), newRolloutHistory(s)}
	for _, v := range []struct {
		verb                 local.Verb
		short, long, example string
	}{
		{local.Promote, "Go on with a step that waits", `Promote goes on with a step that waits for somebody, or that lasts for a time.
With --full all steps that are left are skipped, and all requests go to the new
version. With --step N the release goes to that step, forward or back. When all
steps are complete, promote says that the stable Service has the new version,
at the addresses that it had before.`, "  weir rollout promote shop\n  weir rollout promote shop --full\n  weir rollout promote shop --step 2"},
		{local.Pause, "Stop a release where it is", "Pause stops a release where it is, until resume. Requests go on as they do.", "  weir rollout pause shop"},
		{local.Resume, "Go on with a release that was paused", "Resume goes on with a release that was paused by pause.", "  weir rollout resume shop"},
		{local.Abort, "Send all requests to the stable version", `Abort sends all requests to the stable version. The release begins again by
retry, or when the canary's Service gets other endpoints.`, "  weir rollout abort shop"},
		{local.Undo, "Go back to the version before", `Undo goes back to the version before, as long as the stable Service still has
it: also when all steps are complete. Weir changes no endpoints.`, "  weir rollout undo shop"},
		{local.Retry, "Begin an aborted release again", "Retry begins a release that was aborted again, with its first step.", "  weir rollout retry shop"},
		{local.Restart, "Begin a release of what the canary's endpoints run", `Restart begins a release with its first step. It is for a new version that runs
at the addresses of the one before, which Weir cannot see.`, "  weir rollout restart shop"},
	} {
		all = append(all, newRolloutVerb(s, v.verb, v.short, v.long, v.example))
	}
	return all
}

func (a *rolloutAdmin) flags(cmd *cobra.Command) {
	a.admin.flags(cmd.Flags())
	cmd.Flags().StringVarP(&a.namespace, "namespace", "n", "", "`namespace` of the Rollouts (list: default all; otherwise \"default\")")
	fromEnvironment(cmd)
}

// of is the namespace and the name of an argument, NAME or NAMESPACE/NAME.
func (a *rolloutAdmin) of(arg string) (namespace, name string, err error) {
	namespace, name, ok := strings.Cut(arg, "/")
	if !ok {
		namespace, name = a.namespace, arg
		if namespace == "" {
			namespace = "default"
		}
	} else if a.namespace != "" && a.namespace != namespace {
		return "", "", flags.Errorf("%s is not in the namespace %s", arg, a.namespace)
	}
	if name == "" || namespace == "" || strings.Contains(name, "/") {
		return "", "", flags.Errorf("%q names no Rollout: write NAME or NAMESPACE/NAME", arg)
	}
	return namespace, name, nil
}

// ask sends a request and reads its answer into out.
func (a *rolloutAdmin) ask(ctx context.Context, method, path string, query url.Values, out any) error {
	resp, err := a.do(ctx, method, path, query)
	switch {
	case err != nil:
		return err
	case resp.status == http.StatusNotFound && !strings.HasPrefix(string(resp.body), local.ErrNotFound.Error()):
		return fmt.Errorf("%s has no Rollouts: is it the admin endpoint of weir run?", resp.host)
	case resp.status != http.StatusOK:
		return errors.New(resp.text())
	}
	return resp.into(out)
}

func (a *rolloutAdmin) list(ctx context.Context) (l view.List, err error) {
	if err = a.ask(ctx, http.MethodGet, "/rollouts", nil, &l); err != nil || a.namespace == "" {
		return l, err
	}
	kept := l.Rollouts[:0]
	for _, r := range l.Rollouts {
		if r.Namespace == a.namespace {
			kept = append(kept, r)
		}
	}
	l.Rollouts = kept
	return l, nil
}

func (a *rolloutAdmin) get(ctx context.Context, arg string) (r view.Rollout, err error) {
	namespace, name, err := a.of(arg)
	if err != nil {
		return r, err
	}
	err = a.ask(ctx, http.MethodGet, "/rollouts/"+namespace+"/"+name, nil, &r)
	if err != nil && strings.HasPrefix(err.Error(), local.ErrNotFound.Error()) {
		return r, fmt.Errorf("there is no Rollout %s/%s: weir rollout list shows those that there are", namespace, name)
	}
	return r, err
}

func oneRollout(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return flags.Errorf("which Rollout? Give one NAME or NAMESPACE/NAME")
	}
	return nil
}

func newRolloutList(s streams) *cobra.Command {
	a := &rolloutAdmin{admin: admin{streams: s}}
	cmd := &cobra.Command{
		Use: "list", Short: "List Rollouts and how far they are", Args: noArgs,
		Long: `List shows the Rollouts that a "weir run" carries out: the step that each is in,
the share of the requests that its new version should get, and the share that
it got lately.`,
		Example: "  weir rollout list\n  weir rollout list -w",
	}
	output := outputFlag(cmd, "text", "json", "yaml")
	watch := cmd.Flags().BoolP("watch", "w", false, "show it again whenever it changes")
	a.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		text := func(l view.List) string {
			if len(l.Rollouts) == 0 {
				return "There are no Rollouts.\n"
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
	a := &rolloutAdmin{admin: admin{streams: s}}
	cmd := &cobra.Command{
		Use: "get NAME", Short: "Show a Rollout: its step, its versions, what each gets", Args: oneRollout,
		Long: `Get shows a Rollout that a "weir run" carries out: its step, the share of the
requests that its new version should get beside the share that it got, both
versions with their endpoints, and what happened last.`,
		Example: "  weir rollout get shop\n  weir rollout get shop -w",
	}
	output := outputFlag(cmd, "text", "json", "yaml")
	watch := cmd.Flags().BoolP("watch", "w", false, "show it again whenever it changes")
	a.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *watch {
			return a.watch(cmd.Context(), func(now time.Time) (any, string, bool, error) {
				r, err := a.get(cmd.Context(), args[0])
				return r, r.Tree(screen.Of(s.out), now), false, err
			})
		}
		r, err := a.get(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return a.print(output.Value, r, r.Tree(screen.Of(s.out), time.Now()), screen.Of(s.out))
	}
	return cmd
}

func newRolloutStatus(s streams) *cobra.Command {
	a := &rolloutAdmin{admin: admin{streams: s}}
	cmd := &cobra.Command{
		Use: "status NAME", Short: "Wait until a release is over, and say how it ended", Args: oneRollout,
		Long: `Status prints how a Rollout stands, again whenever that changes, until nothing is
being released. Its exit code is 0 if the Rollout is healthy then, and 1 if the
release was aborted, or --timeout passed.`,
		Example: "  weir rollout status shop\n  weir rollout status shop --watch=false",
	}
	watch := cmd.Flags().BoolP("watch", "w", true, "wait until the release is over")
	timeout := cmd.Flags().Duration("timeout", 0, "`time` after which to give up; 0 is never")
	a.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
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
		lines := &admin{streams: s}
		lines.streams.out = plainWriter{s.out}
		err := lines.watch(ctx, func(time.Time) (any, string, bool, error) {
			r, err := a.get(ctx, args[0])
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
	a := &rolloutAdmin{admin: admin{streams: s}}
	cmd := &cobra.Command{
		Use: "history NAME", Short: "List the releases of a Rollout and how they ended", Args: oneRollout,
		Long:    `History lists the last releases of a Rollout, the newest first: the endpoints of each new version, and how it ended.`,
		Example: "  weir rollout history shop",
	}
	output := outputFlag(cmd, "text", "json", "yaml")
	a.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r, err := a.get(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		text := "Nothing was released yet.\n"
		if len(r.Releases) > 0 {
			text = r.History(screen.Of(s.out), time.Now())
		}
		return a.print(output.Value, r.Releases, text, screen.Of(s.out))
	}
	return cmd
}

func newRolloutVerb(s streams, verb local.Verb, short, long, example string) *cobra.Command {
	a := &rolloutAdmin{admin: admin{streams: s}}
	cmd := &cobra.Command{Use: string(verb) + " NAME", Short: short, Long: long, Example: example, Args: oneRollout}
	var full bool
	var step int
	if verb == local.Promote {
		cmd.Flags().BoolVar(&full, "full", false, "skip all steps that are left")
		cmd.Flags().IntVar(&step, "step", 0, "`number` of the step to go to, from 1")
	}
	a.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		namespace, name, err := a.of(args[0])
		if err != nil {
			return err
		}
		query := url.Values{}
		if full {
			query.Set("full", "true")
		}
		if cmd.Flags().Changed("step") {
			if step < 1 {
				return flags.Errorf("--step %d: steps count from 1", step)
			}
			query.Set("step", strconv.Itoa(step))
		}
		var r view.Rollout
		if err := a.ask(cmd.Context(), http.MethodPost, "/rollouts/"+namespace+"/"+name+"/"+string(verb), query, &r); err != nil {
			return fmt.Errorf("%s %s/%s: %w", verb, namespace, name, err)
		}
		return screen.Of(s.out).Print(s.out, r.Line()+"\n")
	}
	return cmd
}
