package proxy

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/tracing"
)

// spans is a sink that keeps the spans. Their ids are counted.
type spans struct {
	mu    sync.Mutex
	made  uint64
	ended []*keptSpan
}

type keptSpan struct {
	of         *spans
	parent, id tracing.Context
	kind       tracing.Kind
	name       string
	failure    string
	attributes map[string]any
}

func (s *spans) Begin(parent tracing.Context, kind tracing.Kind, name string, _ time.Time) tracing.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	x := &keptSpan{of: s, parent: parent, id: parent, kind: kind, name: name, attributes: map[string]any{}}
	if !parent.Valid() {
		binary.BigEndian.PutUint64(x.id.Trace[:], s.made)
		x.id.Flags = tracing.Sampled
	}
	binary.BigEndian.PutUint64(x.id.Span[:], 0xabc<<32|s.made)
	return x
}

func (x *keptSpan) Context() tracing.Context          { return x.id }
func (x *keptSpan) Name(name string)                  { x.name = name }
func (x *keptSpan) Set(key, value string)             { x.attributes[key] = strings.Clone(value) }
func (x *keptSpan) SetInt(key string, value int64)    { x.attributes[key] = value }
func (x *keptSpan) SetList(key string, list []string) { x.attributes[key] = slices.Clone(list) }
func (x *keptSpan) End(_ time.Time, failure string) {
	x.failure = failure
	x.of.mu.Lock()
	defer x.of.mu.Unlock()
	x.of.ended = append(x.of.ended, x)
}

// all stops the server and returns the spans: those of requests, and those of attempts.
func (s *spans) all(t *testing.T, of *testServer) (requests, attempts []*keptSpan) {
	t.Helper()
	of.stop()
	<-of.ended
	for _, x := range s.ended {
		if x.kind == tracing.Server {
			requests = append(requests, x)
		} else {
			attempts = append(attempts, x)
		}
	}
	if int(s.made) != len(s.ended) {
		t.Errorf("%d spans began, %d ended", s.made, len(s.ended))
	}
	return requests, attempts
}

func (s *spans) trace(share bool) func(*Options) {
	return func(o *Options) {
		o.Tracer = tracing.New(tracing.Options{Sink: s, Take: func() bool { return share }})
	}
}

// traceFields answers with the fields of traces that arrive.
func traceFields(w http.ResponseWriter, r *http.Request) {
	fmt.Fprint(w, strings.Join(r.Header.Values("Traceparent"), "&"), ";", strings.Join(r.Header.Values("Tracestate"), "&"))
}

const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"

