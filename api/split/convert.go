package split

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// What a version has no field for is kept in annotations, which is all that a conversion may change in the metadata, so
// that no way through the versions loses anything.
const (
	// MatchesAnnotation holds spec.matches as JSON in versions without it.
	MatchesAnnotation = Group + "/matches"
	// WeightsAnnotation holds the quantities, by comma, of a split whose weights had to be scaled to whole numbers.
	WeightsAnnotation = Group + "/weights"
)

// Convert returns the object in another version of the group, for a conversion webhook. The object is left alone. Every
// share of the traffic is kept exactly: thousandths become whole numbers in the same proportion. A version that is
// asked for again gives back what was written first, unless it was edited in between.
func Convert(u map[string]any, version string) (map[string]any, error) {
	apiVersion, _ := u["apiVersion"].(string)
	from := strings.TrimPrefix(apiVersion, Group+"/")
	if !slices.Contains(Versions, version) {
		return nil, fmt.Errorf("TrafficSplit: apiVersion: there is no version %q", version)
	}
	s, errs := Decode(from, u)
	if len(errs) > 0 {
		return nil, fmt.Errorf("TrafficSplit: %w", errs.ToAggregate())
	}
	out := runtime.DeepCopyJSON(u)
	out["apiVersion"] = Group + "/" + version
	notes := annotations(out)
	restore(&s.Spec, shapeOf(from), notes)
	spec, _ := out["spec"].(map[string]any)
	if err := encode(spec, s.Spec, shapeOf(version), notes); err != nil {
		return nil, fmt.Errorf("TrafficSplit: %w", err)
	}
	setAnnotations(out, notes)
	return out, nil
}

// restore takes out of the annotations what the version it was written in could not say.
func restore(s *Spec, from shape, notes map[string]string) {
	if text, ok := notes[MatchesAnnotation]; ok && !from.matches {
		var matches []Match
		if json.Unmarshal([]byte(text), &matches) == nil {
			s.Matches = matches
		}
	}
	delete(notes, MatchesAnnotation)
	text, ok := notes[WeightsAnnotation]
	delete(notes, WeightsAnnotation)
	words := strings.Split(text, ",")
	if !ok || from.quantities || len(words) != len(s.Backends) {
		return
	}
	before := make([]Weight, len(words))
	for i, word := range words {
		w, err := parseWeight(word, true, nil)
		if err != nil {
			return
		}
		before[i] = w
	}
	for i, w := range whole(before) {
		if w != s.Backends[i].Weight {
			return // edited since
		}
	}
	for i, w := range before {
		s.Backends[i].Weight = w
	}
}

func encode(spec map[string]any, s Spec, to shape, notes map[string]string) error {
	weights := make([]Weight, len(s.Backends))
	for i, b := range s.Backends {
		weights[i] = b.Weight
	}
	if scaled := whole(weights); !to.quantities && !slices.Equal(scaled, weights) {
		words := make([]string, len(weights))
		for i, w := range weights {
			words[i] = w.String()
		}
		notes[WeightsAnnotation] = strings.Join(words, ",")
		weights = scaled
	}
	backends := make([]any, len(weights))
	for i, w := range weights {
		var weight any = int64(w) / 1000
		if to.quantities {
			weight = w.String()
		}
		backends[i] = map[string]any{"service": s.Backends[i].Service, "weight": weight}
	}
	spec["backends"] = backends
	delete(spec, "matches")
	if len(s.Matches) == 0 {
		return nil
	}
	if !to.matches {
		text, err := json.Marshal(s.Matches)
		notes[MatchesAnnotation] = string(text)
		return err
	}
	var matches []any
	for _, m := range s.Matches {
		match := map[string]any{"kind": m.Kind, "name": m.Name}
		if m.APIGroup != "" {
			match["apiGroup"] = m.APIGroup
		}
		matches = append(matches, match)
	}
	spec["matches"] = matches
	return nil
}

// whole returns weights in the same proportion without thousandths: as they are if there are none, else the smallest.
func whole(weights []Weight) []Weight {
	var divisor Weight
	all := true
	for _, w := range weights {
		all = all && w.Whole()
		for a := w; a != 0; {
			divisor, a = a, divisor%a
		}
	}
	if all {
		return weights
	}
	out := make([]Weight, len(weights))
	for i, w := range weights {
		out[i] = w / divisor * 1000
	}
	return out
}

func annotations(u map[string]any) map[string]string {
	meta, _ := u["metadata"].(map[string]any)
	all, _ := meta["annotations"].(map[string]any)
	out := map[string]string{}
	for k, v := range all {
		if text, ok := v.(string); ok {
			out[k] = text
		}
	}
	return out
}

func setAnnotations(u map[string]any, notes map[string]string) {
	meta, ok := u["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		u["metadata"] = meta
	}
	delete(meta, "annotations")
	if len(notes) > 0 {
		all := map[string]any{}
		for _, k := range slices.Sorted(maps.Keys(notes)) {
			all[k] = notes[k]
		}
		meta["annotations"] = all
	}
}
