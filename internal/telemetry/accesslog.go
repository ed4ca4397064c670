package telemetry

import (
	"context"
	"io"
	"log/slog"
)

// AccessLogOptions are the log's format and bounds. The zero value has the defaults.
type AccessLogOptions struct {
	Format Format
	// QueueBytes bounds the lines that wait for the writer; what comes beyond is dropped and counted. Default 4 MiB.
	QueueBytes int
	// Logger hears of writes that fail. Default: discarded.
	Logger *slog.Logger
}

// AccessLog writes one line for each exchange, from one goroutine of its own. It never blocks an exchange: what the
// writer cannot take is dropped and counted.
type AccessLog struct{}

// NewAccessLog starts a log to w. Close ends it.
func NewAccessLog(w io.Writer, options AccessLogOptions) *AccessLog { return &AccessLog{} }

// Log queues a line. A nil log does nothing. It copies what it needs of the record and does not allocate.
func (l *AccessLog) Log(r *Record) {}

// Dropped is how many records were lost because the queue was full, or because the writer failed.
func (l *AccessLog) Dropped() uint64 { return 0 }

// Close writes what is queued, as long as ctx lasts, and ends the writer. Records logged later are dropped.
func (l *AccessLog) Close(ctx context.Context) error { return nil }
