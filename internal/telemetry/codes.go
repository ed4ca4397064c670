package telemetry

import "sync/atomic"

// maxCode is the largest status counted exactly; RFC 9110 §15 has three digits.
const maxCode = 999

// codeSlots is how many statuses a shard holds in its compact part. Services answer with few.
const codeSlots = 12

// firstCode gives 200 the first slot, which lies beside the other counters of an exchange.
const firstCode = codeSlots - 200%codeSlots

// codeCounts counts statuses exactly: a small open-addressed table, and an array for all of them only when a series
// answers with more than codeSlots different ones.
type codeCounts struct {
	slots [codeSlots]struct {
		key atomic.Uint32 // status + 1; 0 is free
		n   atomic.Uint64
	}
	all atomic.Pointer[[maxCode + 1]atomic.Uint64]
}

// add counts a status; one out of range counts as 0, which means no answer.
func (c *codeCounts) add(status int) {
	if status < 0 || status > maxCode {
		status = 0
	}
	key := uint32(status) + 1
	for i, at := 0, (status+firstCode)%codeSlots; i < codeSlots; i++ {
		s := &c.slots[at]
		k := s.key.Load()
		if k == 0 && s.key.CompareAndSwap(0, key) {
			k = key
		} else if k == 0 {
			k = s.key.Load()
		}
		if k == key {
			s.n.Add(1)
			return
		}
		if at++; at == codeSlots {
			at = 0
		}
	}
	all := c.all.Load()
	if all == nil {
		all = new([maxCode + 1]atomic.Uint64)
		if !c.all.CompareAndSwap(nil, all) {
			all = c.all.Load()
		}
	}
	all[status].Add(1)
}

// each calls f with every status counted, in no order; a status may come twice.
func (c *codeCounts) each(f func(status int, n uint64)) {
	for i := range c.slots {
		if k := c.slots[i].key.Load(); k != 0 {
			f(int(k)-1, c.slots[i].n.Load())
		}
	}
	if all := c.all.Load(); all != nil {
		for status := range all {
			if n := all[status].Load(); n != 0 {
				f(status, n)
			}
		}
	}
}
