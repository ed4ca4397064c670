package workload

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// SelectedBy reports whether a Service selects the pods. One without a selector selects none.
func (o *Object) SelectedBy(s *corev1.Service) bool { return o.selected(s, s.Spec.Selector) }

// selected reports whether the pods have all labels of a selector, which is not empty, of a Service.
func (o *Object) selected(s *corev1.Service, selector map[string]string) bool {
	if len(selector) == 0 || s.Namespace != o.Namespace {
		return false
	}
	for name, value := range selector {
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
	services  []*corev1.Service
	selectors []map[string]string // theirs
	by        map[label][]int     // places in services, by one label of each selector
}

type label struct{ namespace, name, value string }

// Selector is which labels a Service selects pods by; without any it selects none.
type Selector func(*corev1.Service) map[string]string

// NewSelection returns one of some Services.
func NewSelection(services []*corev1.Service) *Selection {
	return NewSelectionBy(services, func(s *corev1.Service) map[string]string { return s.Spec.Selector })
}

// NewSelectionBy returns one of some Services that select by other labels than those of their specs.
func NewSelectionBy(services []*corev1.Service, selector Selector) *Selection {
	x := &Selection{services: services, selectors: make([]map[string]string, len(services)), by: map[label][]int{}}
	for i, s := range services {
		of := selector(s)
		if x.selectors[i] = of; len(of) == 0 {
			continue
		}
		name := slices.Min(slices.Collect(maps.Keys(of)))
		at := label{s.Namespace, name, of[name]}
		x.by[at] = append(x.by[at], i)
	}
	return x
}

// Of returns the Services that select the pods, in their old order.
func (x *Selection) Of(o *Object) (out []*corev1.Service) {
	var at []int
	for name, value := range o.PodLabels {
		at = append(at, x.by[label{o.Namespace, name, value}]...)
	}
	slices.Sort(at)
	for _, i := range at {
		if o.selected(x.services[i], x.selectors[i]) {
			out = append(out, x.services[i])
		}
	}
	return out
}
