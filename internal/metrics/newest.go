package metrics

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
)

// Newest has the Index of the newest set. It makes it when somebody asks, as sets may change often and questions are
// rare. The zero value knows no set.
type Newest struct {
	mu    sync.Mutex
	set   *resource.Set
	of    *resource.Set // that index was made of
	index *Index
	gone  []departed // the last to go comes last
}

// departed is a pod that was in a set before, and since when it is in none.
type departed struct {
	pod   *workload.Pod
	since time.Time
}

const (
	// goneFor is how long a pod that is gone is remembered: as long as a window that its traffic is in may last.
	goneFor = 5 * time.Minute
	// mostGone is how many are, the last ones.
	mostGone = 4096
)

// Know says which objects there are now.
func (n *Newest) Know(set *resource.Set) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.set != nil {
		n.remember(workload.PodList.In(n.set), workload.PodList.In(set), time.Now())
	}
	n.set = set
}

// remember notes the pods that were there before and are no more; both lists are by namespace and name.
func (n *Newest) remember(before, now []*workload.Pod, at time.Time) {
	for _, p := range before {
		for len(now) > 0 && comparePods(now[0], p) < 0 {
			now = now[1:]
		}
		if len(now) == 0 || comparePods(now[0], p) > 0 {
			n.gone = append(n.gone, departed{p, at})
		}
	}
	first := max(len(n.gone)-mostGone, 0)
	for first < len(n.gone) && at.Sub(n.gone[first].since) > goneFor {
		first++
	}
	n.gone = slices.Delete(n.gone, 0, first)
}

func comparePods(a, b *workload.Pod) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

// Known reports whether there is a set, for which no Index is made.
func (n *Newest) Known() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.set != nil
}

// Index is what is known of the newest objects; nil before there are any.
func (n *Newest) Index() *Index {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.set != nil && n.of != n.set {
		gone := make([]*workload.Pod, len(n.gone))
		for i, d := range n.gone {
			gone[len(gone)-1-i] = d.pod // of two of a name, the last one comes first
		}
		n.of, n.index = n.set, NewIndex(n.set, gone...)
	}
	return n.index
}

// Kinds are those of a set that NewIndex reads.
func Kinds() (out resource.Kinds) {
	for _, k := range append(resource.Kubernetes(), workload.Kinds()...) {
		if i, ok := kindOf[k.Name]; ok && k.APIVersion(k.Versions[0]) == kinds[i].APIVersion {
			out = append(out, k)
		}
	}
	return out
}
