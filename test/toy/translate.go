package toy

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

const codeNoService = "WR990"

var codes = []resource.Code{{
	ID: codeNoService, Severity: resource.Error, Title: "toy without service", Meaning: "A Toy names a Service that does not exist. It is not served.",
	Fix: "Create it or correct the name.",
}}

// translate makes a listener and a route of each Toy.
func translate(set *resource.Set, partial bool) (r dialect.Result) {
	all := slices.Clone(toys.In(set))
	slices.SortFunc(all, func(a, b *Toy) int { // the order of a Set has no influence: of Toys that share a port the first by name has the listener
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	for _, t := range all {
		ref := model.Ref{Kind: Kind.RefName(), Namespace: t.Namespace, Name: t.Name}
		status := resource.Status{Ref: ref, Generation: t.Generation, Conditions: []resource.Condition{
			{Type: "Accepted", Status: metav1.ConditionTrue, Reason: "Accepted"}, {Type: "ResolvedRefs", Status: metav1.ConditionTrue, Reason: "ResolvedRefs"},
		}}
		if set.Service(t.Namespace, t.Spec.Service.Name) == nil {
			code, why, fix := set.Absent(codeNoService, resource.Key{Kind: "Service", Namespace: t.Namespace, Name: t.Spec.Service.Name}, partial)
			f := resource.Finding{Code: code, Ref: ref, Message: fmt.Sprintf("Service %s/%s %s", t.Namespace, t.Spec.Service.Name, why), Fix: fix}
			f.Ref.Field = "spec.service.name"
			f.Origin = set.Origin(f.Ref)
			r.Findings = append(r.Findings, f)
			r.Events = append(r.Events, resource.Event{Ref: ref, Type: "Warning", Reason: "NoService", Message: f.Message})
			status.Conditions[1] = resource.Condition{Type: "ResolvedRefs", Status: metav1.ConditionFalse, Reason: "NoService", Message: f.Message}
			r.Statuses = append(r.Statuses, status)
			continue
		}
		r.Statuses = append(r.Statuses, status)
		path := "/"
		if c := set.ConfigMap(t.Namespace, t.Spec.Path); c != nil {
			path = c.Data["path"]
		}
		name := fmt.Sprintf("toys/%d", t.Spec.Port)
		r.Config.Listeners = append(r.Config.Listeners, model.Listener{Name: name, Ref: ref, Port: t.Spec.Port, Protocol: model.HTTP})
		r.Config.Routes = append(r.Config.Routes, model.Route{
			Ref: ref, Attachments: []model.Attachment{{Listener: name, Hostnames: []string{cmp.Or(t.Spec.Host, "*")}}},
			Rules: []model.Rule{{
				Ref: ref, Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: path}}},
				Backends: []model.Backend{{Ref: ref, Service: model.ServiceName(t.Namespace, t.Spec.Service.Name, t.Spec.Service.Port), Weight: 1}},
			}},
		})
	}
	return r
}
