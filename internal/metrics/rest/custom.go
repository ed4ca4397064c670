package rest

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/selection"
	custom "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/metrics"
)

// Custom answers, for a Handler, requests of Kubernetes' custom metrics API, by which a HorizontalPodAutoscaler scales:
//
//	/apis/custom.metrics.k8s.io[/v1beta2]                               the version, or the metrics that there are
//	/apis/custom.metrics.k8s.io/v1beta2/namespaces/NS/KIND/NAME/METRIC  of one object, such as services/cart or deployments.apps/cart
//	/apis/custom.metrics.k8s.io/v1beta2/namespaces/NAME/metrics/METRIC  of a namespace
//	/apis/custom.metrics.k8s.io/v1beta2/nodes/NAME/METRIC               of a node
//
// With * as NAME it answers about all objects that the parameter labelSelector selects. The parameter metricLabelSelector
// may have window=DURATION, how long to look back (default DefaultWindow). The traffic is what an object received, and it
// is computed as for Handler. Where nothing was measured, there are no percentiles and no success: a list leaves the object
// out, and the answer about one is 404.
type Custom struct {
	Index func() *metrics.Index
	Store metrics.Store
}

// CustomGroup and CustomVersion are those of the custom metrics API.
const (
	CustomGroup   = custom.GroupName
	CustomVersion = "v1beta2"
	customKind    = "MetricValueList"
	everything    = custom.AllObjects
)

var customGroup = group{name: CustomGroup, version: CustomVersion}

// customMetric is a metric; of returns its value for an object, ok false if there is none.
type customMetric struct {
	name string
	of   func(r *metrics.Received, window time.Duration) (value float64, ok bool)
}

// customMetrics are all metrics. Autoscalers compute in thousandths, so units are such that these are fine enough.
var customMetrics = []customMetric{
	{"requests_per_second", func(r *metrics.Received, window time.Duration) (float64, bool) {
		return (float64(r.Success) + float64(r.Failure)) / window.Seconds(), window > 0
	}},
	// The time average of how many requests were being answered is how long those that ended took, by Little's law.
	{"requests_in_flight", func(r *metrics.Received, window time.Duration) (float64, bool) {
		return r.Took.Seconds() / window.Seconds(), window > 0
	}},
	{"success_percent", func(r *metrics.Received, _ time.Duration) (float64, bool) {
		rate, ok := r.SuccessRate()
		return 100 * rate, ok
	}},
	{"latency_p50_milliseconds", percentile(func(r *metrics.Received) time.Duration { return r.P50 })},
	{"latency_p90_milliseconds", percentile(func(r *metrics.Received) time.Duration { return r.P90 })},
	{"latency_p99_milliseconds", percentile(func(r *metrics.Received) time.Duration { return r.P99 })},
}

func percentile(of func(*metrics.Received) time.Duration) func(*metrics.Received, time.Duration) (float64, bool) {
	return func(r *metrics.Received, _ time.Duration) (float64, bool) { return of(r).Seconds() * 1e3, r.Timed }
}

// CustomMetrics are the names of the metrics that there are.
func CustomMetrics() (names []string) {
	for _, m := range customMetrics {
		names = append(names, m.name)
	}
	return names
}

func (c *Custom) answer(r *http.Request) (object any, as form, err error) {
	parts, ok := pathParts(r.URL.EscapedPath())
	switch {
	case !ok || len(parts) == 0 || parts[0] != CustomGroup || len(parts) > 1 && parts[1] != CustomVersion:
		return nil, whole, errPath
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		return nil, whole, errMethod
	}
	if _, ok := accepted(r.Header); !ok {
		return nil, whole, errAccept
	}
	switch len(parts) {
	case 1:
		return customGroup.discover(), whole, nil
	case 2:
		return discoverCustom(), whole, nil
	}
	t, ok := parseCustom(parts[2:])
	if !ok {
		return nil, whole, errPath
	}
	if err := t.parseQuery(r.URL.RawQuery); err != nil {
		return nil, whole, err
	}
	object, err = c.ask(r.Context(), t)
	return object, whole, err
}

// customTarget is what a request is about.
type customTarget struct {
	of              *api.Resource
	namespace, name string // the name is empty for all
	metric          string
	metrics.Selection
	selector *metav1.LabelSelector // of the metric, as it was asked for
}

// parseCustom reads what follows the version in a path.
func parseCustom(parts []string) (t customTarget, ok bool) {
	switch {
	case len(parts) == 4 && parts[0] == "namespaces" && parts[2] == "metrics":
		t.of, t.name, t.metric = plural("namespaces"), parts[1], parts[3]
	case len(parts) == 5 && parts[0] == "namespaces":
		t.of, t.namespace, t.name, t.metric = qualified(parts[2]), parts[1], parts[3], parts[4]
	case len(parts) == 3 && parts[0] == "nodes":
		t.of, t.name, t.metric = plural("nodes"), parts[1], parts[2]
	}
	if t.name == everything {
		t.name = ""
	}
	return t, t.of != nil && t.of.Namespaced == (t.namespace != "")
}

