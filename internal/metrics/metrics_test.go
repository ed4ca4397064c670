package metrics_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/yaml"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/workload"
)

var (
	ctx   = context.Background()
	whole = metrics.Selection{Window: 30 * time.Second}
)

func podSide(name string) telemetry.Side {
	return telemetry.Side{Kind: "Pod", Namespace: "foobar", Name: name}
}

// The pods of the draft's examples.
const (
	foo = "foo-775b9cbd88-ntxsl"
	bar = "bar-5b48b5fb9c-7rw27"
	baz = "baz-577db7d977-lsk2q"
)

var draftPods = func() (text string) {
	for _, name := range []string{foo, bar, baz} {
		text += fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: foobar, labels: {app: %s}}, spec: {nodeName: n1, serviceAccountName: %s}}\n---\n", name, name[:3], name[:3])
	}
	return text
}()

// The draft's examples ("Specification"), and what was observed where it describes them.
const (
	draftEdgeTo = `
resource:
  name: foo-775b9cbd88-ntxsl
  namespace: foobar
  kind: Pod
edge:
  direction: to
  resource:
    name: baz-577db7d977-lsk2q
    namespace: foobar
    kind: Pod
timestamp: 2019-04-08T22:25:55Z
window: 30s
apiVersion: traffic.metrics.k8s.io/v1beta1
kind: TrafficMetrics
`
	draftEdgeFrom = `
resource:
  name: foo-775b9cbd88-ntxsl
  namespace: foobar
  kind: Pod
edge:
  direction: from
  resource:
    name: bar-5b48b5fb9c-7rw27
    namespace: foobar
    kind: Pod
`
	draftEverybody = `
resource:
  name: foo-775b9cbd88-ntxsl
  namespace: foobar
  kind: Pod
edge:
  direction: to
  resource: {}
`
	draftListOfKind = `
apiVersion: traffic.metrics.k8s.io/v1beta1
kind: TrafficMetricsList
resource:
  kind: Pod
`
	draftListWithSelector = `
apiVersion: traffic.metrics.k8s.io/v1beta1
kind: TrafficMetricsList
resource:
  kind: Pod
selector:
  matchLabels:
    app: foo
`
	draftListOfEdges = `
apiVersion: traffic.metrics.k8s.io/v1beta1
kind: TrafficMetricsList
resource:
  name: foo-775b9cbd88-ntxsl
  namespace: foobar
  kind: Pod
selector:
  matchLabels:
    app: foo
`
)

// has fails unless an object has each field of an example, with its value.
func has(t *testing.T, object any, example string) {
	t.Helper()
	b, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var got, want map[string]any
	if err := json.Unmarshal(b, &got); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(example), &want); err != nil || len(want) == 0 {
		t.Fatal(err)
	}
	var compare func(at string, got, want any)
	compare = func(at string, got, want any) {
		w, ok := want.(map[string]any)
		g, _ := got.(map[string]any)
		if !ok {
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s is %v, want %v", at, got, want)
			}
			return
		}
		if len(w) == 0 && len(g) != 0 {
			t.Errorf("%s is %v, want nothing in it", at, got)
		}
		for name := range w {
			compare(at+"."+name, g[name], w[name])
		}
	}
	compare("", got, want)
}

