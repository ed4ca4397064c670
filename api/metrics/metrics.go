// Package metrics has the objects of SMI's Traffic Metrics: what was measured of the traffic of a resource of Kubernetes,
// alone or with one other resource. Nobody writes these objects; an API answers with them.
//
// There are two forms: the specification's first draft ("Traffic Metrics"; group traffic.metrics.k8s.io, version
// v1beta1) and the released one (metrics.smi-spec.io/v1alpha1), which clients of today read. One type has both, since
// they differ in units and in what stands for nobody in particular; New makes the draft's and Released the other's.
package metrics

import (
	"math"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Groups and versions. The draft's example of an APIService calls its group mesh.metrics.k8s.io, which means the same.
const (
	DraftGroup   = "traffic.metrics.k8s.io"
	DraftAlias   = "mesh.metrics.k8s.io"
	Draft        = "v1beta1"
	Group        = "metrics.smi-spec.io"
	Version      = "v1alpha1"
	kind         = "TrafficMetrics"
	kindList     = "TrafficMetricsList"
	SubResource  = "edges"
	UnitSeconds  = "seconds"
	UnitMillis   = "ms"
	P99          = "p99_response_latency"
	P90          = "p90_response_latency"
	P50          = "p50_response_latency"
	SuccessCount = "success_count"
	FailureCount = "failure_count"
)

// APIServices are the names of the objects by which an API server is told who answers about these groups, sorted.
func APIServices() []string {
	return []string{Version + "." + Group, Draft + "." + DraftAlias, Draft + "." + DraftGroup}
}

// CustomAPIService is the name of the one for Kubernetes' custom metrics, which is another's in many clusters.
const CustomAPIService = "v1beta2.custom.metrics.k8s.io"

// AllAPIServices are those of APIServices and CustomAPIService.
func AllAPIServices() []string { return append(APIServices(), CustomAPIService) }

// TrafficMetrics is what was measured at a resource in a window of time.
type TrafficMetrics struct {
	metav1.TypeMeta `json:",inline"`
	// ObjectMeta has the resource's name and namespace. The draft does not have it, but every object of an API does.
	metav1.ObjectMeta `json:"metadata"`
	// Resource is where it was measured: its kind, namespace, name and apiVersion.
	Resource corev1.ObjectReference `json:"resource"`
	Edge     Edge                   `json:"edge"`
	// Timestamp is the end of the window.
	Timestamp metav1.Time     `json:"timestamp"`
	Window    metav1.Duration `json:"window"`
	Metrics   []Metric        `json:"metrics"`
}

// Direction of an edge, as seen from the resource.
type Direction string

const (
	// To is traffic that the resource sends to the edge's. Without an edge's resource the draft means by it the traffic
	// that the resource receives.
	To Direction = "to"
	// From is traffic that the resource receives from the edge's.
	From Direction = "from"
)

// Edge is the other side of what was measured.
type Edge struct {
	Direction Direction `json:"direction"`
	// Resource may name a namespace or a kind alone. It is empty for everybody, in the released form nil.
	Resource *corev1.ObjectReference `json:"resource"`
}

// Metric is a measured value. Counts have no unit.
type Metric struct {
	Name  string            `json:"name"`
	Unit  string            `json:"unit,omitempty"`
	Value resource.Quantity `json:"value"`
}

// TrafficMetricsList is what was measured at several resources, or with all that one has exchanged traffic with.
type TrafficMetricsList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	// Resource is what the items are of: a kind, with the namespace if they are of one; for a list of edges the resource
	// that they are of.
	Resource corev1.ObjectReference `json:"resource"`
	// Selector chose the items. It does not restrict what was measured.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	Items    []TrafficMetrics      `json:"items"`
}

// Measured is the traffic of a window. A request succeeded if its answer's status is below 500, and if there is none it
// failed.
type Measured struct {
	Success, Failure uint64
	// P50, P90 and P99 are of the time until the end of an answer. They count only if there is a request at all: nothing
	// measured has no latency.
	P50, P90, P99 time.Duration
}

// New returns the draft's form of what was measured at a resource in the window before end. other is nil for all traffic
// that the resource received.
func New(of corev1.ObjectReference, direction Direction, other *corev1.ObjectReference, end time.Time, window time.Duration, m Measured) TrafficMetrics {
	if other == nil {
		direction, other = To, &corev1.ObjectReference{}
	}
	t := TrafficMetrics{
		TypeMeta: metav1.TypeMeta{APIVersion: DraftGroup + "/" + Draft, Kind: kind},
		Resource: of, Edge: Edge{direction, other}, Timestamp: metav1.NewTime(end.UTC().Truncate(time.Second)), Window: metav1.Duration{Duration: window},
		Metrics: []Metric{},
	}
	t.Name, t.Namespace, t.CreationTimestamp = of.Name, of.Namespace, t.Timestamp
	if m.Success+m.Failure > 0 {
		t.Metrics = []Metric{latency(P99, m.P99), latency(P90, m.P90), latency(P50, m.P50)}
	}
	t.Metrics = append(t.Metrics, count(SuccessCount, m.Success), count(FailureCount, m.Failure))
	return t
}

// latency is rounded up to microseconds, so that nothing that took time took none.
func latency(name string, d time.Duration) Metric {
	micros := int64((max(d, 0) + time.Microsecond - 1) / time.Microsecond)
	return Metric{name, UnitSeconds, *resource.NewScaledQuantity(micros, resource.Micro)}
}

func count(name string, n uint64) Metric {
	return Metric{Name: name, Value: *resource.NewQuantity(int64(min(n, math.MaxInt64)), resource.DecimalSI)}
}

