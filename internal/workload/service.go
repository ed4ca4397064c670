package workload

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// SelectedBy reports whether a Service selects the pods. One without a selector selects none.
func (o *Object) SelectedBy(s *corev1.Service) bool {
	if len(s.Spec.Selector) == 0 || s.Namespace != o.Namespace {
		return false
	}
	for name, value := range s.Spec.Selector {
		if got, ok := o.PodLabels[name]; !ok || got != value {
			return false
		}
	}
	return true
}

// ServedBy returns the pods' ports that a Service leads to, sorted; nil is every port, as of a headless Service without
// ports. A name that no container's port has leads nowhere.
func (o *Object) ServedBy(s *corev1.Service) []int32 {
	if len(s.Spec.Ports) == 0 {
		return nil
	}
	out := []int32{}
	for i := range s.Spec.Ports {
		if n := o.Target(&s.Spec.Ports[i]); n != 0 {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Target returns the pods' port that a port of a Service leads to, 0 if there is none.
func (o *Object) Target(p *corev1.ServicePort) int32 {
	switch {
	case p.TargetPort.Type == intstr.String:
		for _, c := range o.Ports {
			if c.Name == p.TargetPort.StrVal && c.UDP == (p.Protocol == corev1.ProtocolUDP) {
				return c.Number
			}
		}
		return 0
	case p.TargetPort.IntVal == 0:
		return p.Port
	}
	return p.TargetPort.IntVal
}

// Selection finds the Services that select pods, among many.
type Selection struct {
	services []*corev1.Service
	by       map[label][]int // places in services, by one label of each selector
}

type label struct{ namespace, name, value string }

// NewSelection returns one of some Services.
func NewSelection(services []*corev1.Service) *Selection {
	x := &Selection{services: services, by: map[label][]int{}}
	for i, s := range services {
		if len(s.Spec.Selector) == 0 {
			continue
		}
		name := slices.Min(slices.Collect(maps.Keys(s.Spec.Selector)))
		at := label{s.Namespace, name, s.Spec.Selector[name]}
		x.by[at] = append(x.by[at], i)
	}
	return x
}

// Of returns the Services that select the pods (Object.SelectedBy), in their old order.
func (x *Selection) Of(o *Object) (out []*corev1.Service) {
	var at []int
	for name, value := range o.PodLabels {
		at = append(at, x.by[label{o.Namespace, name, value}]...)
	}
	slices.Sort(at)
	for _, i := range at {
		if o.SelectedBy(x.services[i]) {
			out = append(out, x.services[i])
		}
	}
	return out
}