// TestExamplesOfTheDraft field by field, out of what was observed.
func TestExamplesOfTheDraft(t *testing.T) {
	x := metrics.NewIndex(load(t, draftPods))
	o := observed{telemetry.New()}
	o.requests(podSide(foo), true, podSide(baz), 100, 100, 10*time.Millisecond)
	o.requests(podSide(foo), false, podSide(bar), 30, 0, time.Millisecond)
	o.requests(podSide(foo), false, telemetry.Side{}, 3, 0, time.Millisecond)
	s := &store{rows: o.rows()}
	of := resourceOf(t, "Pod")

	edges, err := x.Edges(ctx, s, of, "foobar", foo, whole)
	if err != nil || len(edges.Items) != 3 {
		t.Fatalf("%+v, %v", edges, err)
	}
	has(t, edges.Items[1], draftEdgeFrom)
	has(t, edges.Items[2], draftEdgeTo)
	if edges.Items[0].Edge != (api.Edge{Direction: api.From, Resource: edges.Items[0].Edge.Resource}) || *edges.Items[0].Edge.Resource != (corev1.ObjectReference{}) {
		t.Errorf("unknown: %+v", edges.Items[0].Edge)
	}
	names := []string{"p99_response_latency seconds", "p90_response_latency seconds", "p50_response_latency seconds", "success_count ", "failure_count "}
	for i, m := range edges.Items[2].Metrics {
		if got := m.Name + " " + m.Unit; got != names[i] {
			t.Errorf("metric %d is %q, want %q", i, got, names[i])
		}
		v := m.Value.AsApproximateFloat64()
		if i < 3 && (v < 0.0096 || v > 0.01) || i >= 3 && v != 100 {
			t.Errorf("%s is %v", m.Name, v)
		}
	}

	one, err := x.Get(ctx, s, of, "foobar", foo, whole.Window)
	if err != nil {
		t.Fatal(err)
	}
	has(t, one, draftEverybody)
	if m, _ := one.Measured(); m.Success != 33 || m.Failure != 0 {
		t.Errorf("received %+v", m)
	}

	list, err := x.List(ctx, s, of, "", whole)
	if err != nil {
		t.Fatal(err)
	}
	has(t, list, draftListOfKind)
	if len(list.Items) != 3 || list.Resource.Namespace != "" || list.Selector != nil || list.Items[0].Name != bar || list.Items[2].Name != foo {
		t.Errorf("%+v", list)
	}
	selected := whole
	selected.Selector = selector(t, "app=foo")
	list, err = x.List(ctx, s, of, "", selected)
	if err != nil {
		t.Fatal(err)
	}
	has(t, list, draftListWithSelector)
	if len(list.Items) != 1 || !same(t, list.Items[0], one) {
		t.Errorf("%+v: the selector changed what is measured", list.Items)
	}
	if list, err = x.List(ctx, s, of, "foobar", whole); err != nil || list.Resource.Namespace != "foobar" || len(list.Items) != 3 {
		t.Errorf("%+v, %v", list, err)
	}
	if list, err = x.Edges(ctx, s, of, "foobar", foo, selected); err != nil || len(list.Items) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	has(t, list, draftListOfEdges)
	selected.Selector = selector(t, "app in (bar,baz)")
	if list, err = x.Edges(ctx, s, of, "foobar", foo, selected); err != nil || len(list.Items) != 2 {
		t.Errorf("%+v, %v", list, err)
	}
}