func TestBackendGetsTheAttemptAsParent(t *testing.T) {
	for name, test := range map[string]struct {
		off, share bool
		sent       string // field lines
		want       string // unless traced
		trace      string // the trace's id; "new" for another; "" if there are no spans
	}{
		"off":                      {true, false, "Traceparent: " + parent + "01\r\nTracestate: a=b\r\n", parent + "01;a=b", ""},
		"no parent":                {false, false, "", ";", ""},
		"no parent, shared":        {false, true, "Tracestate: a=b\r\n", "", "new"},
		"sampled":                  {false, false, "TraceParent: " + parent + "01\r\nTracestate: a=b\r\ntracestate: c=d\r\n", "a=b&c=d", parent[3:35]},
		"not sampled":              {false, true, "Traceparent: " + parent + "00\r\nTracestate: a=b\r\n", parent + "00;a=b", ""},
		"invalid":                  {false, false, "Traceparent: " + parent + "0g\r\n", parent + "0g;", ""},
		"invalid, shared":          {false, true, "Traceparent: " + parent + "0g\r\nTracestate: a=b\r\n", "", "new"},
		"two":                      {false, false, "Traceparent: " + parent + "01\r\nTraceparent: " + parent + "01\r\n", parent + "01&" + parent + "01;", ""},
		"two, shared":              {false, true, "Traceparent: " + parent + "01\r\nTraceparent: " + parent + "01\r\n", "", "new"},
		"only for this connection": {false, false, "Traceparent: " + parent + "01\r\nConnection: traceparent\r\n", ";", ""},
	} {
		for protocol, addr := range map[model.Protocol]string{model.HTTP: backend(t, traceFields), model.H2C: h2cBackend(t, traceFields)} {
			t.Run(name+", "+string(protocol), func(t *testing.T) {
				sink := &spans{}
				var edit []func(*Options)
				if !test.off {
					edit = append(edit, sink.trace(test.share))
				}
				s := serve(t, config([]model.Service{service(serviceName, protocol, addr)}, ruleTo(serviceName)), edit...)
				k := newTalk(t, s.addr())
				k.send("GET /a?secret HTTP/1.1\r\nHost: shop.test:8080\r\nCookie: secret\r\n" + test.sent + "\r\n")
				_, got := k.answer("GET")
				requests, attempts := sink.all(t, s)
				if test.trace == "" {
					if got != test.want || len(requests)+len(attempts) != 0 {
						t.Errorf("the backend got %q, want %q, and there are %d spans", got, test.want, len(sink.ended))
					}
					return
				}
				if len(requests) != 1 || len(attempts) != 1 {
					t.Fatalf("%d spans of requests, %d of attempts", len(requests), len(attempts))
				}
				r, a := requests[0], attempts[0]
				if want := a.id.String() + ";" + test.want; got != want {
					t.Errorf("the backend got %q, want %q", got, want)
				}
				if trace := r.id.String()[3:35]; a.parent != r.id || r.parent.Valid() != (test.trace != "new") || r.parent.Valid() && trace != test.trace {
					t.Errorf("the trace is %v, the attempt %+v", r, a)
				}
				if strings.Contains(fmt.Sprint(r.attributes, a.attributes), "secret") {
					t.Errorf("there is a secret in %v or %v", r.attributes, a.attributes)
				}
				for key, want := range map[string]any{
					"http.request.method": "GET", "url.path": "/a", "url.scheme": "http", "server.address": "shop.test", "server.port": int64(8080),
					"http.response.status_code": int64(200), "network.protocol.version": "1.1", "weir.attempts": int64(1), "weir.endpoint": addr,
				} {
					if r.attributes[key] != want {
						t.Errorf("%s of the request is %v, want %v", key, r.attributes[key], want)
					}
				}
				if r.attributes["weir.backend"] != serviceName || r.attributes["weir.route"] == nil || r.name != "GET "+r.attributes["weir.route"].(string) || r.failure != "" {
					t.Errorf("the request is %q, %v", r.name, r.attributes)
				}
				version := map[model.Protocol]string{model.HTTP: "1.1", model.H2C: "2"}[protocol]
				if a.attributes["network.protocol.version"] != version || a.attributes["weir.endpoint"] != addr || a.attributes["weir.attempt"] != int64(1) || a.failure != "" {
					t.Errorf("the attempt is %v", a.attributes)
				}
			})
		}
	}
}

func TestEachAttemptIsASpan(t *testing.T) {
	for _, protocol := range []model.Protocol{model.HTTP, model.H2C} {
		t.Run(string(protocol), func(t *testing.T) {
			var seen []string
			failing := func(w http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				seen = append(seen, r.Header.Get("Traceparent"))
				if len(seen) < 3 {
					w.WriteHeader(503)
				}
			}
			sink := &spans{}
			cfg := config([]model.Service{service(serviceName, protocol, h2cBackend(t, failing))}, ruleTo(serviceName))
			cfg.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 2, Codes: []int{503}}
			s := serve(t, cfg, sink.trace(true))
			k := newTalk(t, s.addr())
			k.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc")
			if resp, _ := k.answer("PUT"); resp.StatusCode != 200 {
				t.Fatalf("status %d", resp.StatusCode)
			}
			requests, attempts := sink.all(t, s)
			if len(requests) != 1 || len(attempts) != 3 || requests[0].attributes["weir.attempts"] != int64(3) {
				t.Fatalf("%d spans of requests, %d of attempts", len(requests), len(attempts))
			}
			for i, a := range attempts {
				if a.parent != requests[0].id || a.id.String() != seen[i] || a.attributes["weir.attempt"] != int64(i+1) {
					t.Errorf("attempt %d is %+v, and the backend got %s", i+1, a, seen[i])
				}
				status, failure := int64(503), "503"
				if i == 2 {
					status, failure = 200, ""
				}
				if a.attributes["http.response.status_code"] != status || a.failure != failure {
					t.Errorf("attempt %d ended with %v, failure %q", i+1, a.attributes, a.failure)
				}
			}
		})
	}
}

