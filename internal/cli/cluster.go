package cli

import (
	"fmt"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/kube/inspect"
	"github.com/weirmesh/weir/internal/resource"
)

// clusterSummary is a summary of Weir in a cluster.
type clusterSummary struct {
	// GatewayAPI is the installed release and channel; empty if there is none, or if it is unknown.
	GatewayAPI string `json:"gatewayAPI,omitempty"`
	// Kinds of Gateway API that are installed and read, of KindsKnown.
	Kinds      int                `json:"kinds"`
	KindsKnown int                `json:"kindsKnown"`
	Controller *controllerSummary `json:"controller,omitempty"`
	Gateways   int                `json:"gateways"`
	// Proxies that are ready, of ProxiesWanted.
	Proxies       int32 `json:"proxies"`
	ProxiesWanted int32 `json:"proxiesWanted"`
	// NotSeen is what the user may not read.
	NotSeen []string `json:"notSeen,omitempty"`

	seen bool // the controller and the proxies
}

type controllerSummary struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Image     string `json:"image,omitempty"`
	Ready     int32  `json:"ready"`
	Replicas  int32  `json:"replicas"`
	Leader    string `json:"leader,omitempty"`
}

func summarise(c *inspect.Cluster) *clusterSummary {
	s := &clusterSummary{Gateways: len(c.Gateways), seen: c.Seen}
	for _, n := range c.NotSeen {
		s.NotSeen = append(s.NotSeen, n.What)
	}
	for _, d := range c.Definitions {
		if d.Group != gatewayv1.GroupName {
			continue
		}
		s.KindsKnown++
		if d.Version != "" {
			s.Kinds++
		}
		if s.GatewayAPI == "" && d.Release != "" {
			s.GatewayAPI = strings.TrimSpace(d.Release + " " + d.Channel)
		}
	}
	if d := c.Controller; d != nil {
		s.Controller = &controllerSummary{d.Namespace, d.Name, d.Image, d.Ready, d.Replicas, d.Leader}
	}
	for _, g := range c.Gateways {
		if d := g.Deployment; d != nil {
			s.Proxies += d.Status.ReadyReplicas
			if d.Spec.Replicas == nil {
				s.ProxiesWanted++
			} else {
				s.ProxiesWanted += *d.Spec.Replicas
			}
		}
	}
	return s
}

func (s *clusterSummary) String() string {
	var b strings.Builder
	release := cmpOr(s.GatewayAPI, "of an unknown release")
	if s.Kinds == 0 {
		release = "not installed"
	}
	fmt.Fprintf(&b, "Gateway API  %s, %d of %d kinds\n", release, s.Kinds, s.KindsKnown)
	if c := s.Controller; c != nil {
		fmt.Fprintf(&b, "controller   %s/%s, %d of %d ready", c.Namespace, c.Name, c.Ready, c.Replicas)
		if c.Leader != "" {
			b.WriteString(", led by " + c.Leader)
		}
		if c.Image != "" {
			b.WriteString(", image " + c.Image)
		}
		b.WriteByte('\n')
	} else if s.seen {
		b.WriteString("controller   none\n")
	} else {
		b.WriteString("controller   not seen\n")
	}
	if !s.seen {
		fmt.Fprintf(&b, "Gateways     %d, proxies not seen\n", s.Gateways)
		return b.String()
	}
	fmt.Fprintf(&b, "Gateways     %d, %d of %s ready\n", s.Gateways, s.Proxies, proxies(s.ProxiesWanted))
	return b.String()
}

func proxies(n int32) string {
	if n == 1 {
		return "1 proxy"
	}
	return fmt.Sprintf("%d proxies", n)
}

// size is the number of objects of a set.
func size(s *resource.Set) int {
	return len(s.GatewayClasses) + len(s.Gateways) + len(s.ListenerSets) + len(s.HTTPRoutes) + len(s.GRPCRoutes) + len(s.TCPRoutes) +
		len(s.ReferenceGrants) + len(s.BackendTLSPolicies) + len(s.TrafficSplits) + len(s.HTTPRouteGroups) + len(s.TCPPorts) + len(s.UDPPorts) +
		len(s.Services) + len(s.EndpointSlices) + len(s.Secrets) + len(s.ConfigMaps) + len(s.Namespaces)
}

// within keeps the findings about a namespace and those about none; an empty namespace means all.
func within(findings []resource.Finding, namespace string) []resource.Finding {
	if namespace == "" {
		return findings
	}
	var out []resource.Finding
	for _, f := range findings {
		if f.Ref.Namespace == "" || f.Ref.Namespace == namespace {
			out = append(out, f)
		}
	}
	return out
}