func selector(t *testing.T, text string) *metrics.Selector {
	t.Helper()
	s, err := metrics.ParseSelector(text)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestQuestions holds that a list takes one question for sums, and another only for what nobody observed at its pods.
func TestQuestions(t *testing.T) {
	x := metrics.NewIndex(load(t, draftPods))
	o := observed{telemetry.New()}
	for _, name := range []string{foo, bar, baz} {
		o.requests(podSide(name), false, telemetry.Side{}, 1, 0, time.Millisecond)
	}
	s := &store{rows: o.rows()}
	list := func(kind, namespace string) []metrics.Question {
		s.asked = nil
		if _, err := x.List(ctx, s, resourceOf(t, kind), namespace, whole); err != nil {
			t.Fatal(err)
		}
		return s.asked
	}
	if q := list("Pod", ""); len(q) != 1 || !q[0].Sum || q[0].With != nil || q[0].Window != whole.Window {
		t.Errorf("asked %+v", q)
	}
	if q := list("Pod", "elsewhere"); len(q) != 1 || q[0].At == nil || len(q[0].At) != 0 {
		t.Errorf("for nobody: asked %+v", q)
	}
	s.rows = s.rows[1:] // at one nobody observes
	silent := podSide(bar)
	if q := list("Pod", ""); len(q) != 2 || !q[0].Sum || q[1].Sum || q[1].At != nil || len(q[1].With) == 0 {
		t.Errorf("asked %+v", q)
	} else {
		found := false
		for _, side := range q[1].With {
			found = found || side == silent
			if side.Kind == "Pod" && side != silent {
				t.Errorf("asked who sent to %s, at which it was observed", side)
			}
		}
		if !found {
			t.Errorf("asked %+v", q)
		}
	}
	s.asked = nil
	if _, err := x.Edges(ctx, s, resourceOf(t, "Pod"), "foobar", foo, whole); err != nil {
		t.Fatal(err)
	}
	if q := s.asked; len(q) != 1 || q[0].Sum || len(q[0].At) == 0 || !reflect.DeepEqual(q[0].At, q[0].With) {
		t.Errorf("asked %+v", q)
	}
	s.err = errors.New("no proxy answers")
	for _, f := range []func() error{
		func() error { _, err := x.List(ctx, s, resourceOf(t, "Pod"), "", whole); return err },
		func() error { _, err := x.Get(ctx, s, resourceOf(t, "Pod"), "foobar", foo, time.Second); return err },
		func() error { _, err := x.Edges(ctx, s, resourceOf(t, "Pod"), "foobar", foo, whole); return err },
	} {
		if err := f(); !errors.Is(err, s.err) {
			t.Errorf("%v", err)
		}
	}
}

func TestWhatDoesNotExistIsMissing(t *testing.T) {
	x := metrics.NewIndex(load(t, draftPods))
	for _, c := range [][3]string{{"Pod", "foobar", "gone"}, {"Pod", "", foo}, {"Deployment", "foobar", "foo"}, {"Namespace", "foobar", "foobar"}, {"Gateway", "a", "gw"}, {"", "", ""}} {
		s := &store{}
		var missing *metrics.Missing
		if _, err := x.Get(ctx, s, api.Resource{Kind: c[0], Plural: "things"}, c[1], c[2], time.Second); !errors.As(err, &missing) || missing.Name != c[2] || len(s.asked) > 0 {
			t.Errorf("%v: %v", c, err)
		}
		if _, err := x.Edges(ctx, s, api.Resource{Kind: c[0], Plural: "things"}, c[1], c[2], whole); !errors.As(err, &missing) || len(s.asked) > 0 {
			t.Errorf("edges of %v: %v", c, err)
		}
	}
	list, err := x.List(ctx, &store{}, api.Resource{Kind: "Gateway"}, "", whole)
	if err != nil || len(list.Items) != 0 {
		t.Errorf("a kind that has no metrics: %+v, %v", list.Items, err)
	}
}

// TestHugeCounts: what others say they counted neither overflows nor hides what else was counted.
func TestHugeCounts(t *testing.T) {
	var latency telemetry.Latency
	if err := json.Unmarshal([]byte(`{"nanos":1,"buckets":[[100,4611686018427387904]]}`), &latency); err != nil {
		t.Fatal(err)
	}
	x := metrics.NewIndex(load(t, draftPods))
	s := &store{}
	for i := range 4 { // four times these numbers are zero, as far as 64 bits go
		s.rows = append(s.rows, metrics.Traffic{
			EdgeLabels: telemetry.EdgeLabels{At: podSide(foo), Peer: podSide(fmt.Sprint(i))}, Success: 1 << 62, Failure: 1 << 63, Latency: latency,
		})
	}
	namespaces := resourceOf(t, "Namespace")
	list, err := x.Edges(ctx, s, resourceOf(t, "Pod"), "foobar", foo, metrics.Selection{Window: time.Second, Kind: &namespaces})
	if err != nil || len(list.Items) != 1 {
		t.Fatalf("%+v, %v", list.Items, err)
	}
	if m, _ := list.Items[0].Measured(); len(list.Items[0].Metrics) != 5 || m.Success != math.MaxInt64 || m.Failure != math.MaxInt64 || m.P50 <= 0 {
		t.Errorf("%+v", list.Items[0].Metrics)
	}
	s.rows = s.rows[:1]
	s.rows[0].Latency = telemetry.Latency{}
	one, err := x.Get(ctx, s, resourceOf(t, "Pod"), "foobar", foo, time.Second)
	if err != nil || len(one.Metrics) != 2 || one.Metrics[0].Name != api.SuccessCount {
		t.Errorf("requests without durations: %+v, %v", one.Metrics, err)
	}
}

// TestQuestionsAreBounded: beyond some sides, the Store is asked for everything.
func TestQuestionsAreBounded(t *testing.T) {
	var all []metav1.Object
	for i := range 600 {
		p := &workload.Pod{}
		p.Namespace, p.Name, p.Account = "a", fmt.Sprint("p", i), fmt.Sprint("s", i)
		p.PodLabels = map[string]string{"half": fmt.Sprint(i % 6)}
		all = append(all, p)
	}
	for i := range 6 {
		all = append(all, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: fmt.Sprint("s", i)}, Spec: corev1.ServiceSpec{Selector: map[string]string{"half": fmt.Sprint(i)}}})
	}
	x := metrics.NewIndex(resource.NewSet(dialect.Kinds(), all...))
	s := &store{}
	for name, whole := range map[string]bool{"Namespace /a": true, "Service a/s1": false, "Pod a/p1": false} {
		s.asked = nil
		kind, rest, _ := strings.Cut(name, " ")
		namespace, name, _ := strings.Cut(rest, "/")
		if _, err := x.Get(ctx, s, resourceOf(t, kind), namespace, name, time.Second); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Edges(ctx, s, resourceOf(t, kind), namespace, name, metrics.Selection{}); err != nil {
			t.Fatal(err)
		}
		if len(s.asked) != 3 {
			t.Fatalf("%d questions", len(s.asked))
		}
		for i, q := range s.asked {
			if sides := max(len(q.At), len(q.With)); sides > 500 || (sides == 0) != whole || i == 2 && (len(q.At) == 0) != (len(q.With) == 0) {
				t.Errorf("%s: question %d names %d and %d sides", kind, i, len(q.At), len(q.With))
			}
		}
	}
}

