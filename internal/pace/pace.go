// Package pace judges how fast a peer sends or takes bytes. It knows numbers and durations only; proxy and http2 measure.
package pace

import (
	"math"
	"time"
)

// Rule is the least speed of a peer. The zero value is no rule.
type Rule struct {
	Rate  int           // bytes a second; 0 for no rule
	Grace time.Duration // how far behind it a peer may fall
	// Scarce, if not nil, reports whether others lack what the peer holds. It may fall behind by a sixth of Grace then.
	Scarce func() bool
}

// LookAfter is how long to wait for a silent peer before judging its pace.
func (r Rule) LookAfter() time.Duration { return r.Grace / 6 }

// Pace is how far a peer is behind the least speed. The only time that counts is that in which the peer is waited for
// and something is due. The slowness of others, silence between events and the processing of a request do not count.
// Speed makes up for earlier slowness but is not saved for later, so that the average is over the last few graces,
// however long the body is. The zero value is not behind.
type Pace struct{ behind time.Duration }

// Waited notes a wait of d in which n bytes were sent or taken; n below 0 corrects an earlier call.
func (p *Pace) Waited(r Rule, d time.Duration, n int64) {
	if r.Rate == 0 {
		return
	}
	due := float64(p.behind+d) - float64(n)/float64(r.Rate)*float64(time.Second)
	p.behind = time.Duration(min(max(due, 0), math.MaxInt64/2))
}

// Left is how long the peer may still do nothing, at most most. 0 or less: it is too slow.
func (p *Pace) Left(r Rule, most time.Duration) time.Duration {
	if r.Rate == 0 {
		return most
	}
	grace := r.Grace
	if p.behind >= r.LookAfter() && r.Scarce != nil && r.Scarce() {
		grace = r.LookAfter()
	}
	return min(grace-p.behind, most)
}
