package metrics_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/metrics"
)

// draft is the example of the draft, "Specification".
const draft = `
apiVersion: traffic.metrics.k8s.io/v1beta1
kind: TrafficMetrics
# See ObjectReference v1 core for full spec
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
metrics:
- name: p99_response_latency
  unit: seconds
  value: 10m
- name: p90_response_latency
  unit: seconds
  value: 10m
- name: p50_response_latency
  unit: seconds
  value: 10m
- name: success_count
  value: 100
- name: failure_count
  value: 100
`

// released is what the released specification's implementation answered about a Deployment.
const released = `{
  "kind": "TrafficMetrics", "apiVersion": "metrics.smi-spec.io/v1alpha1",
  "metadata": {"name": "web", "namespace": "emojivoto", "selfLink": "/apis/metrics.smi-spec.io/v1alpha1/namespaces/emojivoto/deployments/web", "creationTimestamp": "2019-08-24T13:22:52Z"},
  "timestamp": "2019-08-24T13:22:52Z", "window": "30s",
  "resource": {"kind": "Deployment", "namespace": "emojivoto", "name": "web"},
  "edge": {"direction": "from", "resource": null},
  "metrics": [
    {"name": "p99_response_latency", "unit": "ms", "value": "9"},
    {"name": "p90_response_latency", "unit": "ms", "value": "7"},
    {"name": "p50_response_latency", "unit": "ms", "value": "3"},
    {"name": "success_count", "value": "108"},
    {"name": "failure_count", "value": "4"}
  ]
}`

// tree is an object as JSON has it; numbers that are quantities are text in it.
func tree(t *testing.T, o any) map[string]any {
	t.Helper()
	text, ok := o.(string)
	var b []byte
	var err error
	if ok {
		b, err = yaml.YAMLToJSON([]byte(strings.NewReplacer("value: 100\n", "value: '100'\n").Replace(text)))
	} else {
		b, err = json.Marshal(o)
	}
	if err != nil {
		t.Fatal(err)
	}
	var u map[string]any
	if err := json.Unmarshal(b, &u); err != nil {
		t.Fatal(err)
	}
	return u
}

func equal(t *testing.T, got, want map[string]any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		a, _ := json.MarshalIndent(got, "", " ")
		b, _ := json.MarshalIndent(want, "", " ")
		t.Errorf("got\n%s\nwant\n%s", a, b)
	}
}

func pod(name string) corev1.ObjectReference {
	return corev1.ObjectReference{Kind: "Pod", Namespace: "foobar", Name: name}
}

const ms = time.Millisecond

var (
	end   = time.Date(2019, 4, 8, 22, 25, 55, 999, time.FixedZone("", 3600)).Add(time.Hour)
	moved = metrics.Measured{Success: 100, Failure: 100, P50: 10 * ms, P90: 10 * ms, P99: 10 * ms}
)

