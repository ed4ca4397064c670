package access

import (
	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// rejected makes policies that allow nothing of objects that were left out because they are not valid: the workloads
// that they were to govern stay closed. If it cannot be told which these are, all of the namespace are.
func (t *translator) rejected() {
	for k, f := range t.set.Rejected {
		if k.Group != access.Group {
			continue
		}
		var targets []model.Target
		switch draft := t.set.Drafts[k]; k.Kind {
		case "TrafficRole":
			targets = draftRole(draft, k.Namespace)
		case "TrafficTarget":
			targets = draftTarget(draft, k.Namespace)
		default:
			continue // it names no workloads
		}
		if len(targets) == 0 {
			continue
		}
		t.close(k, f, targets)
	}
	t.rejectedIdentities()
}

// rejectedIdentities makes policies that allow nothing of IdentityBindings that were left out and are some target's
// destination: which pods these are cannot be told, so all of the namespace are governed.
func (t *translator) rejectedIdentities() {
	named := map[model.Target]bool{}
	for i := range t.policies {
		for _, target := range t.policies[i].Targets {
			named[target] = true
		}
	}
	for k, f := range t.set.Rejected {
		if k.Group == access.Group && k.Kind == access.KindIdentityBinding && named[model.Target{Namespace: k.Namespace, Kind: k.Kind, Name: k.Name}] {
			t.close(k, f, []model.Target{{Namespace: k.Namespace}})
		}
	}
}

// close makes the policy of an object that was left out, which governs and allows nothing.
func (t *translator) close(k resource.Key, f resource.Finding, targets []model.Target) {
	t.policies = append(t.policies, model.Policy{
		Ref: model.Ref{Kind: k.Kind, Namespace: k.Namespace, Name: k.Name}, Targets: targets, Traffic: model.TrafficAny,
		Void: "the object is not valid (" + f.Code + ")",
	})
}

// draftRole are the resources of a role that is not valid.
func draftRole(u map[string]any, namespace string) (out []model.Target) {
	all := []model.Target{{Namespace: namespace}}
	rules, ok := u["rules"].([]any)
	if !ok {
		return all
	}
	for _, v := range rules {
		rule, _ := v.(map[string]any)
		resources, ok := rule["resources"].([]any)
		if !ok {
			return all
		}
		for _, v := range resources {
			r, _ := v.(map[string]any)
			kind, _ := r["kind"].(string)
			name, _ := r["name"].(string)
			known, ok := access.ResourceKind(kind)
			if !ok || name == "" {
				return all
			}
			out = append(out, targets(access.Resource{Kind: known, Name: name}, namespace)...)
		}
	}
	return out
}

// draftTarget is the destination of a target that is not valid.
func draftTarget(u map[string]any, namespace string) []model.Target {
	if spec, ok := u["spec"].(map[string]any); ok {
		u = spec
	}
	d, _ := u["destination"].(map[string]any)
	kind, _ := d["kind"].(string)
	name, _ := d["name"].(string)
	in, _ := d["namespace"].(string)
	switch {
	case in != "" && in != namespace:
		return nil
	case kind != access.KindServiceAccount && kind != access.KindIdentityBinding || name == "":
		return []model.Target{{Namespace: namespace}}
	}
	return []model.Target{{Namespace: namespace, Kind: kind, Name: name}}
}
