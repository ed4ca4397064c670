package traffic

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/topology"
)

func pod(namespace, name string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: namespace, Name: name}
}

func item(of corev1.ObjectReference, m metrics.Measured) metrics.TrafficMetrics {
	return metrics.New(of, metrics.To, nil, time.Unix(1e9, 0), 30*time.Second, m)
}

func listOf(items ...metrics.TrafficMetrics) []Row {
	l := metrics.NewList(corev1.ObjectReference{Kind: "Pod"}, nil, items)
	return Rows(&l)
}

// drafts are the pods of the draft's table ("Top"), with others.
func drafts() []Row {
	return listOf(
		item(pod("default", "foo-6846bf6b-gjmvz"), metrics.Measured{Success: 54, P50: 300 * time.Microsecond, P90: 900 * time.Microsecond, P99: time.Millisecond}),
		item(pod("default", "bar-f84f44b5b-dk4g9"), metrics.Measured{Success: 21, Failure: 7, P50: time.Millisecond, P90: time.Millisecond, P99: time.Millisecond}),
		item(pod("default", "baz-69c8bb6d5b-gn5rt"), metrics.Measured{Success: 46, Failure: 7, P50: 1400 * time.Microsecond, P90: 1900 * time.Microsecond, P99: 2 * time.Millisecond}),
		item(pod("other", "idle"), metrics.Measured{}),
		item(pod("other", "slow"), metrics.Measured{Success: 1, P50: 1250 * time.Millisecond, P90: 1250 * time.Millisecond, P99: 1250 * time.Millisecond}),
	)
}

func TestTopIsTheDraftsTable(t *testing.T) {
	rows := drafts()[:3]
	got := Top(rows, Options{}, screen.Screen{})
	want := `NAME                  SUCCESS     RPS  LATENCY_P99  LATENCY_P90  LATENCY_P50
foo-6846bf6b-gjmvz    100.00%  1.8rps          1ms        0.9ms        0.3ms
bar-f84f44b5b-dk4g9    75.00%  0.9rps          1ms          1ms          1ms
baz-69c8bb6d5b-gn5rt   86.79%  1.8rps          2ms        1.9ms        1.4ms
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestWideTablesAndNarrowScreens(t *testing.T) {
	rows := drafts()
	Sort(rows, ByName)
	got := Top(rows, Options{Namespaces: true, Wide: true, Most: 4}, screen.Screen{})
	want := `NAMESPACE  NAME                  SUCCESS     RPS  LATENCY_P99  LATENCY_P90  LATENCY_P50  REQUESTS  FAILURES  WINDOW
default    bar-f84f44b5b-dk4g9    75.00%  0.9rps          1ms          1ms          1ms        28         7     30s
default    baz-69c8bb6d5b-gn5rt   86.79%  1.8rps          2ms        1.9ms        1.4ms        53         7     30s
default    foo-6846bf6b-gjmvz    100.00%  1.8rps          1ms        0.9ms        0.3ms        54         0     30s
other      idle                        -  0.0rps            -            -            -         0         0     30s
... and 1 more
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for width := 40; width < 140; width++ {
		for _, o := range []Options{{}, {Namespaces: true, Wide: true}} {
			for line := range strings.Lines(Top(drafts(), o, screen.Screen{Width: width})) {
				if n := len([]rune(line)) - 1; n > width {
					t.Fatalf("%d columns of %d: %s", n, width, line)
				}
			}
		}
	}
	for line := range strings.Lines(Top(drafts(), Options{}, screen.Screen{Width: 45})) {
		if f := strings.Fields(line); len(f) != 4 { // the draft's columns stay longest
			t.Errorf("%q", line)
		}
	}
}

func TestOrders(t *testing.T) {
	for by, want := range map[Order]string{
		ByName: "bar baz foo idle slow", BySuccess: "bar baz foo slow idle", ByRPS: "foo baz bar slow idle", ByP99: "slow baz bar foo idle",
		ByP50: "slow baz bar foo idle", ByP90: "slow baz bar foo idle", ByRequests: "foo baz bar slow idle", ByFailures: "bar baz foo slow idle",
	} {
		rows := drafts()
		Sort(rows, by)
		var names []string
		for _, r := range rows {
			name, _, _ := strings.Cut(r.Of.Name, "-")
			names = append(names, name)
		}
		if got := strings.Join(names, " "); got != want {
			t.Errorf("by %s: %s, want %s", by, got, want)
		}
	}
	if len(Orders()) != 8 || !slices.Contains(Orders(), string(ByName)) {
		t.Error(Orders())
	}
}

func TestWordsForKinds(t *testing.T) {
	for word, want := range map[string]string{
		"pods": "pods", "Pod": "pods", "po": "pods", "deploy": "deployments", "deployment.apps": "deployments", "svc": "services", "NS": "namespaces",
		"no": "nodes", "rs": "replicasets", "sts": "statefulsets", "ds": "daemonsets", "rc": "replicationcontrollers", "jobs.batch": "jobs",
		"deployments.batch": "", "pods.core": "", "routes": "", "": "",
	} {
		r, ok := Kind(word)
		if r.Plural != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", word, r.Plural, ok)
		}
	}
}

func TestLatenciesAreShort(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0ms", 1: "<0.01ms", 350 * time.Microsecond: "0.35ms", time.Millisecond: "1ms", 2540 * time.Microsecond: "2.5ms",
		9999 * time.Microsecond: "10ms", 120400 * time.Microsecond: "120ms", 999600 * time.Microsecond: "1s", 1254 * time.Millisecond: "1.25s", 95 * time.Second: "95s",
	} {
		if got := Latency(d); got != want {
			t.Errorf("%d: %s, want %s", d, got, want)
		}
	}
	for rate, want := range map[float64]string{0: "0.0rps", 0.0333: "0.033rps", 1.84: "1.8rps", 12345.67: "12345.7rps"} {
		if got := RPS(rate); got != want {
			t.Errorf("%v: %s, want %s", rate, got, want)
		}
	}
}

