package resource

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// EndpointPort finds the port of a slice that belongs to a port of the Service: the one of the same name. A port without a
// number stands for all (EndpointPort.port), so the Service's own target port is used.
func EndpointPort(slice *discoveryv1.EndpointSlice, p corev1.ServicePort) (int32, bool) {
	for _, sp := range slice.Ports {
		name := ""
		if sp.Name != nil {
			name = *sp.Name
		}
		if name != p.Name || sp.Protocol != nil && *sp.Protocol != corev1.ProtocolTCP {
			continue
		}
		switch {
		case sp.Port != nil && *sp.Port > 0:
			return *sp.Port, true
		case p.TargetPort.IntVal > 0:
			return p.TargetPort.IntVal, true
		case p.TargetPort.StrVal == "":
			return p.Port, true
		}
	}
	return 0, false
}
