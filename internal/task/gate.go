package task

import "sync"

// Gate is a condition that tasks wait for, and that may come and go. The zero value is shut.
type Gate struct {
	mu   sync.Mutex
	c    chan struct{}
	open bool
}

// Opened returns a channel that is closed when the Gate is open, now or the next time.
func (g *Gate) Opened() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.channel()
}

// Open releases all waiting goroutines, and lets later ones pass.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.open {
		close(g.channel())
		g.open = true
	}
}

// Shut makes later goroutines wait.
func (g *Gate) Shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open {
		g.c, g.open = nil, false
	}
}

func (g *Gate) channel() chan struct{} {
	if g.c == nil {
		g.c = make(chan struct{})
	}
	return g.c
}