// TestTheExamplesOfTheSpecificationsAreReadAndWritten field by field.
func TestTheExamplesOfTheSpecificationsAreReadAndWritten(t *testing.T) {
	var read metrics.TrafficMetrics
	if err := yaml.UnmarshalStrict([]byte(draft), &read); err != nil {
		t.Fatal(err)
	}
	want := tree(t, draft)
	got := tree(t, read)
	delete(got, "metadata") // the draft has none
	equal(t, got, want)
	if m, ok := read.Measured(); !ok || m != moved {
		t.Errorf("read as %+v, %v", m, ok)
	}

	other := pod("baz-577db7d977-lsk2q")
	made := tree(t, metrics.New(pod("foo-775b9cbd88-ntxsl"), metrics.To, &other, end, 30*time.Second, moved))
	if meta := made["metadata"].(map[string]any); meta["name"] != "foo-775b9cbd88-ntxsl" || meta["namespace"] != "foobar" {
		t.Errorf("metadata %v", meta)
	}
	delete(made, "metadata")
	equal(t, made, want)

	// All traffic that the resource received ("Edge").
	all := tree(t, metrics.New(pod("foo"), metrics.From, nil, end, 30*time.Second, moved))
	equal(t, all["edge"].(map[string]any), map[string]any{"direction": "to", "resource": map[string]any{}})
	// An edge whose far end is only a namespace, or a kind.
	for _, far := range []corev1.ObjectReference{{Namespace: "shop"}, {Kind: "Deployment"}} {
		for _, direction := range []metrics.Direction{metrics.To, metrics.From} {
			one := metrics.New(pod("foo"), direction, &far, end, 30*time.Second, moved)
			if one.Edge.Direction != direction || *one.Edge.Resource != far || *one.Released().Edge.Resource != far {
				t.Errorf("edge %+v", one.Edge)
			}
		}
	}

	var old metrics.TrafficMetrics
	if err := yaml.UnmarshalStrict([]byte(released), &old); err != nil {
		t.Fatal(err)
	}
	seen := metrics.Measured{Success: 108, Failure: 4, P50: 3 * ms, P90: 7 * ms, P99: 9 * ms}
	if m, ok := old.Measured(); !ok || m != seen {
		t.Errorf("read as %+v, %v", m, ok)
	}
	web := corev1.ObjectReference{Kind: "Deployment", Namespace: "emojivoto", Name: "web"}
	equal(t, tree(t, metrics.New(web, metrics.From, nil, time.Date(2019, 8, 24, 13, 22, 52, 0, time.UTC), 30*time.Second, seen).Released()), tree(t, released))
}

func TestLists(t *testing.T) {
	item := metrics.New(pod("foo"), metrics.From, nil, end, 30*time.Second, moved)
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "foo"}}
	list := metrics.NewList(metrics.Resources()[2].Reference("", ""), selector, []metrics.TrafficMetrics{item})
	got := tree(t, list)
	items := got["items"].([]any)
	delete(got, "items")
	delete(got, "metadata")
	// The draft's two forms ("TrafficMetricsList"), with the apiVersion that its note names.
	equal(t, got, map[string]any{
		"apiVersion": "traffic.metrics.k8s.io/v1beta1", "kind": "TrafficMetricsList",
		"resource": map[string]any{"kind": "Pod", "apiVersion": "v1"}, "selector": map[string]any{"matchLabels": map[string]any{"app": "foo"}},
	})
	if len(items) != 1 {
		t.Errorf("%d items", len(items))
	}
	r := list.Released()
	if r.APIVersion != "metrics.smi-spec.io/v1alpha1" || r.Items[0].APIVersion != r.APIVersion || r.Items[0].Metrics[0].Unit != "ms" {
		t.Errorf("released: %+v", r)
	}
	if list.APIVersion != "traffic.metrics.k8s.io/v1beta1" || list.Items[0].Metrics[0].Unit != "seconds" || list.Items[0].Edge.Resource == nil {
		t.Error("the released form changed the other")
	}
	if b, err := json.Marshal(metrics.NewList(metrics.Resources()[0].Reference("a", ""), nil, nil)); err != nil || !strings.Contains(string(b), `"items":[]`) || strings.Contains(string(b), "namespace\":\"a") {
		t.Errorf("an empty list of a kind without namespaces: %s, %v", b, err)
	}
}

// TestNothingMeasuredHasNoLatency: zero counts, and neither zeros nor NaN where nothing is known.
func TestNothingMeasuredHasNoLatency(t *testing.T) {
	none := metrics.New(pod("foo"), metrics.From, nil, end, 30*time.Second, metrics.Measured{P50: ms, P90: ms, P99: ms})
	for _, o := range []metrics.TrafficMetrics{none, none.Released()} {
		if len(o.Metrics) != 2 || o.Metrics[0].Name != "success_count" || !o.Metrics[0].Value.IsZero() || o.Metrics[1].Name != "failure_count" || !o.Metrics[1].Value.IsZero() {
			t.Errorf("%+v", o.Metrics)
		}
		m, ok := o.Measured()
		if !ok || m != (metrics.Measured{}) {
			t.Errorf("read as %+v, %v", m, ok)
		}
	}
	if _, ok := (metrics.Measured{}).SuccessRate(); ok || metrics.Percent(metrics.Measured{}) != "-" || (metrics.Measured{Success: 1}).Rate(0) != 0 {
		t.Error("a rate of nothing")
	}
	if _, ok := (metrics.TrafficMetrics{}).Measured(); ok {
		t.Error("an object without counts is read as one that has them")
	}
}

