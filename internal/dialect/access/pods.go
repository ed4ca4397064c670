package access

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/workload"
)

// pods are those of one of the model's workloads.
type pods struct{ workload.Pods }

// ref is the workload's.
func (p *pods) ref() model.Ref {
	return model.Ref{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}
}

// readPods makes the workloads, with the groups that need no object of access control.
func (t *translator) readPods() {
	services := workload.NewSelectionBy(t.set.Services, rollout.WrittenSelector)
	for _, of := range workload.Of(t.set) {
		p := pods{of}
		w := model.Workload{Ref: p.ref(), Account: p.Account, Addresses: p.Addresses}
		add := func(kind, name string, ports []int32) {
			w.Groups = append(w.Groups, model.Group{Kind: kind, Name: name, Ports: ports})
		}
		if p.Kind == model.KindPod {
			add(model.KindPod, p.Name, nil)
		}
		for _, o := range p.Owners {
			add(o.Kind, o.Name, nil)
		}
		add(model.KindServiceAccount, p.Account, nil)
		for _, s := range services.Of(p.Object) {
			add(model.KindService, s.Name, p.ServedBy(s))
		}
		t.pods = append(t.pods, p)
		t.workloads = append(t.workloads, w)
	}
}

// annotated reports whether a Namespace says when traffic is denied, be the value valid or not.
func (t *translator) annotated() bool {
	return slices.ContainsFunc(t.set.Namespaces, func(n *corev1.Namespace) bool { _, ok := n.Annotations[DenyAnnotation]; return ok })
}

// namespaces applies the annotations of Namespaces.
func (t *translator) namespaces() {
	deny, audit := map[string]model.Deny{}, map[string]bool{}
	for _, n := range t.set.Namespaces {
		ref := model.Ref{Kind: "Namespace", Name: n.Name}
		wrong := func(name, value, instead, fix string) {
			t.report(ref, resource.Problem(codeAnnotation, "InvalidAnnotation", "metadata.annotations["+name+"]",
				fmt.Sprintf("%q is not a value of it: %s", value, instead), fix))
		}
		switch v, ok := n.Annotations[DenyAnnotation]; {
		case !ok:
		case v == "governed":
			deny[n.Name] = model.DenyGoverned
		default:
			// What is not understood is meant to close something.
			if deny[n.Name] = model.DenyAll; v != "all" {
				wrong(DenyAnnotation, v, "everything is denied that nothing allows", "write governed or all")
			}
		}
		switch v, ok := n.Annotations[AuditAnnotation]; {
		case !ok || v == "false":
		case v == "true":
			audit[n.Name] = true
		default:
			wrong(AuditAnnotation, v, "what is not allowed is denied", "write true or false")
		}
	}
	for i := range t.workloads {
		w := &t.workloads[i]
		w.Deny = t.options.Deny
		if d, ok := deny[w.Ref.Namespace]; ok {
			w.Deny = d
		}
		w.Audit = audit[w.Ref.Namespace]
	}
}

// index notes what workloads there are, by all targets that name them.
func (t *translator) index() {
	t.named = map[model.Target]bool{}
	for i := range t.workloads {
		w := &t.workloads[i]
		for _, in := range [...]string{"", w.Ref.Namespace} {
			t.named[model.Target{Namespace: in}] = true
			t.named[model.Target{Namespace: in, Kind: model.KindPod}] = true
			for _, g := range w.Groups {
				t.named[model.Target{Namespace: in, Kind: g.Kind}] = true
				t.named[model.Target{Namespace: in, Kind: g.Kind, Name: g.Name}] = true
			}
		}
	}
}

// exists reports whether there is an object by which pods are named, and whether it has pods.
func (t *translator) exists(kind, namespace, name string) (exists, pods bool) {
	if t.named[model.Target{Namespace: namespace, Kind: kind, Name: name}] {
		return true, true
	}
	if kind == model.KindServiceAccount && name == workload.DefaultAccount {
		return true, false // every namespace has it
	}
	return t.set.Object(t.set.Kinds().Key(model.Ref{Kind: kind, Namespace: namespace, Name: name})) != nil, false
}
