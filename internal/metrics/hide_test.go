package metrics_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/telemetry"
)

// only shows some namespaces.
func only(some ...string) func(context.Context, []string) (func(string) bool, error) {
	return func(context.Context, []string) (func(string) bool, error) {
		return func(namespace string) bool { return slices.Contains(some, namespace) }, nil
	}
}

// edgesAs are the edges of an object in a few words each.
func edgesAs(t *testing.T, x *metrics.Index, s *store, of, name string, selection metrics.Selection) (all []string) {
	t.Helper()
	namespace := "foobar"
	if !resourceOf(t, of).Namespaced {
		namespace = ""
	}
	list, err := x.Edges(ctx, s, resourceOf(t, of), namespace, name, selection)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		m, _ := item.Measured()
		all = append(all, fmt.Sprintf("%s %s: %d", item.Edge.Direction, id(*item.Edge.Resource), m.Success))
	}
	return all
}

// TestOthersThatMayNotBeToldAreUnknown in whatever terms they are asked for, and cannot be found out by their labels.
func TestOthersThatMayNotBeToldAreUnknown(t *testing.T) {
	x := metrics.NewIndex(load(t, draftPods+`
{apiVersion: v1, kind: Pod, metadata: {name: web, namespace: secret, labels: {app: web}}, spec: {nodeName: n7}}
---
{apiVersion: v1, kind: Service, metadata: {name: one, namespace: secret}, spec: {selector: {app: web}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Service, metadata: {name: two, namespace: secret}, spec: {selector: {app: web}, ports: [{port: 80}]}}
`))
	o := observed{telemetry.New()}
	o.requests(podSide(foo), false, podSide(bar), 1, 0, time.Millisecond)
	o.requests(podSide(foo), false, telemetry.Side{Kind: "Pod", Namespace: "secret", Name: "web"}, 2, 0, time.Millisecond)
	o.requests(podSide(foo), false, telemetry.Side{Kind: "Pod", Namespace: "secret", Name: "gone"}, 4, 0, time.Millisecond)
	o.requests(podSide(foo), false, telemetry.Side{Kind: "Gateway", Namespace: "secret", Name: "gw"}, 8, 0, time.Millisecond)
	o.requests(podSide(foo), false, telemetry.Side{Kind: "Node", Name: "n9"}, 16, 0, time.Millisecond)
	o.requests(podSide(foo), false, telemetry.Side{}, 32, 0, time.Millisecond)
	o.requests(podSide(foo), false, telemetry.Side{Kind: "SPIFFE", Name: "spiffe://elsewhere/x"}, 64, 0, time.Millisecond)
	s := &store{rows: o.rows()}
	pod := "from Pod foobar/" + bar + ": 1"
	for name, c := range map[string]struct {
		kind, selector string
		shown          []string
		want           string
	}{
		"all":               {"", "", []string{"foobar", "secret", ""}, "from  /: 32,from Node /n9: 16,from SPIFFE /: 64," + pod + ",from Gateway secret/gw: 8,from Pod secret/gone: 4,from Pod secret/web: 2"},
		"the own":           {"", "", []string{"foobar"}, "from  /: 62,from SPIFFE /: 64," + pod},
		"nobody":            {"", "", nil, "from  /: 63,from SPIFFE /: 64"},
		"as namespaces":     {"Namespace", "", []string{"foobar"}, "from  /: 62,from Namespace /foobar: 1,from SPIFFE /: 64"},
		"as nodes":          {"Node", "", []string{"foobar"}, "from  /: 62,from Node /n1: 1,from SPIFFE /: 64"},
		"as nodes, all":     {"Node", "", []string{"foobar", "secret", ""}, "from  /: 32,from Node /n1: 1,from Node /n7: 2,from Node /n9: 16,from SPIFFE /: 64,from Gateway secret/gw: 8,from Pod secret/gone: 4"},
		"as Services, once": {"Service", "", []string{"foobar"}, "from  /: 62,from SPIFFE /: 64,from Pod foobar/" + bar + ": 1"},
		"by their labels":   {"", "app=web", []string{"foobar"}, ""},
		"without labels":    {"", "!app", []string{"foobar"}, "from  /: 62,from SPIFFE /: 64"},
	} {
		selection := metrics.Selection{Window: time.Minute, Shown: only(c.shown...)}
		var err error
		if selection.Selector, err = metrics.ParseSelector(c.selector); err != nil {
			t.Fatal(err)
		}
		if c.kind != "" {
			of := resourceOf(t, c.kind)
			selection.Kind = &of
		}
		if got := strings.Join(edgesAs(t, x, s, "Pod", foo, selection), ","); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, c.want)
		}
	}
	// All namespaces are asked about at once, each once; nothing is, if there are no names.
	var asked [][]string
	shown := func(_ context.Context, namespaces []string) (func(string) bool, error) {
		asked = append(asked, namespaces)
		return func(string) bool { return true }, nil
	}
	edgesAs(t, x, s, "Pod", foo, metrics.Selection{Window: time.Minute, Shown: shown})
	edgesAs(t, x, s, "Pod", bar, metrics.Selection{Window: time.Minute, Shown: shown})
	edgesAs(t, x, s, "Pod", baz, metrics.Selection{Window: time.Minute, Shown: shown})
	if got := fmt.Sprintf("%q", asked); got != `[["" "foobar" "secret"] ["foobar"]]` {
		t.Errorf("asked about %s", got)
	}
	fault := errors.New("nobody says")
	_, err := x.Edges(ctx, s, resourceOf(t, "Pod"), "foobar", foo, metrics.Selection{Window: time.Minute, Shown: func(context.Context, []string) (func(string) bool, error) { return nil, fault }})
	if !errors.Is(err, fault) {
		t.Errorf("failed with %v", err)
	}
}

