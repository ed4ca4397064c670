package http2

import "sync"

// Workers are goroutines that serve streams one after the other: a stack that has grown once stays so. How many work is bounded by the streams.
type Workers struct {
	most int

	mu     sync.Mutex
	idle   []chan *Stream // the last to have worked comes first, being warm
	closed bool
	wg     sync.WaitGroup
}

// NewWorkers keeps up to idle goroutines without work.
func NewWorkers(idle int) *Workers { return &Workers{most: idle} }

// run has s served.
func (w *Workers) run(s *Stream) {
	w.mu.Lock()
	if n := len(w.idle); n > 0 {
		ch := w.idle[n-1]
		w.idle = w.idle[:n-1]
		w.mu.Unlock()
		ch <- s
		return
	}
	w.wg.Add(1)
	w.mu.Unlock()
	go w.work(s)
}

func (w *Workers) work(s *Stream) {
	defer w.wg.Done()
	ch := make(chan *Stream, 1)
	for ; s != nil; s = <-ch {
		s.c.serveStream(s)
		w.mu.Lock()
		if w.closed || len(w.idle) >= w.most {
			w.mu.Unlock()
			return
		}
		w.idle = append(w.idle, ch)
		w.mu.Unlock()
	}
}

// Close ends the idle goroutines, and the others with their work; it waits for them. No connection may use the workers any more.
func (w *Workers) Close() {
	w.mu.Lock()
	w.closed = true
	idle := w.idle
	w.idle = nil
	w.mu.Unlock()
	for _, ch := range idle {
		close(ch)
	}
	w.wg.Wait()
}
