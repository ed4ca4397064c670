package proxy

import (
	"fmt"
	"sync/atomic"
)

// state is where a client's connection is in its life. One goroutine at a time has the connection, and that alone moves it on; others look at the state to
// see whether the connection may be ended without costing anybody an answer.
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
// Everything that is not at its end may become over: the connection broke, its time has passed, or its place is wanted.
type state uint32

const (
	// stateNew has been accepted, or taken out of the parking; nothing has been read yet.
	stateNew state = iota
	// stateHeader waits for a PROXY header.
	stateHeader
	// stateHandshake sets TLS up.
	stateHandshake
	// stateIdle waits for a request's first byte.
	stateIdle
	// stateHead has bytes of a request whose head is not complete or not taken yet.
	stateHead
	// stateServing has an exchange under way, over HTTP/1.1.
	stateServing
	// stateStreams speaks HTTP/2, which has a life of its own from here.
	stateStreams
	// stateParking is idle, and about to be parked.
	stateParking
	// stateLingering has its last answer, and takes what the client still sends.
	stateLingering
	// stateOver is to be closed, or is.
	stateOver
	// stateParked is waited for by the parking, which makes a new connection of the socket.
	stateParked
	// stateHandedOn has a socket that others close (see refusals).
	stateHandedOn
	states
)

var stateNames = [states]string{
	"new", "header", "handshake", "idle", "head", "serving", "streams", "parking", "lingering", "over", "parked", "handed on",
}

func (s state) String() string { return stateNames[s] }

// next are the states that may follow each one, as a set of bits.
var next = [states]uint32{
	stateNew:       set(stateHeader, stateHandshake, stateIdle, stateHead, stateParking, stateOver),
	stateHeader:    set(stateHandshake, stateIdle, stateHead, stateParking, stateOver),
	stateHandshake: set(stateIdle, stateHead, stateParking, stateStreams, stateOver),
	stateIdle:      set(stateHead, stateParking, stateOver),
	stateHead:      set(stateServing, stateStreams, stateOver),
	stateServing:   set(stateHead, stateIdle, stateParking, stateLingering, stateOver),
	stateStreams:   set(stateOver),
	stateParking:   set(stateParked, stateIdle, stateHead, stateOver),
	stateLingering: set(stateHandedOn, stateOver),
	stateOver:      set(stateOver), // it is said again when it is closed
	stateParked:    0,
	stateHandedOn:  0,
}

func set(all ...state) (bits uint32) {
	for _, s := range all {
		bits |= 1 << s
	}
	return bits
}

// mayBecome says whether a connection may go from s to to.
func (s state) mayBecome(to state) bool { return next[s]&(1<<to) != 0 }

// waits is true while nothing is owed to the client: it may be ended.
func (s state) waits() bool { return s == stateHeader || s == stateIdle || s == stateLingering }

// life is a connection's state, and how often shedIdle has seen it there. Its zero value is new.
type life struct {
	word atomic.Uint32 // the state, and the count above it
}

const lookShift = 8

// is says whether the connection is in the state.
func (l *life) is(s state) bool { return l.state() == s }

func (l *life) state() state { return state(l.word.Load() & (1<<lookShift - 1)) }

// become moves the connection on. A step that next does not have is a fault of the proxy: it costs the connection, as any panic does.
func (l *life) become(to state) {
	if from := l.state(); !from.mayBecome(to) {
		panic(fmt.Sprintf("a client's connection that is %s cannot become %s", from, to))
	}
	l.word.Store(uint32(to))
}

// look counts a look at a connection that waits, from another goroutine: old once it has waited for so many, seen if it waits at all.
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
