package http2

import "time"

// Bounds on useless work that a peer may cause. The connection of a peer that exceeds one ends with ENHANCE_YOUR_CALM.
const (
	// resetBudget bounds the wasted streams, less the streams that end with a complete answer. A stream is wasted if
	// the peer resets it within youngReset before its answer begins, if its head is malformed, or if it must be reset
	// because of what the peer sends (CVE-2023-44487, CVE-2025-8671). resetRefill are forgiven a second.
	resetBudget = 64
	resetRefill = 5
	youngReset  = 100 * time.Millisecond

	// junkBudget bounds the frames that serve no stream: PING, SETTINGS, PRIORITY, empty DATA, WINDOW_UPDATE, unknown
	// frames and frames of ended streams, less what useful frames in both directions make up for (CVE-2019-9512, -9515,
	// -9518 and similar ones). junkRefill are forgiven a second.
	junkBudget = 4000
	junkRefill = 50

	// maxContinuations bounds the CONTINUATION frames of a header block, maxEmptyContinuations the empty ones of them
	// (CVE-2024-27316).
	maxContinuations      = 128
	maxEmptyContinuations = 4
)

// How many useless frames a useful frame makes up for. A client that reads an answer sends WINDOW_UPDATE for every few
// KiB, twice.
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

// wasted counts a wasted stream.
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
