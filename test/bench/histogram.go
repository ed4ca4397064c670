package main

import (
	"maps"
	"math/bits"
	"slices"
	"time"
)

// histogram counts durations in buckets of less than 1 % of their value, so that those of many rounds can be put together and their quantiles
// read: the quantiles of rounds could not be. The key is a bucket's number.
type histogram map[int]uint64

// histogramBits is how many bits of a duration's nanoseconds are told apart.
const histogramBits = 7

func bucketOf(ns int64) int {
	v := uint64(max(ns, 0))
	shift := max(bits.Len64(v)-histogramBits-1, 0)
	return shift<<histogramBits + int(v>>shift)
}

// bucketEnd is the largest duration of a bucket.
func bucketEnd(bucket int) time.Duration {
	const one = 1 << histogramBits
	shift := max(bucket>>histogramBits-1, 0)
	return time.Duration((int64(bucket-shift*one)+1)<<shift - 1)
}

func (h histogram) add(ns int64) { h[bucketOf(ns)]++ }

// merge adds what another one has counted.
func (h histogram) merge(other histogram) {
	for bucket, n := range other {
		h[bucket] += n
	}
}

func (h histogram) count() (n uint64) {
	for _, c := range h {
		n += c
	}
	return n
}

// quantile is a duration that the fraction q of those counted does not exceed; 0 if none was.
func (h histogram) quantile(q float64) time.Duration {
	rank := uint64(q * float64(h.count()))
	for _, bucket := range slices.Sorted(maps.Keys(h)) {
		if n := h[bucket]; n > rank {
			return bucketEnd(bucket)
		} else {
			rank -= n
		}
	}
	return h.most()
}

// most is the end of the last bucket.
func (h histogram) most() time.Duration {
	last := -1
	for bucket := range h {
		last = max(last, bucket)
	}
	if last < 0 {
		return 0
	}
	return bucketEnd(last)
}
