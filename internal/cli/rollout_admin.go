package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/rollout/local"
	"github.com/weirmesh/weir/internal/rollout/view"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/visible"
)

// Bounds on an answer of the admin endpoint: its size, how long it may take, and how often it is asked by who watches.
const (
	maxAnswer   = 64 << 20
	answerTime  = 15 * time.Second
	watchPeriod = 500 * time.Millisecond
)

// rolloutAdmin asks the admin endpoint of "weir run" about Rollouts.
type rolloutAdmin struct {
	streams   streams
	address   string
	tokenFile string
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
	f := cmd.Flags()
	f.StringVar(&a.address, "admin", "127.0.0.1:15000", "`address` of the admin endpoint of weir run")
	f.StringVar(&a.tokenFile, "admin-token-file", "", "`file` with the token of the admin endpoint")
	f.StringVarP(&a.namespace, "namespace", "n", "", "`namespace` of the Rollouts (list: default all; otherwise \"default\")")
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
	base := a.address
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return flags.Errorf("--admin %q: want ADDRESS:PORT", a.address)
	}
	u.Path, u.RawQuery = path, query.Encode()
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return err
	}
	if a.tokenFile != "" {
		token, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return flags.Errorf("--admin-token-file: %w", err)
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	client := http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	resp, err := client.Do(r)
	if err != nil {
		return fmt.Errorf("nobody answers at %s: %w; is weir run there? --admin names another address", u.Host, errors.Unwrap(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", u.Host, err)
	case len(body) > maxAnswer:
		return fmt.Errorf("the answer of %s is too long", u.Host)
	case resp.StatusCode == http.StatusNotFound && !strings.HasPrefix(string(body), local.ErrNotFound.Error()):
		return fmt.Errorf("%s has no Rollouts: is it the admin endpoint of weir run?", u.Host)
	case resp.StatusCode != http.StatusOK:
		return errors.New(visible.Text(strings.TrimSpace(string(body[:min(len(body), 1000)]))))
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("the answer of %s cannot be read: %w", u.Host, err)
	}
	return nil
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

// print writes v in a format; text is what people read.
func (a *rolloutAdmin) print(format string, v any, text string, s screen.Screen) error {
	switch format {
	case "json":
		return process.WriteJSON(a.streams.out, v)
	case "yaml":
		out, err := marshalYAML(v)
		if err == nil {
			_, err = a.streams.out.Write(out)
		}
		return err
	}
	return s.Print(a.streams.out, text)
}

// watch shows something again whenever it changed, on a terminal in place of what was there, until the context ends or
// over says so.
func (a *rolloutAdmin) watch(ctx context.Context, look func(now time.Time) (v any, text string, over bool, err error)) error {
	s := screen.Of(a.streams.out)
	ctx, stop := process.Interrupted(ctx)
	defer stop()
	tick := time.NewTicker(watchPeriod)
	defer tick.Stop()
	var last any
	for {
		v, text, over, err := look(time.Now())
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(v, last) {
			if s.Width > 0 { // a terminal: from its upper left corner on
				_, err = io.WriteString(a.streams.out, "\x1b[H\x1b[2J")
			} else if last != nil {
				_, err = io.WriteString(a.streams.out, "\n")
			}
			if err = errors.Join(err, s.Print(a.streams.out, text)); err != nil {
				return err
			}
			last = v
		}
		if over {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func newRolloutList(s streams) *cobra.Command {
	a := &rolloutAdmin{streams: s}
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
	a := &rolloutAdmin{streams: s}
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
	a := &rolloutAdmin{streams: s}
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
		lines := &rolloutAdmin{streams: s}
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
	a := &rolloutAdmin{streams: s}
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
	a := &rolloutAdmin{streams: s}
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
