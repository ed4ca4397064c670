package socket

import (
	"errors"
	"net"
	"os"
	"sync"
	"time"
)

// Merge makes one listener of several, of which there must be one at least; its address is the first one's. Whoever
// accepts from it takes their connections one by one. Closing it closes them.
func Merge(all ...net.Listener) net.Listener {
	m := &merged{all: all, queue: make(chan taken), over: make(chan struct{}), moved: make(chan struct{})}
	for _, ln := range all {
		m.done.Go(func() { m.take(ln) })
	}
	return m
}

type merged struct {
	all   []net.Listener
	queue chan taken
	over  chan struct{} // closed by Close
	done  sync.WaitGroup

	mu       sync.Mutex
	deadline time.Time
	moved    chan struct{} // closed when the deadline is replaced
	closed   bool
}

// taken is what Accept returns.
type taken struct {
	net.Conn
	err error
}

// take hands on what comes to one of the sockets. A connection waits until it is taken, as others do in the system's queue.
func (m *merged) take(ln net.Listener) {
	for {
		nc, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		select {
		case m.queue <- taken{nc, err}: // after an error the next attempt waits for whoever is told of it
		case <-m.over:
			if nc != nil {
				nc.Close()
			}
			return
		}
	}
}

// Accept implements net.Listener.
func (m *merged) Accept() (net.Conn, error) {
	for {
		m.mu.Lock()
		deadline, moved, closed := m.deadline, m.moved, m.closed
		m.mu.Unlock()
		if closed {
			return nil, m.failed(net.ErrClosed)
		}
		var alarm <-chan time.Time
		if !deadline.IsZero() {
			left := time.Until(deadline)
			if left <= 0 {
				return nil, m.failed(os.ErrDeadlineExceeded)
			}
			alarm = time.After(left)
		}
		select {
		case t := <-m.queue:
			return t.Conn, t.err
		case <-moved:
		case <-alarm:
		case <-m.over:
		}
	}
}

func (m *merged) failed(err error) error {
	return &net.OpError{Op: "accept", Net: "tcp", Addr: m.Addr(), Err: err}
}

// SetDeadline bounds Accept, as that of a net.TCPListener does.
func (m *merged) SetDeadline(t time.Time) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.deadline = t
	close(m.moved)
	m.moved = make(chan struct{})
	return nil
}

// Close implements net.Listener.
func (m *merged) Close() error {
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return net.ErrClosed
	}
	m.closed = true
	close(m.over)
	m.mu.Unlock()
	var all []error
	for _, ln := range m.all {
		all = append(all, ln.Close())
	}
	m.done.Wait()
	return errors.Join(all...)
}

// Addr implements net.Listener.
func (m *merged) Addr() net.Addr { return m.all[0].Addr() }
