package control

import (
	"fmt"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/routing"
)

const codeAmbiguousPath = "WR547"

var pathCodes = []resource.Code{
	{ID: codeAmbiguousPath, Severity: resource.Warning, Title: "path rejected by the path policy",
		Meaning: "Servers read the path of a match in different ways, and the path policy strict applies to it (set by the route, its Gateway or --path-policy): Weir answers requests for the path " +
			"400 before any rule applies, so the match gets no requests (docs/paths.md).",
		Fix: "Write another path, or give the route the annotation weirmesh.github.io/path-policy: as-written."},
}

// ambiguousPaths reports matches whose own path the path policy refuses. It is judged here, where all that sets a policy is known.
func ambiguousPaths(cfg *model.Config, set *resource.Set) (out []resource.Finding) {
	strict := make(map[string]bool, len(cfg.Listeners))
	for i := range cfg.Listeners {
		if l := &cfg.Listeners[i]; l.PathPolicy == model.PathStrict {
			strict[l.Name] = true
		}
	}
	for i := range cfg.Routes {
		r := &cfg.Routes[i]
		if !strictEverywhere(r, strict) {
			continue
		}
		for j := range r.Rules {
			for k := range r.Rules[j].Matches {
				path := r.Rules[j].Matches[k].Path
				normal, err := model.MatchPath(path.Value)
				if path.Type == model.Regex || err != nil {
					continue
				}
				reading := routing.Ambiguity(normal)
				if reading == routing.OneReading {
					continue
				}
				ref := r.Rules[j].Ref
				ref.Field = model.FieldAt(ref.Field+".matches", k) + ".path.value"
				out = append(out, resource.Finding{
					Code: codeAmbiguousPath, Severity: resource.Warning, Ref: ref, Origin: set.Origin(ref),
					Message: fmt.Sprintf("the path %q has %s, so the path policy strict rejects all requests for it: the match gets none", path.Value, reading.Words()),
					Fix:     "write another path, or annotate the route with weirmesh.github.io/path-policy: as-written",
				})
			}
		}
	}
	return out
}

// strictEverywhere reports whether a route's requests are judged strictly on every listener.
func strictEverywhere(r *model.Route, strict map[string]bool) bool {
	if !r.Kind.Requests() || r.PathPolicy == model.PathAsWritten || len(r.Attachments) == 0 {
		return false
	}
	for _, a := range r.Attachments {
		if r.PathPolicy == "" && !strict[a.Listener] {
			return false
		}
	}
	return true
}
