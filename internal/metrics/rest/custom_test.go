package rest_test

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	custom "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"

	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/metrics/rest"
)

const customPath = "/apis/custom.metrics.k8s.io/v1beta2"

func customHandler(t testing.TB, s *store) *rest.Handler {
	x := objects(t)
	index := func() *metrics.Index { return x }
	return &rest.Handler{Index: index, Store: s, Custom: &rest.Custom{Index: index, Store: s}}
}

// values are the answer to a path: names of objects with values, and the list.
func values(t *testing.T, h *rest.Handler, path string) (map[string]string, custom.MetricValueList) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	var list custom.MetricValueList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || w.Code != 200 || list.Kind != "MetricValueList" || list.APIVersion != "custom.metrics.k8s.io/v1beta2" {
		t.Fatalf("%s: %d %s, %v", path, w.Code, w.Body, err)
	}
	out := map[string]string{}
	for _, v := range list.Items {
		out[v.DescribedObject.Kind+" "+v.DescribedObject.Namespace+"/"+v.DescribedObject.Name] = v.Value.String()
	}
	return out, list
}

// TestAutoscalersReadWhatPodsReceived, in units whose thousandths are fine enough.
func TestAutoscalersReadWhatPodsReceived(t *testing.T) {
	s := &store{rows: traffic(t, []string{"Pod foobar/" + foo + " from Pod foobar/gone: 57 ok, 3 failed, 250ms"})}
	h := customHandler(t, s)
	pod := "Pod foobar/" + foo
	for metric, want := range map[string]string{
		"requests_per_second": "2",    // 60 in 30 s
		"requests_in_flight":  "500m", // 60 times 250 ms in 30 s
		"success_percent":     "95",
	} {
		got, list := values(t, h, customPath+"/namespaces/foobar/pods/"+foo+"/"+metric)
		if len(got) != 1 || got[pod] != want {
			t.Errorf("%s: %v, want %s", metric, got, want)
		}
		if one := list.Items[0]; one.Metric.Name != metric || one.Metric.Selector != nil || one.WindowSeconds == nil || *one.WindowSeconds != 30 || one.Timestamp.IsZero() || one.DescribedObject.APIVersion != "v1" {
			t.Errorf("%+v", one)
		}
	}
	_, p50 := values(t, h, customPath+"/namespaces/foobar/pods/"+foo+"/latency_p50_milliseconds")
	if v := p50.Items[0].Value.AsApproximateFloat64(); v < 240 || v > 260 { // somewhere in a bucket
		t.Errorf("p50 %v", v)
	}
	// Of all pods, those of which nothing was measured received nothing, which is a rate, and no latency.
	rates, _ := values(t, h, customPath+"/namespaces/foobar/pods/*/requests_per_second")
	latencies, _ := values(t, h, customPath+"/namespaces/foobar/pods/%2a/latency_p99_milliseconds")
	if rates[pod] != "2" || len(rates) < 2 || len(latencies) != 1 || latencies[pod] == "" {
		t.Errorf("rates %v, latencies %v", rates, latencies)
	}
	for name, rate := range rates {
		if name != pod && rate != "0" {
			t.Errorf("%s has %s", name, rate)
		}
	}
	chosen, list := values(t, h, customPath+"/namespaces/foobar/pods/*/requests_per_second?labelSelector=app%3Dfoo&metricLabelSelector=window%3D1m")
	if len(chosen) == 0 || len(chosen) >= len(rates) || list.Items[0].Metric.Selector == nil || list.Items[0].Metric.Selector.MatchLabels["window"] != "1m" {
		t.Errorf("%v of %v, %+v", chosen, rates, list.Items)
	}
	namespace, _ := values(t, h, customPath+"/namespaces/foobar/metrics/requests_per_second")
	if namespace["Namespace /foobar"] != "2" {
		t.Errorf("%v", namespace)
	}
	deployments, _ := values(t, h, customPath+"/namespaces/shop/deployments.apps/web/requests_per_second")
	if deployments["Deployment shop/web"] != "0" {
		t.Errorf("%v", deployments)
	}
}

