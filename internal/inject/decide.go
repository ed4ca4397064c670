package inject

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/internal/probe"
	"github.com/weirmesh/weir/internal/redirect"
)

// Label of a namespace or a pod asks for sidecars, or of a pod says that it has none; a pod's counts before its
// namespace's. Each pod that is injected has it, too.
const (
	Label    = redirect.Prefix + "inject"
	Enabled  = "enabled"
	Disabled = "disabled"
)

// Annotations of pods, beside those of the redirect.
const (
	// Annotation says what was injected; Record reads it.
	Annotation = redirect.Prefix + "sidecar"
	// PlainTextAnnotation says what becomes of connections in plain text from outside the mesh.
	PlainTextAnnotation = redirect.Prefix + "plain-text"
	PlainTextServed     = "served"
	PlainTextRefused    = "refused"
	// RequestsAnnotation and LimitsAnnotation override the resources of the sidecar.
	RequestsAnnotation = redirect.Prefix + "resource-requests"
	LimitsAnnotation   = redirect.Prefix + "resource-limits"
	// AccessLogAnnotation overrides the format of the sidecar's access log.
	AccessLogAnnotation = redirect.Prefix + "access-log"
)

// mirrorAnnotation is of pods that the kubelet runs from files.
const mirrorAnnotation = "kubernetes.io/config.mirror"

// Outcome is what becomes of a pod.
type Outcome int

const (
	// NotAsked: nobody asks for a sidecar.
	NotAsked Outcome = iota
	// OptedOut: the pod's label says that it has none.
	OptedOut
	// Excluded: the namespace asks, but pods like this one never have a sidecar, and run without.
	Excluded
	// Refused: the pod is to have a sidecar, cannot have one as it is, and must not run without.
	Refused
	// Injected: the pod has one now.
	Injected
)

// Decision is what becomes of a pod and why.
type Decision struct {
	Outcome Outcome
	// Reasons say why, of Excluded and Refused; each names a field, label or annotation, what is wrong, and what to do.
	Reasons []string
	// Notes are what whoever wrote the pod should know although it is Injected.
	Notes []string
	// pod is the injected pod.
	pod *corev1.Pod
}

