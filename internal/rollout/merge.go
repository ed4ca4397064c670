package rollout

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
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

// How alike elements are, from 0 to 1: leastAlike is enough for one to be an edit of another, addedAlike for one to be an
// edit of what a step added, copyAlike for one to be a copy.
const (
	leastAlike = 0.3
	addedAlike = 0.6
	copyAlike  = 0.6
)

// pairGaps pairs what is left over between pairs, if it is as many on both sides: edits that leave little as it was. What the
// step added, on the contrary, has to be much like it, or else it is an element of the user's.
func pairGaps(laid, live []any, origin, now []int, key keyFunc) {
	for l, v := range now {
		if v >= 0 && origin[l] < 0 && !reflect.DeepEqual(laid[l], live[v]) {
			if k := key.of(laid[l]); k != "" && k != key.of(live[v]) || k == "" && alike(features(laid[l]), features(live[v])) < addedAlike {
				now[l] = -1
			}
		}
	}
	taken := inverse(now, len(live))
	for l := 0; l < len(laid); l++ {
		if now[l] >= 0 {
			continue
		}
		end, first := l, 0
		for end < len(laid) && now[end] < 0 {
			end++
		}
		if l > 0 {
			first = now[l-1] + 1
		}
		last := first
		for last < len(live) && taken[last] < 0 {
			last++
		}
		var own []int
		for i := l; i < end; i++ {
			if origin[i] >= 0 {
				own = append(own, i)
			}
		}
		if len(own) == last-first {
			for i, o := range own {
				now[o] = first + i
			}
		}
		l = end
	}
}

// keyFunc tells elements of a list apart.
type keyFunc []string

// keys are the fields by which elements of lists are told apart, by the name of the list. Elements of other lists are told
// apart by how alike they are.
var keys = map[string]keyFunc{
	"backendRefs": {"namespace", "name", "port"}, // HTTPRoute, GRPCRoute
	"backends":    {"service"},                   // TrafficSplit
	"route":       {"destination"},               // VirtualService
	"subsets":     {"name"},                      // DestinationRule
	"parentRefs":  {"namespace", "name", "sectionName", "port"},
	"headers":     {"name"},
	"queryParams": {"name"},
}

func keyOf(field string) keyFunc {
	for i := len(field) - 1; i >= 0; i-- {
		if field[i] == '.' {
			return keys[field[i+1:]]
		}
	}
	return nil
}

// of is the key of an element; empty if it has none.
func (k keyFunc) of(v any) string {
	u, ok := v.(map[string]any)
	if !ok || k == nil {
		return ""
	}
	var values []any
	for _, name := range k {
		values = append(values, u[name])
	}
	text, _ := json.Marshal(values)
	return string(text)
}

// maxPairs bounds the work of align: of longer lists it pairs what is equal, or if nothing is, one after the other.
const maxPairs = 1 << 20

// align pairs elements of two lists in their order, such that they are as alike as possible; for each of a it returns the
// one of b, or -1. Elements that are less alike than least are not paired, unless least is 0.
func align(a, b []any, key keyFunc, least float64) []int {
	out := make([]int, len(a))
	for i := range out {
		out[i] = -1
	}
	first := 0
	for first < len(a) && first < len(b) && reflect.DeepEqual(a[first], b[first]) {
		out[first] = first
		first++
	}
	end := 0
	for end < len(a)-first && end < len(b)-first && reflect.DeepEqual(a[len(a)-1-end], b[len(b)-1-end]) {
		out[len(a)-1-end] = len(b) - 1 - end
		end++
	}
	a, b = a[first:len(a)-end], b[first:len(b)-end]
	if len(a) == 0 || len(b) == 0 {
		return out
	}
	if len(a) > maxPairs/len(b) {
		pairs := equals(a, b)
		if len(a) == len(b) && !slices.ContainsFunc(pairs, func(j int) bool { return j >= 0 }) {
			pairs = nil // each is changed: a weight of each rule
		}
		for i := range a {
			if pairs == nil {
				out[first+i] = first + i
			} else if pairs[i] >= 0 {
				out[first+i] = first + pairs[i]
			}
		}
		return out
	}
	af, bf, ak, bk := make([][]uint64, len(a)), make([][]uint64, len(b)), make([]string, len(a)), make([]string, len(b))
	for i, v := range a {
		af[i], ak[i] = features(v), key.of(v)
	}
	for j, v := range b {
		bf[j], bk[j] = features(v), key.of(v)
	}
	score := func(i, j int) float64 {
		s := alike(af[i], bf[j])
		switch {
		case s == 1 && reflect.DeepEqual(a[i], b[j]):
			return 4
		case ak[i] != "" && ak[i] == bk[j]:
			return 2 + s
		case least == 0:
			return 0.5 + s
		case s >= least:
			return s
		}
		return 0
	}
	width := len(b) + 1
	best := make([]float64, (len(a)+1)*width)
	scores := make([]float64, len(a)*len(b))
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			s := score(i, j)
			scores[i*len(b)+j] = s
			top := max(best[(i+1)*width+j], best[i*width+j+1])
			if s > 0 {
				top = max(top, s+best[(i+1)*width+j+1])
			}
			best[i*width+j] = top
		}
	}
	for i, j := 0, 0; i < len(a) && j < len(b); {
		s := scores[i*len(b)+j]
		switch {
		case s > 0 && best[i*width+j] == s+best[(i+1)*width+j+1]:
			out[first+i] = first + j
			i, j = i+1, j+1
		case best[i*width+j] == best[i*width+j+1]:
			j++
		default:
			i++
		}
	}
	return out
}

// equals pairs elements that are equal, in their order, for lists that are too long for more.
func equals(a, b []any) []int {
	at := map[string][]int{}
	for j, v := range b {
		text, _ := json.Marshal(v)
		at[string(text)] = append(at[string(text)], j)
	}
	out, next := make([]int, len(a)), 0
	for i, v := range a {
		out[i] = -1
		text, _ := json.Marshal(v)
		list := at[string(text)]
		for len(list) > 0 && list[0] < next {
			list = list[1:]
		}
		if at[string(text)] = list; len(list) > 0 {
			out[i], next = list[0], list[0]+1
		}
	}
	return out
}

// inverse of pairs of a list with one of n elements.
func inverse(pairs []int, n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = -1
	}
	for i, j := range pairs {
		if j >= 0 {
			out[j] = i
		}
	}
	return out
}

var seed = maphash.MakeSeed()

// features are hashes of a value's scalars with their fields, sorted.
func features(v any) (all []uint64) {
	var walk func(field uint64, v any)
	walk = func(field uint64, v any) {
		switch v := v.(type) {
		case map[string]any:
			for key, each := range v {
				walk((field^maphash.String(seed, key))*0x9e3779b97f4a7c15, each)
			}
		case []any:
			for _, each := range v {
				walk(field, each)
			}
		default:
			all = append(all, field^maphash.String(seed, fmt.Sprint(v)))
		}
	}
	walk(1, v)
	slices.Sort(all)
	return all
}

// alike is how alike two values are by their features: 1 if these are the same, 0 if they have none in common.
func alike(a, b []uint64) float64 {
	if len(a)+len(b) == 0 {
		return 1
	}
	common := 0
	for i, j := 0, 0; i < len(a) && j < len(b); {
		switch {
		case a[i] == b[j]:
			common, i, j = common+1, i+1, j+1
		case a[i] < b[j]:
			i++
		default:
			j++
		}
	}
	return 2 * float64(common) / float64(len(a)+len(b))
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
