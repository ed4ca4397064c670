package proxy

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

// lines is an io.Writer that keeps the access log's output. It is read after the log is closed.
type lines struct{ bytes.Buffer }

func TestExchangesAreLogged(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.WriteHeader(201)
		fmt.Fprintf(w, "%s!", b)
	})
	copies, _ := wire(t, okResponse)
	cfg := config([]model.Service{service(serviceName, model.HTTP, addr), service("default/copy:80", model.HTTP, copies)}, ruleTo(serviceName))
	cfg.Routes[0].Rules[0].Name = "all"
	cfg.Routes[0].Rules[0].Matches[0].Path.Value = "/shop"
	cfg.Routes[0].Rules[0].Filters.Mirrors = []model.Mirror{{Service: "default/copy:80", Numerator: 1, Denominator: 1}}
	var out lines
	log := telemetry.NewAccessLog(&out, telemetry.AccessLogOptions{})
	s := serve(t, cfg, func(o *Options) { o.AccessLog = log })
	k := newTalk(t, s.addr())
	k.send("POST /shop/x?y=1 HTTP/1.1\r\nHost: Shop.example\r\nUser-Agent: test\r\nX-Request-Id: 7\r\nReferer: r\r\nContent-Length: 3\r\n\r\nabc")
	k.answer("POST")
	k.send("GET /other HTTP/1.1\r\nHost: Shop.example\r\n\r\n")
	k.answer("GET")
	k.send("GET  HTTP/1.1\r\n\r\n")
	k.answer("GET")
	s.stop()
	<-s.ended
	if err := log.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	var records []map[string]any
	for d := json.NewDecoder(&out); ; {
		var r map[string]any
		if err := d.Decode(&r); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		records = append(records, r)
	}
	if len(records) != 3 {
		t.Fatalf("%d records: %v", len(records), records)
	}
	text := fmt.Sprint(records[0])
	for _, want := range []string{"default/route", "all", serviceName, addr, "POST", "/shop/x", "y=1", "201", "test", listenerName, "default/copy:80", "Shop.example"} {
		if !strings.Contains(text, want) {
			t.Errorf("the first record says nothing of %q: %s", want, text)
		}
	}
	for i, want := range []telemetry.Reason{telemetry.NoRoute, telemetry.BadRequest} {
		if text := fmt.Sprint(records[i+1]); !strings.Contains(text, string(want)) {
			t.Errorf("record %d has not the reason %s: %s", i+1, want, text)
		}
	}
}

func TestExchangesAreCounted(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, "four")
	})
	s := serve(t, plain(addr))
	k := newTalk(t, s.addr())
	for range 3 {
		k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n12345")
		k.answer("POST")
	}
	k.send("GET /..%2f HTTP/1.1\r\nHost: a\r\n\r\n")
	k.answer("GET")
	s.stop()
	<-s.ended
	for _, x := range s.metrics.Snapshot().Exchanges {
		switch x.Backend {
		case serviceName:
			if x.Route != "default/route" || x.Rule != "0" || x.Requests != 3 || x.BytesIn != 15 || x.BytesOut != 12 || len(x.Codes) != 1 || x.Codes[0].Code != 200 {
				t.Errorf("%+v", x)
			}
		case "":
			if x.Route == "" && (x.Requests != 1 || x.Codes[0].Code != 400) {
				t.Errorf("%+v", x)
			}
		}
	}
	if total, open := s.metrics.Listener(":80").Connections(); total != 1 || open != 0 {
		t.Errorf("%d connections, %d open", total, open)
	}
}

func TestSlowUploadIsNoSilence(t *testing.T) {
	t.Parallel()
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, len(b))
	})
	h2 := h2cBackend(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, len(b))
	})
	for protocol, addr := range map[model.Protocol]string{model.HTTP: addr, model.H2C: h2} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			s := serve(t, config([]model.Service{service(serviceName, protocol, addr)}, ruleTo(serviceName)),
				func(o *Options) { o.ResponseTimeout = time.Millisecond })
			k := newTalk(t, s.addr())
			k.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\n1")
			time.Sleep(2500 * time.Millisecond) // longer than the proxy waits for an endpoint that has the request
			k.send("234")
			if resp, body := k.answer("POST"); resp.StatusCode != 200 || body != "4" {
				t.Errorf("status %d, body %q", resp.StatusCode, body)
			}
		})
	}
}

