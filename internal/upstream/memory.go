package upstream

import "errors"

// ErrNoMemory is returned by Grow if Options.Memory has none for a larger buffer. It is not the endpoint's fault.
var ErrNoMemory = errors.New("no memory is left for the head of an answer")

// draw draws for a buffer of size bytes, and the same amount for what is made from it.
func (s *Set) draw(size int) bool { return s.opt.Memory == nil || s.opt.Memory.Draw(2*size, true) }

// give returns what draw drew.
func (s *Set) give(size int) {
	if s.opt.Memory != nil {
		s.opt.Memory.Give(2 * size)
	}
}
