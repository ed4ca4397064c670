package infra

import (
	"cmp"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// service leads each port to the same port of the pods. It does not set what the cluster assigns (ClusterIPs, node
// ports), so that stays through every change.
func (r *renderer) service(name string, ports []int32) *corev1.Service {
	p := &r.p.Service
	s := &corev1.Service{ObjectMeta: r.meta(name), Spec: corev1.ServiceSpec{
		Type:                          cmp.Or(p.Type, corev1.ServiceTypeLoadBalancer),
		Selector:                      r.selector,
		LoadBalancerClass:             p.LoadBalancerClass,
		LoadBalancerSourceRanges:      p.LoadBalancerSourceRanges,
		AllocateLoadBalancerNodePorts: p.AllocateLoadBalancerNodePorts,
		ExternalTrafficPolicy:         p.ExternalTrafficPolicy,
		IPFamilyPolicy:                p.IPFamilyPolicy,
		IPFamilies:                    p.IPFamilies,
	}}
	if len(p.Annotations) > 0 && s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	maps.Copy(s.Annotations, p.Annotations)
	for _, port := range ports {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{
			Name: fmt.Sprintf("port-%d", port), Protocol: corev1.ProtocolTCP, Port: port, TargetPort: intstr.FromInt32(port),
		})
	}
	return s
}
