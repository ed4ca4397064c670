package rollout

import (
	"fmt"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/rollouts"
)

// Stage is a step of a Rollout as its objects would carry it out.
type Stage struct {
	// Step is the step's place, from 0.
	Step int
	// Who says which requests go where, as a sentence.
	Who string
	// Mistaken means that the step has Mistakes: it is laid over nothing.
	Mistaken bool
	// Parts has an entry for each target.
	Parts []Part
}

// Part is what a step does with one target.
type Part struct {
	Target Target
	// Provider is its name; empty if there is none for the target.
	Provider string
	// Before is the target as its user wrote it; nil if it is missing, and then Laid is empty.
	Before map[string]any
	Laid   Laid
}

// Plan lays every step of a Rollout over its targets. Written returns an object of the Rollout's namespace as its user
// wrote it, or nil.
func (all Providers) Plan(r *rollouts.Rollout, written func(group, kind, name string) map[string]any) []Stage {
	plan := r.Spec.Strategy.Plan()
	if plan == nil {
		return nil
	}
	targets := Targets(&r.Spec.Strategy)
	stages := make([]Stage, len(plan.Steps))
	for _, m := range Mistakes(r) {
		stages[m.Step].Mistaken = true
	}
	for i := range plan.Steps {
		routing := RoutingOf(&plan.Steps[i])
		stages[i].Step, stages[i].Who = i, who(plan, &plan.Steps[i])
		if stages[i].Mistaken {
			routing, stages[i].Who = nil, "The step is not valid, so the Rollout is left alone."
		}
		for _, t := range targets {
			part := Part{Target: t, Before: written(t.Group, t.Kind, t.Name)}
			if p, ok := all.For(t); ok {
				part.Provider = p.Name
			}
			part.Laid, _ = all.Lay(Request{
				Target: t, Object: part.Before, Rollout: r.Name, Namespace: r.Namespace, Stable: plan.Traffic().Service, Canary: plan.CanaryService(), Other: written,
			}, routing)
			stages[i].Parts = append(stages[i].Parts, part)
		}
	}
	return stages
}

// who says in a sentence which requests a step sends where.
func who(plan *rollouts.Plan, s *rollouts.Step) string {
	if plan.Traffic() == nil || !s.Shifts() {
		return "The step routes nothing: requests go wherever pods are."
	}
	return Who(plan, RoutingOf(s))
}

// Who says in a sentence which requests a routing sends where. A nil one leaves that to the user's objects. The plan must
// name what routes requests.
func Who(plan *rollouts.Plan, r *Routing) string {
	traffic := plan.Traffic()
	if r == nil {
		return fmt.Sprintf("Requests go to %s as the objects are written.", traffic.Service)
	}
	canary := plan.CanaryService()
	if canary == traffic.Service {
		canary = "the new version"
	}
	if len(r.Matches) == 0 {
		return fmt.Sprintf("%d%% of the requests go to %s, %d%% to %s.", r.Percent, canary, 100-r.Percent, traffic.Service)
	}
	var each []string
	for i := range r.Matches {
		each = append(each, Conditions(&r.Matches[i]))
	}
	return fmt.Sprintf("Requests with %s go to %s, all others to %s.", strings.Join(each, ", or with "), canary, traffic.Service)
}

// Conditions says what a match demands, as the rest of a sentence: `path /api and header x = "1"`.
func Conditions(m *rollouts.Match) string {
	var all []string
	if p := m.Path; p != nil {
		value := "/"
		if p.Value != nil {
			value = *p.Value
		}
		switch kind := p.Type; {
		case kind != nil && *kind == gatewayv1.PathMatchExact:
			all = append(all, "path "+value)
		case kind != nil && *kind == gatewayv1.PathMatchRegularExpression:
			all = append(all, "a path like "+value)
		default:
			all = append(all, "a path below "+value)
		}
	}
	for _, h := range m.Headers {
		all = append(all, condition("header", string(h.Name), h.Value, h.Type != nil && *h.Type == gatewayv1.HeaderMatchRegularExpression))
	}
	for _, q := range m.QueryParams {
		all = append(all, condition("query parameter", string(q.Name), q.Value, q.Type != nil && *q.Type == gatewayv1.QueryParamMatchRegularExpression))
	}
	return strings.Join(all, " and ")
}

func condition(what, name, value string, expression bool) string {
	if expression {
		return fmt.Sprintf("%s %s like %s", what, name, value)
	}
	return fmt.Sprintf("%s %s: %s", what, name, value)
}
