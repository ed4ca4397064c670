// Package tracing decides which requests are traced, and says what a trace's spans are. It neither makes nor sends spans:
// a Sink does, such as that of package otlp. The exchange uses it.
package tracing

import (
	"sync/atomic"
	"time"
)

// Kind is the role of the proxy in a span.
type Kind uint8

const (
	Server Kind = iota // answers a client
	Client             // asks an endpoint
)

// Span is a span under way. Its methods are for one goroutine at a time. Strings may be changed after a call.
type Span interface {
	// Context names the span.
	Context() Context
	// Name changes the span's name.
	Name(name string)
	// Set adds an attribute.
	Set(key, value string)
	// SetInt adds an attribute.
	SetInt(key string, value int64)
	// SetList adds an attribute.
	SetList(key string, values []string)
	// End ends the span, once. failure is why it failed, or "".
	End(at time.Time, failure string)
}

// Sink makes spans and exports those that ended. It must not block.
type Sink interface {
	// Begin begins a span. An invalid parent means that the span begins a trace.
	Begin(parent Context, kind Kind, name string, at time.Time) Span
}

// DefaultRate is the default of Options.Rate.
const DefaultRate = 1000

// Options configure a Tracer.
type Options struct {
	// Sink takes the spans.
	Sink Sink
	// Take decides about each request without a valid parent.
	Take func() bool
	// Rate bounds the spans per second, since clients ask for traces by a flag. As many may come at once. 0 means
	// DefaultRate.
	Rate int
}

// Tracer decides which requests are traced. It may be used by many goroutines and takes no lock.
type Tracer struct {
	sink     Sink
	take     func() bool
	interval time.Duration // between spans at the highest rate
	began    time.Time
	full     atomic.Int64 // when all of the rate is free again, in nanoseconds since began
	limited  atomic.Uint64
}

// New makes a Tracer.
func New(o Options) *Tracer {
	if o.Rate <= 0 {
		o.Rate = DefaultRate
	}
	return &Tracer{sink: o.Sink, take: o.Take, interval: max(time.Second/time.Duration(o.Rate), 1), began: time.Now()}
}

// Limited is how many requests were not traced because of Options.Rate.
func (t *Tracer) Limited() uint64 { return t.limited.Load() }

// Sample reports whether a request is to be traced. It follows a valid parent's flag, and samples requests without one.
func (t *Tracer) Sample(parent Context, now time.Time) bool {
	if parent.Valid() {
		if !parent.Sampled() {
			return false
		}
	} else if !t.take() {
		return false
	}
	if !t.free(now) {
		t.limited.Add(1)
		return false
	}
	return true
}

// free takes the room of a span if there is any. Spans of attempts take room that there may not be yet, since the
// attempts of one request are few.
func (t *Tracer) free(now time.Time) bool {
	at := int64(now.Sub(t.began))
	for {
		full := t.full.Load()
		if full-at > int64(time.Second-t.interval) {
			return false
		}
		if t.full.CompareAndSwap(full, max(full, at)+int64(t.interval)) {
			return true
		}
	}
}

// Begin begins the span of a request that Sample chose.
func (t *Tracer) Begin(parent Context, name string, at time.Time) Span {
	return t.sink.Begin(parent, Server, name, at)
}

// BeginAttempt begins the span of an attempt at an endpoint.
func (t *Tracer) BeginAttempt(of Context, name string, at time.Time) Span {
	t.full.Add(int64(t.interval))
	return t.sink.Begin(of, Client, name, at)
}
