// Package toy has small services for experiments: "weir echo" and the demo run them.
package toy

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"time"
)

// Service answers each request with what it received. gRPC requests get their own messages back. Set its fields before
// it serves.
type Service struct {
	// Name appears in its answers.
	Name string
	// FailEvery makes every nth request fail with a 503; 0 means none.
	FailEvery int64
	// Delay is how long an answer takes.
	Delay time.Duration
	// Hang accepts requests and never answers.
	Hang bool
	// Seen, if set, is called for each request before it is answered.
	Seen func(service string, r *http.Request)

	requests atomic.Int64
	called   *httputil.ReverseProxy // set by Call
	ended    chan struct{}          // closed by Close
	server   *http.Server
}

// New returns a service that answers at once.
func New(name string) *Service {
	return &Service{Name: name, server: &http.Server{}, ended: make(chan struct{})}
}

// callTimeout bounds how long the called service may take to be connected, and then to answer.
const callTimeout = 10 * time.Second

// Call has the service ask another one, to whose URL it sends each request's path, and answer what that answers: 502 if
// that answers nothing. Set it before it serves.
func (t *Service) Call(to *url.URL) {
	t.called = &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: callTimeout}).DialContext, ResponseHeaderTimeout: callTimeout, DisableKeepAlives: true},
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			http.Error(w, fmt.Sprintf("%s has no answer of %s: %v", t.Name, to.Host, err), http.StatusBadGateway)
		},
	}
}

// Requests returns how many requests it got so far.
func (t *Service) Requests() int64 { return t.requests.Load() }

// echoed is the answer's JSON form.
type echoed struct {
	Service string            `json:"service"`
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	Query   string            `json:"query,omitempty"`
	Host    string            `json:"host"`
	Headers map[string]string `json:"headers"`
	// Body is the length of the body in bytes.
	Body int64 `json:"body,omitempty"`
}

// ServeHTTP implements http.Handler.
func (t *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := t.requests.Add(1)
	if t.Seen != nil {
		t.Seen(t.Name, r)
	}
	if !t.wait(r.Context()) {
		return
	}
	w.Header().Set("x-service", t.Name)
	if t.FailEvery > 0 && n%t.FailEvery == 0 {
		http.Error(w, t.Name+" fails on purpose", http.StatusServiceUnavailable)
		return
	}
	if t.called != nil {
		t.called.ServeHTTP(w, r)
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
		Service: t.Name, Method: r.Method, Path: r.URL.EscapedPath(), Query: r.URL.RawQuery,
		Host: r.Host, Headers: headers, Body: body,
	})
}

// wait holds the request as long as the toy hangs or is slow. It returns false if the client is gone.
func (t *Service) wait(ctx context.Context) bool {
	if !t.Hang && t.Delay <= 0 {
		return true
	}
	var late <-chan time.Time
	if !t.Hang {
		timer := time.NewTimer(t.Delay)
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-late:
		return true
	case <-ctx.Done():
	case <-t.ended: // a request with an unread body does not notice the server's end
	}
	return false
}

// Serve accepts connections on l, in cleartext (HTTP/1.1 and HTTP/2 with prior knowledge) or, with a certificate, over
// TLS. It returns when Close was called.
func (t *Service) Serve(l net.Listener, certificate *tls.Certificate) error {
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
	return fmt.Errorf("service %s: %w", t.Name, err)
}

// Close ends the service. It must be called only once.
func (t *Service) Close() {
	close(t.ended)
	_ = t.server.Close()
}
