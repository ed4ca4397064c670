package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/command"
	"github.com/weirmesh/weir/internal/rollout/provider"
	"github.com/weirmesh/weir/internal/rollout/view"
	"github.com/weirmesh/weir/internal/screen"
)

// files is a source whose sets a test makes.
type files struct {
	t    *testing.T
	sets chan *resource.Set
}

func (f *files) Run(ctx context.Context, emit func(*resource.Set)) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case set := <-f.sets:
			emit(set)
		}
	}
}

// shop is what the files say.
type shop struct {
	stable, canary []string // addresses
	steps          string
	more           string // fields of the Rollout's spec
	pinned         string // the rest of the route's spec
	without        bool   // no Rollout
	noRoute        bool
	match          string // of the route's rule, beside its path
}

const threeSteps = `[{traffic: 20%, replicas: 1, pause: {duration: 10}}, {replicas: 1, matches: [{headers: [{name: x-new, value: "yes"}]}]}, {traffic: 60%, replicas: 1, pause: {duration: 10}}]`

func (s shop) yaml() string {
	var b strings.Builder
	if !s.without {
		fmt.Fprintf(&b, `apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: shop}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: shop}
  %s
  strategy:
    canary:
      trafficRoutings: [{service: shop, gracePeriodSeconds: 1, gateway: {httpRouteName: shop}}]
      steps: %s
---
`, s.more, s.steps)
	}
	if !s.noRoute {
		fmt.Fprintf(&b, `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec:
  rules: [{matches: [{%spath: {value: /}}], backendRefs: [{name: shop, port: 80, weight: 7}]}]%s
`, s.match, s.pinned)
	}
	b.WriteString("---\n# endpoints\n")
	for name, addresses := range map[string][]string{"shop": s.stable, "shop-canary": s.canary} {
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {ports: [{port: 80}]}\n", name)
		if len(addresses) > 0 {
			fmt.Fprintf(&b, "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {name: %s, labels: {kubernetes.io/service-name: %s}}\naddressType: IPv4\nports: [{port: 8080}]\nendpoints: [%s]\n",
				name, name, "{addresses: ["+strings.Join(addresses, "]}, {addresses: [")+"]}")
		}
	}
	return b.String()
}

// gateway is a Source with files below it, and proxies that apply at once what it gives.
type gateway struct {
	t      *testing.T
	files  *files
	source *Source
	set    atomic.Pointer[resource.Set]
	sets   atomic.Int32
	end    func()
}

func serve(t *testing.T, store *Store) *gateway {
	g := &gateway{t: t, files: &files{t, make(chan *resource.Set)}}
	g.source = New(g.files, provider.All(), store, slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- g.source.Run(ctx, func(set *resource.Set) {
			g.set.Store(set)
			g.sets.Add(1)
			g.source.Applied(set)
		})
	}()
	g.end = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	return g
}

// write changes the files.
func (g *gateway) write(s shop) {
	g.t.Helper()
	for _, f := range g.edit(s).Findings {
		if f.Severity == resource.Error {
			g.t.Fatal(f)
		}
	}
}

// edit changes the files, which need not be valid.
func (g *gateway) edit(s shop) *resource.Set {
	g.t.Helper()
	path := filepath.Join(g.t.TempDir(), "all.yaml")
	if err := os.WriteFile(path, []byte(s.yaml()), 0o600); err != nil {
		g.t.Fatal(err)
	}
	set, err := resource.Load(dialect.Kinds(), []string{path}, nil)
	if err != nil {
		g.t.Fatal(err)
	}
	g.files.sets <- set
	synctest.Wait()
	return set
}

// route describes the rules of the route that proxies have.
func (g *gateway) route() string {
	var rules []string
	for _, r := range g.set.Load().HTTPRoutes[0].Spec.Rules {
		var parts []string
		for _, m := range r.Matches {
			for _, h := range m.Headers {
				parts = append(parts, string(h.Name)+"="+h.Value)
			}
		}
		for _, b := range r.BackendRefs {
			parts = append(parts, fmt.Sprintf("%s:%d", b.Name, *b.Weight))
		}
		rules = append(rules, strings.Join(parts, " "))
	}
	return strings.Join(rules, " | ")
}