// TestValuesSurviveBothForms for random measurements, to the microsecond and rounded up.
func TestValuesSurviveBothForms(t *testing.T) {
	up := func(d time.Duration) time.Duration {
		return (d + time.Microsecond - 1) / time.Microsecond * time.Microsecond
	}
	for range 2000 {
		d := func() time.Duration { return time.Duration(rand.Int64N(1 << rand.IntN(45))) }
		in := metrics.Measured{Success: rand.Uint64() >> (1 + rand.IntN(63)), Failure: 1 + rand.Uint64()>>(2+rand.IntN(60)), P50: d(), P90: d(), P99: d()}
		want := metrics.Measured{Success: in.Success, Failure: in.Failure, P50: up(in.P50), P90: up(in.P90), P99: up(in.P99)}
		o := metrics.New(pod("foo"), metrics.From, nil, end, time.Minute, in)
		for _, o := range []metrics.TrafficMetrics{o, o.Released()} {
			b, err := json.Marshal(o)
			if err != nil {
				t.Fatal(err)
			}
			var back metrics.TrafficMetrics
			if err := json.Unmarshal(b, &back); err != nil {
				t.Fatal(err)
			}
			if got, ok := back.Measured(); !ok || got != want {
				t.Fatalf("%s: read as %+v, want %+v", b, got, want)
			}
		}
	}
	if m, _ := metrics.New(pod("foo"), metrics.From, nil, end, time.Minute, metrics.Measured{Success: math.MaxUint64, P50: -1}).Measured(); m.Success != math.MaxInt64 || m.P50 != 0 {
		t.Errorf("beyond the range: %+v", m)
	}
}

func TestPercents(t *testing.T) {
	for want, m := range map[string]metrics.Measured{
		"100.00%": {Success: 7},
		"0.00%":   {Failure: 7},
		"75.47%":  {Success: 40, Failure: 13},
		"99.99%":  {Success: 1_000_000, Failure: 1},
		"0.01%":   {Success: 1, Failure: 1_000_000},
	} {
		if got := metrics.Percent(m); got != want {
			t.Errorf("%+v: %s, want %s", m, got, want)
		}
	}
}

// TestWhatIsDiscovered: the ten kinds of the draft ("Kubernetes API"), and the edges of each.
func TestWhatIsDiscovered(t *testing.T) {
	list := metrics.Discover("mesh.metrics.k8s.io/v1beta1")
	var names []string
	for _, r := range list.APIResources {
		names = append(names, r.Name)
		plain := strings.TrimSuffix(r.Name, "/edges")
		if cluster := plain == "namespaces" || plain == "nodes"; r.Namespaced == cluster {
			t.Errorf("%s: namespaced is %v", r.Name, r.Namespaced)
		}
		if plain == r.Name && (r.Kind != "TrafficMetrics" || !reflect.DeepEqual([]string(r.Verbs), []string{"get", "list"})) {
			t.Errorf("%+v", r)
		}
	}
	want := "namespaces namespaces/edges nodes nodes/edges pods pods/edges replicationcontrollers replicationcontrollers/edges services services/edges " +
		"daemonsets daemonsets/edges deployments deployments/edges replicasets replicasets/edges statefulsets statefulsets/edges jobs jobs/edges"
	if got := strings.Join(names, " "); got != want || list.Kind != "APIResourceList" || list.GroupVersion != "mesh.metrics.k8s.io/v1beta1" {
		t.Errorf("%s %s\n%s", list.Kind, list.GroupVersion, got)
	}
}
