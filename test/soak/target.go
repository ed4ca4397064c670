//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// target is where a client connects to. dial waits until there is something to connect to; errOver: there will be nothing any more.
type target interface {
	dial(p ports, secure bool) (net.Conn, error)
}

var errOver = errors.New("there is nothing to connect to any more")

func connect(address string, port int) (net.Conn, error) {
	return net.DialTimeout("tcp", net.JoinHostPort(address, strconv.Itoa(port)), patience)
}

// fixed is an address that is always served.
type fixed string

func (f fixed) dial(p ports, secure bool) (net.Conn, error) {
	if secure {
		return connect(string(f), p.secure)
	}
	return connect(string(f), p.web)
}

// balancer sends connections to the replicas that say they are ready.
type balancer struct {
	s *soak

	mu       sync.Mutex
	replicas map[string]*process
	ready    []string
}

func (b *balancer) get(address string) *process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.replicas[address]
}

func (b *balancer) set(address string, p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas[address] = p
}

// follow looks which replicas are ready, as a kubelet does.
func (b *balancer) follow(ctx context.Context) {
	for ctx.Err() == nil {
		var ready []string
		for _, address := range []string{"127.0.0.2", "127.0.0.3"} {
			if status, _, err := b.get(address).get("readyz"); err == nil && status == http.StatusOK {
				ready = append(ready, address)
			}
		}
		b.mu.Lock()
		b.ready = ready
		b.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// awaitReady waits until connections are sent to a replica.
func (b *balancer) awaitReady(address string) error {
	for begun := time.Now(); time.Since(begun) < patience; time.Sleep(10 * time.Millisecond) {
		b.mu.Lock()
		for _, a := range b.ready {
			if a == address {
				b.mu.Unlock()
				return nil
			}
		}
		b.mu.Unlock()
	}
	return fmt.Errorf("the replica at %s does not become ready: %w", address, errGaveUp)
}

func (b *balancer) dial(p ports, secure bool) (net.Conn, error) {
	for b.s.ctx.Err() == nil {
		b.mu.Lock()
		ready := b.ready
		b.mu.Unlock()
		if len(ready) > 0 {
			return fixed(ready[rand.IntN(len(ready))]).dial(p, secure)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, errOver
}

// passing is the port that comes and goes: clients connect while it is there, and are told to leave when it goes.
type passing struct {
	dialing sync.RWMutex // held for writing while it goes away: no dial is under way then
	mu      sync.Mutex
	there   chan struct{} // closed while it is there, or it is all over
	is      bool
	over    bool
}

func newPassing() *passing { return &passing{there: make(chan struct{})} }

func (p *passing) open() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.is = true
	close(p.there)
}

// close returns when nobody dials any more.
func (p *passing) close() {
	p.dialing.Lock()
	defer p.dialing.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.is = false
	p.there = make(chan struct{})
}

func (p *passing) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	if !p.is {
		close(p.there)
	}
}

func (p *passing) dial(all ports, _ bool) (net.Conn, error) {
	for {
		p.mu.Lock()
		there := p.there
		p.mu.Unlock()
		<-there
		p.dialing.RLock()
		p.mu.Lock()
		is, over := p.is, p.over
		p.mu.Unlock()
		if over || is {
			defer p.dialing.RUnlock()
			if over {
				return nil, errOver
			}
			return connect("127.0.0.1", all.passing)
		}
		p.dialing.RUnlock()
	}
}

// ended is true if the other side has closed an idle connection, which a client has to look at before it sends.
func ended(raw syscall.RawConn) bool {
	var b [1]byte
	over := false
	err := raw.Control(func(fd uintptr) {
		_, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
		over = !errors.Is(err, syscall.EAGAIN)
	})
	return err != nil || over
}