func (g *gateway) view() view.Rollout {
	g.t.Helper()
	all := g.source.Views()
	if len(all) != 1 {
		g.t.Fatalf("%d Rollouts", len(all))
	}
	return all[0]
}

func (g *gateway) do(verb command.Verb, change ...func(*Command)) {
	g.t.Helper()
	if err := g.ask(verb, change...); err != nil {
		g.t.Fatalf("%s: %v", verb, err)
	}
}

func (g *gateway) ask(verb command.Verb, change ...func(*Command)) error {
	c := Command{Namespace: "default", Name: "shop", Command: command.Command{Verb: verb}}
	for _, f := range change {
		f(&c)
	}
	err := g.source.Do(g.t.Context(), c)
	synctest.Wait()
	return err
}

// pass lets time go by.
func (g *gateway) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// want checks what proxies have and how the Rollout stands.
func (g *gateway) want(state view.State, step int32, route string) {
	g.t.Helper()
	v := g.view()
	if got := g.route(); got != route || v.State != state || v.Step != step {
		g.t.Fatalf("%s step %d, route %s (%s); want %s step %d, route %s", v.State, v.Step, got, v.Message, state, step, route)
	}
}

const (
	written = "shop:7"
	first   = "shop:80 shop-canary:20"
	second  = "x-new=yes shop-canary:7 | shop:7"
	third   = "shop:40 shop-canary:60"
	all     = "shop:0 shop-canary:100"
)

var (
	old   = []string{"10.0.0.1", "10.0.0.2"}
	fresh = []string{"10.0.1.1"}
)

func TestAReleaseGoesThroughItsSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := serve(t, nil)
		defer g.end()
		s := shop{stable: old, steps: threeSteps}
		g.write(s)
		g.want(view.Healthy, 0, written)
		s.canary = fresh
		g.write(s)
		g.pass(5 * time.Second)
		g.want(view.Progressing, 1, first)
		if v := g.view(); v.Until == nil || v.Who != "20% of the requests go to shop-canary, 80% to shop." || v.Canary.Revision != 2 {
			t.Errorf("view %+v", v)
		}
		g.pass(12 * time.Second)
		g.want(view.Paused, 2, second)
		g.pass(time.Hour)
		g.want(view.Paused, 2, second)
		g.do(command.Promote)
		g.pass(5 * time.Second)
		g.want(view.Progressing, 3, third)
		g.pass(15 * time.Second)
		g.want(view.Waiting, 3, all)
		s.stable = []string{"10.0.1.1", "10.0.1.2"}
		g.write(s)
		g.pass(5 * time.Second)
		g.want(view.Healthy, 0, written)
		v := g.view()
		if v.Stable.Revision != 2 || len(v.Releases) != 1 || v.Releases[0].Outcome != view.Released {
			t.Errorf("stable %+v, releases %+v", v.Stable, v.Releases)
		}
		// Nothing begins anew by itself, and another version does.
		g.pass(time.Hour)
		g.want(view.Healthy, 0, written)
		s.canary = []string{"10.0.2.1"}
		g.write(s)
		g.pass(3 * time.Second)
		g.want(view.Progressing, 1, first)
	})
}

// release serves a shop whose release is in its first step.
func release(t *testing.T, store *Store, steps string) (*gateway, shop) {
	g := serve(t, store)
	s := shop{stable: old, canary: fresh, steps: steps}
	g.write(s)
	g.pass(5 * time.Second)
	return g, s
}

func full(c *Command) { c.Full = true }

func step(n int) func(*Command) { return func(c *Command) { c.Step = n } }

func TestACanaryWithoutEndpointsIsTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := release(t, nil, threeSteps)
		defer g.end()
		g.want(view.Progressing, 1, first)
		before := g.sets.Load()
		s.canary = nil
		g.write(s)
		// The very first Set without them sends no request there.
		if g.sets.Load() == before || g.route() != written {
			t.Errorf("route %s", g.route())
		}
		g.pass(5 * time.Second)
		g.want(view.Healthy, 0, written)
		if p := g.view().Releases; len(p) != 1 || p[0].Outcome != view.TakenBack {
			t.Errorf("releases %+v", p)
		}
	})
}

func TestCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := release(t, nil, threeSteps)
		defer g.end()
		fails := func(says string, verb command.Verb, change ...func(*Command)) {
			t.Helper()
			if err := g.ask(verb, change...); err == nil || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, want %q", verb, err, says)
			}
		}
		g.do(command.Pause)
		fails("paused already", command.Pause)
		g.pass(time.Hour)
		g.want(view.Paused, 1, first)
		g.do(command.Resume)
		fails("not paused", command.Resume)
		g.pass(15 * time.Second)
		g.want(view.Paused, 2, second)
		fails("no step 4", command.Promote, step(4))
		fails("at step 2", command.Promote, step(2))
		fails("exclude", command.Promote, step(1), full)
		fails("neither full nor step", command.Abort, full)
		g.do(command.Promote, step(1))
		g.pass(3 * time.Second)
		g.want(view.Progressing, 1, first)
		g.do(command.Abort)
		g.pass(5 * time.Second)
		g.want(view.Aborted, 0, written)
		fails("serves all", command.Undo)
		fails("aborted already", command.Abort)
		fails("nothing is being released", command.Promote)
		g.do(command.Retry)
		fails("no release was aborted", command.Retry)
		g.pass(3 * time.Second)
		g.want(view.Progressing, 1, first)
		g.do(command.Promote, full)
		g.pass(5 * time.Second)
		g.want(view.Waiting, 3, all)
		fails("promote alone", command.Promote, full)
		g.do(command.Undo)
		g.pass(5 * time.Second)
		g.want(view.Aborted, 0, written)
		g.do(command.Restart)
		g.pass(3 * time.Second)
		g.want(view.Progressing, 1, first)
		g.do(command.Promote, full)
		g.pass(5 * time.Second)
		g.do(command.Promote) // the stable Service's endpoints have the new version, at their old addresses
		g.pass(5 * time.Second)
		g.want(view.Healthy, 0, written)
		fails("take", command.Undo)
		if v := g.view(); v.Stable.Revision != 3 || !slices.Equal(v.Stable.Endpoints, []string{"10.0.0.1:8080", "10.0.0.2:8080"}) {
			t.Errorf("stable %+v", v.Stable)
		}
		g.do(command.Restart) // the same addresses have yet another version
		g.pass(3 * time.Second)
		g.want(view.Progressing, 1, first)

		fails("nothing that can be asked", "jump")
		s.more = "disabled: true"
		g.write(s)
		g.pass(5 * time.Second)
		g.want(view.Disabled, 0, written)
		fails("disabled", command.Restart)
		err := g.source.Do(t.Context(), Command{Namespace: "default", Name: "other", Command: command.Command{Verb: command.Pause}})
		if !errors.Is(err, ErrNotFound) {
			t.Errorf("a Rollout that is not there: %v", err)
		}
		outcomes := ""
		for _, p := range g.view().Releases {
			outcomes += fmt.Sprintf("%d %s, ", p.Revision, p.Outcome)
		}
		if want := "2 taken back, 2 taken back, 3 released, 4 taken back, "; outcomes != want {
			t.Errorf("releases %s, want %s", outcomes, want)
		}
	})
}

func TestAnEditMidwaySurvives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := release(t, nil, threeSteps)
		defer g.end()
		s.pinned = "\n  hostnames: [shop.example]"
		g.write(s)
		g.want(view.Progressing, 1, first)
		if names := g.set.Load().HTTPRoutes[0].Spec.Hostnames; len(names) != 1 {
			t.Errorf("hostnames %v", names)
		}
		s.steps = strings.Replace(threeSteps, "20%", "50%", 1)
		g.write(s)
		g.pass(3 * time.Second)
		g.want(view.Progressing, 1, "shop:50 shop-canary:50")
		s.without = true
		g.write(s)
		if g.route() != written {
			t.Errorf("without the Rollout: %s", g.route())
		}
	})
}

func TestTheStableServiceMayGetTheNewVersionEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, canary := range [][]string{fresh, nil} {
			g, s := release(t, nil, threeSteps)
			s.stable, s.canary = fresh, canary
			g.write(s)
			if canary == nil && g.route() != written {
				t.Errorf("requests go to a Service without endpoints: %s", g.route())
			}
			g.pass(10 * time.Second)
			g.want(view.Healthy, 0, written)
			if p := g.view().Releases; len(p) != 1 || p[0].Outcome != view.Released {
				t.Errorf("releases %+v", p)
			}
			g.end()
		}
	})
}

func TestAnotherVersionTakesThePlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, s := release(t, nil, threeSteps)
		defer g.end()
		g.pass(15 * time.Second)
		g.want(view.Paused, 2, second)
		s.canary = []string{"10.0.1.1", "10.0.1.2"} // more of the same
		g.write(s)
		g.pass(10 * time.Second)
		g.want(view.Paused, 2, second)
		s.canary = []string{"10.0.9.1"}
		g.write(s)
		g.pass(6 * time.Second)
		g.want(view.Progressing, 1, first)
		if p := g.view().Releases; len(p) != 2 || p[0].Outcome != view.Replaced || p[1].Revision != 3 {
			t.Errorf("releases %+v", p)
		}
	})
}

func TestAReleaseGoesOnAfterARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "deep", "rollouts.json")
		g, s := release(t, &Store{Path: path}, threeSteps)
		g.pass(15 * time.Second)
		g.want(view.Paused, 2, second)

		// A second process lays the same, and does not decide.
		other := serve(t, &Store{Path: path})
		other.write(s)
		other.want(view.Paused, 2, second)
		if err := other.ask(command.Promote); err == nil || !strings.Contains(err.Error(), "another process") {
			t.Errorf("a process that does not decide: %v", err)
		}
		g.do(command.Promote)
		g.pass(5 * time.Second)
		other.want(view.Progressing, 3, third)
		g.end()
		// It goes on when the first one has ended.
		other.pass(20 * time.Second)
		other.want(view.Waiting, 3, all)
		other.end()

		again := serve(t, &Store{Path: path})
		again.write(s)
		again.want(view.Waiting, 3, all)
		again.end()
		if v := again.view(); v.Releases[0].Outcome != "" || len(v.Releases) != 1 {
			t.Errorf("releases %+v", v.Releases)
		}
	})
}

func TestAStoreThatCannotBeReadOrWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "rollouts.json")
		if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		g, _ := release(t, &Store{Path: path}, threeSteps)
		g.want(view.Progressing, 1, first)
		g.end()
		if text, err := os.ReadFile(path + ".broken"); err != nil || string(text) != "{" {
			t.Errorf("what could not be read: %q, %v", text, err)
		}
		g, _ = release(t, &Store{Path: filepath.Join(path, "below-a-file")}, threeSteps)
		g.want(view.Progressing, 1, first)
		g.end()
	})
}

func TestAReleaseWaitsForWhatIsMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := serve(t, nil)
		defer g.end()
		s := shop{stable: old, canary: fresh, steps: threeSteps, noRoute: true}
		g.write(s)
		g.pass(10 * time.Second)
		if v := g.view(); v.State != view.Progressing || !strings.Contains(v.Message, "HTTPRoute shop") {
			t.Errorf("%s: %s", v.State, v.Message)
		}
		s.noRoute = false
		g.write(s)
		g.pass(5 * time.Second)
		g.want(view.Progressing, 1, first)
	})
}

// Of what is remembered there is a bounded part.
func TestWhatIsRememberedIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := release(t, nil, threeSteps)
		defer g.end()
		for range 3 * maxEvents {
			g.do(command.Restart)
			g.pass(3 * time.Second)
		}
		if v := g.view(); len(v.Releases) != maxReleases || len(v.Events) != maxEvents || v.State != view.Progressing {
			t.Errorf("%s, %d releases, %d events", v.State, len(v.Releases), len(v.Events))
		}
	})
}

