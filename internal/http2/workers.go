package http2

// Workers are goroutines that serve streams one after the other: a stack that has grown once stays so. Their number is not bounded here, but by the streams.
type Workers struct{}

// NewWorkers keeps up to idle goroutines that have nothing to do.
func NewWorkers(idle int) *Workers { panic("not yet") }

// Close ends the idle goroutines, and the others with their work.
func (w *Workers) Close() { panic("not yet") }