// TestRequestThatIsSentUnchangedElsewhereHasTheNextAttemptAsParent: the head is laid out already when an endpoint refuses.
func TestRequestThatIsSentUnchangedElsewhereHasTheNextAttemptAsParent(t *testing.T) {
	sink := &spans{}
	cfg := plain(peertest.Refusing(t), backend(t, traceFields))
	cfg.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 1}
	s := serve(t, cfg, sink.trace(true))
	got := map[string]bool{}
	k := newTalk(t, s.addr())
	for range 10 {
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		_, b := k.answer("GET")
		got[b] = true
	}
	_, attempts := sink.all(t, s)
	failed := 0
	for _, a := range attempts {
		if a.failure != "" {
			failed++
			if a.attributes["http.response.status_code"] != nil {
				t.Errorf("an attempt without an answer has %v", a.attributes)
			}
		} else if !got[a.id.String()+";"] {
			t.Errorf("the backend was not told of the attempt %s", a.id)
		}
	}
	if failed == 0 || len(attempts) != 10+failed {
		t.Errorf("%d attempts, %d failed", len(attempts), failed)
	}
}

func TestCopyHasTheRequestAsParent(t *testing.T) {
	copied := make(chan string, 1)
	mirror := backend(t, func(_ http.ResponseWriter, r *http.Request) { copied <- r.Header.Get("Traceparent") })
	sink := &spans{}
	s := serve(t, mirrored(backend(t, traceFields), mirror, 1, 1), sink.trace(true))
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	_, got := k.answer("GET")
	copy := <-copied
	requests, attempts := sink.all(t, s)
	if len(requests) != 1 || len(attempts) != 1 {
		t.Fatalf("%d spans of requests, %d of attempts", len(requests), len(attempts))
	}
	if copy != requests[0].id.String() || got != attempts[0].id.String()+";" {
		t.Errorf("the copy has the parent %s, the request %s", copy, got)
	}
	if names, _ := requests[0].attributes["weir.mirrors"].([]string); len(names) != 1 || names[0] == "" {
		t.Errorf("the mirrors are %v", requests[0].attributes["weir.mirrors"])
	}
}

func TestFailureIsTheReasonOfTheLog(t *testing.T) {
	sink := &spans{}
	s := serve(t, plain(peertest.Refusing(t)), sink.trace(true))
	k := newTalk(t, s.addr())
	k.send("BREW / HTTP/1.1\r\nHost: a\r\n\r\n")
	resp, _ := k.answer("BREW")
	requests, attempts := sink.all(t, s)
	if len(requests) != 1 || len(attempts) == 0 {
		t.Fatalf("%d spans of requests, %d of attempts", len(requests), len(attempts))
	}
	r := requests[0]
	if r.failure != string(telemetry.ConnectFailed) || r.attributes["http.response.status_code"] != int64(resp.StatusCode) || attempts[0].failure != r.failure || r.attributes["http.request.method"] != "_OTHER" {
		t.Errorf("the request failed with %q: %v; the attempt with %q", r.failure, r.attributes, attempts[0].failure)
	}
}
