package proxy

import (
	"fmt"
	"sync/atomic"
)

// state is where a client's connection is in its life. One goroutine at a time has the connection, and only this
// goroutine changes the state. Other goroutines read the state to see whether they may end the connection without
// costing a client an answer.
//
//	            +--> header --+--> handshake --+--> streams --------------+
//	            |             |       |        |                          |
//	new --------+-------------+-------+--------+--> head --> serving --+  |
//	            |                                    ^  ^       |      |  |
//	            +--> idle ---------------------------+  +-------+      |  |
//	            |     ^ |  ^                                    |      |  |
//	            |     | |  +------------------------------------+      |  |
//	            |     | v                                       v      v  v
//	            +--> parking --> parked                   lingering --> over
//	                                                            |
//	                                                            +--> handed on
//
// A handshake for a relay ends as handed on. Where a port serves both cleartext and TLS, a head may turn out to be the
// beginning of a handshake. Where it is not known what a connection carries, a head may turn out to be none, and is handed
// on to a relay, as is an idle connection whose endpoint speaks first.
//
// Every state but parked and handed on can change to over: the connection broke, its time is up, or another connection
// needs its place.
type state uint32

const (
	// stateNew has been accepted, or taken out of the parking; nothing has been read yet.
	stateNew state = iota
	// stateHeader waits for a PROXY header.
	stateHeader
	// stateHandshake sets up TLS.
	stateHandshake
	// stateIdle waits for a request's first byte.
	stateIdle
	// stateHead has read bytes of a request, but its head is incomplete or not taken yet.
	stateHead
	// stateServing runs an exchange over HTTP/1.1.
	stateServing
	// stateStreams speaks HTTP/2. The http2 package tracks its life from here on.
	stateStreams
	// stateParking is idle and about to be parked.
	stateParking
	// stateLingering has sent its last answer and reads what the client still sends.
	stateLingering
	// stateOver is closed, or about to be.
	stateOver
	// stateParked has handed its socket to the parking, which makes a new connection of it later.
	stateParked
	// stateHandedOn has handed its socket to others, which close it: refusals, or a relay after the handshake.
	stateHandedOn
	states
)

var stateNames = [states]string{
	"new", "header", "handshake", "idle", "head", "serving", "streams", "parking", "lingering", "over", "parked", "handed on",
}

func (s state) String() string { return stateNames[s] }

// next holds, for each state, the states that may follow it, as a bit set.
var next = [states]uint32{
	stateNew:       set(stateHeader, stateHandshake, stateIdle, stateHead, stateParking, stateOver),
	stateHeader:    set(stateHandshake, stateIdle, stateHead, stateParking, stateOver),
	stateHandshake: set(stateIdle, stateHead, stateParking, stateStreams, stateHandedOn, stateOver),
	stateIdle:      set(stateHead, stateParking, stateHandedOn, stateOver),
	stateHead:      set(stateServing, stateStreams, stateHandshake, stateHandedOn, stateOver),
	stateServing:   set(stateHead, stateIdle, stateParking, stateLingering, stateOver),
	stateStreams:   set(stateOver),
	stateParking:   set(stateParked, stateIdle, stateHead, stateOver),
	stateLingering: set(stateHandedOn, stateOver),
	stateOver:      set(stateOver), // closing sets it a second time
	stateParked:    0,
	stateHandedOn:  0,
}

func set(all ...state) (bits uint32) {
	for _, s := range all {
		bits |= 1 << s
	}
	return bits
}

// mayBecome reports whether a connection may change from s to to.
func (s state) mayBecome(to state) bool { return next[s]&(1<<to) != 0 }

// waits is true while the proxy owes the client nothing: the connection may be closed.
func (s state) waits() bool { return s == stateHeader || s == stateIdle || s == stateLingering }

// life is a connection's state, and how often shedIdle has seen it there. Its zero value is stateNew.
type life struct {
	word atomic.Uint32 // the state in the low bits, the count above
}

const lookShift = 8

// is reports whether the connection is in state s.
func (l *life) is(s state) bool { return l.state() == s }

func (l *life) state() state { return state(l.word.Load() & (1<<lookShift - 1)) }

// become changes the state. A change that next does not allow is a bug in the proxy: become panics, which ends the
// connection.
func (l *life) become(to state) {
	if from := l.state(); !from.mayBecome(to) {
		panic(fmt.Sprintf("a client's connection that is %s cannot become %s", from, to))
	}
	l.word.Store(uint32(to))
}

// look counts one look at a waiting connection, from another goroutine. It returns true once most looks have been
// counted.
func (l *life) look(most uint32) (old bool) {
	w := l.word.Load()
	if !state(w & (1<<lookShift - 1)).waits() {
		return false
	}
	if w>>lookShift >= most {
		return true
	}
	l.word.CompareAndSwap(w, w+1<<lookShift)
	return false
}