// qualified is the kind of a name such as "pods" or "deployments.apps".
func qualified(name string) *api.Resource {
	name, group, _ := strings.Cut(name, ".")
	r := plural(name)
	if r == nil || schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).Group != group {
		return nil
	}
	return r
}

// parseQuery reads the parameters.
func (t *customTarget) parseQuery(raw string) error {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return &fault{"query", "is not a valid query: " + err.Error()}
	}
	t.Window = DefaultWindow
	for _, parameter := range []string{"labelSelector", "metricLabelSelector"} {
		if len(values[parameter]) > 1 {
			return &fault{parameter, "is given more than once"}
		}
	}
	chosen := values.Get("labelSelector")
	if t.Selector, err = metrics.ParseSelector(chosen); err != nil {
		return &fault{"labelSelector", err.Error()}
	}
	if t.Selector != nil && t.name != "" {
		return &fault{"labelSelector", "selects from lists, and this is one object"}
	}
	const only = "may only have window=DURATION, from 1s to 1h, such as window=30s"
	of := values.Get("metricLabelSelector")
	selector, err := labels.Parse(of)
	if err != nil {
		return &fault{"metricLabelSelector", only}
	}
	all, _ := selector.Requirements()
	for i, r := range all {
		window, ok := r.Values().PopAny()
		if ok = ok && i == 0 && r.Key() == "window" && (r.Operator() == selection.Equals || r.Operator() == selection.DoubleEquals); ok {
			t.Window, err = time.ParseDuration(window)
		}
		if !ok || err != nil || t.Window < MinWindow || t.Window > MaxWindow {
			return &fault{"metricLabelSelector", only}
		}
		t.selector = &metav1.LabelSelector{MatchLabels: map[string]string{"window": window}}
	}
	return nil
}

// noMetric is about a metric that does not exist, or has no value.
type noMetric struct{ text string }

func (e *noMetric) Error() string { return e.text }

// ask returns the values of a metric.
func (c *Custom) ask(ctx context.Context, t customTarget) (*custom.MetricValueList, error) {
	var metric *customMetric
	for i := range customMetrics {
		if customMetrics[i].name == t.metric {
			metric = &customMetrics[i]
		}
	}
	if metric == nil {
		return nil, &noMetric{fmt.Sprintf("the server could not find the metric %s for %s: there are %s", quoted(t.metric), t.of.Plural, strings.Join(CustomMetrics(), ", "))}
	}
	x := c.Index()
	if x == nil {
		return nil, errEarly
	}
	ctx, cancel := context.WithTimeout(ctx, Timeout)
	defer cancel()
	all, answer, err := x.Received(ctx, c.Store, *t.of, t.namespace, t.name, t.Selection)
	if err != nil {
		return nil, found(target{group: &group{name: schema.FromAPIVersionAndKind(t.of.APIVersion, t.of.Kind).Group}, of: t.of, name: t.name}, err)
	}
	list := &custom.MetricValueList{
		TypeMeta: metav1.TypeMeta{Kind: customKind, APIVersion: CustomGroup + "/" + CustomVersion}, Items: []custom.MetricValue{},
	}
	seconds := int64(math.Round(answer.Window.Seconds()))
	for i := range all {
		value, ok := metric.of(&all[i], answer.Window)
		if !ok {
			continue
		}
		list.Items = append(list.Items, custom.MetricValue{
			DescribedObject: corev1.ObjectReference(all[i].Of), Metric: custom.MetricIdentifier{Name: t.metric, Selector: t.selector},
			Timestamp: metav1.NewTime(answer.Time.UTC().Truncate(time.Second)), WindowSeconds: &seconds, Value: thousandths(value),
		})
	}
	if t.name != "" && len(list.Items) == 0 {
		return nil, &noMetric{fmt.Sprintf("the metric %s of %s %q has no value: nothing was measured in the last %v", t.metric, t.of.Plural, t.name, answer.Window.Round(time.Second))}
	}
	return list, nil
}

// thousandths is a value as a quantity.
func thousandths(value float64) resource.Quantity {
	return *resource.NewMilliQuantity(int64(min(math.Round(value*1000), 1<<62)), resource.DecimalSI)
}

// discoverCustom is every metric of every kind.
func discoverCustom() metav1.APIResourceList {
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: CustomGroup + "/" + CustomVersion}
	for _, r := range api.Resources() {
		of := schema.GroupResource{Group: schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).Group, Resource: r.Plural}
		for _, m := range customMetrics {
			list.APIResources = append(list.APIResources, metav1.APIResource{
				Name: of.String() + "/" + m.name, Namespaced: r.Namespaced, Kind: customKind, Verbs: metav1.Verbs{"get"},
			})
		}
	}
	return list
}
