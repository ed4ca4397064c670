package control

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

const codePort = "WR805"

// Unserved is a listener that is not served, though nothing is wrong with what was written: its port cannot be bound.
type Unserved struct {
	// Listener is the name in the model.
	Listener string
	// Ref is where it was written.
	Ref  model.Ref
	Port int32
	// Reason is what the system says, Fix what to do.
	Reason, Fix string
}

// WithUnserved returns the report with findings and conditions that tell of listeners which are not served: Programmed is False with the
// reason PortUnavailable, and False of a Gateway that has no other. The report itself is left alone.
func (r Report) WithUnserved(all []Unserved) Report {
	if len(all) == 0 {
		return r
	}
	r.Findings, r.Statuses = slices.Clone(r.Findings), slices.Clone(r.Statuses)
	of := map[model.Ref]map[string]Unserved{}
	for _, u := range all {
		ref := u.Ref
		object := model.Ref{Kind: ref.Kind, Namespace: ref.Namespace, Name: ref.Name}
		if of[object] == nil {
			of[object] = map[string]Unserved{}
		}
		of[object][u.Listener[strings.LastIndexByte(u.Listener, '/')+1:]] = u
		f := resource.Finding{Code: codePort, Severity: resource.Error, Ref: ref, Message: u.message(), Fix: u.Fix}
		if r.Set != nil {
			f.Origin = r.Set.Origin(object)
		}
		if f.Ref.Field != "" {
			f.Ref.Field += ".port"
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

func (u Unserved) message() string {
	return fmt.Sprintf("port %d cannot be bound, so the listener is not served: %s", u.Port, u.Reason)
}

// withUnserved is the status of an object of which these listeners, by name, are not served.
func withUnserved(s resource.Status, unserved map[string]Unserved) resource.Status {
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
			c.Status, c.Reason, c.Message = "False", "PortUnavailable", u.message()+"; "+u.Fix
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
