package otlp

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/weirmesh/weir/internal/tracing"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector is a receiver of OTLP over HTTP.
type collector struct {
	*httptest.Server
	mu       sync.Mutex
	codes    []int    // of the first answers; then 200
	answers  [][]byte // to the first messages that it takes; then none
	requests int
	path     string
	header   http.Header
	resource map[string]string
	spans    []*tracepb.Span
	broken   error
}

func newCollector(t *testing.T, codes ...int) *collector {
	c := &collector{codes: codes, resource: map[string]string{}}
	c.Server = httptest.NewServer(c)
	t.Cleanup(c.Close)
	return c
}

func (c *collector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	if len(c.codes) > 0 {
		code := c.codes[0]
		c.codes = c.codes[1:]
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(code)
		return
	}
	c.path, c.header = r.URL.Path, r.Header
	body, _ := io.ReadAll(r.Body)
	var all tracepb.TracesData
	if err := proto.Unmarshal(body, &all); err != nil {
		c.broken = err
		return
	}
	if len(c.answers) > 0 {
		w.Write(c.answers[0])
		c.answers = c.answers[1:]
	}
	for _, r := range all.ResourceSpans {
		for _, a := range r.Resource.Attributes {
			c.resource[a.Key] = a.Value.GetStringValue()
		}
		for _, s := range r.ScopeSpans {
			c.spans = append(c.spans, s.Spans...)
		}
	}
}

