// Package otlp makes spans by the OpenTelemetry SDK, and sends them to a collector by OTLP over HTTP. Commands give it to
// the data plane, which knows package tracing alone: not every program needs the SDK.
package otlp

import (
	"cmp"
	"context"
	"log/slog"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/weirmesh/weir/internal/tracing"
)

const (
	// maxValue is the longest attribute, in bytes.
	maxValue = 1024
	// maxList is the longest list of an attribute.
	maxList = 32
	// batch is how many spans a message has at most.
	batch = 512
)

// Sink implements tracing.Exporter.
type Sink struct {
	tracer trace.Tracer
	queue  *queue
	client *client
}

// Open is NewSink, as commands give it to the data plane.
func Open(o tracing.Export) (tracing.Exporter, error) {
	s, err := NewSink(o)
	if err != nil {
		return nil, err
	}
	return s, nil
}

// NewSink starts a Sink. Its error is about the options: whether the collector answers is seen later. Call Close.
func NewSink(o tracing.Export) (*Sink, error) {
	o.Queue, o.Timeout, o.Delay = cmp.Or(o.Queue, tracing.DefaultQueue), cmp.Or(o.Timeout, 10*time.Second), cmp.Or(o.Delay, 2*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := newClient(o)
	if err != nil {
		return nil, err
	}
	q, err := newQueue(c, o.Queue, o.Logger)
	if err != nil {
		return nil, err
	}
	q.SpanProcessor = sdk.NewBatchSpanProcessor((*sender)(q), sdk.WithMaxQueueSize(o.Queue), sdk.WithMaxExportBatchSize(min(batch, o.Queue)),
		sdk.WithBatchTimeout(o.Delay), sdk.WithExportTimeout(o.Timeout))
	attributes := []attribute.KeyValue{attribute.String("service.name", "weir"), attribute.String("service.version", clean(o.Version))}
	for key, value := range o.Attributes {
		attributes = append(attributes, attribute.String(key, clean(value)))
	}
	res := resource.NewSchemaless(attributes...)
	if r, err := resource.Merge(res, resource.Environment()); err == nil { // OTEL_RESOURCE_ATTRIBUTES, OTEL_SERVICE_NAME
		res = r
	}
	s := &Sink{queue: q, client: c}
	limits := sdk.SpanLimits{AttributeValueLengthLimit: -1, AttributeCountLimit: 64, EventCountLimit: 1, LinkCountLimit: 1, AttributePerEventCountLimit: 1, AttributePerLinkCountLimit: 1}
	provider := sdk.NewTracerProvider(sdk.WithSampler(sdk.AlwaysSample()), sdk.WithRawSpanLimits(limits), sdk.WithResource(res), sdk.WithSpanProcessor(q))
	s.tracer = provider.Tracer("github.com/weirmesh/weir")
	return s, nil
}

// Counts implements tracing.Exporter.
func (s *Sink) Counts() tracing.Counts {
	return tracing.Counts{Exported: s.queue.exported.Load(), Rejected: s.queue.rejected.Load(), Failed: s.queue.failed.Load(), Dropped: s.queue.dropped.Load()}
}

// Close, called once, sends what waits, and returns when that is done or ctx ends. Spans that end later are dropped.
func (s *Sink) Close(ctx context.Context) error {
	s.queue.closed.Store(true)
	err := s.queue.Shutdown(ctx) // the provider would do nothing if ctx has ended
	s.queue.cut()                // what ctx left no time for fails at once
	<-s.queue.ended
	return err
}

// Begin implements tracing.Sink.
func (s *Sink) Begin(parent tracing.Context, kind tracing.Kind, name string, at time.Time) tracing.Span {
	ctx := context.Background()
	if parent.Valid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: parent.Trace, SpanID: parent.Span, TraceFlags: trace.TraceFlags(parent.Flags), Remote: kind == tracing.Server,
		}))
	}
	role := trace.SpanKindServer
	if kind == tracing.Client {
		role = trace.SpanKindClient
	}
	_, of := s.tracer.Start(ctx, clean(name), trace.WithTimestamp(at), trace.WithSpanKind(role))
	return span{of}
}

type span struct{ of trace.Span }

func (s span) Context() tracing.Context {
	c := s.of.SpanContext()
	return tracing.Context{Trace: c.TraceID(), Span: c.SpanID(), Flags: byte(c.TraceFlags()) & (tracing.Sampled | tracing.Random)}
}

func (s span) Name(name string) { s.of.SetName(clean(name)) }

func (s span) Set(key, value string) { s.of.SetAttributes(attribute.String(key, clean(value))) }

func (s span) SetInt(key string, value int64) { s.of.SetAttributes(attribute.Int64(key, value)) }

func (s span) SetList(key string, values []string) {
	all := make([]string, min(len(values), maxList))
	for i := range all {
		all[i] = clean(values[i])
	}
	s.of.SetAttributes(attribute.StringSlice(key, all))
}

func (s span) End(at time.Time, failure string) {
	if failure != "" {
		s.of.SetStatus(codes.Error, "")
		s.Set("error.type", failure)
	}
	s.of.End(trace.WithTimestamp(at))
}

// clean copies what others wrote, whose memory may be used again, as far as a span keeps it. One span with a string that
// is not UTF-8 would spoil the message with all the others.
func clean(s string) string {
	if len(s) > maxValue {
		s = s[:maxValue]
	}
	return strings.Clone(strings.ToValidUTF8(s, "\ufffd"))
}