// What was shown does not change with what is asked for later.
func TestViewsStayAsTheyWere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := release(t, nil, threeSteps)
		defer g.end()
		g.pass(15 * time.Second)
		before := g.view()
		was := before.Status.Release().CurrentStepState
		g.do(command.Promote)
		if now := before.Status.Release().CurrentStepState; now != was {
			t.Errorf("a view changed from %s to %s", was, now)
		}
	})
}

// TestARolloutThatCannotBeCarriedOutIsLeftAlone: a step with a path that no route accepts, before a release and midway.
func TestARolloutThatCannotBeCarriedOutIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const told = `Weir cannot carry out the Rollout: it is not valid, and is left alone: spec.strategy.canary.steps[1].matches[0].path.value: "api" does not begin with a slash, so no path matches it: write "/api".`
		const steps = `[{traffic: 20%, replicas: 1}, {replicas: 1, matches: [{path: {value: PATH}}]}]`
		g := serve(t, nil)
		defer g.end()
		s := shop{stable: old, canary: fresh, steps: strings.Replace(steps, "PATH", "api", 1)}
		leftAlone := func(state view.State, step int32, route string) {
			t.Helper()
			g.write(s)
			g.pass(time.Minute)
			g.want(state, step, route)
			n := 0
			for _, e := range g.view().Events {
				if e.Message == told && e.Warning {
					n++
				}
			}
			if v := g.view(); !strings.HasSuffix(v.Message, told) || n == 0 {
				t.Errorf("it says %q, events %+v", v.Message, v.Events)
			}
			if err := g.ask(command.Promote); err == nil || !strings.Contains(err.Error(), "left alone") {
				t.Errorf("promoted: %v", err)
			}
		}
		leftAlone(view.Initial, 0, written)
		s.steps = strings.Replace(steps, "PATH", "/api", 1)
		g.write(s)
		g.pass(5 * time.Second)
		g.want(view.Paused, 1, first)
		if v := g.view(); strings.Contains(v.Message, "Weir cannot") {
			t.Errorf("it says %q", v.Message)
		}
		s.steps = strings.Replace(steps, "PATH", "api", 1)
		leftAlone(view.Paused, 1, first) // as far as it was
		if n := len(g.view().Events); n > 10 {
			t.Errorf("%d events", n)
		}
		s.more = "disabled: true"
		g.write(s)
		g.pass(10 * time.Second)
		g.want(view.Disabled, 0, written)
	})
}

// TestAReleaseOutlastsARestartWithAnInvalidRollout: while a process runs, the last good one of its files counts.
func TestAReleaseOutlastsARestartWithAnInvalidRollout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := filepath.Join(t.TempDir(), "state.json")
		g, s := release(t, &Store{Path: store}, threeSteps)
		g.pass(15 * time.Second)
		g.want(view.Paused, 2, second)
		g.end()
		g = serve(t, &Store{Path: store})
		defer g.end()
		s.steps = strings.Replace(threeSteps, "20%", "120%", 1)
		g.edit(s)
		g.pass(time.Minute)
		if n := len(g.source.Views()); n > 0 || g.route() != written {
			t.Errorf("%d Rollouts, route %s", n, g.route())
		}
		s.steps = threeSteps
		g.write(s)
		g.pass(5 * time.Second)
		g.want(view.Paused, 2, second)
		s.without = true
		g.write(s)
		s.without = false
		g.write(s)
		g.pass(5 * time.Second)
		g.want(view.Progressing, 1, first)
	})
}