// TestHidingMovesTrafficOnly: in random worlds, what is hidden is counted as unknown, each request as often as before.
func TestHidingMovesTrafficOnly(t *testing.T) {
	hidden := 0
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 2))
		w := randomWorld(r)
		x := metrics.NewIndex(load(t, w.text.String()))
		s := &store{rows: w.randomRows(r)}
		for o := range w.objects {
			kind, rest, _ := strings.Cut(o, " ")
			namespace, name, _ := strings.Cut(rest, "/")
			as := api.Resources()[r.IntN(10)]
			for as.Kind == "Service" { // of which one pod may be several
				as = api.Resources()[r.IntN(10)]
			}
			sum := func(selection metrics.Selection) (names []string, counts map[string]uint64) {
				list, err := x.Edges(ctx, s, resourceOf(t, kind), namespace, name, selection)
				if err != nil {
					t.Fatal(err)
				}
				counts = map[string]uint64{}
				for _, item := range list.Items {
					m, _ := item.Measured()
					names = append(names, id(*item.Edge.Resource))
					counts[string(item.Edge.Direction)+" success"] += m.Success
					counts[string(item.Edge.Direction)+" failure"] += m.Failure
				}
				return names, counts
			}
			_, all := sum(metrics.Selection{Window: time.Minute, Kind: &as})
			names, some := sum(metrics.Selection{Window: time.Minute, Kind: &as, Shown: only("a")})
			if fmt.Sprint(all) != fmt.Sprint(some) {
				t.Fatalf("seed %d: %s as %s: %v, hidden %v", seed, o, as.Kind, all, some)
			}
			for _, n := range names {
				if strings.Contains(n, " b/") || n == "Namespace /b" {
					t.Fatalf("seed %d: %s as %s tells %s", seed, o, as.Kind, n)
				}
				if n == " /" {
					hidden++
				}
			}
		}
	}
	if hidden < 100 {
		t.Errorf("only %d edges with somebody unknown", hidden)
	}
}
