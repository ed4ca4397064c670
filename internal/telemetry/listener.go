package telemetry

import "sync/atomic"

// Listener counts the client connections of one listening socket, or of one listener.
type Listener struct {
	name   string
	shards shards[listenerShard]
	life   life
}

type listenerShard struct {
	opened atomic.Uint64
	closed atomic.Uint64
	_      [cacheLine]byte
}

// Name is the label the series is shown under.
func (l *Listener) Name() string { return l.name }

// Opened counts a connection that was accepted.
func (l *Listener) Opened(shard uint32) { l.shards.get(shard).opened.Add(1) }

// Closed counts a connection that ended: once for each Opened, with the same shard or another.
func (l *Listener) Closed(shard uint32) { l.shards.get(shard).closed.Add(1) }

// Connections returns how many connections were accepted, and how many of them are open.
func (l *Listener) Connections() (total, open uint64) {
	var closed uint64
	// Closed is read first: a connection seen as closed was opened before.
	l.shards.each(func(s *listenerShard) { closed += s.closed.Load() })
	l.shards.each(func(s *listenerShard) { total += s.opened.Load() })
	return total, total - closed
}
