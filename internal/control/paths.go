package control

import (
	"fmt"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/routing"
)

const codeAmbiguousPath = "WR547"

var pathCodes = []resource.Code{
	{ID: codeAmbiguousPath, Severity: resource.Warning, Title: "path that the path policy refuses",
		Meaning: "The path of a match is one that servers read in several ways, and the path policy strict holds for it, of the route, its Gateway or --path-policy: requests for the path are " +
			"answered 400 before any rule counts, so the match takes none (docs/paths.md).",
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
					Message: fmt.Sprintf("the path %q has %s, so the path policy strict refuses all requests for it: the match takes none", path.Value, reading.Words()),
					Fix:     "write another path, or annotate the route with weirmesh.github.io/path-policy: as-written",
				})
			}
		}
	}
	return out
}

// strictEverywhere says whether a route's requests are judged strictly on whichever listener they come.
func strictEverywhere(r *model.Route, strict map[string]bool) bool {
	if r.TCP || r.PathPolicy == model.PathAsWritten || len(r.Attachments) == 0 {
		return false
	}
	for _, a := range r.Attachments {
		if r.PathPolicy == "" && !strict[a.Listener] {
			return false
		}
	}
	return true
}
