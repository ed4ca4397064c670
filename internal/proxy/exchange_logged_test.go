package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

// logged is an access log that is read after its server has ended.
type logged struct {
	log *telemetry.AccessLog
	out bytes.Buffer
}

func newLogged(t testing.TB, options telemetry.AccessLogOptions) *logged {
	l := &logged{}
	l.log = telemetry.NewAccessLog(&l.out, options)
	t.Cleanup(func() { l.log.Close(context.Background()) })
	return l
}

func (l *logged) into(o *Options) { o.AccessLog = l.log }

// records ends the server and returns the log's lines.
func (l *logged) records(t testing.TB, s *testServer) (out []map[string]any) {
	t.Helper()
	s.stop()
	<-s.ended
	if err := l.log.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for d := json.NewDecoder(&l.out); ; {
		var r map[string]any
		if err := d.Decode(&r); err == io.EOF {
			return out
		} else if err != nil {
			t.Fatal(err)
		}
		out = append(out, r)
	}
}

func TestHeaderFieldsAreLoggedOfEachProtocol(t *testing.T) {
	for protocol, start := range map[model.Protocol]func(testing.TB, http.HandlerFunc) string{model.HTTP: backend, model.H2C: h2cBackend} {
		addr := start(t, func(w http.ResponseWriter, r *http.Request) {
			w.Header()["X-Two"] = []string{"of " + r.URL.Path, `"quoted"`}
			w.Header().Set("Set-Cookie", "s=1")
		})
		cfg := config([]model.Service{service(serviceName, protocol, addr)}, ruleTo(serviceName))
		cfg.Routes[0].Rules[0].Filters.ResponseHeaders = &model.HeaderEdit{Set: []model.HeaderValue{{Name: "X-Filter", Value: "f"}}}
		l := newLogged(t, telemetry.AccessLogOptions{
			RequestFields: []string{"X-Team", "Authorization", "Nothing"}, ResponseFields: []string{"X-Two", "Set-Cookie", "X-Filter", "Allow"},
		})
		s := serve(t, cfg, l.into)
		k := newTalk(t, s.addr())
		for _, path := range []string{"/1", "/2"} { // over one connection to the backend
			k.send("GET " + path + " HTTP/1.1\r\nHost: a\r\nX-team: shop\r\nAuthorization: Basic c2VjcmV0\r\nx-team: " + path + "\r\n\r\n")
			k.answer("GET")
		}
		k.send("CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n")
		k.answer("GET")
		records := l.records(t, s)
		if len(records) != 3 {
			t.Fatalf("%s: %v", protocol, records)
		}
		for i, path := range []string{"/1", "/2"} {
			want := `{"authorization":"***","x-team":"shop, ` + path + `"} {"set-cookie":"***","x-filter":"f","x-two":"of ` + path + `, \"quoted\""}`
			if got := sprint(records[i]["request_headers"], records[i]["response_headers"]); got != want {
				t.Errorf("%s: got  %s\nwant %s", protocol, got, want)
			}
		}
		if got := sprint(records[2]["request_headers"], records[2]["response_headers"]); got != `null {"allow":"GET, HEAD, POST, PUT, DELETE, OPTIONS, PATCH, TRACE"}` {
			t.Errorf("of an answer of the proxy's own: %s", got)
		}
	}
}

func sprint(a ...any) string {
	var parts []string
	for _, v := range a {
		b, _ := json.Marshal(v)
		parts = append(parts, string(b))
	}
	return strings.Join(parts, " ")
}

// TestWhatABackendTookIsLogged: each duration begins when the endpoint was picked. The backend waits before its head,
// and before its last bytes.
func TestWhatABackendTookIsLogged(t *testing.T) {
	t.Parallel()
	const pause = 60 * time.Millisecond
	for protocol, start := range map[model.Protocol]func(testing.TB, http.HandlerFunc) string{model.HTTP: backend, model.H2C: h2cBackend} {
		for _, body := range []string{"length", "chunks", "with the head"} {
			addr := start(t, func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(pause)
				if body == "with the head" {
					io.WriteString(w, "all of it")
					return
				}
				if body == "length" {
					w.Header().Set("Content-Length", "4")
				}
				io.WriteString(w, "ab")
				w.(http.Flusher).Flush()
				time.Sleep(pause)
				io.WriteString(w, "cd")
			})
			l := newLogged(t, telemetry.AccessLogOptions{})
			s := serve(t, config([]model.Service{service(serviceName, protocol, addr)}, ruleTo(serviceName)), l.into)
			k := newTalk(t, s.addr())
			for range 2 {
				k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx")
				k.answer("POST")
			}
			for i, r := range l.records(t, s) {
				connect, _ := r["backend_connect_ms"].(float64)
				head, _ := r["backend_first_byte_ms"].(float64)
				all, _ := r["backend_duration_ms"].(float64)
				whole, _ := r["duration_ms"].(float64)
				least := 60.0
				if body != "with the head" {
					least = 120
				}
				if head < 60 || all < least || all < head || whole < all || (connect > 0) != (i == 0) || connect > head || body == "with the head" && protocol == model.HTTP && all != head {
					t.Errorf("%s, %s, request %d: connect %v, head %v, all %v, whole %v", protocol, body, i, connect, head, all, whole)
				}
			}
		}
	}
}

// TestASlowClientIsNotTheBackendsTime: the body is kept before an endpoint is picked. The time that the client takes to
// send it does not count as the backend's.
func TestASlowClientIsNotTheBackendsTime(t *testing.T) {
	done := make(chan struct{})
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Length", "5")
		io.WriteString(w, "short")
		done <- struct{}{}
	})
	cfg := plain(addr)
	cfg.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 1} // so that the body is kept first
	l := newLogged(t, telemetry.AccessLogOptions{})
	s := serve(t, cfg, l.into)
	k := newTalk(t, s.addr())
	k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nx")
	time.Sleep(200 * time.Millisecond)
	k.send("y")
	<-done
	k.answer("POST")
	r := l.records(t, s)[0]
	all, whole := r["backend_duration_ms"].(float64), r["duration_ms"].(float64)
	if whole < 200 || whole-all < 190 {
		t.Errorf("the exchange took %v ms, the backend %v", whole, all)
	}
}

func TestAFailedAttemptHasATimeToo(t *testing.T) {
	addr := rawBackend(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	cfg := plain(addr)
	cfg.Routes[0].Rules[0].Timeouts.BackendRequest = model.Duration(50 * time.Millisecond)
	l := newLogged(t, telemetry.AccessLogOptions{})
	s := serve(t, cfg, l.into)
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	k.answer("GET")
	r := l.records(t, s)[0]
	if all, _ := r["backend_duration_ms"].(float64); all < 49 || r["backend_first_byte_ms"] != nil || r["backend_connect_ms"] == nil {
		t.Errorf("%v", r)
	}
}

func TestTheAccessLogIsFiltered(t *testing.T) {
	asked := 0
	l := newLogged(t, telemetry.AccessLogOptions{Filter: telemetry.Filter{Sample: func() bool { asked++; return asked%3 == 0 }}})
	s := serve(t, plain(backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/500" {
			w.WriteHeader(500)
		}
	})), l.into)
	k := newTalk(t, s.addr())
	for range 6 {
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /500 HTTP/1.1\r\nHost: a\r\n\r\n")
		k.answer("GET")
		k.answer("GET")
	}
	if records := l.records(t, s); len(records) != 8 || asked != 6 {
		t.Errorf("%d lines, the sample was asked %d times", len(records), asked)
	}
}
