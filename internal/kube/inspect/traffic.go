package inspect

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// APIService is one by which an API server has the controller answer about traffic.
type APIService struct {
	Name string
	// Service is the Service, "namespace/name", that the API server asks; empty if there is no such APIService.
	Service string
	// Available is its condition: True, False, or Unknown while the API server has not asked yet. Reason and Message say
	// why.
	Available, Reason, Message string
}

// apiServices reads those of Traffic Metrics that there are.
func (r *reader) apiServices(ctx context.Context) error {
	r.out.APIServicesSeen = true
	for _, name := range metrics.AllAPIServices() {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
		switch err := r.client.Get(ctx, client.ObjectKey{Name: name}, u); {
		case apierrors.IsNotFound(err):
		case r.refused("APIServices (whether Traffic Metrics are available)", err):
			r.out.APIServices, r.out.APIServicesSeen = nil, false
			return nil
		case err != nil:
			return fmt.Errorf("APIService %s: %w", name, err)
		default:
			r.out.APIServices = append(r.out.APIServices, apiService(u))
		}
	}
	return nil
}

func apiService(u *unstructured.Unstructured) APIService {
	text := func(of map[string]any, path ...string) string {
		s, _, _ := unstructured.NestedString(of, path...)
		return s
	}
	s := APIService{Name: u.GetName(), Service: text(u.Object, "spec", "service", "namespace") + "/" + text(u.Object, "spec", "service", "name"), Available: "Unknown"}
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && text(c, "type") == "Available" {
			s.Available, s.Reason, s.Message = text(c, "status"), text(c, "reason"), text(c, "message")
		}
	}
	return s
}

// ours are the APIServices that lead to the controller.
func (c *Cluster) ours() (all []APIService) {
	for _, s := range c.APIServices {
		if s.Service == c.Controller.Namespace+"/"+c.Controller.Service {
			all = append(all, s)
		}
	}
	return all
}

// traffic reports APIServices of Traffic Metrics that the API server cannot use. If there is none, nobody asked for it.
func (j *judge) traffic() {
	if j.Controller == nil {
		return
	}
	for _, s := range j.APIServices {
		ref := model.Ref{Kind: "APIService", Name: s.Name}
		switch own := j.Controller.Namespace + "/" + j.Controller.Service; {
		case s.Service != own && s.Name != metrics.CustomAPIService && j.Controller.TrafficMetrics:
			j.add(CodeTraffic, ref, "spec.service", fmt.Sprintf("Service %s answers about this API, and not this controller (%s)", s.Service, own),
				"delete the APIService and "+install+", if this controller should answer").Severity = resource.Warning
		case s.Service != own:
		case !j.Controller.TrafficMetrics:
			j.add(CodeTraffic, ref, "spec.service", "the controller does not serve Traffic Metrics, so the API server cannot say which kinds the group has, and namespaces that are deleted stay",
				"set traffic.enabled of the chart (--traffic-metrics), or delete the APIService")
		case s.Available != "True":
			j.add(CodeTraffic, ref, "status.conditions", "Available is "+s.why(),
				fmt.Sprintf("see the controller's log: kubectl -n %s logs deployment/%s --all-pods; the API server must reach its Service (networkPolicies.conversionFrom)", j.Controller.Namespace, j.Controller.Name))
		}
	}
}

// why is the condition with what the API server says of it.
func (s APIService) why() string {
	why := s.Available
	if s.Reason != "" {
		why += " (" + s.Reason + ")"
	}
	if s.Message != "" {
		why += ": " + strings.Join(strings.Fields(s.Message), " ")
	}
	return why
}

// TrafficSummary is how Traffic Metrics stand in a cluster.
type TrafficSummary struct {
	// On says that the controller serves them. Prometheus is the one that it asks; empty if it reads proxies itself.
	On         bool   `json:"on"`
	Prometheus string `json:"prometheus,omitempty"`
	// APIServices are those that lead to the controller, Available how many of them the API server can use; Why says what
	// is wrong with the first other one. Seen says that you may read them.
	APIServices int    `json:"apiServices"`
	Available   int    `json:"available"`
	Why         string `json:"why,omitempty"`
	Seen        bool   `json:"seen"`
}

func (c *Cluster) trafficSummary() *TrafficSummary {
	s := &TrafficSummary{On: c.Controller.TrafficMetrics, Prometheus: c.Controller.Prometheus, Seen: c.APIServicesSeen}
	for _, a := range c.ours() {
		s.APIServices++
		if a.Available == "True" {
			s.Available++
		} else if s.Why == "" {
			s.Why = a.Name + ": Available is " + a.why()
		}
	}
	return s
}

// String is one line.
func (s *TrafficSummary) String() string {
	var parts []string
	switch {
	case !s.On:
		parts = append(parts, "off (traffic.enabled of the chart)")
	case s.Prometheus != "":
		parts = append(parts, "on, from the Prometheus "+s.Prometheus)
	default:
		parts = append(parts, "on, read from proxies by each replica")
	}
	switch {
	case !s.Seen:
		parts = append(parts, "APIServices not seen")
	case s.APIServices > 0:
		parts = append(parts, fmt.Sprintf("%d of %d APIs available", s.Available, s.APIServices))
	case s.On:
		parts = append(parts, "the API server does not know them (traffic.apiService of the chart)")
	}
	if s.Why != "" {
		parts = append(parts, s.Why)
	}
	return strings.Join(parts, "; ")
}