// TestAnObjectThatWouldNotBeValidIsTold: what a step makes of an object may be more than the object's definition allows.
func TestAnObjectThatWouldNotBeValidIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const told = "Weir cannot lay the step over HTTPRoute shop: it would not be valid, so it stays as it is written: spec.rules[0]."
		g := serve(t, nil)
		defer g.end()
		g.source.providers = rollout.Providers{{Name: "bad", Kinds: []rollout.Kind{{Group: "gateway.networking.k8s.io", Name: "HTTPRoute"}}, Lay: func(r rollout.Request) rollout.Laid {
			if len(r.Routing.Matches) > 0 {
				return rollout.Laid{Object: map[string]any{"apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": r.Object["metadata"],
					"spec": map[string]any{"rules": []any{map[string]any{"backendRefs": []any{map[string]any{"name": "shop", "port": int64(80), "weight": int64(-1)}}}}}}}
			}
			p, _ := provider.All().For(r.Target)
			return p.Lay(r)
		}}}
		s := shop{stable: old, canary: fresh, steps: threeSteps}
		g.write(s)
		g.pass(20 * time.Second)
		g.want(view.Progressing, 2, written)
		g.pass(time.Hour)
		n := 0
		for _, e := range g.view().Events {
			if strings.HasPrefix(e.Message, told) && e.Warning {
				n++
			}
		}
		if v := g.view(); n != 1 || !strings.Contains(v.Message, told) || !strings.HasSuffix(v.Who, " Not by HTTPRoute shop: see the message.") || len(v.Events) > 10 {
			t.Errorf("it says %q, events %+v", v.Message, v.Events)
		}
		s.steps = strings.Replace(threeSteps, `matches: [{headers: [{name: x-new, value: "yes"}]}]`, "traffic: 60%", 1)
		g.write(s)
		g.pass(5 * time.Second)
		g.want(view.Paused, 2, third)
		if v := g.view(); strings.Contains(v.Message, "Weir cannot") {
			t.Errorf("it says %q", v.Message)
		}
		s.steps = threeSteps
		g.write(s)
		g.pass(5 * time.Second)
		g.want(view.Progressing, 2, written)
		g.do(command.Abort)
		g.pass(5 * time.Second)
		g.want(view.Aborted, 0, written)
		if v := g.view(); strings.Contains(v.Message, "Weir cannot") {
			t.Errorf("it says %q", v.Message)
		}
	})
}

// TestWhatAStepCannotBeIsInTheStatus: as long as the step is carried out.
func TestWhatAStepCannotBeIsInTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := filepath.Join(t.TempDir(), "state.json")
		g, s := release(t, &Store{Path: store}, `[{traffic: 20%, replicas: 1, matches: [{headers: [{name: x-new, value: "yes"}]}]},
  {replicas: 1, matches: [{headers: [{name: x-new, value: bold}]}, {headers: [{name: x-new, type: RegularExpression, value: "a.*"}]}]}, {traffic: 60%, replicas: 1}]`)
		condition := func() string {
			v := g.view()
			if c := v.Status.Condition(rollouts.ConditionAsWritten); c != nil {
				return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
			}
			return ""
		}
		want := func(text string) {
			t.Helper()
			if got := condition(); got != text {
				t.Errorf("the condition is %q, want %q", got, text)
			}
		}
		g.want(view.Paused, 1, second)
		const ignored = "False TrafficIgnored: Step 1 is not carried out as it is written: traffic: has no effect beside matches; remove it, or make two steps of it."
		want(ignored)
		if v := g.view(); !strings.Contains(v.Tree(screen.Screen{}, time.Now()), "\nLacks:     Step 1 is not carried out as it is written: traffic: ") {
			t.Error(v.Tree(screen.Screen{}, time.Now()))
		}
		g.do(command.Promote)
		g.pass(5 * time.Second)
		want("")
		const (
			told       = "False NotExpressed: Step 2 is not carried out as it is written: matches[1]: the condition cannot be written for spec.rules[0] of HTTPRoute shop together with those of the rule, so its requests stay with the stable version; write a path or an exact value that lies inside what the rule matches."
			expression = "value: b.*, type: RegularExpression"
		)
		s.match = "headers: [{name: x-new, " + expression + "}], "
		g.write(s) // a rule with an expression itself: two cannot be demanded together
		g.pass(5 * time.Second)
		want(told)
		g.pass(time.Hour)
		g.end()
		g = serve(t, &Store{Path: store})
		defer g.end()
		g.write(s)
		g.pass(5 * time.Second)
		want(told)
		g.do(command.Promote)
		g.pass(5 * time.Second)
		want("")
	})
}
