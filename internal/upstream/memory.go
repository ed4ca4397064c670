package upstream

import "errors"

// ErrNoMemory is returned by Grow when Options.Memory has none for a larger buffer: nothing of it is the endpoint's fault.
var ErrNoMemory = errors.New("no memory is left for the head of an answer")

// draw draws for a buffer of size bytes, and as many for what is made of it.
func (s *Set) draw(size int) bool { return s.opt.Memory == nil || s.opt.Memory.Draw(2*size, true) }

// give gives back what draw drew.
func (s *Set) give(size int) {
	if s.opt.Memory != nil {
		s.opt.Memory.Give(2 * size)
	}
}
