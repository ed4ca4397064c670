package rollout

import (
	"fmt"
	"maps"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/api/resource"
)

// merger carries what a user edited of an object with a step over to the one without: a three-way merge of JSON, of what
// was laid, the live object, and the original. Everything else about kinds is in keys.
type merger struct {
	// dropped are the fields of the laid object that the user edited in vain.
	dropped []string
	depth   int
	// compared is the work of comparing what the user added.
	compared int
}

// maxDepth is how deep values are merged; below it they count as wholes. Every level compares all that is below it.
const maxDepth = 64

// maybe is a value that may be missing.
type maybe struct {
	value any
	there bool
}

func some(v any) maybe { return maybe{v, v != nil} }

func (a maybe) equal(b maybe) bool { return a.there == b.there && reflect.DeepEqual(a.value, b.value) }

// merge returns the original with the difference between laid and live.
func (m *merger) merge(field string, laid, live, original maybe) maybe {
	switch {
	case laid.equal(live):
		return original
	case laid.equal(original):
		return live
	case !laid.there || !live.there || m.depth == maxDepth:
		return live
	}
	m.depth++
	defer func() { m.depth-- }()
	if a, ok := laid.value.(map[string]any); ok {
		b, ok := live.value.(map[string]any)
		o, was := original.value.(map[string]any)
		if !ok || original.there && !was {
			return live
		}
		out := m.fields(field, a, b, o)
		return maybe{out, original.there || len(out) > 0}
	}
	if a, ok := laid.value.([]any); ok {
		b, ok := live.value.([]any)
		o, was := original.value.([]any)
		if !ok || original.there && !was {
			return live
		}
		out := m.lists(field, a, b, o)
		return maybe{out, original.there || len(out) > 0}
	}
	return live
}

func (m *merger) fields(field string, laid, live, original map[string]any) map[string]any {
	out := map[string]any{}
	for _, each := range []map[string]any{laid, live, original} {
		for key := range each {
			if _, done := out[key]; done {
				continue
			}
			of := func(u map[string]any) maybe { v, ok := u[key]; return maybe{v, ok} }
			if got := m.merge(field+"."+key, of(laid), of(live), of(original)); got.there {
				out[key] = got.value
			}
		}
	}
	return out
}

// lists merges lists: each element of the live one is that of the laid one which it most likely was, and that one is the
// original's which it was made of, or was added by the step.
func (m *merger) lists(field string, laid, live, original []any) []any {
	key := keyOf(field)
	from := align(original, laid, key, 0)     // of each original one, the laid one
	origin := inverse(from, len(laid))        // of each laid one, the original one
	now := align(laid, live, key, leastAlike) // of each laid one, the live one
	pairGaps(laid, live, origin, now, key)
	was := inverse(now, len(live)) // of each live one, the laid one
	added, left := 0, 0            // by the step, and of these still there
	for i, o := range origin {
		if o < 0 {
			added++
			if now[i] >= 0 {
				left++
			}
		}
	}
	if added > 0 && left == 0 {
		return live
	}
	weights := weightsEdited(laid, live, original, origin, now, was)
	out := []any{}
	for i, v := range live {
		l := was[i]
		switch {
		case l < 0:
			out = append(out, m.inserted(field, v, laid, original, origin))
		case origin[l] < 0:
			if !covers(v, laid[l]) {
				m.dropped = append(m.dropped, fmt.Sprintf("%s[%d]", field, i))
			}
		default:
			got := m.merge(fmt.Sprintf("%s[%d]", field, i), some(laid[l]), some(v), some(original[origin[l]]))
			if weights {
				got.value = withWeights(got.value, v, l, live, origin, now)
			}
			out = append(out, got.value)
		}
	}
	return withLeftOut(out, original, from)
}

// withLeftOut puts elements back that the step left out, where they were.
func withLeftOut(list, original []any, from []int) []any {
	out := make([]any, 0, len(list))
	for o, l := range from {
		if l >= 0 {
			continue
		}
		if n := min(o-len(out), len(list)); n > 0 {
			out, list = append(out, list[:n]...), list[n:]
		}
		out = append(out, original[o])
	}
	return append(out, list...)
}

// inserted is an element that the user added. It may be a copy of one that the step changed.
func (m *merger) inserted(field string, v any, laid, original []any, origin []int) any {
	best, like := -1, copyAlike
	if keyOf(field) != nil || m.compared > maxPairs {
		return v
	}
	own := features(v)
	for l, o := range origin {
		if o < 0 || reflect.DeepEqual(laid[l], original[o]) {
			continue
		}
		those := features(laid[l])
		m.compared += len(own) + len(those)
		if s := alike(those, own); s >= like {
			best, like = l, s
		}
	}
	if best < 0 {
		return v
	}
	got := m.merge(field, some(laid[best]), some(v), some(original[origin[best]]))
	return got.value
}

// covers reports whether a value is another one with nothing but further fields, such as those that an API server
// completes.
func covers(live, laid any) bool {
	switch laid := laid.(type) {
	case map[string]any:
		u, ok := live.(map[string]any)
		for key, v := range laid {
			w, there := u[key]
			ok = ok && there && covers(w, v)
		}
		return ok
	case []any:
		list, ok := live.([]any)
		if !ok || len(list) != len(laid) {
			return false
		}
		for i := range laid {
			if !covers(list[i], laid[i]) {
				return false
			}
		}
		return true
	}
	return reflect.DeepEqual(live, laid)
}

const weightField = "weight"

func weightOf(v any) any {
	u, _ := v.(map[string]any)
	return u[weightField]
}

// weightsEdited reports whether a step changed the weights of a list, and the user some of these, or added one of his own.
func weightsEdited(laid, live, original []any, origin, now, was []int) bool {
	divided, edited := false, false
	for l, o := range origin {
		divided = divided || o >= 0 && !reflect.DeepEqual(weightOf(laid[l]), weightOf(original[o])) || o < 0 && weightOf(laid[l]) != nil
		edited = edited || now[l] >= 0 && !reflect.DeepEqual(weightOf(laid[l]), weightOf(live[now[l]]))
	}
	for v, l := range was {
		_, ok := live[v].(map[string]any)
		edited = edited || l < 0 && ok
	}
	return divided && edited && !slices.ContainsFunc(live, func(v any) bool { _, ok := v.(map[string]any); return !ok })
}

// withWeights is a merged element with the weight that its live one has, and in addition those of what the step added behind
// it: the canary.
func withWeights(merged, v any, l int, live []any, origin, now []int) any {
	u, ok := merged.(map[string]any)
	if !ok {
		return merged
	}
	out := maps.Clone(u)
	delete(out, weightField)
	weight := weightOf(v)
	for next := l + 1; next < len(origin) && origin[next] < 0; next++ {
		if now[next] >= 0 {
			weight = addWeights(weight, weightOf(live[now[next]]))
		}
	}
	if weight != nil {
		out[weightField] = weight
	}
	return out
}

// addWeights adds weights, which some versions write as quantities. One that is not written is 1.
func addWeights(a, b any) any {
	if a == nil {
		a = int64(1)
	}
	if b == nil {
		b = int64(1)
	}
	x, ok := a.(int64)
	y, whole := b.(int64)
	if ok && whole {
		return x + y
	}
	p, err := resource.ParseQuantity(fmt.Sprint(a))
	if err != nil {
		return a
	}
	q, err := resource.ParseQuantity(fmt.Sprint(b))
	if err != nil {
		return a
	}
	p.Add(q)
	return p.String()
}
