package telemetry

import "sync/atomic"

// AccessResult is what access control found about a request, a connection or a client's datagrams.
type AccessResult uint8

// The results; those behind AccessUngoverned are why there is no permission.
const (
	AccessAllowed AccessResult = iota
	AccessUngoverned
	AccessNoIdentity
	AccessUnknownSource
	AccessNotPermitted
	AccessAmbiguousPath
	AccessTooMuchWork

	numAccessResults = iota
)

var accessResults = [numAccessResults]string{"allowed", "ungoverned", "no_identity", "unknown_source", "not_permitted", "ambiguous_path", "too_much_work"}

// String is the result's name in the metrics and in the access log.
func (r AccessResult) String() string { return accessResults[r] }

// Access counts the decisions about one workload. It is valid for ever; after its configuration is gone it counts unseen.
type Access struct {
	workload string
	shards   shards[accessShard]
	life     life
}

type accessShard struct {
	// decided is by whether something passed only because the workload is audited.
	decided [2][numAccessResults]atomic.Uint64
	_       [cacheLine]byte
}

// Count counts a decision. audited means that there was no permission, and it passed nevertheless.
func (a *Access) Count(shard uint32, r AccessResult, audited bool) {
	i := 0
	if audited {
		i = 1
	}
	a.shards.get(shard).decided[i][r].Add(1)
}

// action is what became of it.
func (r AccessResult) action(audited bool) string {
	switch {
	case audited:
		return "audited"
	case r == AccessAllowed || r == AccessUngoverned:
		return "passed"
	}
	return "denied"
}

// each calls f with every count that is not zero.
func (a *Access) each(f func(r AccessResult, audited bool, n uint64)) {
	for i, audited := range [...]bool{false, true} {
		for r := range AccessResult(numAccessResults) {
			var n uint64
			a.shards.each(func(s *accessShard) { n += s.decided[i][r].Load() })
			if n > 0 {
				f(r, audited, n)
			}
		}
	}
}

// Access returns the series of a workload, "namespace/Kind/name", the same one each time. Take it when a configuration
// is applied, not for each request.
func (r *Registry) Access(workload string) *Access {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.access.get(valid(workload))
}
