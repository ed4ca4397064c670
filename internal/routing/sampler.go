package routing

import (
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
)

// sampler deals out the numbers 0..size-1, each exactly once in every block of size draws. The order differs from block
// to block and cannot be predicted without the key. Draws share one atomic counter and nothing else, so this holds
// however many goroutines draw.
type sampler struct {
	size uint64
	key  [2]uint64
	// low and high are the widths of the two halves of the permutation's power-of-two domain.
	low, high uint

	_     [64]byte // the counter has a cache line to itself: the fields above are read by every core
	count atomic.Uint64
	_     [64]byte
}

func newSampler(size uint64) *sampler {
	return newKeyedSampler(size, [2]uint64{rand.Uint64(), rand.Uint64()})
}

func newKeyedSampler(size uint64, key [2]uint64) *sampler {
	width := uint(bits.Len64(size - 1))
	return &sampler{size: size, key: key, low: width / 2, high: width - width/2}
}

// draw returns the next number.
func (s *sampler) draw() uint64 {
	i := s.count.Add(1) - 1
	return s.permute(i/s.size, i%s.size)
}

// permute returns the number at a place of a block.
func (s *sampler) permute(block, place uint64) uint64 {
	a := mix(s.key[0] + block*golden)
	if s.size <= maxShuffled {
		return shuffled(a^s.key[1], s.size, place)
	}
	return s.encipher(a, mix(a^s.key[1]), place)
}

// maxShuffled is the largest block that is shuffled outright; 16! is far below 2^64.
const maxShuffled = 16

// shuffled returns the number at a place of a permutation of size numbers, all permutations being equally likely. It
// reads the permutation as a Lehmer code, whose digit i (below size-i) counts the smaller numbers that come later.
func shuffled(random, size, place uint64) uint64 {
	var digits [maxShuffled]uint64
	random = mix(random)
	for i := range place + 1 {
		digits[i], random = bits.Mul64(random, size-i)
	}
	x := digits[place]
	for i := int(place) - 1; i >= 0; i-- {
		if digits[i] <= x {
			x++
		}
	}
	return x
}

// encipher is a Feistel network with the keys a and b over the next power of two. It is repeated until the result is
// inside the block, fewer than two times on average (Black and Rogaway, "Ciphers with Arbitrary Finite Domains", 2002,
// cycle walking). It is between two rotations of the block, so that the number at any one place is uniform whatever the
// rounds do.
func (s *sampler) encipher(a, b, place uint64) uint64 {
	low, high := uint64(1)<<s.low-1, uint64(1)<<s.high-1
	x := rotate(place, a, s.size)
	for {
		l, r := x>>s.low, x&low
		y := b
		for range 3 {
			l ^= fold(r, a, y) & high
			y += golden
			r ^= fold(l, a, y) & low
			y += golden
		}
		if x = l<<s.low | r; x < s.size {
			return rotate(x, b, s.size)
		}
	}
}

const golden = 0x9e3779b97f4a7c15

// rotate adds a pseudo-random offset modulo size; x is below size.
func rotate(x, random, size uint64) uint64 {
	offset, _ := bits.Mul64(random, size)
	if x += offset; x >= size {
		x -= size
	}
	return x
}

// fold is the round function: both halves of a product, each of which breaks the linearity of the other. x, which is
// small, is first spread over the word; otherwise neighbours would differ by little more than y.
func fold(x, a, y uint64) uint64 {
	hi, lo := bits.Mul64(x*golden^a, y)
	return hi ^ lo
}

// mix is the finaliser of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// fraction samples numerator of every denominator. It needs no sampler if that is none or all.
type fraction struct {
	numerator uint64
	all       bool
	*sampler
}

func (f *fraction) sample() bool {
	if f.sampler == nil {
		return f.all
	}
	return f.draw() < f.numerator
}

// split draws an index by weight; it needs no sampler when only one has any.
type split struct {
	// ends are the running sums of the reduced weights.
	ends []uint64
	// sole is the index that is drawn without a sampler; -1 if all weights are zero.
	sole int
	*sampler
}

// reduce divides the weights by their greatest common divisor and also returns their sum. sole is the only index with a
// weight, or -1 if there is none. If there are several, the sum is at least 2.
func reduce(weights []uint64) (reduced []uint64, sum uint64, sole int) {
	var divisor uint64
	used := 0
	sole = -1
	for i, w := range weights {
		if w != 0 {
			divisor = gcd(divisor, w)
			sole = i
			used++
		}
	}
	if used <= 1 {
		return nil, 0, sole
	}
	reduced = make([]uint64, len(weights))
	for i, w := range weights {
		reduced[i] = w / divisor
		sum += reduced[i]
	}
	return reduced, sum, sole
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func (s *split) pick() int {
	if s.sampler == nil {
		return s.sole
	}
	x := s.draw()
	low, high := 0, len(s.ends)-1
	for low < high {
		if mid := (low + high) / 2; x < s.ends[mid] {
			high = mid
		} else {
			low = mid + 1
		}
	}
	return low
}