// ExcludedNamespaces returns those whose pods never have a sidecar, sorted: without them, neither nodes nor the controller run.
func ExcludedNamespaces(own string) []string {
	all := []string{"kube-node-lease", "kube-public", "kube-system"}
	if own != "" {
		all = append(all, own)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Ask says whether a pod is to have a sidecar, by the labels of its namespace and its own, without a look at its containers:
// Injected means that it is.
func (s *Settings) Ask(namespace string, labels map[string]string, pod *corev1.Pod) Decision {
	own, said := pod.Labels[Label]
	switch {
	case said && own == Disabled:
		return Decision{Outcome: OptedOut}
	case !said && (labels[Label] != Enabled || ofGateway(pod)):
		return Decision{}
	case slices.Contains(ExcludedNamespaces(s.Namespace), namespace):
		return Decision{Outcome: Excluded, Reasons: []string{fmt.Sprintf("namespace %s: its pods run the cluster or Weir's controller, and never have a sidecar; run the pod in another namespace", namespace)}}
	case said && own != Enabled:
		return Decision{Outcome: Refused, Reasons: []string{fmt.Sprintf("label %s %q: there is no such value; write %s or %s", Label, shortened(own), Enabled, Disabled)}}
	}
	if text, ok := pod.Annotations[Label]; ok && !said {
		return Decision{Outcome: Refused, Reasons: []string{fmt.Sprintf("annotation %s %q: it does nothing; make it a label of the pod, in metadata.labels", Label, shortened(text))}}
	}
	why := ""
	switch {
	case pod.Spec.HostNetwork:
		why = "spec.hostNetwork: the redirect would be that of the node"
	case pod.Spec.OS != nil && pod.Spec.OS.Name == corev1.Windows, pod.Spec.NodeSelector[corev1.LabelOSStable] == string(corev1.Windows):
		why = "spec.os, spec.nodeSelector: the pod runs on Windows, which has no such redirect"
	case pod.Annotations[mirrorAnnotation] != "":
		why = "annotation " + mirrorAnnotation + ": the node runs the pod from a file, which the API server does not change"
	default:
		return Decision{Outcome: Injected}
	}
	if !said {
		return Decision{Outcome: Excluded, Reasons: []string{why}}
	}
	return Decision{Outcome: Refused, Reasons: []string{fmt.Sprintf("%s; it cannot have the sidecar for which label %s asks: remove the label, or what keeps the sidecar out", why, Label)}}
}

// ofGateway reports whether a pod has the labels of a Gateway's proxies, which have an identity of their own and serve those
// outside of the mesh. Whoever gives them to another pod opts it out, as he may by Label.
func ofGateway(pod *corev1.Pod) bool {
	return pod.Labels["app.kubernetes.io/managed-by"] == "weir" && pod.Labels["gateway.networking.k8s.io/gateway-name"] != "" && pod.Labels["gateway.networking.k8s.io/gateway-class-name"] != ""
}

// Pod decides about a pod of a namespace with labels. It may be called again with a pod that was injected, also after
// others have changed it. It does not change pod.
func (s *Settings) Pod(namespace string, labels map[string]string, pod *corev1.Pod) Decision {
	d := s.Ask(namespace, labels, pod)
	if d.Outcome != Injected {
		return d
	}
	d.pod = pod.DeepCopy()
	before, problem := recordOf(pod)
	if problem != "" {
		d.Reasons = append(d.Reasons, problem)
	}
	o, problems := s.options(pod)
	d.Reasons = append(d.Reasons, problems...)
	needs, problem := s.resources(pod.Annotations)
	if problem != "" {
		d.Reasons = append(d.Reasons, problem)
	}
	if problems == nil {
		d.Reasons = append(d.Reasons, unfit(&o.plan, pod, before != nil)...)
	}
	if before == nil && guaranteed(&pod.Spec) {
		d.Notes = append(d.Notes, fmt.Sprintf("the pod is of QoS class Burstable with its sidecar, and was Guaranteed; it stays so with equal amounts of cpu and memory in the annotations %s and %s", RequestsAnnotation, LimitsAnnotation))
	}
	table := Probes(&d.pod.Spec, SidecarName, ProbePort, before.table(), s.secret(before.table()))
	d.Reasons = append(d.Reasons, lost(table)...)
	if len(d.Reasons) > 0 {
		return Decision{Outcome: Refused, Reasons: d.Reasons}
	}
	parts, err := s.parts(&o, table, needs)
	if err != nil {
		return Decision{Outcome: Refused, Reasons: []string{fmt.Sprintf("the pod's probes cannot be made by the sidecar: %v; correct or remove the probe", err)}}
	}
	parts.into(d.pod)
	d.pod.Annotations = cloned(d.pod.Annotations)
	d.pod.Annotations[Annotation] = newRecord(s, parts, table)
	d.pod.Labels = cloned(d.pod.Labels)
	d.pod.Labels[Label] = Enabled
	return d
}

func cloned(m map[string]string) map[string]string {
	if m = maps.Clone(m); m == nil {
		m = map[string]string{}
	}
	return m
}

// options are what annotations of a pod say of its sidecar.
type options struct {
	plan      redirect.Plan
	strict    bool // plain text is refused
	accessLog AccessLog
}

func (s *Settings) options(pod *corev1.Pod) (o options, problems []string) {
	o.accessLog = s.AccessLog
	p, problem := plan(pod.Annotations)
	if o.plan = p; problem != "" {
		problems = append(problems, problem)
	}
	for _, name := range slices.Sorted(maps.Keys(pod.Annotations)) {
		value := pod.Annotations[name]
		switch rest, ours := strings.CutPrefix(name, redirect.Prefix); {
		case name == PlainTextAnnotation:
			if o.strict = value == PlainTextRefused; !o.strict && value != PlainTextServed {
				problems = append(problems, fmt.Sprintf("annotation %s %q: there is no such value; write %s or %s", name, shortened(value), PlainTextServed, PlainTextRefused))
			}
		case name == AccessLogAnnotation:
			if err := o.accessLog.Set(value); err != nil {
				problems = append(problems, fmt.Sprintf("annotation %s: %v", name, err))
			}
		case name == RequestsAnnotation, name == LimitsAnnotation:
		case ours && (strings.HasPrefix(rest, "resource-") || strings.HasPrefix(rest, "plain-") || strings.HasPrefix(rest, "access-log")):
			problems = append(problems, fmt.Sprintf("annotation %s: there is no such annotation; correct its name to one of %s, %s, %s and %s, or remove it", shortened(name), PlainTextAnnotation, RequestsAnnotation, LimitsAnnotation, AccessLogAnnotation))
		}
	}
	return o, problems
}

// unfit says what of the pod's own containers and volumes, or of another mesh, leaves no room for the sidecar.
func unfit(p *redirect.Plan, pod *corev1.Pod, injected bool) (out []string) {
	out = otherMesh(pod)
	of := &redirect.Pod{}
	if c := pod.Spec.SecurityContext; c != nil {
		of.User = c.RunAsUser
	}
	each(&pod.Spec, func(kind string, c *corev1.Container) {
		if ours(c.Name) {
			if kind != "initContainers" || !injected {
				out = append(out, fmt.Sprintf("spec.%s[%s]: the name is that of a container of the sidecar's, and Weir did not put this one there; rename it", kind, c.Name))
			}
			return
		}
		one := redirect.Container{Kind: kind, Name: c.Name}
		if c.SecurityContext != nil {
			one.User = c.SecurityContext.RunAsUser
		}
		for _, port := range c.Ports {
			if port.Protocol != "" && port.Protocol != corev1.ProtocolTCP {
				continue
			}
			if one.Ports = append(one.Ports, port.ContainerPort); port.ContainerPort == ProbePort || port.ContainerPort == AdminPort {
				out = append(out, fmt.Sprintf("container %q has port %d, which is the sidecar's; choose another port", c.Name, port.ContainerPort))
			}
		}
		of.Containers = append(of.Containers, one)
	})
	for _, v := range pod.Spec.Volumes {
		if slices.Contains(volumeNames, v.Name) && !injected {
			out = append(out, fmt.Sprintf("spec.volumes[%s]: the name is that of a volume of the sidecar's, and Weir did not put this one there; rename it", v.Name))
		}
	}
	return append(out, p.Problems(of)...)
}

// lost says which probes ask the sidecar itself: they were rewritten, and what they were is not known any more.
func lost(table probe.Table) (out []string) {
	for _, key := range slices.Sorted(maps.Keys(table)) {
		c := table[key]
		if c.HTTP != nil && c.HTTP.Port == ProbePort || c.TCP != nil && c.TCP.Port == ProbePort || c.GRPC != nil && c.GRPC.Port == ProbePort {
			out = append(out, fmt.Sprintf("probe or hook %s: port %d is the sidecar's own; name the application's port. If Weir has rewritten it before, the annotation %s was removed since: create the pod anew from its template", probe.Name(key), ProbePort, Annotation))
		}
	}
	return out
}

func ours(container string) bool { return container == RedirectName || container == SidecarName }

// each calls f for each container of a pod but ephemeral ones, in order.
func each(spec *corev1.PodSpec, f func(kind string, c *corev1.Container)) {
	for i := range spec.InitContainers {
		f("initContainers", &spec.InitContainers[i])
	}
	for i := range spec.Containers {
		f("containers", &spec.Containers[i])
	}
}

// guaranteed reports whether the pod's QoS class is Guaranteed.
func guaranteed(spec *corev1.PodSpec) bool {
	ok := len(spec.Containers) > 0
	each(spec, func(_ string, c *corev1.Container) {
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			limit, limited := c.Resources.Limits[name]
			request, requested := c.Resources.Requests[name] // the API server takes the limit if there is none
			ok = ok && limited && (!requested || request.Cmp(limit) == 0)
		}
	})
	return ok
}

// into puts the parts into a pod in place of those of before, with what others have added to these.
func (p *parts) into(pod *corev1.Pod) {
	keep := func(want corev1.Container) corev1.Container {
		for _, have := range pod.Spec.InitContainers {
			if have.Name == want.Name {
				return again(have, want)
			}
		}
		return want
	}
	init := []corev1.Container{keep(p.redirect), keep(p.sidecar)}
	for _, c := range pod.Spec.InitContainers {
		if !ours(c.Name) {
			init = append(init, c)
		}
	}
	pod.Spec.InitContainers = init
	at := len(pod.Spec.Volumes)
	var volumes []corev1.Volume
	for i, v := range pod.Spec.Volumes {
		if slices.Contains(volumeNames, v.Name) {
			at = min(at, i)
			continue
		}
		volumes = append(volumes, v)
	}
	pod.Spec.Volumes = slices.Insert(volumes, min(at, len(volumes)), p.volumes...)
}

// again is a container that was injected before, and is to be as want now.
func again(have, want corev1.Container) corev1.Container {
	if digest(core(&have)) == digest(core(&want)) {
		return have
	}
	out := have
	out.Image, out.Command, out.Args, out.EnvFrom, out.RestartPolicy, out.SecurityContext = want.Image, want.Command, want.Args, want.EnvFrom, want.RestartPolicy, want.SecurityContext
	out.StartupProbe, out.LivenessProbe, out.ReadinessProbe, out.Lifecycle = want.StartupProbe, want.LivenessProbe, want.ReadinessProbe, want.Lifecycle
	out.Env, out.VolumeMounts = slices.Clone(want.Env), slices.Clone(want.VolumeMounts)
	for _, v := range have.Env {
		if !strings.HasPrefix(v.Name, variablePrefix) {
			out.Env = append(out.Env, v)
		}
	}
	for _, m := range have.VolumeMounts {
		if !overlaps(m.MountPath) {
			out.VolumeMounts = append(out.VolumeMounts, m)
		}
	}
	return out
}

// Record is what the annotation of an injected pod says.
type Record struct {
	// Version and Image are Weir's and the proxy's.
	Version string `json:"version,omitempty"`
	Image   string `json:"image"`
	// Parts are digests of what was injected, by name: of it, what nobody else may change.
	Parts map[string]string `json:"parts"`
	// Probes are those that the sidecar makes in the kubelet's place, as they were.
	Probes probe.Table `json:"probes,omitempty"`
}

// maxRecord bounds the annotation, in bytes.
const maxRecord = probe.MaxTable + 4096

// RecordOf reads the annotation of an injected pod; nil without an error if it has none.
func RecordOf(annotations map[string]string) (*Record, error) {
	text, ok := annotations[Annotation]
	if !ok {
		return nil, nil
	}
	if len(text) > maxRecord {
		return nil, fmt.Errorf("it has more than %d bytes", maxRecord)
	}
	var of struct {
		Record
		Probes json.RawMessage `json:"probes"`
	}
	if err := json.Unmarshal([]byte(text), &of); err != nil {
		return nil, err
	}
	if of.Probes != nil {
		table, err := probe.Parse(of.Probes)
		if err != nil {
			return nil, err
		}
		of.Record.Probes = table
	}
	return &of.Record, nil
}

// recordOf is the pod's; nil if it has none.
func recordOf(pod *corev1.Pod) (r *Record, problem string) {
	r, err := RecordOf(pod.Annotations)
	if err != nil {
		return nil, fmt.Sprintf("annotation %s: it is Weir's own record of what was injected, and was changed: %s; remove it", Annotation, shortened(err.Error()))
	}
	return r, ""
}

func (r *Record) table() probe.Table {
	if r == nil {
		return nil
	}
	return r.Probes
}

func newRecord(s *Settings, p *parts, table probe.Table) string {
	r := Record{Version: s.Version, Image: s.Image, Parts: map[string]string{}, Probes: table}
	for _, c := range []*corev1.Container{&p.redirect, &p.sidecar} {
		r.Parts[c.Name] = digest(core(c))
	}
	for i := range p.volumes {
		r.Parts[p.volumes[i].Name] = digest(&p.volumes[i])
	}
	text, err := json.Marshal(r)
	if err != nil {
		panic(err) // maps and structs of text and numbers
	}
	return string(text)
}
