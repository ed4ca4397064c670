package redirect

import "fmt"

// Container is a container of a pod as far as it matters here: securityContext.runAsUser, if it has one, and the ports
// of TCP that it declares. Kind is the field that lists it: containers, initContainers or ephemeralContainers.
type Container struct {
	Kind, Name string
	User       *int64
	Ports      []int32
}

// Pod is a pod as far as it matters here, without the containers of the sidecar. User is its
// securityContext.runAsUser, if it has one.
type Pod struct {
	User        *int64
	HostNetwork bool
	Containers  []Container
}

// Problems says why a pod cannot have a redirect; none if it can. The user that an image names is not in the Pod: a
// container without runAsUser is taken for one with another user than the sidecar's.
func (p *Plan) Problems(pod *Pod) (out []string) {
	if pod.HostNetwork {
		out = append(out, "spec.hostNetwork: the redirect would be that of the node; remove hostNetwork, or leave the pod without a sidecar")
	}
	other := fmt.Sprintf("choose another user, or another one for the sidecar by the annotation %s%s", Prefix, SidecarUser)
	for _, c := range pod.Containers {
		user, field := c.User, fmt.Sprintf("spec.%s[%s].securityContext.runAsUser", c.Kind, c.Name)
		if user == nil {
			user, field = pod.User, "spec.securityContext.runAsUser"
		}
		if user != nil && *user == int64(p.User) {
			out = append(out, fmt.Sprintf("container %q would run as user %d (%s), which is the sidecar's: its connections would not be redirected; %s", c.Name, p.User, field, other))
		}
		for _, port := range c.Ports {
			if port > 0 && port < 1<<16 && (p.Inbound.Has(uint16(port)) || p.Outbound.Has(uint16(port))) {
				out = append(out, fmt.Sprintf("container %q has port %d, at which the sidecar accepts connections; choose another port, or others for the sidecar by the annotations %s%s and %s",
					c.Name, port, Prefix, InboundPorts, OutboundPorts))
			}
		}
	}
	return out
}
