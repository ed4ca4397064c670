package embedded

import (
	"cmp"
	"slices"
	"time"

	"github.com/weirmesh/weir/internal/telemetry"
)

// admit returns how many of the new edges of a source there is room for, and puts those with the most traffic first. The
// last eighth of the room is for sources that have less than their share, so that one with very many leaves some to
// others.
func (s *Store) admit(p *source, edges []*telemetry.EdgeSnapshot, now time.Time) int {
	room := s.room(p)
	if len(edges) > room && (s.evicted.IsZero() || now.Sub(s.evicted) >= s.options.Keep) {
		s.evicted = now
		s.evict(max(1, s.options.MaxEdges/8))
		room = s.room(p)
	}
	if room >= len(edges) {
		return len(edges)
	}
	slices.SortStableFunc(edges, func(a, b *telemetry.EdgeSnapshot) int {
		return cmp.Compare(b.Success+b.Failure, a.Success+a.Failure)
	})
	return room
}

func (s *Store) room(p *source) int {
	most := s.options.MaxEdges
	return max(0, most-most/8-s.edges, min(most-s.edges, s.share()-p.used()))
}

// share is how many edges a source has if all have as many.
func (s *Store) share() int { return s.options.MaxEdges / max(1, len(s.sources)) }

// used is how many edges have places.
func (p *source) used() int { return len(p.edges) - len(p.free) }

// evict leaves out the n edges that had the least traffic of late, of sources that have no less than their share. Those
// that had some keep their places until that has left the window.
func (s *Store) evict(n int) {
	type candidate struct {
		source  *source
		at      int32
		traffic uint64
	}
	var all []candidate
	var traffic []uint64
	for _, p := range s.sources {
		if p.used() < s.share() {
			continue
		}
		traffic = append(traffic[:0], make([]uint64, len(p.edges))...)
		for i := range p.states {
			for at, entry := range p.states[i].entries() {
				success, failure, _ := counts(entry)
				traffic[at] += success + failure
			}
		}
		for at := range p.edges {
			if e := &p.edges[at]; e.live && e.labels != telemetry.OtherEdge(e.labels.Out) {
				all = append(all, candidate{p, int32(at), traffic[at]})
			}
		}
	}
	slices.SortFunc(all, func(a, b candidate) int {
		return cmp.Compare(a.traffic, b.traffic)
	})
	for _, c := range all[:min(n, len(all))] {
		c.source.retire(c.at)
		c.source.partial, c.source.shifted = true, true
	}
}
