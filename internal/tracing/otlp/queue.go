package otlp

import (
	"context"
	"log/slog"
	"sync/atomic"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdk "go.opentelemetry.io/otel/sdk/trace"

	"github.com/weirmesh/weir/internal/loglimit"
)

// queue bounds the spans that wait, and counts them. The SDK's batches behind it get no more than they can hold, since
// they would not say what they drop.
type queue struct {
	sdk.SpanProcessor
	most   int64
	to     *otlptrace.Exporter
	log    *slog.Logger
	limit  loglimit.Limiter
	life   context.Context // of what is being sent
	cut    context.CancelFunc
	closed atomic.Bool
	ended  chan struct{} // closed when nothing is sent any more

	waiting                   atomic.Int64
	exported, failed, dropped atomic.Uint64
}

func newQueue(c otlptrace.Client, most int, log *slog.Logger) (*queue, error) {
	to, err := otlptrace.New(context.Background(), c)
	if err != nil {
		return nil, err
	}
	q := &queue{most: int64(most), to: to, log: log, ended: make(chan struct{})}
	q.life, q.cut = context.WithCancel(context.Background())
	return q, nil
}

// OnEnd implements sdk.SpanProcessor. It does not block.
func (q *queue) OnEnd(s sdk.ReadOnlySpan) {
	switch {
	case q.closed.Load():
		q.dropped.Add(1)
	case q.waiting.Add(1) > q.most:
		q.waiting.Add(-1)
		q.dropped.Add(1)
	default:
		q.SpanProcessor.OnEnd(s)
	}
}

// sender is the queue's other end, where the SDK's batches arrive.
type sender queue

// ExportSpans implements sdk.SpanExporter. It returns no error, since the SDK would write it to stderr.
func (q *sender) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(q.life, cancel)()
	err := q.to.ExportSpans(ctx, spans)
	q.waiting.Add(-int64(len(spans)))
	if err != nil {
		q.failed.Add(uint64(len(spans)))
		q.limit.Log(q.log, slog.LevelWarn, "", "the collector did not get spans", "spans", len(spans), "reason", err)
		return nil
	}
	q.exported.Add(uint64(len(spans)))
	return nil
}

// Shutdown implements sdk.SpanExporter. The batches call it when they have ended.
func (q *sender) Shutdown(ctx context.Context) error {
	defer close(q.ended)
	return q.to.Shutdown(ctx)
}
