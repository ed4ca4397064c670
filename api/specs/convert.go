package specs

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// KeptAnnotation holds, as JSON, what a version has no field for: the matches of an HTTPRouteGroup with headers in
// v1alpha1, the ports of a TCPRoute before v1alpha4. A conversion may change nothing else of the metadata.
const KeptAnnotation = Group + "/matches"

// Convert returns an HTTPRouteGroup, TCPRoute or UDPRoute in another version of the group, for a conversion webhook. The
// object is left alone. A version that is asked for again gives back what was written first, unless it was edited in
// between. Headers come out as a list.
func Convert(u map[string]any, version string) (map[string]any, error) {
	kind, _ := u["kind"].(string)
	apiVersion, _ := u["apiVersion"].(string)
	from := strings.TrimPrefix(apiVersion, Group+"/")
	if !slices.Contains(Versions, version) {
		return nil, fmt.Errorf("%s: apiVersion: there is no version %q", kind, version)
	}
	out := runtime.DeepCopyJSON(u)
	out["apiVersion"] = Group + "/" + version
	kept, hasKept := takeAnnotation(out)
	var err error
	switch kind {
	case "HTTPRouteGroup":
		err = convertGroup(out, u, from, version, kept, hasKept)
	case "TCPRoute":
		err = convertTCP(out, u, from, version, kept, hasKept)
	case "UDPRoute":
		if version != Versions[0] {
			err = fmt.Errorf("there is only version %s", Versions[0])
		}
	default:
		err = fmt.Errorf("the kind is none of %s", Group)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", kind, err)
	}
	return out, nil
}

func convertGroup(out, u map[string]any, from, to, kept string, hasKept bool) error {
	g, errs := DecodeHTTPRouteGroup(from, u)
	if len(errs) > 0 {
		return errs.ToAggregate()
	}
	matches := g.Spec.Matches
	if hasKept && from == "v1alpha1" {
		var before []HTTPMatch
		if json.Unmarshal([]byte(kept), &before) == nil && reflect.DeepEqual(bare(before), bare(matches)) {
			matches = before
		}
	}
	delete(out, "matches")
	holder := out
	if inSpec(to) {
		spec, ok := out["spec"].(map[string]any)
		if !ok {
			spec = map[string]any{}
			out["spec"] = spec
		}
		holder = spec
	} else {
		delete(out, "spec")
	}
	delete(holder, "matches")
	if len(matches) > 0 {
		holder["matches"] = encodeMatches(matches, to != "v1alpha1")
	}
	if to == "v1alpha1" && !reflect.DeepEqual(bare(matches), matches) {
		return setAnnotation(out, matches)
	}
	return nil
}

// bare returns the matches as v1alpha1 can say them.
func bare(matches []HTTPMatch) []HTTPMatch {
	out := slices.Clone(matches)
	for i := range out {
		out[i].Headers = nil
	}
	return out
}

func encodeMatches(matches []HTTPMatch, headers bool) []any {
	var out []any
	for _, m := range matches {
		u := map[string]any{"name": m.Name}
		if len(m.Methods) > 0 {
			var methods []any
			for _, method := range m.Methods {
				methods = append(methods, method)
			}
			u["methods"] = methods
		}
		if m.PathRegex != "" {
			u["pathRegex"] = m.PathRegex
		}
		if headers && len(m.Headers) > 0 {
			var list []any
			for _, h := range m.Headers {
				list = append(list, map[string]any{h.Name: h.Value})
			}
			u["headers"] = list
		}
		out = append(out, u)
	}
	return out
}

func convertTCP(out, u map[string]any, from, to, kept string, hasKept bool) error {
	r, errs := DecodeTCPRoute(from, u)
	if len(errs) > 0 {
		return errs.ToAggregate()
	}
	matches := r.Spec.Matches
	if hasKept && from != "v1alpha4" {
		var before PortsMatch
		if json.Unmarshal([]byte(kept), &before) == nil {
			matches = before
		}
	}
	delete(out, "spec")
	if to != "v1alpha4" {
		if to == "v1alpha3" {
			out["spec"] = map[string]any{}
		}
		if matches.Name == "" && len(matches.Ports) == 0 {
			return nil
		}
		return setAnnotation(out, matches)
	}
	ports := make([]any, len(matches.Ports))
	for i, p := range matches.Ports {
		ports[i] = int64(p)
	}
	m := map[string]any{"ports": ports}
	if matches.Name != "" {
		m["name"] = matches.Name
	}
	out["spec"] = map[string]any{"matches": m}
	return validated(DecodeTCPRoute(to, out))
}

// validated turns what a decoding found into an error: an annotation may hold anything.
func validated(_ *TCPRoute, errs field.ErrorList) error {
	if len(errs) > 0 {
		return errs.ToAggregate()
	}
	return nil
}

func takeAnnotation(u map[string]any) (string, bool) {
	meta, _ := u["metadata"].(map[string]any)
	all, _ := meta["annotations"].(map[string]any)
	text, ok := all[KeptAnnotation].(string)
	delete(all, KeptAnnotation)
	if len(all) == 0 {
		delete(meta, "annotations")
	}
	return text, ok
}

func setAnnotation(u map[string]any, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	meta, ok := u["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		u["metadata"] = meta
	}
	all, ok := meta["annotations"].(map[string]any)
	if !ok {
		all = map[string]any{}
		meta["annotations"] = all
	}
	all[KeptAnnotation] = string(text)
	return nil
}
