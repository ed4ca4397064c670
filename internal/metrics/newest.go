package metrics

import (
	"sync"

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
}

// Know says which objects there are now.
func (n *Newest) Know(set *resource.Set) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.set = set
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
		n.of, n.index = n.set, NewIndex(n.set)
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
