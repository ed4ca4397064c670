package workload

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weirmesh/weir/internal/resource"
)

// The lists of a Set.
var (
	PodList            = resource.NewList[*Pod]()
	ServiceAccountList = resource.NewList[*ServiceAccount]()

	replicationControllers = resource.NewList[*ReplicationController]()
	deployments            = resource.NewList[*Deployment]()
	replicaSets            = resource.NewList[*ReplicaSet]()
	statefulSets           = resource.NewList[*StatefulSet]()
	daemonSets             = resource.NewList[*DaemonSet]()
	jobs                   = resource.NewList[*Job]()
)

// Kinds returns the kinds that are read.
func Kinds() resource.Kinds { return kinds[:len(kinds):len(kinds)] }

var kinds = resource.Kinds{
	kind("", "Pod", "pods", resource.Excerpt(readPod), PodList),
	kind("", "ReplicationController", "replicationcontrollers", resource.Excerpt(readTemplate[ReplicationController]), replicationControllers),
	kind("", "ServiceAccount", "serviceaccounts", resource.Excerpt(func(map[string]any, *ServiceAccount) field.ErrorList { return nil }), ServiceAccountList),
	kind("apps", "Deployment", "deployments", resource.Excerpt(readTemplate[Deployment]), deployments),
	kind("apps", "ReplicaSet", "replicasets", resource.Excerpt(readTemplate[ReplicaSet]), replicaSets),
	kind("apps", "StatefulSet", "statefulsets", resource.Excerpt(readTemplate[StatefulSet]), statefulSets),
	kind("apps", "DaemonSet", "daemonsets", resource.Excerpt(readTemplate[DaemonSet]), daemonSets),
	kind("batch", "Job", "jobs", resource.Excerpt(readTemplate[Job]), jobs),
}

func kind(group, name, plural string, decoder resource.Decoder, objects resource.Store) *resource.Kind {
	return &resource.Kind{Group: group, Name: name, Plural: plural, Versions: []string{"v1"}, Decoder: decoder, Objects: objects, Effects: resource.FieldEffects}
}

// each calls f with every object that is a pod or runs pods.
func each(set *resource.Set, f func(kind string, o *Object)) {
	for _, o := range PodList.In(set) {
		f("Pod", &o.Object)
	}
	eachOf(set, "ReplicationController", replicationControllers, f)
	eachOf(set, "Deployment", deployments, f)
	eachOf(set, "ReplicaSet", replicaSets, f)
	eachOf(set, "StatefulSet", statefulSets, f)
	eachOf(set, "DaemonSet", daemonSets, f)
	eachOf(set, "Job", jobs, f)
}

type held interface {
	metav1.Object
	object() *Object
}

func eachOf[P held](set *resource.Set, kind string, list *resource.List[P], f func(string, *Object)) {
	for _, o := range list.In(set) {
		f(kind, o.object())
	}
}

func readPod(u map[string]any, p *Pod) field.ErrorList {
	r := reader{}
	r.pods(u, &p.Object, nil)
	p.PodLabels = p.Labels
	p.Strict = strict(u)
	spec := r.object(u["spec"], field.NewPath("spec"))
	p.Static = annotations(u)[corev1.MirrorPodAnnotationKey] != nil
	p.Node = r.text(spec["nodeName"], field.NewPath("spec", "nodeName"))
	at := field.NewPath("status")
	status := r.object(u["status"], at)
	switch r.text(status["phase"], at.Child("phase")) {
	case string(corev1.PodSucceeded), string(corev1.PodFailed):
		return r.errs // others may have its addresses now
	}
	p.Serving = p.Sidecar && r.started(status["initContainerStatuses"], at.Child("initContainerStatuses"))
	addresses := r.list(status["podIPs"], at.Child("podIPs"))
	for i, v := range addresses {
		at := at.Child("podIPs").Index(i)
		if ip := r.text(r.object(v, at)["ip"], at.Child("ip")); ip != "" {
			p.Addresses = append(p.Addresses, ip)
		}
	}
	if ip := r.text(status["podIP"], at.Child("podIP")); ip != "" && len(addresses) == 0 {
		p.Addresses = []string{ip}
	}
	return r.errs
}

