package proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/tracing"
	"github.com/weirmesh/weir/internal/tracing/otlp"
)

// BenchmarkTraces is a request over HTTP/1.1 without traces, and with shares of them that are sent to a collector.
func BenchmarkTraces(b *testing.B) {
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer collector.Close()
	for _, c := range []struct {
		name  string
		share uint64 // of 100; above that: off
	}{{"off", 101}, {"0%", 0}, {"1%", 1}, {"100%", 100}} {
		b.Run(c.name, func(b *testing.B) {
			addr := cannedBackend(b, cannedResponse(100))
			s := serve(b, plain(addr), func(o *Options) {
				if c.share > 100 {
					return
				}
				sink, err := otlp.Open(tracing.Export{Endpoint: collector.URL})
				if err != nil {
					b.Fatal(err)
				}
				b.Cleanup(func() { _ = sink.Close(context.Background()) })
				share, err := routing.NewShare(c.share, 100)
				if err != nil {
					b.Fatal(err)
				}
				o.Tracer = tracing.New(tracing.Options{Sink: sink, Take: share.Take, Rate: 1e9})
			})
			r := requester{c: dial(b, s.addr()), request: []byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), buf: make([]byte, 4096)}
			b.ReportAllocs()
			before := processorTime(b)
			for b.Loop() {
				if err := r.do(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
		})
	}
}

// processorTime is what this process has used: proxy, client, backend and collector.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
