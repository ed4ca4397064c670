package proxy

import (
	"errors"
	"time"
)

// handshakeGate bounds the handshakes that use a processor at the same time. A flood of handshakes queues here, and not
// in the scheduler before the exchanges of established connections. A handshake that waits for the client takes no
// place. The gate also bounds its queue.
type handshakeGate struct {
	places chan struct{}
	line   chan struct{}
}

var (
	errHandshakeLine = errors.New("too many handshakes wait for a processor")
	errHandshakeTime = errors.New("the handshake's time is over")
	errHandshakeRoom = errors.New("no memory is left for the handshake")
)

func newHandshakeGate(places, line int) *handshakeGate {
	return &handshakeGate{places: make(chan struct{}, places), line: make(chan struct{}, line)}
}

// enter waits for a place until the given time. It refuses a newcomer when the queue is full.
func (g *handshakeGate) enter(until time.Time, newcomer bool) error {
	select {
	case g.places <- struct{}{}:
		return nil
	default:
	}
	if newcomer {
		select {
		case g.line <- struct{}{}:
			defer func() { <-g.line }()
		default:
			return errHandshakeLine
		}
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case g.places <- struct{}{}:
		return nil
	case <-t.C:
		return errHandshakeTime
	}
}

func (g *handshakeGate) leave() { <-g.places }
