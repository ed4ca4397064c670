package workload

import (
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
