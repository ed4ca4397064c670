package workload

import (
	"cmp"
	"slices"
)

// set is how many pods a revision has.
type set struct {
	// pods is how many it was told to have, ready how many of them serve.
	pods, ready int32
	// goal is how many it should have in the end.
	goal int32
}

// next says how many pods each revision is told to have next, on the way to its goal: at most `most` in all, and not less
// than `least` that serve. What is there already may be beyond these bounds. Pods that do not serve go first, which a
// ReplicaSet sees to (kube-controller-manager ranks them so). The places of those that go are taken in the same step.
func next(all []set, most, least int32) []int32 {
	out := make([]int32, len(all))
	var total, serve int32
	for i, s := range all {
		out[i] = s.pods
		total += s.pods
		serve += min(s.ready, s.pods)
	}
	add := func() {
		for i, s := range all {
			if n := min(s.goal-out[i], most-total); n > 0 {
				out[i] += n
				total += n
			}
		}
	}
	add()
	// The revision with the most to remove comes last: what is left of older ones goes before what serves.
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(all[a].goal, all[b].goal) })
	for _, i := range order {
		s := all[i]
		if s.pods <= s.goal {
			continue
		}
		idle := s.pods - min(s.ready, s.pods)
		n := min(s.pods-s.goal, idle+max(0, serve-least))
		out[i] -= n
		total -= n
		serve -= max(0, n-idle)
	}
	add()
	return out
}
