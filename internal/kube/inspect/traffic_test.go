package inspect

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weirmesh/weir/api/metrics"
)

// served are the APIServices of Traffic Metrics, all of which lead to the controller and are available.
func served(edit func(*APIService)) func(*Cluster, *Input) {
	return func(c *Cluster, _ *Input) {
		c.Controller.TrafficMetrics, c.APIServicesSeen = true, true
		for _, name := range metrics.APIServices() {
			s := APIService{Name: name, Service: "weir-system/weir-controller", Available: "True", Reason: "Passed", Message: "all checks passed"}
			if edit != nil {
				edit(&s)
			}
			c.APIServices = append(c.APIServices, s)
		}
	}
}

// trafficCases are those of TestFindings about Traffic Metrics.
var trafficCases = map[string]func(*Cluster, *Input){
	"traffic good": served(nil),
	"traffic unavailable": served(func(s *APIService) {
		if strings.Contains(s.Name, "smi-spec") {
			s.Available, s.Reason, s.Message = "False", "FailedDiscoveryCheck", "failing or missing response from https://10.0.0.9:443/apis: dial tcp: timeout"
		}
	}),
	"traffic of others": served(func(s *APIService) { s.Service = "other/adapter" }),
	"traffic off": func(c *Cluster, in *Input) {
		served(nil)(c, in)
		c.Controller.TrafficMetrics = false
	},
	// Another adapter of custom metrics is no mistake.
	"traffic custom": func(c *Cluster, in *Input) {
		served(nil)(c, in)
		c.APIServices = append(c.APIServices, APIService{Name: metrics.CustomAPIService, Service: "monitoring/prometheus-adapter", Available: "False"})
	},
}

// TestSummaryTellsHowTrafficMetricsStand in a line.
func TestSummaryTellsHowTrafficMetricsStand(t *testing.T) {
	for want, edit := range map[string]func(*Cluster, *Input){
		"traffic      off (traffic.enabled of the chart); APIServices not seen\n":     func(*Cluster, *Input) {},
		"traffic      off (traffic.enabled of the chart)\n":                           func(c *Cluster, _ *Input) { c.APIServicesSeen = true },
		"traffic      off (traffic.enabled of the chart); 3 of 3 APIs available\n":    trafficCases["traffic off"],
		"traffic      on, read from proxies by each replica; 3 of 3 APIs available\n": trafficCases["traffic custom"],
		"traffic      on, from the Prometheus http://p:9090; the API server does not know them (traffic.apiService of the chart)\n": func(c *Cluster, _ *Input) {
			c.Controller.TrafficMetrics, c.Controller.Prometheus, c.APIServicesSeen = true, "http://p:9090", true
		},
		"2 of 3 APIs available; v1alpha1.metrics.smi-spec.io: Available is False (FailedDiscoveryCheck): failing or missing": trafficCases["traffic unavailable"],
	} {
		c, in := good(), input(t)
		edit(c, &in)
		if got := c.Summary("").String(); !strings.Contains(got, want) {
			t.Errorf("got\n%s\nwant %s", got, want)
		}
	}
}

// TestSummaryOfANamespace counts what is there.
func TestSummaryOfANamespace(t *testing.T) {
	c := good()
	all := c.Summary("")
	of := map[string]int{}
	for owner := range c.Gateways {
		of[owner.Namespace()]++
	}
	if len(of) == 0 || all.Gateways != len(c.Gateways) || all.Proxies == 0 {
		t.Fatalf("%+v", all)
	}
	for namespace, n := range of {
		if s := c.Summary(namespace); s.Gateways != n || len(of) == 1 && s.ProxiesWanted != all.ProxiesWanted {
			t.Errorf("%s: %+v", namespace, s)
		}
	}
	if s := c.Summary("elsewhere"); s.Gateways != 0 || s.ProxiesWanted != 0 || s.Controller == nil {
		t.Errorf("where there is none: %+v", s)
	}
}

// TestAPIServicesAreReadWhateverTheyHave: what is missing in one, or of another type, is unknown.
func TestAPIServicesAreReadWhateverTheyHave(t *testing.T) {
	whole := map[string]any{
		"metadata": map[string]any{"name": "x"}, "spec": map[string]any{"service": map[string]any{"namespace": "a", "name": "b"}},
		"status": map[string]any{"conditions": []any{"x", map[string]any{"type": "Other", "status": "True"}, map[string]any{"type": "Available", "status": "False", "reason": "R", "message": "M"}}},
	}
	if got := apiService(&unstructured.Unstructured{Object: whole}); got != (APIService{"x", "a/b", "False", "R", "M"}) {
		t.Errorf("%+v", got)
	}
	for _, broken := range []map[string]any{{}, {"spec": "x", "status": []any{}}, {"spec": map[string]any{"service": 1}, "status": map[string]any{"conditions": "x"}}} {
		if got := apiService(&unstructured.Unstructured{Object: broken}); got != (APIService{Service: "/", Available: "Unknown"}) {
			t.Errorf("%v: %+v", broken, got)
		}
	}
}
