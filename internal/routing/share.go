package routing

import "fmt"

// MaxShare is the largest denominator of a Share.
const MaxShare = 1_000_000_000

// Share picks exactly Numerator of every Denominator, at unpredictable places, as mirrors are sampled. It may be used by many goroutines and takes no
// lock.
type Share struct{ fraction fraction }

// NewShare fails unless 0 <= numerator <= denominator and 0 < denominator <= MaxShare.
func NewShare(numerator, denominator uint64) (*Share, error) {
	if denominator == 0 || denominator > MaxShare || numerator > denominator {
		return nil, fmt.Errorf("%d of %d is not a share", numerator, denominator)
	}
	s := &Share{fraction{numerator: numerator, all: numerator == denominator}}
	if numerator > 0 && numerator < denominator {
		s.fraction.sampler = newSampler(denominator)
	}
	return s, nil
}

// Take reports whether the next one is picked.
func (s *Share) Take() bool { return s.fraction.sample() }
