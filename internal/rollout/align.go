package rollout

import (
	"encoding/json"
	"fmt"
	"hash/maphash"
	"reflect"
	"slices"
)

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