// NewList returns the draft's form of a list. Items are of the draft's form; nil is none.
func NewList(of corev1.ObjectReference, selector *metav1.LabelSelector, items []TrafficMetrics) TrafficMetricsList {
	if items == nil {
		items = []TrafficMetrics{}
	}
	return TrafficMetricsList{TypeMeta: metav1.TypeMeta{APIVersion: DraftGroup + "/" + Draft, Kind: kindList}, Resource: of, Selector: selector, Items: items}
}

// Released returns the released form: latencies in milliseconds, no edge's resource where everybody is meant, and the path
// of the resource's own object. t stays as it is.
func (t TrafficMetrics) Released() TrafficMetrics {
	t.APIVersion = Group + "/" + Version
	//lint:ignore SA1019 the released form has it
	t.SelfLink = link(t.Resource)
	if t.Edge.Resource == nil || *t.Edge.Resource == (corev1.ObjectReference{}) {
		t.Edge = Edge{Direction: From}
	}
	metrics := make([]Metric, len(t.Metrics))
	for i, m := range t.Metrics {
		if m.Unit == UnitSeconds {
			m.Unit, m.Value = UnitMillis, *resource.NewScaledQuantity(m.Value.ScaledValue(resource.Micro), resource.Milli)
		}
		metrics[i] = m
	}
	t.Metrics = metrics
	return t
}

// link is where the released form's object of a resource is served.
func link(of corev1.ObjectReference) string {
	if of.Kind == "" || of.Name == "" {
		return ""
	}
	within := ""
	if of.Namespace != "" && of.Kind != "Namespace" {
		within = "/namespaces/" + of.Namespace
	}
	return "/apis/" + Group + "/" + Version + within + "/" + strings.ToLower(of.Kind) + "s/" + of.Name
}

// Released is that of a list.
func (l TrafficMetricsList) Released() TrafficMetricsList {
	l.APIVersion = Group + "/" + Version
	items := make([]TrafficMetrics, len(l.Items))
	for i := range l.Items {
		items[i] = l.Items[i].Released()
	}
	l.Items = items
	return l
}

// Measured returns what an object of either form says, for those who read one; ok is false if it has no counts.
func (t TrafficMetrics) Measured() (m Measured, ok bool) {
	counts := 0
	for _, v := range t.Metrics {
		d := v.duration()
		switch v.Name {
		case P50:
			m.P50 = d
		case P90:
			m.P90 = d
		case P99:
			m.P99 = d
		case SuccessCount:
			m.Success = uint64(max(v.Value.Value(), 0))
			counts++
		case FailureCount:
			m.Failure = uint64(max(v.Value.Value(), 0))
			counts++
		}
	}
	return m, counts == 2
}

// duration is a latency's value.
func (m *Metric) duration() time.Duration {
	scale := resource.Nano // of seconds
	if m.Unit == UnitMillis {
		scale = resource.Micro // of milliseconds
	}
	return time.Duration(m.Value.ScaledValue(scale))
}

// SuccessRate is the part of requests that succeeded, from 0 to 1; ok is false without requests.
func (m Measured) SuccessRate() (rate float64, ok bool) {
	n := m.Success + m.Failure
	if n == 0 {
		return 0, false
	}
	return float64(m.Success) / float64(n), true
}

// Rate is how many requests there were a second.
func (m Measured) Rate(window time.Duration) float64 {
	if window <= 0 {
		return 0
	}
	return float64(m.Success+m.Failure) / window.Seconds()
}

// Resource is a kind that metrics are associated with (draft, "Kubernetes API").
type Resource struct {
	// Plural is its name in paths, "deployments"; Kind and APIVersion are those of its objects.
	Plural, Kind, APIVersion string
	Namespaced               bool
}

// Resources are all of them, in the draft's order. Pods are measured; the others are the sums of their pods.
func Resources() []Resource {
	return []Resource{
		{"namespaces", "Namespace", "v1", false},
		{"nodes", "Node", "v1", false},
		{"pods", "Pod", "v1", true},
		{"replicationcontrollers", "ReplicationController", "v1", true},
		{"services", "Service", "v1", true},
		{"daemonsets", "DaemonSet", "apps/v1", true},
		{"deployments", "Deployment", "apps/v1", true},
		{"replicasets", "ReplicaSet", "apps/v1", true},
		{"statefulsets", "StatefulSet", "apps/v1", true},
		{"jobs", "Job", "batch/v1", true},
	}
}

// Reference to an object of the kind; without a name it is to all of them.
func (r Resource) Reference(namespace, name string) corev1.ObjectReference {
	if !r.Namespaced {
		namespace = ""
	}
	return corev1.ObjectReference{Kind: r.Kind, APIVersion: r.APIVersion, Namespace: namespace, Name: name}
}

// Discover returns what an API server says of a group's version: every kind, and its edges.
func Discover(groupVersion string) metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: groupVersion}
	for _, r := range Resources() {
		one := metav1.APIResource{Name: r.Plural, SingularName: "", Namespaced: r.Namespaced, Kind: kind, Verbs: metav1.Verbs{"get", "list"}}
		edges := one
		edges.Name, edges.Kind, edges.Verbs = r.Plural+"/"+SubResource, kindList, metav1.Verbs{"get"}
		list.APIResources = append(list.APIResources, one, edges)
	}
	return list
}

// Percent writes a success rate as the draft's table has it, "75.47%". It says 100.00% only if all succeeded, and 0.00% only if none did.
func Percent(m Measured) string {
	rate, ok := m.SuccessRate()
	if !ok {
		return "-"
	}
	hundredths := math.Round(rate * 10000)
	switch {
	case hundredths == 10000 && m.Failure > 0:
		hundredths--
	case hundredths == 0 && m.Success > 0:
		hundredths++
	}
	return strconv.FormatFloat(hundredths/100, 'f', 2, 64) + "%"
}
