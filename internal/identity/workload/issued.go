package workload

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/pem"
	mathrand "math/rand/v2"
	"slices"
	"time"
)

// Issued are digests of what an Issuer signs for a pod. Both ends make them: who knows that a pod's would be another one now
// tells the pod (Source.Expect).
type Issued struct {
	// Names is of the DNS names of the certificate, Roots of the roots that come with it. Empty is not known.
	Names, Roots string
}

// IssuedOf returns the digests for a certificate with names, by an authority whose roots are PEM.
func IssuedOf(names []string, roots []byte) Issued {
	var all [][]byte
	for {
		var block *pem.Block
		if block, roots = pem.Decode(roots); block == nil {
			return issuedOf(names, all)
		}
		all = append(all, block.Bytes)
	}
}

// issuedOf does so for roots as DER.
func issuedOf(names []string, roots [][]byte) Issued {
	var all [][]byte
	for _, n := range names {
		all = append(all, []byte(n))
	}
	return Issued{digest(all), digest(roots)}
}

// digest is one of a set, whatever its order: 128 bits of SHA-256.
func digest(all [][]byte) string {
	all = slices.Clone(all)
	slices.SortFunc(all, bytes.Compare)
	h := sha256.New()
	for _, one := range slices.CompactFunc(all, bytes.Equal) {
		h.Write(binary.BigEndian.AppendUint64(nil, uint64(len(one))))
		h.Write(one)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:16])
}

// differs reports whether something is expected that is not so.
func (i Issued) differs(expected Issued) (names, roots bool) {
	return expected.Names != "" && i.Names != expected.Names, expected.Roots != "" && i.Roots != expected.Roots
}

const (
	// namesSpread and rootsSpread are within which time the pods ask whose names or roots are others: many at once learn of it.
	// The authority leaves much more time for roots.
	namesSpread, rootsSpread = 20 * time.Second, 10 * time.Minute
	// earlyPause is the least time between two certificates that are asked for before their time. It doubles, up to
	// longestPause, with each that was still not what was expected.
	earlyPause, longestPause = time.Minute, time.Hour
)

// early is when to ask for a certificate before its time, because it is not what it would be now.
type early struct {
	at       time.Time // zero is never
	expected Issued    // for which at was chosen
	last     time.Time // when one was asked for so
	pause    time.Duration
}

// look chooses the time, given what there is and what is expected.
func (e *early) look(is, expected Issued, now time.Time) {
	names, roots := is.differs(expected)
	spread := rootsSpread
	switch {
	case !names && !roots:
		e.at, e.pause = time.Time{}, 0
		return
	case !e.at.IsZero() && e.expected == expected:
		return
	case names:
		spread = namesSpread
	}
	at := now.Add(mathrand.N(spread))
	if soonest := e.last.Add(max(e.pause, earlyPause)); !e.last.IsZero() && at.Before(soonest) {
		at = soonest
	}
	if e.at.IsZero() || at.Before(e.at) { // what changes often does not put it off
		e.at = at
	}
	e.expected = expected
}

// asks reports whether it is time, and notes that one is asked for.
func (e *early) asks(now time.Time) bool {
	if e.at.IsZero() || now.Before(e.at) {
		return false
	}
	e.at, e.last, e.pause = time.Time{}, now, min(max(2*e.pause, earlyPause), longestPause)
	return true
}
