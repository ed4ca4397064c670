package kube

import (
	"cmp"
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/resource"
)

// Statuses are merged as the trees that the API server stores, so that nothing is lost that others wrote, even if it is
// unknown here.

const (
	// maxAncestors and maxParents are limits of the API.
	maxAncestors = 16
	maxParents   = 32
	// maxMessage is the longest message of a condition.
	maxMessage = 32768
)

// merger merges a reported status into an object's status.
type merger struct {
	controller string
	form       *resource.StatusForm
	now        time.Time
}

// merge returns the intended status of an object of ours. It does not change the old one.
func (m merger) merge(old map[string]any, want *resource.Status) map[string]any {
	status := runtime.DeepCopyJSON(old)
	if status == nil {
		status = make(map[string]any)
	}
	if m.form.Conditions {
		status["conditions"] = m.conditions(old["conditions"], want.Conditions, want.Generation)
	}
	if m.form.Generation && want.Generation > 0 {
		status["observedGeneration"] = want.Generation
	}
	if m.form.Features {
		features := make([]any, len(want.SupportedFeatures))
		for i, name := range want.SupportedFeatures {
			features[i] = map[string]any{"name": name}
		}
		status["supportedFeatures"] = features
	}
	if m.form.Listeners {
		status["listeners"] = m.listeners(old["listeners"], want.Listeners, want.Generation)
	}
	if m.form.Addresses {
		addresses(status, want)
	}
	if m.form.Ancestors {
		var ours []entry
		for _, a := range want.Ancestors {
			ours = append(ours, entry{a.AncestorRef, a.Conditions})
		}
		status["ancestors"] = m.entries(old["ancestors"], "ancestorRef", ours, want.Generation, maxAncestors)
	}
	if m.form.Parents {
		var ours []entry
		for _, p := range want.Parents {
			ours = append(ours, entry{p.ParentRef, p.Conditions})
		}
		status["parents"] = m.entries(old["parents"], "parentRef", ours, want.Generation, maxParents)
	}
	return status
}

// addresses sets the addresses of a Gateway, and the number of its ListenerSets.
func addresses(status map[string]any, want *resource.Status) {
	addresses := make([]any, len(want.Addresses))
	for i, a := range want.Addresses {
		kind := string(gatewayv1.IPAddressType)
		if a.Type != nil {
			kind = string(*a.Type)
		}
		addresses[i] = map[string]any{"type": kind, "value": a.Value}
	}
	status["addresses"] = addresses
	delete(status, "attachedListenerSets")
	if want.AttachedListenerSets != nil {
		status["attachedListenerSets"] = int64(*want.AttachedListenerSets)
	}
}

// release returns the status of an object that is no longer ours, without our own entries. If the kind's StatusForm
// says so, the conditions return to those before any controller.
func (m merger) release(old map[string]any) map[string]any {
	nobody := &resource.Status{}
	status := m.merge(old, nobody)
	if !m.form.Pending {
		return status
	}
	for _, of := range []string{"Accepted", "Programmed"} {
		nobody.Conditions = append(nobody.Conditions, resource.Unknown(of, "Pending", "Waiting for controller"))
	}
	return m.merge(old, nobody)
}

// conditions replaces our conditions, each in its place. A time changes only with the condition's status.
func (m merger) conditions(old any, want []resource.Condition, generation int64) []any {
	var out []any
	placed := make(map[string]bool)
	for _, before := range trees(old) {
		name, _ := before["type"].(string)
		i := slices.IndexFunc(want, func(c resource.Condition) bool { return c.Type == name })
		switch {
		case i >= 0 && !placed[name]:
			out = append(out, m.condition(before, want[i], generation))
			placed[name] = true
		case !slices.Contains(m.form.Types, name):
			out = append(out, runtime.DeepCopyJSON(before))
		}
	}
	for _, c := range want {
		if !placed[c.Type] {
			out = append(out, m.condition(nil, c, generation))
			placed[c.Type] = true
		}
	}
	return out
}

func (m merger) condition(before map[string]any, c resource.Condition, generation int64) map[string]any {
	since, _ := before["lastTransitionTime"].(string)
	if before["status"] != string(c.Status) || since == "" {
		since = m.now.UTC().Format(time.RFC3339)
	}
	out := map[string]any{
		"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": Cut(c.Message, maxMessage), "lastTransitionTime": since,
	}
	if observed := cmp.Or(c.Generation, generation); observed > 0 {
		out["observedGeneration"] = observed
	}
	return out
}

// Cut shortens a text to at most the given number of bytes.
func Cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	for most -= 3; most > 0 && text[most]&0xC0 == 0x80; most-- { // not inside a character
	}
	return text[:most] + "..."
}

