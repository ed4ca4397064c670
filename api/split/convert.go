package split

import (
	"encoding/json"
	"fmt"
	"reflect"

	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/weirmesh/weir/api/convert"
)

// Annotations keep what a version has no field for. A conversion may change nothing else in the metadata. So no way
// through the versions loses anything.
const (
	// MatchesAnnotation holds spec.matches as JSON in versions without it.
	MatchesAnnotation = Group + "/matches"
	// WeightsAnnotation holds the weights of a split as a version with quantities wrote them, as a JSON list, where whole
	// numbers alone would not give them back: "500m", 0.5, "1e3".
	WeightsAnnotation = Group + "/weights"
)

// Bounds of the definition's schema, which the content of an annotation must meet.
const (
	maxMatches  = 64
	maxKind     = 63
	maxNameText = 253
)

// Kinds are the kinds of the group, with their conversions.
func Kinds() []convert.Kind { return []convert.Kind{trafficSplit} }

var trafficSplit = convert.Kind{
	Group: Group, Name: "TrafficSplit", Plural: "trafficsplits", Hub: "v1alpha4",
	Versions: map[string]convert.Version{
		"v1alpha3": {}, "v1alpha2": {},
		"v1alpha1": {Up: toWhole, Down: toQuantities}, Draft: {Up: toWhole, Down: toQuantities},
	},
}

// toWhole makes whole numbers of quantities, and matches of the annotation.
func toWhole(u map[string]any) error {
	at := field.NewPath("spec")
	spec, ok := u["spec"].(map[string]any)
	if !ok {
		return field.Required(at, "write what is split, and over which backends")
	}
	backends, ok := spec["backends"].([]any)
	if !ok {
		return field.Required(at.Child("backends"), "write at least one backend")
	}
	at = at.Child("backends")
	convert.Take(u, WeightsAnnotation)
	written := make([]any, len(backends))
	weights := make([]Weight, len(backends))
	for i, v := range backends {
		b, ok := v.(map[string]any)
		if !ok {
			return field.TypeInvalid(at.Index(i), v, "must be an object with service and weight")
		}
		w, err := parseWeight(b["weight"], true, at.Index(i).Child("weight"))
		if err != nil {
			return err
		}
		written[i], weights[i] = b["weight"], w
	}
	weights = whole(weights)
	same := true
	for i, w := range weights {
		if w > MaxWeight*1000 {
			return field.Invalid(at.Index(i).Child("weight"), fmt.Sprint(written[i]),
				fmt.Sprintf("no whole numbers up to %d have the proportion of these weights", int64(MaxWeight)))
		}
		same = same && written[i] == quantity(w)
		backends[i].(map[string]any)["weight"] = int64(w) / 1000
	}
	if !same {
		text, err := json.Marshal(written)
		if err != nil {
			return field.Invalid(at, "list", err.Error())
		}
		convert.Keep(u, WeightsAnnotation, string(text))
	}
	return restoreMatches(u, spec)
}

// restoreMatches takes the matches out of the annotation. An unreadable annotation is an error: without its matches a
// split would apply to all requests.
func restoreMatches(u, spec map[string]any) error {
	text, ok := convert.Take(u, MatchesAnnotation)
	if !ok {
		return nil
	}
	at := field.NewPath("metadata", "annotations").Key(MatchesAnnotation)
	if text == convert.TooLarge {
		return field.Forbidden(at, "the matches of this split do not fit into the annotation: write it in v1alpha4")
	}
	var value any
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &value); err != nil {
		return field.Invalid(at, "text", "must be spec.matches of v1alpha4 as JSON, or be removed: "+err.Error())
	}
	matches, ok := value.([]any)
	if !ok || len(matches) > maxMatches {
		return field.Invalid(at, "text", fmt.Sprintf("must be a list of at most %d matches as JSON, or be removed", maxMatches))
	}
	d := decoder{shape: shape{matches: true}}
	for i, m := range d.matches(map[string]any{"matches": value}, at) {
		if len(m.APIGroup) > maxNameText || len(m.Kind) > maxKind || len(m.Name) > maxNameText {
			d.fail(field.TooLong(at.Child("matches").Index(i), "", maxNameText))
		}
	}
	if len(d.errs) > 0 {
		return d.errs.ToAggregate()
	}
	spec["matches"] = value
	return nil
}

// toQuantities makes the form of versions with quantities of whole numbers.
func toQuantities(u map[string]any) {
	text, kept := convert.Take(u, WeightsAnnotation)
	convert.Take(u, MatchesAnnotation)
	spec, ok := u["spec"].(map[string]any)
	if !ok {
		return
	}
	if matches, ok := spec["matches"]; ok {
		if text, err := json.Marshal(matches); err == nil {
			convert.Keep(u, MatchesAnnotation, string(text))
		}
		delete(spec, "matches")
	}
	backends, _ := spec["backends"].([]any)
	var written []any
	if kept {
		written = asWritten(text, backends)
	}
	for i, v := range backends {
		b, ok := v.(map[string]any)
		if !ok {
			continue
		}
		if w, err := parseWeight(b["weight"], false, nil); err == nil {
			b["weight"] = quantity(w)
		}
		if written != nil {
			b["weight"] = written[i]
		}
	}
}

// quantity is the default form, in versions with quantities, of a weight without thousandths.
func quantity(w Weight) any { return w.String() }

// asWritten returns the weights of the annotation if the backends' weights are still the converted ones, nil if these
// were edited since.
func asWritten(text string, backends []any) []any {
	var written []any
	if kjson.UnmarshalCaseSensitivePreserveInts([]byte(text), &written) != nil || len(written) != len(backends) {
		return nil
	}
	then, now := make([]Weight, len(written)), make([]Weight, len(written))
	for i, v := range backends {
		b, _ := v.(map[string]any)
		var errThen, errNow *field.Error
		then[i], errThen = parseWeight(written[i], true, nil)
		if now[i], errNow = parseWeight(b["weight"], false, nil); errThen != nil || errNow != nil {
			return nil
		}
	}
	if !reflect.DeepEqual(whole(then), now) {
		return nil
	}
	return written
}

// whole returns weights in the same proportion without thousandths: unchanged if there are none, else the smallest.
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
		out[i] = min(w/divisor, MaxWeight+1) * 1000
	}
	return out
}
