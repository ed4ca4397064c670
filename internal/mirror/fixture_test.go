package mirror

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/budget"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// fixture is a Set under test with one filter.
type fixture struct {
	*Set
	target *Target
	metric *telemetry.Mirror
	ended  chan struct{} // one for each copy that ended
}

func newFixture(t testing.TB, opt Options, service model.Service, certificates ...model.Certificate) *fixture {
	t.Helper()
	registry := telemetry.New()
	f := &fixture{Set: New(opt, upstream.Options{}, budget.New(0), slog.New(slog.DiscardHandler), registry, nil), ended: make(chan struct{}, 1<<16)}
	f.Set.ended = func() { f.ended <- struct{}{} }
	f.metric = registry.Mirror(telemetry.MirrorLabels{Route: "default/route", Rule: "0", Mirror: service.Name})
	f.configure(service, certificates...)
	t.Cleanup(func() { f.Close(t.Context()) })
	return f
}

func (f *fixture) configure(service model.Service, certificates ...model.Certificate) {
	cfg := &model.Config{Services: []model.Service{service}, Certificates: certificates}
	f.target = f.Apply(cfg, []Spec{{Key: Key{Name: peertest.MirrorName}, Metric: f.metric}})[0]
}

// wait returns once the given number of further copies have ended.
func (f *fixture) wait(t testing.TB, copies int) {
	t.Helper()
	for range copies {
		select {
		case <-f.ended:
		case <-time.After(20 * time.Second):
			t.Fatal("the copies do not end")
		}
	}
}

// expect fails unless each outcome has the wanted count, every other has none, and the copies hold no memory.
func (f *fixture) expect(t testing.TB, want map[telemetry.MirrorOutcome]uint64) {
	t.Helper()
	got := map[telemetry.MirrorOutcome]uint64{}
	for _, c := range f.metric.Snapshot().Outcomes {
		got[c.Outcome] = c.Count
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("copies ended %v, want %v", got, want)
	}
	f.expectIdle(t)
}

func (f *fixture) expectIdle(t testing.TB) {
	t.Helper()
	if s := f.target.service; s.inFlight.Load() != 0 || s.queued.Load() != 0 {
		t.Errorf("%d copies and %d bytes are left", s.inFlight.Load(), s.queued.Load())
	}
}

// copy sends one copy as an exchange would, and returns its outcome at the exchange's end.
func (f *fixture) copy(head *Head, trailers []http1.Field, pieces ...string) telemetry.MirrorOutcome {
	l, o := f.Begin(f.target, head, 0)
	if l == nil {
		return o
	}
	for _, p := range pieces {
		l.Write([]byte(p))
	}
	l.End(trailers)
	return l.Outcome()
}

func get(target string, fields ...http1.Field) *Head {
	h := &Head{Method: "GET", Target: target, Authority: "shop.example"}
	for _, f := range fields { // as an exchange does
		switch f.ID = http1.Identify(f.Name); f.ID {
		case http1.FieldHost, http1.FieldContentLength, http1.FieldConnection, http1.FieldTransferEncoding, http1.FieldTE:
			continue
		case http1.FieldContentType:
			h.GRPC = strings.HasPrefix(f.Value, "application/grpc")
			h.Trailers = h.GRPC
		}
		h.Fields = append(h.Fields, f)
	}
	return h
}

func post(target string, body http1.Body, fields ...http1.Field) *Head {
	h := get(target, fields...)
	h.Method, h.Body = "POST", body
	return h
}

var chunkedBody = http1.Body{Kind: http1.BodyChunked}

func lengthBody(n int) http1.Body { return http1.Body{Kind: http1.BodyLength, Length: int64(n)} }

func contextCancelled() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx, cancel
}
