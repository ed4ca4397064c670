package specs

import (
	"encoding/json"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/weirmesh/weir/api/convert"
)

// KeptAnnotation holds, as JSON, what a version has no field for: the headers of an HTTPRouteGroup's matches in
// v1alpha1, by the names of the matches; the spec of a TCPRoute before v1alpha4. A conversion may change nothing else
// of the metadata.
const KeptAnnotation = Group + "/matches"

// maxMatches is that of the definition's schema.
const maxMatches = 256

// Kinds are the kinds of the group with several versions, with their conversions.
func Kinds() []convert.Kind { return []convert.Kind{httpRouteGroup, tcpRoute} }

var httpRouteGroup = convert.Kind{
	Group: Group, Name: "HTTPRouteGroup", Plural: "httproutegroups", Hub: "v1alpha4",
	Versions: map[string]convert.Version{
		"v1alpha3": {},
		"v1alpha2": {Up: intoSpec, Down: outOfSpec},
		"v1alpha1": {
			Up: func(u map[string]any) error {
				if err := restoreHeaders(u); err != nil {
					return err
				}
				return intoSpec(u)
			},
			Down: func(u map[string]any) { outOfSpec(u); keepHeaders(u) },
		},
	},
}

var tcpRoute = convert.Kind{
	Group: Group, Name: "TCPRoute", Plural: "tcproutes", Hub: "v1alpha4",
	Versions: map[string]convert.Version{
		"v1alpha3": {Up: restorePorts, Down: func(u map[string]any) {
			spec, ok := u["spec"].(map[string]any)
			if len(spec) == 0 {
				delete(u, "spec") // it has an empty one, too
			}
			if keepPorts(u); ok {
				u["spec"] = map[string]any{}
			}
		}},
		"v1alpha2": {Up: restorePorts, Down: keepPorts},
		"v1alpha1": {Up: restorePorts, Down: keepPorts},
	},
}

// intoSpec moves the matches of an HTTPRouteGroup to where v1alpha3 and v1alpha4 have them.
func intoSpec(u map[string]any) error {
	spec := map[string]any{}
	if matches, ok := u["matches"]; ok {
		spec["matches"] = matches
		delete(u, "matches")
	}
	u["spec"] = spec
	return nil
}

// outOfSpec is the inverse of intoSpec.
func outOfSpec(u map[string]any) {
	spec, _ := u["spec"].(map[string]any)
	delete(u, "spec")
	if matches, ok := spec["matches"]; ok {
		u["matches"] = matches
	}
}

// namedHeaders are the headers of one match.
type namedHeaders struct {
	Name    string `json:"name"`
	Headers any    `json:"headers,omitempty"`
}

// keepHeaders takes the headers out of the matches, for v1alpha1.
func keepHeaders(u map[string]any) {
	convert.Take(u, KeptAnnotation)
	matches, _ := u["matches"].([]any)
	var all []namedHeaders
	some := false
	for _, v := range matches {
		m, _ := v.(map[string]any)
		name, _ := m["name"].(string)
		headers, ok := m["headers"]
		delete(m, "headers")
		some = some || ok
		all = append(all, namedHeaders{name, headers})
	}
	if !some {
		return
	}
	if text, err := json.Marshal(all); err == nil {
		convert.Keep(u, KeptAnnotation, string(text))
	}
}

// restoreHeaders gives the matches of v1alpha1 their headers back, by name. A match that lost them would take more
// requests than its author wrote.
func restoreHeaders(u map[string]any) error {
	text, ok := convert.Take(u, KeptAnnotation)
	if !ok {
		return nil
	}
	at := field.NewPath("metadata", "annotations").Key(KeptAnnotation)
	if text == convert.TooLarge {
		return field.Forbidden(at, "the headers of these matches do not fit into the annotation: write them in v1alpha4")
	}
	var all []namedHeaders
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &all); err != nil {
		return field.Invalid(at, "text", "must be a list of names and headers as JSON, or be removed: "+err.Error())
	}
	kept := map[string][]any{} // of several of one name the first is the first again
	for _, n := range all {
		kept[n.Name] = append(kept[n.Name], n.Headers)
	}
	matches, _ := u["matches"].([]any)
	if len(matches) > maxMatches {
		return field.TooMany(field.NewPath("matches"), len(matches), maxMatches)
	}
	for _, v := range matches {
		m, _ := v.(map[string]any)
		name, _ := m["name"].(string)
		if headers := kept[name]; m != nil && len(headers) > 0 {
			if kept[name] = headers[1:]; headers[0] != nil {
				m["headers"] = headers[0]
			}
		}
	}
	return nil // headers may be anything by the schema
}

// keepPorts takes the spec, and with it the ports, out of a TCPRoute.
func keepPorts(u map[string]any) {
	convert.Take(u, KeptAnnotation)
	spec, ok := u["spec"]
	delete(u, "spec")
	if !ok {
		return
	}
	if text, err := json.Marshal(spec); err == nil {
		convert.Keep(u, KeptAnnotation, string(text))
	}
}

// restorePorts is the inverse of keepPorts. A route that lost its ports would be one of all.
func restorePorts(u map[string]any) error {
	text, ok := convert.Take(u, KeptAnnotation)
	if !ok {
		return nil
	}
	at := field.NewPath("metadata", "annotations").Key(KeptAnnotation)
	if text == convert.TooLarge {
		return field.Forbidden(at, "the ports of this route do not fit into the annotation: write it in v1alpha4")
	}
	var spec map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &spec); err != nil || spec == nil {
		return field.Invalid(at, "text", "must be spec of v1alpha4 as JSON, or be removed")
	}
	u["spec"] = spec
	if _, errs := DecodeTCPRoute("v1alpha4", u); len(errs) > 0 {
		return errs.ToAggregate()
	}
	return nil
}
