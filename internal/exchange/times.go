package exchange

import "time"

// times are the points in time that an attempt reached, counted from the exchange's start. Zero: the attempt did not
// reach it, or no log needs it.
type times struct {
	// began is when the endpoint was picked. connected is when the connection was established, if the attempt opened
	// one.
	began, connected time.Duration
	// head is when the head of the final answer was read. last is when the last bytes were read, or when the attempt
	// failed.
	head, last time.Duration
}

// clock returns how long ago the exchange began, zero if no log needs it: only the access log reports attempts.
func (ex *Exchange) clock() time.Duration {
	if ex.pipe.AccessLog == nil {
		return 0
	}
	return time.Since(ex.from.Start)
}

// isConnected records that a connection was established.
func (ex *Exchange) isConnected() { ex.attempt.times.connected = ex.clock() }

// tried records that the head of the final answer was read, or that the attempt failed.
func (ex *Exchange) tried(err error) {
	t := &ex.attempt.times
	if t.last = ex.clock(); err == nil {
		t.head = t.last
	}
}

// heardMore notes that more of the answer was read. Bytes that came with its head do not read the clock.
func (ex *Exchange) heardMore() { ex.attempt.times.last = ex.clock() }

// of returns the durations for the access log: connecting, the head, and all; each from the beginning.
func (t *times) of() (connect, head, all time.Duration) {
	if t.connected > 0 {
		connect = max(t.connected-t.began, 1)
	}
	if t.head > 0 {
		head = max(t.head-t.began, 1)
	}
	return connect, head, max(t.last-t.began, 0)
}