// TestWhoSidesAre: names that are hard to tell apart.
func TestWhoSidesAre(t *testing.T) {
	x := metrics.NewIndex(load(t, draftPods+`
{apiVersion: v1, kind: Pod, metadata: {name: executor, namespace: foobar, ownerReferences: [{apiVersion: v1, kind: Pod, name: `+foo+`, uid: u, controller: true}]}, status: {podIPs: [{ip: "FD00:0::1"}, {ip: "::ffff:10.1.1.1"}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: static, namespace: foobar, ownerReferences: [{apiVersion: v1, kind: Node, name: n7, uid: u, controller: true}]}, spec: {nodeName: n7}}
---
{apiVersion: v1, kind: Pod, metadata: {name: twice, namespace: foobar, labels: {a: x, b: z}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: half, namespace: foobar, labels: {a: z, b: w}}}
---
{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: twice, namespace: foobar}, spec: {template: {metadata: {labels: {a: x, b: w}}}}}
---
{apiVersion: v1, kind: Service, metadata: {name: xy, namespace: foobar}, spec: {selector: {a: x, b: w}, ports: [{port: 80}]}}
`))
	for _, c := range []struct {
		of   string
		side telemetry.Side
		want int // how much of the object's traffic is of the side
	}{
		{"Pod foobar/executor", podSide("executor"), 1},
		{"Pod foobar/" + foo, podSide("executor"), 0},
		{"Pod foobar/executor", telemetry.Side{Kind: "Address", Name: "fd00::1"}, 1},
		{"Pod foobar/executor", telemetry.Side{Kind: "Address", Name: "10.1.1.1"}, 1},
		{"Node /n7", podSide("static"), 1},
		{"Pod foobar/twice", telemetry.Side{Kind: "Workload", Namespace: "foobar", Name: "twice"}, 1},
		{"StatefulSet foobar/twice", telemetry.Side{Kind: "Workload", Namespace: "foobar", Name: "twice"}, 0},
		{"Service foobar/xy", telemetry.Side{Kind: "Service", Namespace: "foobar", Name: "xy"}, 1},
		{"StatefulSet foobar/twice", telemetry.Side{Kind: "Service", Namespace: "foobar", Name: "xy"}, 1},
		{"Service foobar/xy", podSide("twice"), 0},
		{"Service foobar/xy", podSide("half"), 0},
		{"Namespace /foobar", telemetry.Side{Kind: "Pod", Namespace: "foobar", Name: "gone"}, 0},
	} {
		kind, rest, _ := strings.Cut(c.of, " ")
		namespace, name, _ := strings.Cut(rest, "/")
		s := &store{rows: []metrics.Traffic{{EdgeLabels: telemetry.EdgeLabels{At: telemetry.Side{Kind: "Gateway", Namespace: "foobar", Name: "gw"}, Out: true, Peer: c.side}, Success: 1}}}
		one, err := x.Get(ctx, s, resourceOf(t, kind), namespace, name, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if m, _ := one.Measured(); m.Success != uint64(c.want) {
			t.Errorf("%s received %d of what was sent to %s, want %d", c.of, m.Success, c.side, c.want)
		}
	}
	for side, want := range map[telemetry.Side]string{
		{Kind: "Pod", Namespace: "foobar"}:                 "  foobar/",
		{Kind: "Pod"}:                                      " Pod /",
		{Kind: "Node", Name: "n7"}:                         "v1 Node /n7",
		{Kind: "Node"}:                                     " Node /",
		{Kind: "Service", Namespace: "x", Name: "y"}:       "v1 Service x/y",
		{Kind: "Gateway", Namespace: "x", Name: "y"}:       "gateway.networking.k8s.io/v1 Gateway x/y",
		{Kind: "Gateway", Namespace: "x"}:                  "  x/",
		{Kind: "Workload", Namespace: "x", Name: "y"}:      "  x/",
		{Kind: "Address", Namespace: "x", Name: "1.2.3.4"}: "  /",
		{Name: "other"}:                                    "  /",
	} {
		s := &store{rows: []metrics.Traffic{{EdgeLabels: telemetry.EdgeLabels{At: podSide(foo), Peer: side}, Success: 1}}}
		list, err := x.Edges(ctx, s, resourceOf(t, "Pod"), "foobar", foo, whole)
		if err != nil || len(list.Items) != 1 {
			t.Fatalf("%s: %+v, %v", side, list.Items, err)
		}
		if r := list.Items[0].Edge.Resource; r.APIVersion+" "+id(*r) != want {
			t.Errorf("%s is %q, want %q", side, r.APIVersion+" "+id(*r), want)
		}
	}
}

// TestListsAreBounded, and say how many items they leave out.
func TestListsAreBounded(t *testing.T) {
	var all []metav1.Object
	for i := range metrics.MaxItems + 7 {
		p := &workload.Pod{}
		p.Namespace, p.Name = "a", fmt.Sprintf("p%05d", i)
		all = append(all, p)
	}
	x := metrics.NewIndex(resource.NewSet(dialect.Kinds(), all...))
	list, err := x.List(ctx, &store{}, resourceOf(t, "Pod"), "", whole)
	if err != nil || len(list.Items) != metrics.MaxItems || list.RemainingItemCount == nil || *list.RemainingItemCount != 7 || list.Items[0].Name != "p00000" {
		t.Errorf("%d items, %v", len(list.Items), err)
	}
	s := &store{}
	for i := range metrics.MaxItems + 3 {
		s.rows = append(s.rows, metrics.Traffic{EdgeLabels: telemetry.EdgeLabels{At: telemetry.Side{Kind: "Pod", Namespace: "a", Name: "p00000"}, Peer: telemetry.Side{Kind: "Pod", Namespace: "z", Name: fmt.Sprintf("%05d", i)}}, Success: 1})
	}
	list, err = x.Edges(ctx, s, resourceOf(t, "Pod"), "a", "p00000", whole)
	if err != nil || len(list.Items) != metrics.MaxItems || list.RemainingItemCount == nil || *list.RemainingItemCount != 3 || list.Items[0].Edge.Resource.Name != "00000" {
		t.Errorf("%d edges, %v", len(list.Items), err)
	}
}

func TestSelectors(t *testing.T) {
	for text, want := range map[string]string{
		"app=foo":                        `{"matchLabels":{"app":"foo"}}`,
		"app==foo,b=c":                   `{"matchLabels":{"app":"foo","b":"c"}}`,
		"app=foo,app=bar":                `{"matchLabels":{"app":"bar"},"matchExpressions":[{"key":"app","operator":"In","values":["foo"]}]}`,
		"app!=foo":                       `{"matchExpressions":[{"key":"app","operator":"NotIn","values":["foo"]}]}`,
		"app in (b,a),c,!d":              `{"matchExpressions":[{"key":"app","operator":"In","values":["a","b"]},{"key":"c","operator":"Exists"},{"key":"d","operator":"DoesNotExist"}]}`,
		"app notin (a)":                  `{"matchExpressions":[{"key":"app","operator":"NotIn","values":["a"]}]}`,
		"":                               `null`,
		"a>1":                            "not supported",
		"a in":                           "unable to parse",
		"=":                              "expected",
		"a=b c":                          "found 'c'",
		strings.Repeat("a,", 3000) + "b": "longer than 4096",
	} {
		s, err := metrics.ParseSelector(text)
		if err != nil {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%.50s: %v, want %s", text, err, want)
			}
			continue
		}
		x := metrics.NewIndex(resource.NewSet(nil))
		list, err := x.List(ctx, &store{}, resourceOf(t, "Pod"), "", metrics.Selection{Selector: s})
		if err != nil {
			t.Fatal(err)
		}
		b, _ := json.Marshal(list.Selector)
		// Which of two values of one label comes first is up to the order of requirements.
		if got := string(b); got != want && !(text == "app=foo,app=bar" && strings.Contains(got, `"In"`) && strings.Contains(got, "matchLabels")) {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestSelectorsMatchAsTheyAreShown: the selector that a list shows chooses what the list has.
func TestSelectorsMatchAsTheyAreShown(t *testing.T) {
	x := metrics.NewIndex(load(t, draftPods))
	for _, text := range []string{"app=foo", "app!=foo", "app=foo,app=bar", "app in (foo,bar)", "app notin (foo,bar)", "app", "!app", "other!=x", "other"} {
		for _, kind := range []string{"Pod", "Node", "Namespace"} {
			s := selector(t, text)
			list, err := x.List(ctx, &store{}, resourceOf(t, kind), "", metrics.Selection{Selector: s})
			if err != nil {
				t.Fatal(err)
			}
			shown, err := metav1.LabelSelectorAsSelector(list.Selector)
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			if kind == "Pod" {
				for _, app := range []string{"foo", "bar", "baz"} {
					if shown.Matches(labels.Set{"app": app}) {
						want++
					}
				}
			} else if shown.Matches(labels.Set{}) { // nobody knows their labels
				want = 1
			}
			if len(list.Items) != want {
				t.Errorf("%s %s: %d items, want %d", kind, text, len(list.Items), want)
			}
		}
	}
}

// TestSidecarsSayOfOtherNamespacesNothing: what a pod's own sidecar observed counts for the pod, and for others that nobody
// observes only in its namespace, so that no tenant makes up what another one's autoscalers go by.
func TestSidecarsSayOfOtherNamespacesNothing(t *testing.T) {
	pod := func(namespace, name string, sidecar bool) (text string) {
		init := ""
		if sidecar {
			init = ", initContainers: [{name: weir-sidecar, restartPolicy: Always}]"
		}
		return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}, spec: {containers: [{name: c}]%s}}\n---\n", name, namespace, init)
	}
	set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(pod("shop", "web", true)+pod("shop", "old", false)+pod("bank", "pay", false)+pod("shop", "cart", true)+pod("edge", "gw", false)))
	if err != nil {
		t.Fatal(err)
	}
	side := func(kind, namespace, name string) telemetry.Side {
		return telemetry.Side{Kind: kind, Namespace: namespace, Name: name}
	}
	of := func(at, peer telemetry.Side, out bool, n uint64) metrics.Traffic {
		return metrics.Traffic{EdgeLabels: telemetry.EdgeLabels{At: at, Out: out, Peer: peer}, Success: n}
	}
	web, cart := side("Sidecar", "shop", "web"), side("Sidecar", "shop", "cart")
	s := &store{rows: []metrics.Traffic{
		of(web, side("Pod", "shop", "old"), true, 3), of(web, side("Pod", "bank", "pay"), true, 5), of(web, side("Pod", "shop", "cart"), true, 7),
		of(cart, side("Pod", "shop", "web"), false, 7), of(side("Sidecar", "shop", "gone"), side("Pod", "bank", "pay"), true, 11),
		of(side("Pod", "edge", "gw"), side("Pod", "bank", "pay"), true, 13),
	}}
	x := metrics.NewIndex(set)
	pods := resourceOf(t, "Pod")
	for name, want := range map[string]uint64{"shop/old": 3, "bank/pay": 13, "shop/cart": 7, "shop/web": 0} {
		namespace, name, _ := strings.Cut(name, "/")
		m, err := x.Get(ctx, s, pods, namespace, name, 0)
		if got, _ := m.Measured(); err != nil || got.Success != want {
			t.Errorf("%s/%s received %d, want %d, %v", namespace, name, got.Success, want, err)
		}
	}
	edges := func(namespace, name string) (out []string) {
		l, err := x.Edges(ctx, s, pods, namespace, name, whole)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range l.Items {
			got, _ := m.Measured()
			out = append(out, fmt.Sprint(m.Edge.Direction, " ", m.Edge.Resource.Namespace, "/", m.Edge.Resource.Name, " ", got.Success))
		}
		return out
	}
	for of, want := range map[string]string{
		"shop/web":  "[to bank/pay 5 to shop/cart 7 to shop/old 3]", // each as its own sidecar saw it, once
		"shop/cart": "[from shop/web 7]",
		"bank/pay":  "[from edge/gw 13]",
		"shop/old":  "[from shop/web 3]",
	} {
		namespace, name, _ := strings.Cut(of, "/")
		if got := fmt.Sprint(edges(namespace, name)); got != want {
			t.Errorf("the edges of %s are %s, want %s", of, got, want)
		}
	}
}
