package cli

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"
)

// toy is a small service for trying things out: it answers each request with what it received. gRPC requests get their
// own messages back.
type toy struct {
	name string
	// failEvery answers 503 to every so manieth request; 0 never does.
	failEvery int64
	delay     time.Duration
	// seen, if set, is called for each request before it is answered.
	seen func(service string, r *http.Request)

	requests atomic.Int64
	hanging  bool
	ended    chan struct{} // closed by close
	server   *http.Server
}

// echoed is the answer's JSON form.
type echoed struct {
	Service string            `json:"service"`
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Query   string            `json:"query,omitempty"`
	Host    string            `json:"host"`
	Headers map[string]string `json:"headers"`
	// Body is how many bytes the body had.
	Body int64 `json:"body,omitempty"`
}

func (t *toy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := t.requests.Add(1)
	if t.seen != nil {
		t.seen(t.name, r)
	}
	if !t.wait(r.Context()) {
		return
	}
	w.Header().Set("x-service", t.name)
	if t.failEvery > 0 && n%t.failEvery == 0 {
		http.Error(w, t.name+" fails on purpose", http.StatusServiceUnavailable)
		return
	}
	if strings.HasPrefix(r.Header.Get("content-type"), "application/grpc") {
		w.Header().Set("content-type", r.Header.Get("content-type"))
		w.Header().Set("trailer", "grpc-status")
		_, _ = io.Copy(w, r.Body)
		w.Header().Set("grpc-status", "0")
		return
	}
	body, _ := io.Copy(io.Discard, r.Body)
	headers := make(map[string]string, len(r.Header))
	for name, values := range r.Header {
		headers[strings.ToLower(name)] = strings.Join(values, ", ")
	}
	w.Header().Set("content-type", "application/json")
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(echoed{
		Service: t.name, Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery,
		Host: r.Host, Headers: headers, Body: body,
	})
}

// wait delays the request while the toy hangs or is slow; false means that the client has left.
func (t *toy) wait(ctx context.Context) bool {
	if !t.hanging && t.delay <= 0 {
		return true
	}
	var late <-chan time.Time
	if !t.hanging {
		timer := time.NewTimer(t.delay)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-late:
		return true
	case <-ctx.Done():
	case <-t.ended: // a request whose body was not read does not learn of the server's end
	}
	return false
}

// serve accepts on l, in cleartext (HTTP/1.1 and HTTP/2 with prior knowledge) or, with a certificate, over TLS. It
// returns when close was called.
func (t *toy) serve(l net.Listener, certificate *tls.Certificate) error {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	protocols.SetUnencryptedHTTP2(true)
	t.server.Handler, t.server.Protocols = t, &protocols
	t.server.ReadHeaderTimeout, t.server.IdleTimeout = 10*time.Second, 2*time.Minute
	t.server.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	var err error
	if certificate != nil {
		t.server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*certificate}, MinVersion: tls.VersionTLS12}
		err = t.server.ServeTLS(l, "", "")
	} else {
		err = t.server.Serve(l)
	}
	if err == http.ErrServerClosed {
		return nil
	}
	return fmt.Errorf("service %s: %w", t.name, err)
}

func newToy(name string) *toy {
	return &toy{name: name, server: &http.Server{}, ended: make(chan struct{})}
}

// hang makes the toy accept requests and answer none; call it before serve.
func (t *toy) hang() { t.hanging = true }

// close is called once.
func (t *toy) close() {
	close(t.ended)
	_ = t.server.Close()
}
