package infra

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

const (
	accepted   = string(gatewayv1.GatewayConditionAccepted)
	programmed = resource.Programmed
	pending    = string(gatewayv1.GatewayReasonPending)
	// nameConflict is the reason of Programmed=False if an object of others has the name of one of ours.
	nameConflict = "NameConflict"
)

// Proxy is a proxy that is connected to the controller.
type Proxy struct {
	// Name of its pod.
	Name string
	// Version of the configuration that it serves; empty if none yet.
	Version string
	// Err is why it refuses the newest configuration or, if Version is the newest, which part of it is not served;
	// empty if there is no error.
	Err string
	// Unserved are the listeners that it cannot serve for their ports.
	Unserved []Unserved
}

// Unserved is a listener that a proxy does not serve.
type Unserved struct {
	// Listener is its name in the model.
	Listener string
	Reason   string
}

// State is the actual state of one Gateway.
type State struct {
	Found
	// Version of the configuration that its proxies are to serve.
	Version string
	Proxies []Proxy
}

// Fleet corrects statuses by the actual state. It remembers its result for each Gateway, because a Gateway that serves
// must not be reported as stopped while a change is on its way. The zero value needs ControllerName.
type Fleet struct {
	// ControllerName is that of the GatewayClasses that are ours.
	ControllerName string

	mu   sync.Mutex
	said map[model.Owner]resource.Condition // Programmed, by Gateway
}

// Overlay returns the translator's statuses with those of GatewayClasses, Gateways and their listeners corrected:
// parameters that cannot be used (Accepted), addresses, and Programmed. It calls state for each Gateway with its
// "namespace/name". It does not change the given statuses.
func (f *Fleet) Overlay(set *resource.Set, statuses []resource.Status, state func(gateway model.Owner) State) []resource.Status {
	f.mu.Lock()
	defer f.mu.Unlock()
	classes := readClasses(set, f.ControllerName)
	said := map[model.Owner]resource.Condition{}
	out := set.Judge(statuses, func(name model.Owner, s *resource.Status) (v resource.Verdict) {
		g := set.Gateway(name.Namespace(), name.Name())
		if g == nil {
			return v
		}
		j := judgement{gateway: g, state: state(name), before: f.before(name, g)}
		if c := classes[string(g.Spec.GatewayClassName)]; c != nil {
			_, j.parameters = c.of(set, g)
		}
		if v.Whole = j.correct(s); v.Whole != nil {
			c := *v.Whole
			c.Generation = cmp.Or(c.Generation, s.Generation)
			said[name] = c
		}
		v.Unserved = j.state.unserved()
		return v
	})
	for i := range out {
		if s := &out[i]; s.Ref.Kind == "GatewayClass" {
			if c := classes[s.Ref.Name]; c != nil && c.problem != nil {
				s.Conditions = resource.WithCondition(s.Conditions, resource.False(accepted, string(gatewayv1.GatewayClassReasonInvalidParameters), c.problem.Text()))
			}
		}
	}
	f.said = said
	return out
}

// before returns the last Programmed of a Gateway: what was said, or what another controller before this one wrote.
func (f *Fleet) before(name model.Owner, g *gatewayv1.Gateway) *resource.Condition {
	if c, ok := f.said[name]; ok {
		return &c
	}
	for _, c := range g.Status.Conditions {
		if c.Type == programmed && c.Reason != string(gatewayv1.GatewayReasonPending) {
			return new(resource.ConditionOf(c))
		}
	}
	return nil
}

// judgement is of one Gateway.
type judgement struct {
	gateway    *gatewayv1.Gateway
	state      State
	before     *resource.Condition
	parameters *resource.Finding
}

// correct says in the Gateway's status what the cluster has of it: its addresses, and whether its parameters can be used. It returns Programmed; nil if
// the translator said nothing of it.
func (j *judgement) correct(s *resource.Status) *resource.Condition {
	s.Addresses = j.addresses()
	is, judged := s.Condition(programmed), s.Condition(accepted)
	switch {
	case is == nil || judged == nil:
		return is
	case judged.Status == metav1.ConditionTrue && j.parameters != nil:
		s.Conditions = resource.WithCondition(s.Conditions, resource.False(accepted, string(gatewayv1.GatewayReasonInvalidParameters), j.parameters.Text()))
		return new(resource.False(programmed, string(gatewayv1.GatewayReasonInvalid), "the Gateway is not accepted"))
	case is.Status == metav1.ConditionTrue:
		c := j.programmed()
		return &c
	}
	return is // the translator has said why
}