func newSink(t *testing.T, o tracing.Export) *Sink {
	t.Helper()
	s, err := NewSink(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func attributes(s *tracepb.Span) map[string]string {
	out := map[string]string{}
	for _, a := range s.Attributes {
		out[a.Key] = a.Value.GetStringValue()
	}
	return out
}

func TestCollectorGetsSpans(t *testing.T) {
	c := newCollector(t)
	t.Setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=test")
	s := newSink(t, tracing.Export{Endpoint: c.URL, Header: map[string]string{"Authorization": "Bearer x"}, Version: "v1", Attributes: map[string]string{"k8s.pod.name": "a"}})
	at := time.Unix(1, 2)
	parent, _ := tracing.Parse("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
	root := s.Begin(parent, tracing.Server, "GET shop/web", at)
	child := s.Begin(root.Context(), tracing.Client, "GET", at)
	path := []byte("/ok")
	child.Set("url.path", string(path))
	child.SetInt("weir.attempt", 2)
	child.Set("bad", "a\xffb")
	child.Set("long", strings.Repeat("x", 5000))
	child.SetList("weir.mirrors", make([]string, 100))
	child.End(at.Add(time.Second), "timeout")
	root.End(at.Add(2*time.Second), "")
	alone := s.Begin(tracing.Context{}, tracing.Server, "GET", at)
	alone.End(at, "")
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c.broken != nil || len(c.spans) != 3 {
		t.Fatalf("%d spans, %v", len(c.spans), c.broken)
	}
	if c.path != "/v1/traces" || c.header.Get("Authorization") != "Bearer x" || c.header.Get("Content-Type") != "application/x-protobuf" {
		t.Errorf("the request is to %s with %v", c.path, c.header)
	}
	for key, want := range map[string]string{"service.name": "weir", "service.version": "v1", "k8s.pod.name": "a", "deployment.environment.name": "test"} {
		if c.resource[key] != want {
			t.Errorf("%s is %q, want %q", key, c.resource[key], want)
		}
	}
	got := c.spans[0]
	a := attributes(got)
	if a["url.path"] != "/ok" || a["bad"] != "a\ufffdb" || len(a["long"]) != maxValue || a["error.type"] != "timeout" || got.Status.Code != tracepb.Status_STATUS_CODE_ERROR {
		t.Errorf("the attempt is %v, status %v", a, got.Status)
	}
	for _, a := range got.Attributes {
		if a.Key == "weir.mirrors" && len(a.Value.GetArrayValue().Values) != maxList {
			t.Errorf("the list has %d values, want %d", len(a.Value.GetArrayValue().Values), maxList)
		}
		if a.Key == "weir.attempt" && a.Value.GetIntValue() != 2 {
			t.Errorf("the number of the attempt is %v", a.Value)
		}
	}
	if got.Kind != tracepb.Span_SPAN_KIND_CLIENT || got.StartTimeUnixNano != 1e9+2 || got.EndTimeUnixNano != 2e9+2 {
		t.Errorf("the attempt is of kind %v, from %d to %d", got.Kind, got.StartTimeUnixNano, got.EndTimeUnixNano)
	}
	server := c.spans[1]
	if server.Kind != tracepb.Span_SPAN_KIND_SERVER || !bytes.Equal(server.ParentSpanId, parent.Span[:]) || !bytes.Equal(got.ParentSpanId, server.SpanId) {
		t.Errorf("the parents are not those given: %v, %v", server, got)
	}
	if !bytes.Equal(server.TraceId, parent.Trace[:]) || !bytes.Equal(got.TraceId, parent.Trace[:]) || bytes.Equal(c.spans[2].TraceId, parent.Trace[:]) || len(c.spans[2].ParentSpanId) != 0 {
		t.Error("the traces are not those given")
	}
	if n := s.Counts(); n != (tracing.Counts{Exported: 3}) {
		t.Errorf("the counts are %+v", n)
	}
}

func TestMessageIsSentAgainIfTheCollectorMayTakeItLater(t *testing.T) {
	for _, c := range []struct {
		codes    []int
		requests int
		want     tracing.Counts
	}{
		{[]int{503, 429}, 3, tracing.Counts{Exported: 1}},
		{[]int{503, 503, 502, 504}, tries, tracing.Counts{Failed: 1}},
		{[]int{400}, 1, tracing.Counts{Failed: 1}},
		{[]int{307}, 1, tracing.Counts{Failed: 1}}, // another server is not told the header
	} {
		to := newCollector(t, c.codes...)
		var log bytes.Buffer
		s := newSink(t, tracing.Export{Endpoint: to.URL, Header: map[string]string{"Authorization": "geheim"}, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		s.client.pause = time.Millisecond
		s.Begin(tracing.Context{}, tracing.Server, "GET", time.Now()).End(time.Now(), "")
		if err := s.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := s.Counts(); got != c.want || to.requests != c.requests {
			t.Errorf("%v: %+v after %d requests, want %+v after %d", c.codes, got, to.requests, c.want, c.requests)
		}
		if strings.Contains(log.String(), "geheim") || strings.Contains(log.String(), "spans") != (c.want.Failed > 0) {
			t.Errorf("%v: the log is %q", c.codes, log.String())
		}
	}
}

// TestStuckCollectorCostsSpansAlone ends more spans than may wait, while a collector does not answer.
func TestStuckCollectorCostsSpansAlone(t *testing.T) {
	release := make(chan struct{})
	arrived := make(chan struct{}, 100)
	stuck := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- struct{}{}
		<-release
	}))
	defer stuck.Close()
	defer close(release)
	const most = 8
	s := newSink(t, tracing.Export{Endpoint: stuck.URL, Queue: most, Timeout: time.Hour, Delay: time.Hour})
	end := func(n int) {
		for range n {
			s.Begin(tracing.Context{}, tracing.Server, "GET", time.Now()).End(time.Now(), "")
		}
	}
	end(most)
	<-arrived // all of them are a message
	end(100)
	if got := s.Counts(); got != (tracing.Counts{Dropped: 100}) {
		t.Errorf("the counts are %+v, want 100 dropped", got)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Close(ctx); err == nil {
		t.Error("no error, though spans are lost")
	}
	end(1)
	if got := s.Counts(); got.Dropped != 101 {
		t.Errorf("%d dropped after the end, want 101", got.Dropped)
	}
}

// answer is an ExportTraceServiceResponse with partial_success.
func answer(rejected uint64, message string) []byte {
	inner := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), rejected)
	inner = protowire.AppendString(protowire.AppendTag(inner, 2, protowire.BytesType), message)
	unknown := protowire.AppendFixed32(protowire.AppendTag(nil, 77, protowire.Fixed32Type), 1)
	return protowire.AppendBytes(protowire.AppendTag(unknown, 1, protowire.BytesType), inner)
}

func TestSpansThatTheCollectorRejectsAreCountedAndTold(t *testing.T) {
	const each = 10
	for name, c := range map[string]struct {
		answers [][]byte
		want    tracing.Counts
		lines   []string // what the log has, one a line
	}{
		"none":                {[][]byte{nil}, tracing.Counts{Exported: 10}, nil},
		"some":                {[][]byte{answer(3, "too old")}, tracing.Counts{Exported: 7, Rejected: 3}, []string{`msg="the collector rejected spans" spans=3 message="too old"`}},
		"all":                 {[][]byte{answer(10, "")}, tracing.Counts{Rejected: 10}, []string{`msg="the collector rejected spans" spans=10 message=""`}},
		"more than there are": {[][]byte{answer(11, "")}, tracing.Counts{Rejected: 10}, []string{"spans=11"}},
		"fewer than none":     {[][]byte{answer(1<<63, "x")}, tracing.Counts{Exported: 10}, []string{"with a warning"}},
		"a warning":           {[][]byte{answer(0, "slow down")}, tracing.Counts{Exported: 10}, []string{`msg="the collector accepted spans with a warning" spans=0 message="slow down"`}},
		"the same again":      {[][]byte{answer(1, "a"), answer(2, "a"), answer(1, "a")}, tracing.Counts{Exported: 26, Rejected: 4}, []string{"message=a"}},
		"something else":      {[][]byte{answer(1, "a"), answer(1, "b"), answer(1, "a")}, tracing.Counts{Exported: 27, Rejected: 3}, []string{"message=a", "message=b", "message=a"}},
		"a long message":      {[][]byte{answer(1, strings.Repeat("x", 10*maxMessage))}, tracing.Counts{Exported: 9, Rejected: 1}, []string{"message=" + strings.Repeat("x", maxMessage) + "\n"}},
		"what is not seen":    {[][]byte{answer(1, "a\x1b[2Jb\xff")}, tracing.Counts{Exported: 9, Rejected: 1}, []string{`a\x1b[2Jb\xff`}},
		"half an answer":      {[][]byte{answer(1, "a")[:12]}, tracing.Counts{Exported: 10}, nil},
		"no such answer":      {[][]byte{[]byte("<html>")}, tracing.Counts{Exported: 10}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			to := newCollector(t)
			to.answers = c.answers
			var log bytes.Buffer
			s := newSink(t, tracing.Export{Endpoint: to.URL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			s.queue.toldLimit.Every = 1
			for range c.answers {
				for range each {
					s.Begin(tracing.Context{}, tracing.Server, "GET", time.Now()).End(time.Now(), "")
				}
				if err := s.queue.ForceFlush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := s.Counts(); got != c.want || to.requests != len(c.answers) {
				t.Errorf("the counts are %+v after %d messages, want %+v after %d", got, to.requests, c.want, len(c.answers))
			}
			lines := strings.SplitAfter(log.String(), "\n")
			if len(lines)-1 != len(c.lines) {
				t.Fatalf("the log has %d lines, want %d:\n%s", len(lines)-1, len(c.lines), log.String())
			}
			for i, want := range c.lines {
				if !strings.Contains(lines[i], want) {
					t.Errorf("line %d is %q, want %q", i, lines[i], want)
				}
			}
		})
	}
}

// TestMessagesThatChangeAreTooManyForTheLog has a collector say something else each time.
func TestMessagesThatChangeAreTooManyForTheLog(t *testing.T) {
	var log bytes.Buffer
	s := newSink(t, tracing.Export{Endpoint: newCollector(t).URL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	for i := range 100 {
		(*sender)(s.queue).tell(&partial{1, strings.Repeat("x", i)})
	}
	if n := strings.Count(log.String(), "\n"); n != 1 {
		t.Errorf("the log has %d lines, want 1", n)
	}
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func FuzzPartial(f *testing.F) {
	f.Add(answer(3, "too old"))
	f.Add(answer(0, ""))
	f.Add(append(answer(1, "a"), answer(2, "b")...))
	f.Fuzz(func(t *testing.T, text []byte) {
		if p := readPartial(text); p != nil && (p.rejected < 0 || len(p.message) > 10*maxMessage || strings.ContainsAny(p.message, "\n\x1b")) {
			t.Errorf("%q: %+v", text, p)
		}
	})
}

func TestCollectorIsNotReachedAtAnAddressThatIsRefused(t *testing.T) {
	c := newCollector(t)
	var log bytes.Buffer
	var judged []netip.AddrPort
	s := newSink(t, tracing.Export{Endpoint: strings.Replace(c.URL, "127.0.0.1", "localhost", 1), Logger: slog.New(slog.NewTextHandler(&log, nil)), Refuse: func(to netip.AddrPort) string {
		judged = append(judged, to)
		return "is loopback"
	}})
	s.client.pause = time.Millisecond
	s.Begin(tracing.Context{}, tracing.Server, "GET", time.Now()).End(time.Now(), "")
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.Counts(); got.Failed != 1 || c.requests != 0 || len(judged) == 0 || !judged[0].Addr().IsLoopback() || !strings.Contains(log.String(), "is loopback") {
		t.Errorf("%+v after %d requests, %v was judged; the log is %q", got, c.requests, judged, log.String())
	}
}
