package inject

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/weirmesh/weir/internal/probe"
)

// Probes has the kubelet ask the sidecar, at a port of it, in place of the pod's other containers, and returns what the
// sidecar is to do then. It changes probes and hooks of spec that are HTTP, TCP or gRPC. What names a host is not the pod's
// and stays, and so do commands, pauses, and what names a port that the container does not have, at which the kubelet
// fails.
//
// before is the table of an earlier call for the pod: what it changed then is found again, so that calls may be repeated
// after others have changed the pod. sidecar is the name of the sidecar's container, which is left alone. secret is for the
// paths at which the kubelet asks (probe.Key).
func Probes(spec *corev1.PodSpec, sidecar string, port int32, before probe.Table, secret string) probe.Table {
	r := &rewriter{port: port, before: before, secret: secret, table: probe.Table{}}
	for i := range spec.InitContainers {
		r.container(&spec.InitContainers[i], sidecar)
	}
	for i := range spec.Containers {
		r.container(&spec.Containers[i], sidecar)
	}
	return r.table
}

type rewriter struct {
	port          int32
	secret        string
	before, table probe.Table
}

func (r *rewriter) container(c *corev1.Container, sidecar string) {
	if c.Name == sidecar {
		return
	}
	r.probe(c, c.StartupProbe, probe.Startup)
	r.probe(c, c.LivenessProbe, probe.Liveness)
	r.probe(c, c.ReadinessProbe, probe.Readiness)
	if c.Lifecycle != nil {
		r.hook(c, c.Lifecycle.PostStart, probe.PostStart)
		r.hook(c, c.Lifecycle.PreStop, probe.PreStop)
	}
}

func (r *rewriter) probe(c *corev1.Container, p *corev1.Probe, kind string) {
	if p == nil || r.known(p.HTTPGet, c, kind) {
		return
	}
	var check probe.Check
	ok := false
	switch {
	case p.HTTPGet != nil:
		check.HTTP, ok = httpOf(p.HTTPGet, c)
	case p.TCPSocket != nil && p.TCPSocket.Host == "":
		check.TCP = &probe.TCP{}
		check.TCP.Port, ok = number(p.TCPSocket.Port, c)
	case p.GRPC != nil:
		check.GRPC, ok = &probe.GRPC{Port: p.GRPC.Port}, true
		if p.GRPC.Service != nil {
			check.GRPC.Service = *p.GRPC.Service
		}
	}
	if ok {
		check.Seconds = max(p.TimeoutSeconds, 1) // the kubelet's default
		p.ProbeHandler = corev1.ProbeHandler{HTTPGet: r.add(c, kind, check)}
	}
}

func (r *rewriter) hook(c *corev1.Container, h *corev1.LifecycleHandler, kind string) {
	if h == nil || h.HTTPGet == nil || r.known(h.HTTPGet, c, kind) {
		return
	}
	if get, ok := httpOf(h.HTTPGet, c); ok {
		h.HTTPGet = r.add(c, kind, probe.Check{HTTP: get})
	}
}

// known reports whether an earlier call has changed this.
func (r *rewriter) known(get *corev1.HTTPGetAction, c *corev1.Container, kind string) bool {
	key := probe.Key(c.Name, kind, r.secret)
	check, ok := r.before[key]
	if !ok || get == nil || get.Path != "/"+key || get.Port.IntVal != r.port {
		return false
	}
	r.table[key] = check
	return true
}

// add puts a check into the table, and returns what the kubelet does in its place.
func (r *rewriter) add(c *corev1.Container, kind string, check probe.Check) *corev1.HTTPGetAction {
	key := probe.Key(c.Name, kind, r.secret)
	r.table[key] = check
	return &corev1.HTTPGetAction{Path: "/" + key, Port: intstr.FromInt32(r.port), Scheme: corev1.URISchemeHTTP}
}

func httpOf(get *corev1.HTTPGetAction, c *corev1.Container) (*probe.HTTP, bool) {
	port, ok := number(get.Port, c)
	if !ok || get.Host != "" {
		return nil, false
	}
	out := &probe.HTTP{Port: port, Path: get.Path, Secure: get.Scheme == corev1.URISchemeHTTPS}
	for _, h := range get.HTTPHeaders {
		out.Fields = append(out.Fields, probe.Field{Name: h.Name, Value: h.Value})
	}
	return out, true
}

// number is a port of a container by number or name.
func number(p intstr.IntOrString, c *corev1.Container) (int32, bool) {
	if p.Type == intstr.Int {
		return p.IntVal, p.IntVal > 0 && p.IntVal <= 65535
	}
	for i := range c.Ports {
		if c.Ports[i].Name == p.StrVal {
			return c.Ports[i].ContainerPort, true
		}
	}
	n, err := strconv.ParseUint(p.StrVal, 10, 16) // the kubelet reads a number that was written as text
	return int32(n), err == nil && n > 0
}
