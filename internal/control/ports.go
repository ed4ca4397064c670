package control

import (
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// WithUnserved returns the report with findings and conditions about listeners that are not served. Their Programmed is
// False with the reason PortUnavailable. So is the Gateway's if it has no other listener. The receiver is not changed.
func (r Report) WithUnserved(all []finding.Unserved) Report {
	if len(all) == 0 {
		return r
	}
	r.Findings, r.Statuses = slices.Clone(r.Findings), slices.Clone(r.Statuses)
	of := map[model.Ref]map[string]finding.Unserved{}
	for _, u := range all {
		ref := u.Ref
		object := model.Ref{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
		if of[object] == nil {
			of[object] = map[string]finding.Unserved{}
		}
		of[object][u.Listener[strings.LastIndexByte(u.Listener, '/')+1:]] = u
		f := u.Finding()
		if r.Set != nil {
			f.Origin = r.Set.Origin(object)
		}
		r.Findings = append(r.Findings, f)
	}
	resource.SortFindings(r.Findings)
	for i := range r.Statuses {
		if listeners := of[r.Statuses[i].Ref]; listeners != nil {
			r.Statuses[i] = withUnserved(r.Statuses[i], listeners)
		}
	}
	return r
}

// withUnserved returns the status of an object with these listeners, by name, not served.
func withUnserved(s resource.Status, unserved map[string]finding.Unserved) resource.Status {
	s.Listeners = slices.Clone(s.Listeners)
	served := false
	for i := range s.Listeners {
		l := &s.Listeners[i]
		u, not := unserved[l.Name]
		l.Conditions = slices.Clone(l.Conditions)
		for j := range l.Conditions {
			c := &l.Conditions[j]
			if c.Type != "Programmed" || c.Status != "True" {
				continue
			}
			if !not {
				served = true
				continue
			}
			c.Status, c.Reason, c.Message = "False", "PortUnavailable", u.Message()+"; "+u.Fix
		}
	}
	if served {
		return s
	}
	s.Conditions = slices.Clone(s.Conditions)
	for i := range s.Conditions {
		if c := &s.Conditions[i]; c.Type == "Programmed" && c.Status == "True" {
			c.Status, c.Reason, c.Message = "False", "Invalid", "spec.listeners: none can be served; see their conditions"
		}
	}
	return s
}