func TestCustomMetricsThatDoNotExist(t *testing.T) {
	h := customHandler(t, &store{})
	of := customPath + "/namespaces/foobar/pods/" + foo + "/"
	for path, want := range map[string]string{
		of + "latency_p99_milliseconds": "404 the metric latency_p99_milliseconds of pods \"" + foo + "\" has no value: nothing was measured in the last 30s",
		of + "success_percent":          "404 the metric success_percent of pods",
		of + "cpu":                      "404 the server could not find the metric \"cpu\" for pods: there are requests_per_second, ",
		of + "%1b[31m":                  "404 the server could not find the metric",
		customPath + "/namespaces/foobar/pods/gone/requests_per_second":                 "404 pods \"gone\" not found",
		customPath + "/namespaces/shop/deployments.apps/gone/requests_per_second":       "404 deployments.apps \"gone\" not found",
		customPath + "/namespaces/shop/deployments/web/requests_per_second":             "404 the server could not find the requested resource",
		customPath + "/namespaces/shop/deployments.extensions/web/requests_per_second":  "404 the server could not find the requested resource",
		customPath + "/namespaces/shop/nodes/n1/requests_per_second":                    "404 the server could not find the requested resource",
		customPath + "/pods/" + foo + "/requests_per_second":                            "404 the server could not find the requested resource",
		customPath + "/namespaces/foobar/pods":                                          "404 the server could not find the requested resource",
		customPath + "/namespaces/foobar/pods/" + foo:                                   "404 the server could not find the requested resource",
		"/apis/custom.metrics.k8s.io/v1":                                                "404 the server could not find the requested resource",
		of + "requests_per_second?labelSelector=a":                                      "400 labelSelector: ",
		of + "requests_per_second?metricLabelSelector=window%3D2h":                      "400 metricLabelSelector: may only have window=DURATION",
		of + "requests_per_second?metricLabelSelector=window":                           "400 metricLabelSelector: ",
		of + "requests_per_second?metricLabelSelector=a%3Db":                            "400 metricLabelSelector: ",
		of + "requests_per_second?metricLabelSelector=window%3D1m,a%3Db":                "400 metricLabelSelector: ",
		of + "requests_per_second?metricLabelSelector=window+in+(1m,2m)":                "400 metricLabelSelector: ",
		of + "requests_per_second?metricLabelSelector=a&metricLabelSelector=b":          "400 metricLabelSelector: is given more than once",
		customPath + "/namespaces/foobar/pods/*/requests_per_second?labelSelector=a+in": "400 labelSelector: ",
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		code, text, _ := strings.Cut(want, " ")
		if s := status(t, w); code != map[int]string{404: "404", 400: "400"}[w.Code] || !strings.HasPrefix(s.Message, text) || strings.ContainsRune(s.Message, '\x1b') {
			t.Errorf("%s: %d %s, want %s", path, w.Code, s.Message, want)
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("DELETE", of+"requests_per_second", nil))
	if s := status(t, w); s.Code != 405 {
		t.Errorf("%+v", s)
	}
}

// TestDiscoveredCustomMetricsAreServed for an object of each kind.
func TestDiscoveredCustomMetricsAreServed(t *testing.T) {
	h := customHandler(t, &store{})
	var list metav1.APIResourceList
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", customPath, nil))
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || list.GroupVersion != "custom.metrics.k8s.io/v1beta2" || len(list.APIResources) != 10*len(rest.CustomMetrics()) {
		t.Fatalf("%s, %v", w.Body, err)
	}
	for _, r := range list.APIResources {
		of, metric, _ := strings.Cut(r.Name, "/")
		path := customPath + "/namespaces/foobar/" + of + "/*/" + metric
		switch {
		case of == "namespaces":
			path = customPath + "/namespaces/*/metrics/" + metric
		case !r.Namespaced:
			path = customPath + "/" + of + "/*/" + metric
		}
		if got, _ := values(t, h, path); metric == "requests_per_second" && slices.Contains([]string{"pods", "namespaces", "nodes"}, of) && len(got) == 0 {
			t.Errorf("%s has nothing", path)
		}
		if !slices.Equal(r.Verbs, metav1.Verbs{"get"}) || r.Kind != "MetricValueList" {
			t.Errorf("%+v", r)
		}
	}
	var group metav1.APIGroup
	w = httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/apis/custom.metrics.k8s.io/", nil))
	if err := json.Unmarshal(w.Body.Bytes(), &group); err != nil || group.PreferredVersion.GroupVersion != "custom.metrics.k8s.io/v1beta2" {
		t.Errorf("%s, %v", w.Body, err)
	}
}

// TestDiscoveryHasCustomMetrics in both forms if they are served, with what they are of and no more.
func TestDiscoveryHasCustomMetrics(t *testing.T) {
	h := handler(objects(t), &store{})
	for _, served := range []bool{false, true} {
		if served {
			h.Custom = customHandler(t, &store{}).Custom
		}
		if has := strings.Contains(get(h, "/apis").Body.String(), rest.CustomGroup); has != served {
			t.Errorf("the groups have it: %v, want %v", has, served)
		}
		if code := get(h, customPath).Code; code != map[bool]int{false: 404, true: 200}[served] {
			t.Errorf("served %v: %d", served, code)
		}
		r := httptest.NewRequest("GET", "/apis", nil)
		r.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		var list discoveryv2.APIGroupDiscoveryList
		if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(list.Items, func(g discoveryv2.APIGroupDiscovery) bool { return g.Name == rest.CustomGroup })
		if served != (i >= 0) {
			t.Errorf("served %v: %s", served, w.Body)
		}
		if !served || i < 0 {
			continue
		}
		for _, of := range list.Items[i].Versions[0].Resources {
			if len(of.Subresources) != len(rest.CustomMetrics()) || len(of.Verbs) > 0 || of.ResponseKind == nil || of.Scope == "" {
				t.Errorf("%+v", of)
			}
		}
		if n := len(list.Items[i].Versions[0].Resources); n != 10 {
			t.Errorf("metrics of %d kinds", n)
		}
	}
}

// FuzzCustom: whatever is asked, the answer is a whole one.
func FuzzCustom(f *testing.F) {
	for _, path := range []string{"", "/namespaces/foobar/pods/*/requests_per_second", "/nodes/n1/success_percent", "/namespaces/foobar/metrics/requests_in_flight", "/namespaces/%2f/deployments.apps./x/y"} {
		for _, query := range []string{"", "labelSelector=app%3Dfoo", "metricLabelSelector=window%3D1m", "metricLabelSelector=window+notin+()", "a=%zz;"} {
			f.Add(path, query)
		}
	}
	h := customHandler(f, &store{rows: traffic(f, []string{"Pod foobar/" + foo + " from Pod foobar/gone: 1 ok, 2 failed, 1ms"})})
	f.Fuzz(func(t *testing.T, path, query string) {
		r := httptest.NewRequest("GET", customPath, nil)
		u, err := r.URL.Parse(customPath + path)
		if err != nil {
			return
		}
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery = u.Path, u.RawPath, query
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if !slices.Contains([]int{200, 400, 404}, w.Code) {
			t.Errorf("%q?%q: %d", path, query, w.Code)
		}
		if w.Code != 200 {
			status(t, w)
		} else if !json.Valid(w.Body.Bytes()) {
			t.Errorf("%q?%q: %s", path, query, w.Body)
		}
	})
}
