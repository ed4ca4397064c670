package telemetry

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/loglimit"
)

// LinesOptions are the bounds of a log. The zero value has the defaults.
type LinesOptions struct {
	// Name is the log's name in messages, such as "access log".
	Name string
	// QueueBytes bounds the lines that wait for the writer; further lines are dropped and counted. Default 4 MiB.
	QueueBytes int
	// Gather is how long lines are collected before a write, so that a busy log costs few system calls. Default: not at all.
	Gather time.Duration
	// Logger hears, bounded, that lines are lost and that they no longer are. It must not block. Default: discarded.
	Logger *slog.Logger
}

const (
	// batch is how many bytes are written without waiting longer.
	batch = 64 << 10
	// keepBuffer is the largest buffer that is kept while the log is idle.
	keepBuffer = 256 << 10
	// complainEvery bounds how often the log tells that a log cannot be written.
	complainEvery = time.Minute
)

// Lines is a log whose callers never wait: its own goroutine writes. If the goroutine cannot write, because a disk is
// full, a pipe is not read, or a network file system is away, lines are dropped and counted.
type Lines struct {
	w             io.Writer
	options       LinesOptions
	selfReporting bool // the logger writes here
	dropped       atomic.Uint64
	wake          chan struct{} // capacity 1
	done          chan struct{} // closed when the writer has ended

	losses loglimit.Limiter

	mu      sync.Mutex
	pending []byte // whole lines
	writing int    // bytes the writer holds
	waiting bool   // the writer waits for wake
	closed  bool
	losing  bool // lines were dropped since the last time that all was well
	told    bool // and the log says so

	// The writer's own.
	spare []byte
	torn  bool // the last byte written was inside a line
	err   error
}

// NewLines starts a log to w. Close ends it.
func NewLines(w io.Writer, options LinesOptions) *Lines {
	if options.QueueBytes <= 0 {
		options.QueueBytes = 4 << 20
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	l := &Lines{w: w, options: options, wake: make(chan struct{}, 1), done: make(chan struct{})}
	l.losses.Every = complainEvery
	go l.run()
	return l
}

// ReportInItself makes the log report its losses in itself, through a logger that writes to it. It must be called before the
// first line. If the queue is full, only the end of the loss is reported: at its beginning there is no room, and the
// logger is locked by the caller.
func (l *Lines) ReportInItself(logger *slog.Logger) { l.options.Logger, l.selfReporting = logger, true }

// Write queues one or more whole lines, copying them. It never fails: lines for which there is no room are dropped.
func (l *Lines) Write(p []byte) (int, error) {
	if !l.queue(p) {
		l.lost(uint64(bytes.Count(p, []byte{'\n'})), nil)
	}
	return len(p), nil
}

// queue reports whether there was room for the lines.
func (l *Lines) queue(b []byte) bool {
	l.mu.Lock()
	if l.closed || len(l.pending)+l.writing+len(b) > l.options.QueueBytes {
		l.mu.Unlock()
		return false
	}
	before := len(l.pending)
	l.pending = append(l.pending, b...)
	wake := l.waiting && (before == 0 || before < batch && len(l.pending) >= batch)
	l.mu.Unlock()
	if wake {
		l.signal()
	}
	return true
}

func (l *Lines) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// lost counts lines that were dropped: because of err, or of a queue that is full. The first of them is logged.
func (l *Lines) lost(n uint64, err error) {
	l.dropped.Add(n)
	l.mu.Lock()
	l.losing = true
	var suppressed int64
	tell := false
	if !l.told && !l.closed {
		suppressed, tell = l.losses.Allow("")
		l.told = tell
	}
	l.mu.Unlock()
	switch {
	case !tell, l.selfReporting && err == nil:
	case err != nil:
		l.options.Logger.Error(l.options.Name+" cannot be written, its records are dropped", loglimit.Args(suppressed, "err", err)...)
	default:
		l.options.Logger.Error(l.options.Name+" cannot keep up, records are dropped", loglimit.Args(suppressed, "queue", l.options.QueueBytes)...)
	}
}

// well notes that lines were written; dropped is how many had been lost before. If that has not grown, all is well again.
func (l *Lines) well(dropped uint64) {
	l.mu.Lock()
	tell := false
	if l.losing && l.dropped.Load() == dropped {
		tell = l.told
		l.losing, l.told = false, false
	}
	l.mu.Unlock()
	if tell {
		l.options.Logger.Info(l.options.Name+" is written again", "dropped", dropped)
	}
}

// Dropped is how many lines were lost because the queue was full, or because they could not be written.
func (l *Lines) Dropped() uint64 {
	if l == nil {
		return 0
	}
	return l.dropped.Load()
}

// Close writes the queued lines while ctx lasts, and ends the writer. Later lines are dropped. A writer that is stuck
// in its Write ends when that returns.
func (l *Lines) Close(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.signal()
	select {
	case <-l.done:
		return l.err
	case <-ctx.Done():
		l.mu.Lock()
		left := len(l.pending) + l.writing
		l.mu.Unlock()
		return fmt.Errorf("%s: %d bytes were not written: %w", l.options.Name, left, context.Cause(ctx))
	}
}

// run is the writer.
func (l *Lines) run() {
	defer close(l.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		if !l.await(timer) {
			return
		}
		l.mu.Lock()
		out := l.pending
		l.pending, l.writing = l.spare[:0], len(out)
		l.mu.Unlock()

		dropped := l.dropped.Load()
		l.write(out)

		l.spare = out
		l.mu.Lock()
		l.writing = 0
		l.mu.Unlock()
		if l.err == nil {
			l.well(dropped)
		}
	}
}

// await returns true when there is something worth writing, and false when the log is closed and nothing is left.
func (l *Lines) await(timer *time.Timer) bool {
	gathered := l.options.Gather <= 0
	for {
		l.mu.Lock()
		n, closed := len(l.pending), l.closed
		ready := n >= batch || n > 0 && (gathered || closed)
		l.waiting = !ready && !closed
		if n == 0 && cap(l.pending) > keepBuffer {
			l.pending = nil
		}
		l.mu.Unlock()
		if n == 0 && cap(l.spare) > keepBuffer {
			l.spare = nil
		}
		switch {
		case ready:
			return true
		case closed:
			return false
		case n == 0:
			<-l.wake
		default:
			timer.Reset(l.options.Gather)
			select {
			case <-timer.C:
				gathered = true
			case <-l.wake:
			}
		}
	}
}

// write writes lines, and accounts for those that could not be written.
func (l *Lines) write(out []byte) {
	err := l.mend()
	n := 0
	if err == nil {
		n, err = l.w.Write(out)
		if err == nil && n < len(out) {
			err = io.ErrShortWrite
		}
	}
	l.err = err
	if err == nil {
		return
	}
	n = max(0, min(n, len(out)))
	if n > 0 {
		l.torn = out[n-1] != '\n'
	}
	l.lost(uint64(bytes.Count(out[n:], []byte{'\n'})), err)
}

// mend ends a line that an earlier write tore.
func (l *Lines) mend() error {
	if !l.torn {
		return nil
	}
	if _, err := l.w.Write([]byte{'\n'}); err != nil {
		return err
	}
	l.torn = false
	return nil
}
