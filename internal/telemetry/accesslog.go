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
)

// AccessLogOptions are the log's format and bounds. The zero value has the defaults.
type AccessLogOptions struct {
	Format Format
	// QueueBytes bounds the lines that wait for the writer; what comes beyond is dropped and counted. Default 4 MiB.
	QueueBytes int
	// Logger hears of writes that fail. Default: discarded.
	Logger *slog.Logger
}

const (
	// gather is how long lines are collected before a write, so that a busy log costs few system calls.
	gather = 10 * time.Millisecond
	// batch is how many bytes are written without waiting longer.
	batch = 64 << 10
	// keepBuffer is the largest buffer kept while nothing happens.
	keepBuffer = 256 << 10
	// complainEvery bounds how often failing writes are logged.
	complainEvery = time.Minute
)

// AccessLog writes one line for each exchange, from one goroutine of its own. It never blocks an exchange: what the
// writer cannot take is dropped and counted.
type AccessLog struct {
	w       io.Writer
	format  Format
	limit   int
	logger  *slog.Logger
	lines   sync.Pool // *line
	dropped atomic.Uint64
	wake    chan struct{} // capacity 1
	done    chan struct{} // closed when the writer has ended

	mu      sync.Mutex
	pending []byte // whole lines
	writing int    // bytes the writer holds
	waiting bool   // the writer waits for wake
	closed  bool

	// The writer's own.
	spare      []byte
	torn       bool // the last byte written was inside a line
	failing    bool
	complained time.Time
	err        error
}

type line struct{ b []byte }

// NewAccessLog starts a log to w. Close ends it.
func NewAccessLog(w io.Writer, options AccessLogOptions) *AccessLog {
	if options.QueueBytes <= 0 {
		options.QueueBytes = 4 << 20
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	l := &AccessLog{
		w:      w,
		format: options.Format,
		limit:  options.QueueBytes,
		logger: options.Logger,
		lines:  sync.Pool{New: func() any { return &line{b: make([]byte, 0, 1024)} }},
		wake:   make(chan struct{}, 1),
		done:   make(chan struct{}),
	}
	go l.run()
	return l
}

// Log queues a line. A nil log does nothing. It copies what it needs of the record and does not allocate.
func (l *AccessLog) Log(r *Record) {
	if l == nil {
		return
	}
	ln := l.lines.Get().(*line)
	if l.format == Text {
		ln.b = appendText(ln.b[:0], r)
	} else {
		ln.b = appendJSON(ln.b[:0], r)
	}
	if !l.queue(ln.b) {
		l.dropped.Add(1)
	}
	if cap(ln.b) <= batch {
		l.lines.Put(ln)
	}
}

// queue reports whether there was room for the line.
func (l *AccessLog) queue(b []byte) bool {
	l.mu.Lock()
	if l.closed || len(l.pending)+l.writing+len(b) > l.limit {
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

func (l *AccessLog) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Dropped is how many records were lost because the queue was full, or because they could not be written.
func (l *AccessLog) Dropped() uint64 {
	if l == nil {
		return 0
	}
	return l.dropped.Load()
}

// Close writes what is queued, as long as ctx lasts, and ends the writer. Records logged later are dropped. A writer
// that is stuck in its Write ends when that returns.
func (l *AccessLog) Close(ctx context.Context) error {
	if l == nil {
		return nil
	}
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
		return fmt.Errorf("access log: %d bytes were not written: %w", left, context.Cause(ctx))
	}
}

// run is the writer.
func (l *AccessLog) run() {
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

		l.write(out)

		l.spare = out
		l.mu.Lock()
		l.writing = 0
		l.mu.Unlock()
	}
}

// await returns when there is something worth writing, false when the log is closed and nothing is left.
func (l *AccessLog) await(timer *time.Timer) bool {
	gathered := false
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
			timer.Reset(gather)
			select {
			case <-timer.C:
				gathered = true
			case <-l.wake:
			}
		}
	}
}

// write writes lines and accounts for what could not be written.
func (l *AccessLog) write(out []byte) {
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
		if l.failing {
			l.failing = false
			l.logger.Info("access log is written again", "dropped", l.dropped.Load())
		}
		return
	}
	n = max(0, min(n, len(out)))
	if n > 0 {
		l.torn = out[n-1] != '\n'
	}
	l.dropped.Add(uint64(bytes.Count(out[n:], []byte{'\n'})))
	if !l.failing && time.Since(l.complained) >= complainEvery {
		l.failing, l.complained = true, time.Now()
		l.logger.Error("access log cannot be written, its records are dropped", "err", err)
	}
}

// mend ends a line that an earlier write tore.
func (l *AccessLog) mend() error {
	if !l.torn {
		return nil
	}
	if _, err := l.w.Write([]byte{'\n'}); err != nil {
		return err
	}
	l.torn = false
	return nil
}
