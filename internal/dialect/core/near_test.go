package core_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/dialect/core"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// placed is an endpoint at a node with hints for nodes and zones.
func placed(address, node string, nodes, zones []string) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{address}, Hints: &discoveryv1.EndpointHints{}}
	if node != "" {
		e.NodeName = &node
	}
	for _, n := range nodes {
		e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: n})
	}
	for _, z := range zones {
		e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: z})
	}
	return e
}

func TestEndpointsSayWhomTheyAreMeantFor(t *testing.T) {
	away := placed("10.0.0.9", "n9", nil, nil)
	away.Conditions.Ready = to(false)
	leaving := placed("10.0.0.3", "n1", []string{"n1"}, []string{"za"})
	leaving.Conditions = discoveryv1.EndpointConditions{Ready: to(false), Serving: to(true), Terminating: to(true)}
	for name, x := range map[string]struct {
		local     bool
		endpoints []discoveryv1.Endpoint
		want      []model.Endpoint
	}{
		"nothing": {endpoints: []discoveryv1.Endpoint{placed("10.0.0.1", "n1", nil, nil)}, want: []model.Endpoint{{Address: "10.0.0.1:80"}}},
		"both": {
			endpoints: []discoveryv1.Endpoint{placed("10.0.0.1", "n1", []string{"n1"}, []string{"za"}), placed("10.0.0.2", "n2", []string{"n2"}, []string{"zb", "zc"}), away},
			want:      []model.Endpoint{{Address: "10.0.0.1:80", Nodes: "n1", Zones: "za"}, {Address: "10.0.0.2:80", Nodes: "n2", Zones: "zb,zc"}},
		},
		"not all have zones": {
			endpoints: []discoveryv1.Endpoint{placed("10.0.0.1", "n1", []string{"n1"}, []string{"za"}), placed("10.0.0.2", "n2", []string{"n2"}, nil)},
			want:      []model.Endpoint{{Address: "10.0.0.1:80", Nodes: "n1"}, {Address: "10.0.0.2:80", Nodes: "n2"}},
		},
		"names that there are not": {
			endpoints: []discoveryv1.Endpoint{placed("10.0.0.1", "", []string{"n1,n2"}, []string{"", "za"}), placed("10.0.0.2", "", []string{"n2"}, []string{"zb"})},
			want:      []model.Endpoint{{Address: "10.0.0.1:80", Zones: "za"}, {Address: "10.0.0.2:80", Zones: "zb"}},
		},
		"only one that ends": {endpoints: []discoveryv1.Endpoint{leaving}, want: []model.Endpoint{{Address: "10.0.0.3:80", Nodes: "n1", Zones: "za"}}},
		"local": {
			local:     true,
			endpoints: []discoveryv1.Endpoint{placed("10.0.0.1", "n1", nil, []string{"za"}), placed("10.0.0.2", "", []string{"n2"}, []string{"za"})},
			want:      []model.Endpoint{{Address: "10.0.0.1:80", Nodes: "n1"}, {Address: "10.0.0.2:80"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := service(corev1.ServicePort{Name: "http", Port: 80})
			if x.local {
				s.Spec.InternalTrafficPolicy = to(corev1.ServiceInternalTrafficPolicyLocal)
			}
			slice := &discoveryv1.EndpointSlice{
				ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "s", Labels: map[string]string{discoveryv1.LabelServiceName: s.Name}}, AddressType: discoveryv1.AddressTypeIPv4,
				Ports: []discoveryv1.EndpointPort{{Name: to("http"), Port: to(int32(80))}}, Endpoints: x.endpoints,
			}
			cfg, _, _ := (&core.Translator{}).Translate(&resource.Set{Services: []*corev1.Service{s}, EndpointSlices: []*discoveryv1.EndpointSlice{slice}})
			if got := cfg.Services[0]; !slices.Equal(got.Endpoints, x.want) || got.NodeLocal != x.local {
				t.Errorf("got %+v, local %v", got.Endpoints, got.NodeLocal)
			}
		})
	}
}
