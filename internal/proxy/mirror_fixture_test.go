package proxy

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/budget"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

const mirrorName = "default/mirror:80"

// mirrorFixture is a mirrors under test with one filter.
type mirrorFixture struct {
	*mirrors
	target *mirrorTarget
	metric *telemetry.Mirror
	ended  chan struct{} // one for each copy that ended
}

func newMirrorFixture(t testing.TB, opt MirrorOptions, service model.Service, certificates ...model.Certificate) *mirrorFixture {
	t.Helper()
	registry := telemetry.New()
	f := &mirrorFixture{mirrors: newMirrors(opt, Options{}.Upstream, budget.New(0), slog.New(slog.DiscardHandler), registry, nil), ended: make(chan struct{}, 1<<16)}
	f.mirrors.ended = func() { f.ended <- struct{}{} }
	f.metric = registry.Mirror(telemetry.MirrorLabels{Route: "default/route", Rule: "0", Mirror: service.Name})
	f.configure(service, certificates...)
	t.Cleanup(func() { f.close(t.Context()) })
	return f
}

func (f *mirrorFixture) configure(service model.Service, certificates ...model.Certificate) {
	cfg := &model.Config{Services: []model.Service{service}, Certificates: certificates}
	f.target = f.apply(cfg, []mirrorSpec{{mirrorKey: mirrorKey{name: mirrorName}, metric: f.metric}})[0]
}

// wait returns once so many further copies have ended.
func (f *mirrorFixture) wait(t testing.TB, copies int) {
	t.Helper()
	for range copies {
		select {
		case <-f.ended:
		case <-time.After(20 * time.Second):
			t.Fatal("the copies do not end")
		}
	}
}

// expect fails unless copies ended so many times so, and never otherwise, and hold nothing any more.
func (f *mirrorFixture) expect(t testing.TB, want map[telemetry.MirrorOutcome]uint64) {
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

func (f *mirrorFixture) expectIdle(t testing.TB) {
	t.Helper()
	if s := f.target.service; s.inFlight.Load() != 0 || s.queued.Load() != 0 {
		t.Errorf("%d copies and %d bytes are left", s.inFlight.Load(), s.queued.Load())
	}
}

// copy carries one copy through the seam as an exchange would, and gives its outcome at the exchange's end.
func (f *mirrorFixture) copy(head *mirrorHead, trailers []http1.Field, pieces ...string) telemetry.MirrorOutcome {
	l, o := f.begin(f.target, head, 0)
	if l == nil {
		return o
	}
	for _, p := range pieces {
		l.write([]byte(p))
	}
	l.end(trailers)
	return l.outcome()
}

func mirrorGet(target string, fields ...http1.Field) *mirrorHead {
	h := &mirrorHead{method: "GET", target: target, authority: "shop.example"}
	for _, f := range fields { // as an exchange does
		switch f.ID = http1.Identify(f.Name); f.ID {
		case http1.FieldHost, http1.FieldContentLength, http1.FieldConnection, http1.FieldTransferEncoding, http1.FieldTE:
			continue
		case http1.FieldContentType:
			h.grpc = isGRPC(f.Value)
			h.trailers = h.grpc
		}
		h.fields = append(h.fields, f)
	}
	return h
}

func mirrorPost(target string, body http1.Body, fields ...http1.Field) *mirrorHead {
	h := mirrorGet(target, fields...)
	h.method, h.body = "POST", body
	return h
}

var chunkedBody = http1.Body{Kind: http1.BodyChunked}

func lengthBody(n int) http1.Body { return http1.Body{Kind: http1.BodyLength, Length: int64(n)} }

// rawMirror accepts connections and gives each to f with its number, until the test ends; then it closes them.
func rawMirror(t testing.TB, f func(n int, c net.Conn)) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	wg.Go(func() {
		for n := 0; ; n++ {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { c.Close() })
			wg.Go(func() {
				defer stop()
				defer c.Close()
				f(n, c)
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		cancel()
		wg.Wait()
	})
	return ln.Addr().String()
}

const mirrorAnswer = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

// serveMirror reads requests and answers each with answer until the connection ends or answer is empty.
func serveMirror(c net.Conn, answer string) {
	r := bufio.NewReader(c)
	for {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := readAll(req.Body); err != nil {
			return
		}
		if answer == "" {
			return
		}
		c.Write([]byte(answer))
	}
}

func toMirror(addresses ...string) model.Service {
	return service(mirrorName, model.HTTP, addresses...)
}

func contextCancelled() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx, cancel
}
