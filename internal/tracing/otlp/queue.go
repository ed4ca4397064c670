package otlp

import (
	"context"
	"errors"
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

	// told is what the log last said of spans that the collector did not accept. The SDK sends one batch at a time.
	told      string
	toldLimit loglimit.Limiter

	waiting                             atomic.Int64
	exported, rejected, failed, dropped atomic.Uint64
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
	var p *partial
	switch {
	case err == nil:
		q.exported.Add(uint64(len(spans)))
	case errors.As(err, &p):
		rejected := min(uint64(p.rejected), uint64(len(spans)))
		q.rejected.Add(rejected)
		q.exported.Add(uint64(len(spans)) - rejected)
		q.tell(p)
	default:
		q.failed.Add(uint64(len(spans)))
		q.limit.Log(q.log, slog.LevelWarn, "", "the collector did not get spans", "spans", len(spans), "reason", err)
	}
	return nil
}

// tell logs what the collector says, once until it says something else.
func (q *sender) tell(p *partial) {
	event := "the collector rejected spans"
	if p.rejected == 0 {
		event = "the collector accepted spans with a warning"
	}
	news := event + p.message
	if news != q.told && q.toldLimit.Log(q.log, slog.LevelWarn, "", event, "spans", p.rejected, "message", p.message) {
		q.told = news
	}
}

// Shutdown implements sdk.SpanExporter. The batches call it when they have ended.
func (q *sender) Shutdown(ctx context.Context) error {
	defer close(q.ended)
	return q.to.Shutdown(ctx)
}
