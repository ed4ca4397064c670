package telemetry

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"
)

// AccessLogOptions are the log's format and bounds. The zero value has the defaults.
type AccessLogOptions struct {
	Format Format
	// QueueBytes bounds the lines that wait for the writer; further lines are dropped and counted. Default 4 MiB.
	QueueBytes int
	// MaxField bounds each field of a line, in bytes as they are written. The number of bytes cut off is written in
	// their place, "...+123". Default 1 KiB; less than 0 means no bound.
	MaxField int
	// RequestFields and ResponseFields are the header fields to log, by name. At most MaxLogFields each.
	RequestFields, ResponseFields []string
	// Unmasked are the fields whose values are written although they are secrets; see Secret.
	Unmasked []string
	// Filter selects the exchanges that are logged. The zero value selects all.
	Filter Filter
	// Logger hears of lines that are lost. It must not block. Default: discarded.
	Logger *slog.Logger
}

// MaxLogFields bounds the header fields of a line, in each direction.
const MaxLogFields = 32

// DefaultMaxField bounds the fields of a line unless AccessLogOptions say otherwise.
const DefaultMaxField = 1 << 10

// gather is how long lines are collected before a write.
const gather = 10 * time.Millisecond

// AccessLog writes one line for each exchange, from its own goroutine. It never blocks an exchange: lines that the
// writer cannot take are dropped and counted. A nil log does nothing.
type AccessLog struct {
	lines  *Lines
	format Format
	most   int // bytes of a field, 0 for no bound
	filter Filter
	// The header fields that are logged.
	request, response []logField
	pool              sync.Pool // *line
}

type line struct{ b []byte }

// NewAccessLog starts a log to w. Close ends it.
func NewAccessLog(w io.Writer, options AccessLogOptions) *AccessLog {
	if options.MaxField == 0 {
		options.MaxField = DefaultMaxField
	}
	return &AccessLog{
		lines:  NewLines(w, LinesOptions{Name: "access log", QueueBytes: options.QueueBytes, Gather: gather, Logger: options.Logger}),
		format: options.Format,
		most:   max(options.MaxField, 0),
		filter: options.Filter,
		pool:   sync.Pool{New: func() any { return &line{b: make([]byte, 0, 1024)} }},

		request:  logFields(options.RequestFields, options.Unmasked),
		response: logFields(options.ResponseFields, options.Unmasked),
	}
}

// Log queues a line, whatever Wants returned. It copies what it needs from the record and does not allocate.
func (l *AccessLog) Log(r *Record) {
	if l == nil {
		return
	}
	ln := l.pool.Get().(*line)
	switch l.format {
	case JSON:
		ln.b = l.appendJSON(ln.b[:0], r)
	default:
		ln.b = l.appendText(ln.b[:0], r)
	}
	l.lines.Write(ln.b)
	if cap(ln.b) <= batch {
		l.pool.Put(ln)
	}
}

// Dropped is how many records were lost because the queue was full, or because they could not be written.
func (l *AccessLog) Dropped() uint64 {
	if l == nil {
		return 0
	}
	return l.lines.Dropped()
}

// Close writes the queued lines while ctx lasts, and ends the writer. Later records are dropped. A writer that is stuck
// in its Write ends when that returns.
func (l *AccessLog) Close(ctx context.Context) error {
	if l == nil {
		return nil
	}
	return l.lines.Close(ctx)
}
