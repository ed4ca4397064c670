package metrics

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

// other is the other side of an edge, as far as it is known.
type other struct {
	reference corev1.ObjectReference
	labels    labels.Set
	// home is the namespace that the side is in, whatever the reference is in terms of; "" if it is in none.
	home string
}

// named reports whether the reference tells more than a kind.
func (o *other) named() bool { return o.reference.Name != "" || o.reference.Namespace != "" }

// others says who a side is in terms of objects of a kind. If it belongs to none, it is what the topmost object is that it
// belongs to, or itself if it is an object; else a namespace, a kind, or nobody who is known. Only a pod that several
// Services select is several.
func (x *Index) others(s telemetry.Side, kind int) (out []other) {
	p := x.resolve(s)
	if p == nil {
		o := x.stranger(s, kind)
		o.home = s.Namespace
		return []other{o}
	}
	for _, o := range p.objects {
		if o.kind == kind {
			out = append(out, other{reference: o.reference(), labels: o.labels})
		}
	}
	switch {
	case out != nil:
	case p.gone != "" && kind == pods:
		out = []other{{reference: kinds[pods].Reference(p.namespace, p.gone)}}
	case p.top.Kind != "":
		out = []other{x.named(p.top)}
	default:
		out = []other{{reference: corev1.ObjectReference{Namespace: p.namespace}}}
	}
	for i := range out {
		out[i].home = p.namespace
	}
	return out
}

// named is an object, with its labels if they are known.
func (x *Index) named(ref corev1.ObjectReference) other {
	if kind, ok := kindOf[ref.Kind]; ok {
		if o := x.byName[kind][name{ref.Namespace, ref.Name}]; o != nil {
			return other{reference: ref, labels: o.labels}
		}
	}
	return other{reference: ref}
}

// stranger is a side that belongs to nothing that is known, such as a pod that is gone, or that runs in no pod. A Gateway of
// such a process is itself, in terms of namespaces too: what it receives is no pod's, so it is not its namespace's.
func (x *Index) stranger(s telemetry.Side, kind int) other {
	switch {
	case s.Kind == telemetry.KindAddress:
		return other{}
	case s.Kind == string(model.OwnerGateway) && s.Namespace != "" && s.Name != "":
		return other{reference: corev1.ObjectReference{APIVersion: "gateway.networking.k8s.io/v1", Kind: s.Kind, Namespace: s.Namespace, Name: s.Name}}
	case s.Namespace != "" && kind == namespaces:
		return x.named(kinds[namespaces].Reference("", s.Namespace))
	case s.Name == "":
	case (s.Kind == model.KindPod || s.Kind == telemetry.KindSidecar) && s.Namespace != "":
		return other{reference: kinds[pods].Reference(s.Namespace, s.Name)}
	case s.Kind == kinds[services].Kind && s.Namespace != "":
		return other{reference: kinds[services].Reference(s.Namespace, s.Name)}
	case s.Kind == model.KindNode:
		return x.named(kinds[nodes].Reference("", s.Name))
	}
	if s.Namespace != "" {
		return other{reference: corev1.ObjectReference{Namespace: s.Namespace}}
	}
	return other{reference: corev1.ObjectReference{Kind: s.Kind}}
}