// edge is one of a Deployment; other is "namespace/name", "" for unknown.
func edge(of string, direction metrics.Direction, other string, m metrics.Measured) metrics.TrafficMetrics {
	ref := func(s string) corev1.ObjectReference {
		namespace, name, _ := strings.Cut(s, "/")
		return corev1.ObjectReference{Kind: "Deployment", APIVersion: "apps/v1", Namespace: namespace, Name: name}
	}
	to := ref(other)
	if other == "" {
		to = corev1.ObjectReference{}
	}
	return metrics.New(ref(of), direction, &to, time.Unix(1e9, 0), 30*time.Second, m)
}

func TestAGraphHasEachEdgeOnceAsItsReceiverMeasuredIt(t *testing.T) {
	lost := metrics.Measured{Success: 20, Failure: 10}
	rows := listOf(
		edge("a/web", metrics.To, "a/cart", metrics.Measured{Success: 31}), // the receiver saw one less
		edge("a/cart", metrics.From, "a/web", metrics.Measured{Success: 30}),
		edge("a/cart", metrics.To, "a/db", lost), // the receiver measures nothing
		edge("a/cart", metrics.From, "", metrics.Measured{Success: 3}),
		edge("a/web", metrics.From, "a/web", metrics.Measured{Success: 3}),
		edge("a/web", metrics.To, "a/gone", metrics.Measured{}),
		edge("b/web", metrics.To, "a/cart", metrics.Measured{Success: 60}),
	)
	namespaced := edge("a/web", metrics.To, "", metrics.Measured{Success: 6})
	namespaced.Edge.Resource = &corev1.ObjectReference{Namespace: "c"}
	gateway := edge("a/web", metrics.From, "", metrics.Measured{Success: 9})
	gateway.Edge.Resource = &corev1.ObjectReference{Kind: "Gateway", Namespace: "a", Name: "gw"}
	rows = append(rows, listOf(namespaced, gateway)...)
	want := []string{
		"Deployment a/cart > Deployment a/db: 1.0rps 66.67%", "Deployment a/web > Deployment a/cart: 1.0rps", "Deployment a/web > Deployment a/web: 0.1rps",
		"Deployment a/web > Namespace c: 0.2rps", "Deployment b/web > Deployment a/cart: 2.0rps", "Gateway a/gw > Deployment a/web: 0.3rps",
		"unknown > Deployment a/cart: 0.1rps",
	}
	for range 10 {
		var got []string
		g := Graph(rows, true)
		for _, e := range g.Edges {
			got = append(got, fmt.Sprintf("%s > %s: %s", e.From, e.To, e.Label))
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%s", strings.Join(got, "\n"))
		}
		slices.Reverse(rows)
	}
	if text := topology.Text(Graph(rows, true), topology.Options{}); !strings.Contains(text, "| gateway/a/gw |") || !strings.Contains(text, "| a/web ") {
		t.Errorf("drawn as\n%s", text)
	}
	if text := topology.Text(Graph(rows[:1], false), topology.Options{}); strings.Contains(text, "a/") {
		t.Errorf("drawn as\n%s", text)
	}
}

// changing has n Deployments whose edges are told as wrong says.
type changing struct {
	n     int
	wrong func(name string) error
	asked atomic.Int32
}

func (c *changing) List(context.Context, metrics.Resource) (l metrics.TrafficMetricsList, _ error) {
	for i := range c.n {
		l.Items = append(l.Items, metrics.New(corev1.ObjectReference{Kind: "Deployment", Namespace: "a", Name: fmt.Sprint(i)}, "", nil, time.Unix(1e9, 0), time.Second, metrics.Measured{}))
	}
	return l, nil
}

func (c *changing) Edges(_ context.Context, _ metrics.Resource, namespace, name string) (l metrics.TrafficMetricsList, _ error) {
	c.asked.Add(1)
	l.Items = append(l.Items, edge(namespace+"/"+name, metrics.From, "a/x", metrics.Measured{Success: 1}))
	return l, c.wrong(name)
}

func TestATopologyLeavesOutWhatIsDeletedAndEndsWithTheFirstError(t *testing.T) {
	of, _ := Kind("deployment")
	c := &changing{n: 20, wrong: func(name string) error {
		if name == "7" {
			return fmt.Errorf("7: %w", ErrGone)
		}
		return nil
	}}
	g, err := Topology(t.Context(), c, of)
	if err != nil || len(g.Nodes) != 20 || len(g.Edges) != 19 || c.asked.Load() != 20 {
		t.Errorf("%v, %d nodes, %d edges, asked %d times", err, len(g.Nodes), len(g.Edges), c.asked.Load())
	}
	if text := topology.Text(g, topology.Options{}); strings.Contains(text, "a/") {
		t.Errorf("drawn with the only namespace:\n%s", text)
	}
	refused := errors.New("no")
	c = &changing{n: 1000, wrong: func(string) error { return refused }}
	if _, err := Topology(t.Context(), c, of); err != refused || c.asked.Load() > maxEdgeQueries {
		t.Errorf("%v, asked %d times", err, c.asked.Load())
	}
}

func TestNamespacesAreThoseOfBothSides(t *testing.T) {
	for other, want := range map[string]int{"b/web": 2, "a/db": 1, "": 1} {
		if got := Namespaces(listOf(edge("a/web", metrics.To, other, metrics.Measured{Success: 1}))); got != want {
			t.Errorf("to %q: %d, want %d", other, got, want)
		}
	}
}