func (m merger) listeners(old any, want []resource.ListenerStatus, generation int64) []any {
	before := trees(old)
	out := make([]any, len(want))
	for i, l := range want {
		listener := map[string]any{}
		if j := slices.IndexFunc(before, func(t map[string]any) bool { return t["name"] == l.Name }); j >= 0 {
			listener = runtime.DeepCopyJSON(before[j])
		}
		kinds := make([]any, len(l.SupportedKinds))
		for j, k := range l.SupportedKinds {
			group := gatewayv1.GroupName
			if k.Group != nil {
				group = string(*k.Group)
			}
			kinds[j] = map[string]any{"group": group, "kind": string(k.Kind)}
		}
		conditions := m.conditions(listener["conditions"], l.Conditions, generation)
		listener["name"], listener["supportedKinds"], listener["attachedRoutes"], listener["conditions"] = l.Name, kinds, int64(l.AttachedRoutes), conditions
		out[i] = listener
	}
	return out
}

// entry is one of our parents or ancestors.
type entry struct {
	ref        gatewayv1.ParentReference
	conditions []resource.Condition
}

// entries replaces our entries, recognised by the controller's name. Entries of others keep their places.
func (m merger) entries(old any, refName string, want []entry, generation int64, most int) []any {
	out := []any{}
	refs := make([]map[string]any, len(want))
	for i := range want {
		refs[i] = refTree(want[i].ref)
	}
	placed := make([]bool, len(want))
	for _, before := range trees(old) {
		if before["controllerName"] != m.controller {
			out = append(out, runtime.DeepCopyJSON(before))
			continue
		}
		ref, _ := before[refName].(map[string]any)
		i := slices.IndexFunc(refs, func(r map[string]any) bool { return apiequality.Semantic.DeepEqual(r, ref) })
		if i < 0 || placed[i] {
			continue
		}
		placed[i] = true
		after := runtime.DeepCopyJSON(before)
		after["conditions"] = m.conditions(before["conditions"], want[i].conditions, generation)
		out = append(out, after)
	}
	for i, e := range want {
		if !placed[i] && len(out) < most {
			out = append(out, map[string]any{
				refName: refs[i], "controllerName": m.controller, "conditions": m.conditions(nil, e.conditions, generation),
			})
		}
	}
	return out
}

// refTree returns a reference as the API server stores it, with its defaults.
func refTree(r gatewayv1.ParentReference) map[string]any {
	group, kind := gatewayv1.GroupName, "Gateway"
	if r.Group != nil {
		group = string(*r.Group)
	}
	if r.Kind != nil {
		kind = string(*r.Kind)
	}
	t := map[string]any{"group": group, "kind": kind, "name": string(r.Name)}
	if r.Namespace != nil {
		t["namespace"] = string(*r.Namespace)
	}
	if r.SectionName != nil {
		t["sectionName"] = string(*r.SectionName)
	}
	if r.Port != nil {
		t["port"] = int64(*r.Port)
	}
	return t
}

// names reports whether any entry of the status is the controller's, and whether any belongs to another.
func (m merger) names(status map[string]any) (ours, others bool) {
	for _, list := range []string{"parents", "ancestors"} {
		for _, e := range trees(status[list]) {
			if e["controllerName"] == m.controller {
				ours = true
			} else {
				others = true
			}
		}
	}
	return ours, others
}

func trees(list any) []map[string]any {
	items, _ := list.([]any)
	var out []map[string]any
	for _, item := range items {
		if t, ok := item.(map[string]any); ok {
			out = append(out, t)
		}
	}
	return out
}

// sameTree compares trees, ignoring empty lists, mappings and values: some writers leave them out.
func sameTree(a, b any) bool {
	switch a := a.(type) {
	case map[string]any:
		other, _ := b.(map[string]any)
		for k, v := range a {
			if !sameTree(v, other[k]) {
				return false
			}
		}
		for k, v := range other {
			if _, ok := a[k]; !ok && !empty(v) {
				return false
			}
		}
		return true
	case []any:
		other, _ := b.([]any)
		return len(a) == len(other) && !slices.ContainsFunc(pairs(a, other), func(p [2]any) bool { return !sameTree(p[0], p[1]) })
	case nil:
		return empty(b)
	}
	return a == b || empty(a) && empty(b)
}

func pairs(a, b []any) [][2]any {
	out := make([][2]any, len(a))
	for i := range a {
		out[i] = [2]any{a[i], b[i]}
	}
	return out
}

func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	case string:
		return v == ""
	}
	return false
}