// programmed judges a Gateway for which the translator has found no error.
func (j *judgement) programmed() resource.Condition {
	if j.state.Services == nil && j.before != nil {
		return *j.before // the state is not known
	}
	if c := j.foreign(); c != nil {
		return *c
	}
	if c := j.unaddressed(); c != nil {
		return *c
	}
	for _, p := range j.state.Problems {
		if p.Refused {
			return resource.False(programmed, string(gatewayv1.GatewayReasonInvalid), "the cluster refuses "+p.String())
		}
	}
	return j.served()
}

func (j *judgement) foreign() *resource.Condition {
	var names []string
	for _, p := range j.state.Problems {
		if p.Foreign {
			names = append(names, p.Kind+" "+p.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	c := resource.False(programmed, nameConflict, fmt.Sprintf("%s in namespace %s: an object of that name exists and does not belong to this Gateway; "+
		"rename or delete it, or rename the Gateway", strings.Join(names, ", "), j.gateway.Namespace))
	return &c
}

// unaddressed returns a condition about missing addresses, or nil.
func (j *judgement) unaddressed() *resource.Condition {
	static, dynamic := staticAddresses(j.gateway)
	class := string(j.gateway.Spec.GatewayClassName)
	var missing []string
	for _, address := range static {
		name := AddressName(j.gateway.Name, class, address)
		assigned := assignedAddresses(j.state.Services[name])
		if slices.ContainsFunc(assigned, func(a gatewayv1.GatewayStatusAddress) bool { return sameAddress(a.Value, address) }) {
			continue
		}
		missing = append(missing, fmt.Sprintf("%s: %s", address, j.why(name, assigned)))
	}
	if len(missing) > 0 {
		c := resource.False(programmed, string(gatewayv1.GatewayReasonAddressNotUsable),
			"spec.addresses: "+strings.Join(missing, ". ")+"; ask for an address that the cluster can give, or remove it")
		return &c
	}
	name := Name(j.gateway.Name, class)
	if dynamic && len(assignedAddresses(j.state.Services[name])) == 0 {
		c := resource.False(programmed, string(gatewayv1.GatewayReasonAddressNotAssigned), fmt.Sprintf("Service %s: %s", name, j.why(name, nil)))
		return &c
	}
	return nil
}

// why a Service does not have the address it is to have.
func (j *judgement) why(service string, assigned []gatewayv1.GatewayStatusAddress) string {
	for _, p := range j.state.Problems {
		if p.Kind == "Service" && p.Name == service {
			return p.Message
		}
	}
	switch s := j.state.Services[service]; {
	case s == nil:
		return "it does not exist yet"
	case len(assigned) > 0:
		return fmt.Sprintf("Service %s was given %s instead", service, assigned[0].Value)
	case s.Spec.Type == corev1.ServiceTypeLoadBalancer:
		return "the cluster's load balancers have assigned no address yet"
	}
	return "it has no address yet"
}

func sameAddress(text string, address netip.Addr) bool {
	a, err := netip.ParseAddr(text)
	return err == nil && a.Unmap() == address
}

// served judges whether there are proxies that accept requests, and whether the connected ones run the configuration.
func (j *judgement) served() resource.Condition {
	var refusing, partly []string
	running := 0
	for _, p := range j.state.Proxies {
		switch {
		case p.Version == j.state.Version && p.Err == "":
			running++
		case p.Version == j.state.Version:
			partly = append(partly, fmt.Sprintf("proxy %s: %s", p.Name, p.Err))
		case p.Err != "":
			refusing = append(refusing, fmt.Sprintf("proxy %s: %s", p.Name, p.Err))
		}
	}
	connected := len(j.state.Proxies)
	switch {
	case len(refusing) > 0:
		return resource.False(programmed, string(gatewayv1.GatewayReasonInvalid), "the configuration is refused by "+strings.Join(refusing, ", "))
	case len(partly) > 0:
		return resource.False(programmed, string(gatewayv1.GatewayReasonInvalid), "parts of the configuration are not served by "+strings.Join(partly, ", "))
	case available(j.state.Deployment) == 0:
		return j.unavailable()
	case connected > 0 && running == connected:
		return resource.True(programmed, string(gatewayv1.GatewayReasonProgrammed), "")
	case j.before != nil && j.before.Status == metav1.ConditionTrue:
		return *j.before // a change is on its way, or the proxies are to the controller
	case connected > 0:
		return resource.False(programmed, pending, fmt.Sprintf("%d of %d proxies serve the configuration", running, connected))
	}
	return resource.False(programmed, pending, "no proxy is connected: "+describe(j.state.Deployment))
}

// unavailable is the condition if no pod accepts requests, although proxies may be connected: pods are starting, or
// lost.
func (j *judgement) unavailable() resource.Condition {
	lost := string(gatewayv1.GatewayReasonNoResources)
	reason := pending
	if j.before != nil && (j.before.Status == metav1.ConditionTrue || j.before.Reason == lost) {
		reason = lost
	}
	return resource.False(programmed, reason, "no proxy is ready: "+describe(j.state.Deployment))
}

// available is how many pods the Service sends connections to.
func available(d *appsv1.Deployment) int32 {
	if d == nil {
		return 0
	}
	return d.Status.AvailableReplicas
}

// describe describes the progress of a Deployment.
func describe(d *appsv1.Deployment) string {
	if d == nil {
		return "the Deployment does not exist yet"
	}
	replicas := int32(1)
	if d.Spec.Replicas != nil {
		replicas = *d.Spec.Replicas
	}
	text := fmt.Sprintf("Deployment %s has %d of %d pods ready", d.Name, d.Status.ReadyReplicas, replicas)
	for _, c := range d.Status.Conditions {
		if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue ||
			c.Type == appsv1.DeploymentProgressing && c.Status == corev1.ConditionFalse {
			text += "; " + c.Message
		}
	}
	return text
}

// addresses are the addresses of the Gateway's Services, in the order of its spec.
func (j *judgement) addresses() []gatewayv1.GatewayStatusAddress {
	if j.state.Services == nil {
		return slices.Clone(j.gateway.Status.Addresses) // no others are known
	}
	var out []gatewayv1.GatewayStatusAddress
	add := func(name string) {
		for _, a := range assignedAddresses(j.state.Services[name]) {
			if !slices.ContainsFunc(out, func(b gatewayv1.GatewayStatusAddress) bool { return a.Value == b.Value }) {
				out = append(out, a)
			}
		}
	}
	static, dynamic := staticAddresses(j.gateway)
	class := string(j.gateway.Spec.GatewayClassName)
	if dynamic {
		add(Name(j.gateway.Name, class))
	}
	for _, address := range static {
		add(AddressName(j.gateway.Name, class, address))
	}
	return out
}

// assignedAddresses are the addresses at which clients reach a Service at its own ports: those of its load balancer for
// type LoadBalancer, ClusterIPs for others.
func assignedAddresses(s *corev1.Service) []gatewayv1.GatewayStatusAddress {
	if s == nil || s.DeletionTimestamp != nil {
		return nil
	}
	ip, host := gatewayv1.IPAddressType, gatewayv1.HostnameAddressType
	var out []gatewayv1.GatewayStatusAddress
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for _, i := range s.Status.LoadBalancer.Ingress {
			switch {
			case i.IP != "":
				out = append(out, gatewayv1.GatewayStatusAddress{Type: &ip, Value: i.IP})
			case i.Hostname != "":
				out = append(out, gatewayv1.GatewayStatusAddress{Type: &host, Value: i.Hostname})
			}
		}
		return out
	}
	for _, a := range s.Spec.ClusterIPs {
		if a != corev1.ClusterIPNone && a != "" {
			out = append(out, gatewayv1.GatewayStatusAddress{Type: &ip, Value: a})
		}
	}
	return out
}

// unserved says why proxies do not serve some listeners, by the listener's name in the model.
func (s *State) unserved() map[string]string {
	out := map[string]string{}
	for _, p := range s.Proxies {
		for _, u := range p.Unserved {
			why := fmt.Sprintf("proxy %s cannot serve it: %s", p.Name, u.Reason)
			if before := out[u.Listener]; before != "" {
				why = before + ", " + why
			}
			out[u.Listener] = why
		}
	}
	return out
}
