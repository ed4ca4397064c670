package http2

import "time"

// Bounds of what a peer may ask for without use. A peer that crosses one is sent away with ENHANCE_YOUR_CALM.
const (
	// resetBudget is how many streams may end by resets for nothing, more than end with a complete answer: those that the peer resets
	// within youngReset before their answer begins, those whose head is malformed, and those that have to be reset because of what the
	// peer sends (CVE-2023-44487, CVE-2025-8671). resetRefill are forgiven a second.
	resetBudget = 64
	resetRefill = 5
	youngReset  = 100 * time.Millisecond

	// junkBudget is how many frames may come that serve no stream: PING, SETTINGS, PRIORITY, empty DATA, WINDOW_UPDATE, unknown ones and
	// those of streams that have ended, more than useful frames, in both directions, make up for (CVE-2019-9512, -9515, -9518 and their like).
	// junkRefill are forgiven a second.
	junkBudget = 4000
	junkRefill = 50

	// maxContinuations is how many CONTINUATION frames a header block may have, maxEmptyContinuations how many of those may be empty
	// (CVE-2024-27316).
	maxContinuations      = 128
	maxEmptyContinuations = 4
)

// What useful frames make up for, in frames without use. A client that reads an answer gives window for every few KiB, twice.
const (
	streamWorth = 16
	frameWorth  = 2       // of a DATA frame
	byteWorth   = 1 << 10 // bytes of DATA that are worth one more
)

// scores keep account of it; Conn.mu guards them.
type scores struct {
	resets, junk int
	at           time.Time
}

var (
	errResets = &ConnError{Code: EnhanceYourCalm, Flood: true, Detail: "flood: too many streams reset"}
	errJunk   = &ConnError{Code: EnhanceYourCalm, Flood: true, Detail: "flood: too many frames that serve no stream"}
	errOutput = &ConnError{Code: EnhanceYourCalm, Flood: true, Detail: "flood: the peer does not read acknowledgements"}
)

// wasted counts a stream that was for nothing.
func (x *scores) wasted() error {
	if x.resets++; x.resets > resetBudget {
		return errResets
	}
	return nil
}

// answered counts a stream whose answer was completed.
func (x *scores) answered() {
	if x.resets > 0 {
		x.resets--
	}
}

// useless counts frames without use.
func (x *scores) useless(n int) error {
	if x.junk += n; x.junk > junkBudget {
		return errJunk
	}
	return nil
}

// useful makes up for n of them.
func (x *scores) useful(n int) { x.junk = max(0, x.junk-n) }

// data makes up for frames with a DATA frame of n bytes.
func (x *scores) data(n int) { x.useful(frameWorth + n/byteWorth) }

// refill forgives, by the time that went by.
func (x *scores) refill(now time.Time) {
	if x.resets == 0 && x.junk == 0 {
		x.at = now
		return
	}
	seconds := int(min(now.Sub(x.at), time.Hour) / time.Second)
	if seconds <= 0 {
		return
	}
	x.at = now
	x.resets = max(0, x.resets-seconds*resetRefill)
	x.junk = max(0, x.junk-seconds*junkRefill)
}
