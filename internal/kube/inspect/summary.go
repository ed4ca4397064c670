package inspect

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Summary is what a cluster has of Weir, in short.
type Summary struct {
	// GatewayAPI is the release and channel that is installed; empty if none is, or it does not say.
	GatewayAPI string `json:"gatewayAPI,omitempty"`
	// Kinds of Gateway API that are installed and read, of KindsKnown.
	Kinds      int                `json:"kinds"`
	KindsKnown int                `json:"kindsKnown"`
	Controller *ControllerSummary `json:"controller,omitempty"`
	// Traffic is how the controller serves Traffic Metrics.
	Traffic *TrafficSummary `json:"traffic,omitempty"`
	// Rollouts is whether the controller carries them out; left out if it is not to.
	Rollouts *RolloutSummary `json:"rollouts,omitempty"`
	// Sidecars is how those of pods stand; left out if the controller makes none.
	Sidecars *SidecarSummary `json:"sidecars,omitempty"`
	Gateways int             `json:"gateways"`
	// Proxies that are ready, of ProxiesWanted.
	Proxies       int32 `json:"proxies"`
	ProxiesWanted int32 `json:"proxiesWanted"`
	// NotSeen is what the user may not read.
	NotSeen []string `json:"notSeen,omitempty"`

	// Seen says that you may look at the controller and the proxies.
	Seen bool `json:"-"`
}

// ControllerSummary is what a cluster has of the controller.
type ControllerSummary struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	Image     string `json:"image,omitempty"`
	Ready     int32  `json:"ready"`
	Replicas  int32  `json:"replicas"`
	Leader    string `json:"leader,omitempty"`
}

// Summary is the cluster in short, with the Gateways and sidecars of a namespace, or of all if that is empty.
func (c *Cluster) Summary(namespace string) *Summary {
	s := &Summary{Seen: c.Seen}
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
		s.Controller = &ControllerSummary{d.Namespace, d.Name, d.Image, d.Ready, d.Replicas, d.Leader}
		s.Traffic = c.trafficSummary()
		s.Rollouts = c.rolloutSummary()
		s.Sidecars = c.sidecarSummary(time.Now(), namespace)
	}
	for owner, g := range c.Gateways {
		if namespace != "" && owner.Namespace() != namespace {
			continue
		}
		s.Gateways++
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

// String has a line each for Gateway API, the controller, Traffic Metrics, Rollouts, sidecars and the Gateways.
func (s *Summary) String() string {
	var b strings.Builder
	release := cmp.Or(s.GatewayAPI, "of an unknown release")
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
	} else if s.Seen {
		b.WriteString("controller   none\n")
	} else {
		b.WriteString("controller   not seen\n")
	}
	if s.Traffic != nil {
		fmt.Fprintf(&b, "traffic      %s\n", s.Traffic)
	}
	if s.Rollouts != nil {
		fmt.Fprintf(&b, "rollouts     %s\n", s.Rollouts)
	}
	if s.Sidecars != nil {
		fmt.Fprintf(&b, "sidecars     %s\n", s.Sidecars)
	}
	if !s.Seen {
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
