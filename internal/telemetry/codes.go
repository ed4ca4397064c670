package telemetry

import "sync/atomic"

// maxCode is the largest status counted exactly; RFC 9110 §15 has three digits.
const maxCode = 999

// codeSlot counts one status, the first that takes it.
type codeSlot struct {
	key atomic.Uint32 // status + 1; 0 is free
	n   atomic.Uint64
}

// add counts the status, unless the slot belongs to another status.
func (s *codeSlot) add(status int) bool {
	key := uint32(status) + 1
	k := s.key.Load()
	if k == 0 && !s.key.CompareAndSwap(0, key) {
		k = s.key.Load()
	}
	if k != 0 && k != key {
		return false
	}
	s.n.Add(1)
	return true
}

// each calls f with the slot's status, if it has one.
func (s *codeSlot) each(f func(status int, n uint64)) {
	if k := s.key.Load(); k != 0 {
		f(int(k)-1, s.n.Load())
	}
}

// codeSlots is how many statuses a shard holds in its compact part. Services answer with few.
const codeSlots = 8

// codeCounts counts statuses exactly: a small open-addressed table, and an array for all of them only when a series
// answers with more than codeSlots different ones.
type codeCounts struct {
	slots [codeSlots]codeSlot
	all   atomic.Pointer[[maxCode + 1]atomic.Uint64]
}

// add counts a status between 0, which means no answer, and maxCode.
func (c *codeCounts) add(status int) {
	for i := range codeSlots {
		if c.slots[(status+i)%codeSlots].add(status) {
			return
		}
	}
	load(&c.all)[status].Add(1)
}

// each calls f with every status counted, in no order; a status may come twice.
func (c *codeCounts) each(f func(status int, n uint64)) {
	for i := range c.slots {
		c.slots[i].each(f)
	}
	if all := c.all.Load(); all != nil {
		for status := range all {
			if n := all[status].Load(); n != 0 {
				f(status, n)
			}
		}
	}
}