func TestSilentEndpointIsGivenUp(t *testing.T) {
	t.Parallel()
	addr := rawBackend(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	h2 := h2cBackend(t, func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	for protocol, addr := range map[model.Protocol]string{model.HTTP: addr, model.H2C: h2} {
		t.Run(string(protocol), func(t *testing.T) {
			t.Parallel()
			s := serve(t, config([]model.Service{service(serviceName, protocol, addr)}, ruleTo(serviceName)),
				func(o *Options) { o.ResponseTimeout = time.Millisecond })
			k := newTalk(t, s.addr())
			k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			if resp, _ := k.answer("GET"); resp.StatusCode != 504 {
				t.Errorf("status %d", resp.StatusCode)
			}
			if s.failures(telemetry.BackendTimeout) != 1 {
				t.Error("not counted")
			}
		})
	}
}

func TestRetryOverHTTP2SendsTheBodyAgain(t *testing.T) {
	var n atomic.Int64
	addr := h2cBackend(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if n.Add(1) < 3 {
			w.WriteHeader(503)
			return
		}
		fmt.Fprint(w, len(b))
	})
	for _, protocol := range []model.Protocol{model.HTTP, model.H2C} {
		n.Store(0)
		cfg := config([]model.Service{service(serviceName, protocol, addr)}, ruleTo(serviceName))
		cfg.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 2, Codes: []int{503}}
		s := serve(t, cfg)
		resp, err := h2cClient(t).Post("http://"+s.addr()+"/", "text/plain", strings.NewReader(strings.Repeat("x", 30000)))
		if err != nil {
			t.Fatal(err)
		}
		b, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != 200 || string(b) != "30000" {
			t.Errorf("%s: status %d, body %q", protocol, resp.StatusCode, b)
		}
	}
}

func TestDrainEndsHTTP2ConnectionsAfterTheirStreams(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		close(started)
		<-release
		fmt.Fprint(w, "whole")
	})
	s := serve(t, plain(addr), func(o *Options) { o.DrainTimeout = time.Minute })
	type result struct {
		body string
		err  error
	}
	done := make(chan result, 1)
	c := h2cClient(t)
	go func() {
		resp, err := c.Get("http://" + s.addr() + "/")
		if err != nil {
			done <- result{err: err}
			return
		}
		b, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		done <- result{string(b), err}
	}()
	<-started
	s.stop()
	close(release)
	if r := <-done; r.body != "whole" || r.err != nil {
		t.Errorf("%q, %v", r.body, r.err)
	}
	<-s.ended
}

func TestInterimAnswersAreBounded(t *testing.T) {
	addr := rawBackend(t, func(c net.Conn) {
		rawHead(bufio.NewReader(c))
		for {
			if _, err := io.WriteString(c, "HTTP/1.1 103 Early Hints\r\n\r\n"); err != nil {
				return
			}
		}
	})
	s := serve(t, plain(addr))
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.0\r\nHost: a\r\n\r\n")
	if resp, _ := k.answer("GET"); resp.StatusCode != 502 {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// TestExchangesDoNotLeakIntoEachOther: exchanges reuse their state. Nothing of one request may show up in the next.
func TestExchangesDoNotLeakIntoEachOther(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		if r.URL.Query().Get("fail") != "" {
			w.WriteHeader(503)
		}
		w.Header().Set("X-Echo", r.Header.Get("X-Id"))
		fmt.Fprintf(w, "%s %s %s", r.Method, r.URL.Path, b)
	})
	edited := ruleTo(serviceName)
	edited.Matches[0].Path.Value = "/edited"
	edited.Filters.Rewrite = &model.Rewrite{Path: &model.PathPatch{Prefix: true, Value: "/new"}}
	edited.Filters.ResponseHeaders = &model.HeaderEdit{Set: []model.HeaderValue{{Name: "X-Edited", Value: "1"}}}
	edited.Retry = &model.Retry{Attempts: 1, Codes: []int{503}}
	cfg := config([]model.Service{service(serviceName, model.HTTP, addr)}, edited, ruleTo(serviceName))
	s := serve(t, cfg)
	k := newTalk(t, s.addr())
	for i := range 300 {
		id := fmt.Sprint(i)
		path, want := "/plain/"+id, "/plain/"+id
		switch i % 5 {
		case 1:
			path, want = "/edited/"+id, "/new/"+id
		case 2:
			path = "/plain/./x/../" + id
		case 3:
			path, want = "/edited/"+id+"?fail=1", "/new/"+id
		}
		switch i % 4 {
		case 0, 1:
			k.send("GET " + path + " HTTP/1.1\r\nHost: A.example\r\nX-Id: " + id + "\r\n\r\n")
			want = "GET " + want + " "
		case 2:
			k.send("POST " + path + " HTTP/1.1\r\nHost: a\r\nContent-Length: " + fmt.Sprint(len(id)) + "\r\nX-Id: " + id + "\r\n\r\n" + id)
			want = "POST " + want + " " + id
		case 3:
			k.send("PUT " + path + " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nX-Id: " + id + "\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n", len(id), id))
			k.send("0\r\n\r\n")
			want = "PUT " + want + " " + id
		}
		resp, body := k.answer("GET")
		edited := resp.Header.Get("X-Edited") != ""
		if body != want || edited != (i%5 == 1 || i%5 == 3) {
			t.Fatalf("request %d: %q, want %q; edited %v", i, body, want, edited)
		}
		if resp.StatusCode == 200 && resp.Header.Get("X-Echo") != id {
			t.Fatalf("request %d: echo %q", i, resp.Header.Get("X-Echo"))
		}
	}
}
