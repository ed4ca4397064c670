package smi

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/api/split"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// emit adds a split of the model for every port of the root.
func (t *translator) emit(s *trafficSplit) {
	if len(s.rejected) > 0 {
		return
	}
	lacking := map[string][]int32{} // ports by backend
	for i, port := range s.service.Spec.Ports {
		if !t.divisible(s, i) {
			continue
		}
		leaves, known, with := t.leaves(s, port.Port, lacking)
		if known > 0 && with == 0 {
			t.add(s, &s.ports, resource.Problem(codePortNotSplit, "PortNotSplit", "spec.backends",
				fmt.Sprintf("no backend has port %d of Service %s, so its traffic is not split: the root's own endpoints serve it", port.Port, s.root),
				fmt.Sprintf("add port %d to the backends, if it should be split", port.Port)))
			continue
		}
		if with < known && !weighted(leaves) {
			t.add(s, &s.ports, resource.Problem(codeZeroWeights, "AllWeightsZero", "spec.backends",
				fmt.Sprintf("no backend that has port %d of Service %s has a weight, so its requests are answered 500", port.Port, s.root),
				fmt.Sprintf("give one that has port %d a weight, or add the port to the others", port.Port)))
		}
		t.cfg.Splits = append(t.cfg.Splits, model.Split{
			Ref: s.ref, Root: model.ServiceName(s.root.namespace, s.root.name, port.Port),
			Matches: s.matches, Leaves: leaves,
		})
	}
	for i, b := range s.object.Spec.Backends {
		if lack := lacking[b.Service]; len(lack) > 0 {
			delete(lacking, b.Service)
			t.add(s, &s.ports, resource.Problem(codePortMissing, "PortMissing", fmt.Sprintf("spec.backends[%d].service", i),
				fmt.Sprintf("traffic for %s of Service %s is not split to Service %s, which has no such port", ports(lack), s.root, b.Service),
				"give the backend the ports of the root; its targetPort may differ"))
		}
	}
}

// divisible reports whether the split applies to the root's port, by requests or by connections, and reports what it
// does not apply to.
func (t *translator) divisible(s *trafficSplit, i int) bool {
	port := s.service.Spec.Ports[i]
	if port.Protocol != "" && port.Protocol != corev1.ProtocolTCP {
		t.add(s, &s.ports, resource.Problem(codeNotHTTP, "NotTCP", "spec.service",
			fmt.Sprintf("port %d of Service %s is %s, which weir does not serve: its traffic is not split", port.Port, s.root, port.Protocol),
			"leave the port to kube-proxy"))
		return false
	}
	_, requests := resource.ParseAppProtocol(port.AppProtocol)
	if len(s.matches) == 0 {
		return true
	}
	switch {
	case !requests:
		t.add(s, &s.ports, resource.Problem(codeTCPMatches, "MatchesNeedHTTP", "spec.matches",
			fmt.Sprintf("matches cannot apply to port %d of Service %s, whose connections (%s) carry no HTTP requests: they are not split", port.Port, s.root, *port.AppProtocol),
			"use a split without matches for a Service with that port alone"))
	case t.connected(s.root, port.Port) != "":
		t.add(s, &s.ports, resource.Problem(codeTCPMatches, "MatchesNeedHTTP", "spec.matches",
			fmt.Sprintf("matches cannot apply to the connections by which TCPRoute %s leads to port %d of Service %s: they are not split",
				t.connected(s.root, port.Port), port.Port, s.root),
			"use an HTTPRoute, or a split without matches"))
	}
	return requests
}

// connected is the TCPRoute of the Gateway API, the first by name, that leads to a port of a Service; empty if none does.
func (t *translator) connected(to key, port int32) string {
	if t.relayed == nil {
		t.relayed = map[portKey]string{}
		for u := range t.set.RouteUses() {
			at := portKey{key{u.Namespace, u.Service}, u.Port}
			if name := u.By.Namespace + "/" + u.By.Name; u.Connections && (t.relayed[at] == "" || name < t.relayed[at]) {
				t.relayed[at] = name
			}
		}
	}
	return t.relayed[portKey{to, port}]
}

// leaves are the backends that get traffic of the port, with how many of the backends exist and have the port. A backend
// that does not exist keeps its share, which is answered 500; one without the port is left out and noted.
func (t *translator) leaves(s *trafficSplit, port int32, lacking map[string][]int32) (leaves []model.Leaf, known, with int) {
	weights := weights(s.object.Spec.Backends)
	for i, b := range s.object.Spec.Backends {
		leaf := model.Leaf{Ref: s.ref, Weight: weights[i]}
		leaf.Ref.Field = fmt.Sprintf("spec.backends[%d]", i)
		name, _, why := resource.LocalService(b.Service, s.ref.Namespace)
		service := t.set.Service(s.ref.Namespace, name)
		switch {
		case why != "":
			leaf.Fault = &model.Fault{Status: 500, Reason: "InvalidBackend", Message: why}
		case service == nil:
			leaf.Fault = &model.Fault{Status: 500, Reason: "BackendNotFound", Message: fmt.Sprintf("Service %s/%s does not exist", s.ref.Namespace, name)}
		default:
			known++
			if !hasPort(service, port) {
				if !slices.Contains(lacking[b.Service], port) {
					lacking[b.Service] = append(lacking[b.Service], port)
				}
				continue
			}
			with++
			leaf.Service = model.ServiceName(s.ref.Namespace, name, port)
		}
		leaves = append(leaves, leaf)
	}
	return leaves, known, with
}

func weighted(leaves []model.Leaf) bool {
	return slices.ContainsFunc(leaves, func(l model.Leaf) bool { return l.Weight > 0 })
}

func hasPort(s *corev1.Service, number int32) bool {
	return slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool {
		return p.Port == number && (p.Protocol == "" || p.Protocol == corev1.ProtocolTCP)
	})
}

// weights are whole numbers in the proportion of the backends' weights: the written ones if they are whole, else the
// smallest possible.
func weights(backends []split.Backend) []uint64 {
	divisor := split.Weight(0)
	whole := true
	for _, b := range backends {
		whole = whole && b.Weight.Whole()
		for a := b.Weight; a != 0; {
			divisor, a = a, divisor%a
		}
	}
	if whole {
		divisor = 1000
	}
	out := make([]uint64, len(backends))
	for i, b := range backends {
		out[i] = uint64(b.Weight / divisor)
	}
	return out
}

func ports(numbers []int32) string {
	text := "port"
	if len(numbers) > 1 {
		text = "ports"
	}
	for i, n := range numbers {
		if i > 0 {
			text += ","
		}
		text += fmt.Sprintf(" %d", n)
	}
	return text
}