// started reads from the status of a pod's init containers whether its sidecar has passed its startup probe, and runs.
func (r *reader) started(v any, at *field.Path) bool {
	for i, v := range r.list(v, at) {
		container := r.object(v, at.Index(i))
		if started, _ := container["started"].(bool); started && container["name"] == SidecarContainer {
			return true
		}
	}
	return false
}

// strict reads the annotation PlainText of a pod or a template. A value that is neither is taken for the safer one.
func strict(u map[string]any) bool {
	value := annotations(u)[PlainText]
	return value != nil && value != "" && value != PlainTextServed
}

func annotations(u map[string]any) map[string]any {
	metadata, _ := u["metadata"].(map[string]any)
	all, _ := metadata["annotations"].(map[string]any)
	return all
}

// readTemplate reads what has a template at spec.template.
func readTemplate[T any, P interface {
	*T
	object() *Object
}](u map[string]any, to P) field.ErrorList {
	r := reader{}
	at := field.NewPath("spec", "template")
	template := r.object(r.object(u["spec"], field.NewPath("spec"))["template"], at)
	o := P(to).object()
	r.pods(template, o, at)
	labels := at.Child("metadata", "labels")
	for name, v := range r.object(r.object(template["metadata"], at.Child("metadata"))["labels"], labels) {
		if o.PodLabels == nil {
			o.PodLabels = map[string]string{}
		}
		o.PodLabels[name] = r.text(v, labels.Key(name))
	}
	return r.errs
}

// reader reads parts of an object, and notes those of a wrong type.
type reader struct{ errs field.ErrorList }

// pods reads the spec of pods in u, which is at that place.
func (r *reader) pods(u map[string]any, o *Object, at *field.Path) {
	at = at.Child("spec")
	spec := r.object(u["spec"], at)
	o.HostNetwork, _ = spec["hostNetwork"].(bool)
	os, _ := spec["os"].(map[string]any)
	nodes, _ := spec["nodeSelector"].(map[string]any)
	o.Windows = os["name"] == string(corev1.Windows) || nodes[corev1.LabelOSStable] == string(corev1.Windows)
	o.Account = r.text(spec["serviceAccountName"], at.Child("serviceAccountName"))
	if o.Account == "" { // its older name, which an API server fills in, too
		o.Account = r.text(spec["serviceAccount"], at.Child("serviceAccount"))
	}
	if o.Account == "" {
		o.Account = DefaultAccount
	}
	for _, name := range []string{"initContainers", "containers"} {
		for i, v := range r.list(spec[name], at.Child(name)) {
			at := at.Child(name).Index(i)
			container := r.object(v, at)
			if name == "initContainers" && container["restartPolicy"] != "Always" {
				continue // it ends before the pod serves
			}
			o.Sidecar = o.Sidecar || name == "initContainers" && container["name"] == SidecarContainer
			for j, v := range r.list(container["ports"], at.Child("ports")) {
				at := at.Child("ports").Index(j)
				if u := r.object(v, at); u != nil {
					r.port(o, u, at)
				}
			}
		}
	}
}

func (r *reader) port(o *Object, u map[string]any, at *field.Path) {
	if u["containerPort"] == nil {
		r.errs = append(r.errs, field.Required(at.Child("containerPort"), "a port from 1 to 65535"))
		return
	}
	n, ok := u["containerPort"].(int64)
	if !ok || n < 1 || n > 65535 {
		r.errs = append(r.errs, field.Invalid(at.Child("containerPort"), fmt.Sprint(u["containerPort"]), "must be a port from 1 to 65535"))
		return
	}
	protocol := r.text(u["protocol"], at.Child("protocol"))
	o.Ports = append(o.Ports, Port{r.text(u["name"], at.Child("name")), int32(n), protocol == string(corev1.ProtocolUDP)})
}

func (r *reader) object(v any, at *field.Path) map[string]any {
	u, ok := v.(map[string]any)
	if !ok && v != nil {
		r.errs = append(r.errs, field.TypeInvalid(at, v, "must be an object"))
	}
	return u
}

func (r *reader) list(v any, at *field.Path) []any {
	l, ok := v.([]any)
	if !ok && v != nil {
		r.errs = append(r.errs, field.TypeInvalid(at, v, "must be a list"))
	}
	return l
}

func (r *reader) text(v any, at *field.Path) string {
	s, ok := v.(string)
	if !ok && v != nil {
		r.errs = append(r.errs, field.TypeInvalid(at, v, "must be text; put it in quotes"))
	}
	return s
}
