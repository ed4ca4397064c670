package workload

import (
	"math/rand/v2"
	"testing"
)

// TestPodsAreReplacedWithinTheBounds has pods become ready, fail and goals change at random: what is told is never more than
// the bound in all, takes no pod that serves below the least, and comes to the goals.
func TestPodsAreReplacedWithinTheBounds(t *testing.T) {
	seed := rand.Uint64()
	for walk := range 2000 {
		rnd := rand.New(rand.NewPCG(seed, uint64(walk)))
		all := int32(1 + rnd.IntN(12))
		surge := int32(rnd.IntN(4))
		least := all
		if surge == 0 {
			least--
		}
		sets := []set{{pods: all, ready: all}, {}, {pods: int32(rnd.IntN(3))}}
		for round := range 4 {
			n := int32(rnd.IntN(int(all) + 1))
			sets[0].goal, sets[1].goal, sets[2].goal = all-n, n, 0
			for turn := 0; ; turn++ {
				if turn > 200 {
					t.Fatalf("seed %d, walk %d, round %d: never done: %+v of %d, surge %d", seed, walk, round, sets, all, surge)
				}
				var total, serve int32
				for _, s := range sets {
					total += s.pods
					serve += s.ready
				}
				told := next(sets, all+surge, least)
				var after, removed, idle int32
				same := true
				for i, n := range told {
					after += n
					same = same && n == sets[i].pods
					if n < sets[i].pods {
						gone := sets[i].pods - n
						spare := min(gone, sets[i].pods-sets[i].ready)
						idle += spare
						removed += gone - spare
					}
				}
				if after < min(total, all) {
					t.Fatalf("seed %d, walk %d: %d pods of %d: %+v to %v", seed, walk, after, all, sets, told)
				}
				if after > max(total, all+surge) {
					t.Fatalf("seed %d, walk %d: %d pods of %d and %d: %+v to %v", seed, walk, after, all, surge, sets, told)
				}
				if removed > 0 && serve-removed < least {
					t.Fatalf("seed %d, walk %d: %d serve, %d are removed of them, and %d are the least: %+v to %v", seed, walk, serve, removed, least, sets, told)
				}
				if same && sets[0].pods == all-n && sets[1].pods == n && sets[2].pods == 0 {
					break
				}
				for i, n := range told {
					sets[i].pods = n
					sets[i].ready = min(sets[i].ready, n)
					if sets[i].ready < n && rnd.IntN(3) > 0 {
						sets[i].ready++
					}
				}
			}
		}
	}
}
