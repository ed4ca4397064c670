package proxy

//lint:file-ignore SA1019 http.Server takes listeners only, not one connection whose preface was read already

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirmesh/weir/internal/http1"
)

const http2Preface = http2.ClientPreface

// isPreface is true if the bytes are the beginning of HTTP/2 with prior knowledge (RFC 9113 §3.4), as far as they go.
func isPreface(b []byte) bool {
	n := min(len(b), len(http2Preface))
	return string(b[:n]) == http2Preface[:n]
}

// prefaceConn gives back what was read behind the preface.
type prefaceConn struct {
	net.Conn
	rest []byte
}

func (c *prefaceConn) Read(p []byte) (int, error) {
	if len(c.rest) > 0 {
		n := copy(p, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// newHTTP2Server makes the settings of a port's HTTP/2 connections.
func (s *Server) newHTTP2Server() (*http.Server, *http2.Server) {
	h1 := &http.Server{
		MaxHeaderBytes: s.opt.Limits.Head,
		IdleTimeout:    s.opt.IdleTimeout,
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelDebug),
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          int(s.opt.MaxStreams),
			MaxReceiveBufferPerConnection: 1 << 20,
			MaxReceiveBufferPerStream:     256 << 10,
			SendPingTimeout:               s.opt.IdleTimeout,
			PingTimeout:                   15 * time.Second,
			WriteByteTimeout:              min(s.opt.StreamTimeout, 30*time.Second),
		},
	}
	h2 := &http2.Server{}
	if err := http2.ConfigureServer(h1, h2); err != nil {
		panic(err) // only for a TLS configuration, and it has none
	}
	return h1, h2
}

// serveHTTP2 hands the connection to the library's server, whose streams enter the same pipeline.
func (c *conn) serveHTTP2(nc net.Conn, sawPreface bool) {
	if c.w != nil {
		putWork(c.w)
		c.w = nil
	}
	if c.bind.phase.Load() == phaseClose {
		return
	}
	c.sock.SetDeadline(time.Time{})
	c.bind.h2.ServeConn(nc, &http2.ServeConnOpts{
		BaseConfig:       c.bind.h1,
		Handler:          http.HandlerFunc(c.serveStream),
		SawClientPreface: sawPreface,
	})
}

// streamGate counts the streams being served: their goroutines are the library's, which does not wait for them.
type streamGate struct {
	mu     sync.Mutex
	closed bool
	wg     sync.WaitGroup
}

func (g *streamGate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.wg.Add(1)
	return true
}

// close lets nobody in any more and waits for those inside.
func (g *streamGate) close() {
	g.mu.Lock()
	g.closed = true
	g.mu.Unlock()
	g.wg.Wait()
}

// stream is the HTTP/2 side of an exchange; it implements client.
type stream struct {
	ex      exchange
	w       http.ResponseWriter
	r       *http.Request
	fields  []http1.Field
	begun   bool // the answer's head is in the response writer
	started bool // and was given to the library
	aborted bool
	noOut   bool
	status  int
	piece   *piece
	err     error // reading ended
}

var streamPool = sync.Pool{New: func() any { return new(stream) }}

// serveStream is the library's handler.
func (c *conn) serveStream(w http.ResponseWriter, r *http.Request) {
	if !c.srv.streams.enter() {
		panic(http.ErrAbortHandler)
	}
	defer c.srv.streams.wg.Done()
	s := streamPool.Get().(*stream)
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler {
				s.ex.dispose()
				c.srv.recovered(p)
			}
			panic(http.ErrAbortHandler)
		}
	}()
	s.serve(c, w, r)
	aborted := s.aborted
	s.release()
	if aborted {
		panic(http.ErrAbortHandler) // resets the stream
	}
}

func (s *stream) serve(c *conn, w http.ResponseWriter, r *http.Request) {
	s.w, s.r = w, r
	s.begun, s.started, s.aborted, s.noOut, s.status, s.err = false, false, false, false, 0, nil
	ex := &s.ex
	ex.reset()
	ex.srv, ex.client, ex.conn, ex.shard = c.srv, s, c, c.shard
	if ex.snap, ex.port = c.bind.snapshot(); ex.port.TLS != (c.tls != nil) {
		ex.port = nil
	}
	ex.start = time.Now()
	if f := s.message(); f != nil {
		ex.fail(f)
		ex.finish()
		return
	}
	ex.serve()
}

// message fills in the neutral request. The library has checked fields (RFC 9113 §8.2); what goes into a request line of HTTP/1.1 is checked here.
func (s *stream) message() *failure {
	r, q := s.r, &s.ex.req
	*q = request{proto: "HTTP/2.0", http2: true, minor: 1, method: r.Method, target: r.RequestURI, authority: r.Host}
	s.fields = s.fields[:0]
	for name, values := range r.Header {
		id := http1.Identify(name)
		for _, v := range values {
			s.fields = append(s.fields, http1.Field{Name: name, Value: v, ID: id})
		}
	}
	q.fields = s.fields
	switch {
	case r.ContentLength > 0:
		q.body = http1.Body{Kind: http1.BodyLength, Length: r.ContentLength}
	case r.ContentLength < 0:
		q.body = http1.Body{Kind: http1.BodyChunked}
	case r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch:
		q.body = http1.Body{Kind: http1.BodyLength}
	}
	q.grpc = isGRPC(r.Header.Get("Content-Type"))
	q.path, q.query, q.hasQuery = strings.Cut(q.target, "?")
	s.ex.setHost()
	if r.Method == http.MethodConnect {
		q.form = http1.FormAuthority
		return failConnect
	}
	valid := http1.ValidToken(r.Method) && http1.ValidAuthority(r.Host) && strings.HasPrefix(q.target, "/")
	for i := 0; valid && i < len(q.target); i++ {
		valid = q.target[i] == '?' || targetByte(q.target[i])
	}
	if !valid {
		return failMalformed
	}
	return nil
}

func (s *stream) release() {
	if s.piece != nil {
		piecePool.Put(s.piece)
		s.piece = nil
	}
	s.w, s.r = nil, nil
	clear(s.fields[:cap(s.fields)])
	s.ex.shrink()
	s.ex.req = request{}
	streamPool.Put(s)
}

func (s *stream) buffered() []byte { return nil }

func (s *stream) ready() bool { return s.err != nil }

func (s *stream) next() ([]byte, error) {
	if s.err != nil {
		return nil, s.err
	}
	if s.piece == nil {
		s.piece = piecePool.Get().(*piece)
	}
	n, err := s.r.Body.Read(s.piece.b[:])
	if err == io.EOF {
		s.err = err
	} else if err != nil {
		s.err = bodyFailure(err)
	}
	if n > 0 {
		return s.piece.b[:n], nil
	}
	return nil, s.err
}

func (s *stream) trailers() []http1.Field { return headerFields(nil, s.r.Trailer) }

func (s *stream) interrupt() { s.r.Body.Close() }

// proceed implements client: the library does it when the body is read.
func (s *stream) proceed() error { return nil }

func (s *stream) gone() bool { return s.r.Context().Err() != nil }

func (s *stream) inform(status int, fields []http1.Field) error {
	if status == http.StatusContinue {
		return nil
	}
	h := s.w.Header()
	clear(h)
	setFields(h, fields)
	s.w.WriteHeader(status)
	clear(h)
	return nil
}

func (s *stream) begin(a *answer) error {
	h := s.w.Header()
	setFields(h, a.fields)
	if a.body.Kind == http1.BodyLength {
		h["Content-Length"] = []string{strconv.FormatInt(a.body.Length, 10)}
	}
	// The library would make up what is absent.
	for _, name := range [...]string{"Date", "Content-Type"} {
		if _, ok := h[name]; !ok {
			h[name] = nil
		}
	}
	s.status = a.status
	s.noOut = a.body.Kind == http1.BodyNone || s.r.Method == http.MethodHead
	s.begun = true
	return nil
}

// start gives the head to the library, once.
func (s *stream) start() {
	if !s.started {
		s.started = true
		s.w.WriteHeader(s.status)
	}
}

func (s *stream) write(p []byte) error {
	if s.noOut || len(p) == 0 {
		return nil
	}
	s.start()
	if _, err := s.w.Write(p); err != nil {
		return writeFailure(err)
	}
	return nil
}

func (s *stream) flush() error {
	s.start()
	if err := s.w.(interface{ FlushError() error }).FlushError(); err != nil {
		return writeFailure(err)
	}
	return nil
}

func (s *stream) end(trailers []http1.Field) error {
	s.start()
	h := s.w.Header()
	for i := range trailers {
		key := http.TrailerPrefix + http.CanonicalHeaderKey(trailers[i].Name)
		h[key] = append(h[key], strings.Clone(trailers[i].Value))
	}
	return nil
}

func (s *stream) retract() bool {
	if s.started {
		return false
	}
	clear(s.w.Header())
	return true
}

func (s *stream) abort() { s.aborted = true }

// setFields copies fields, whose strings are soon gone, into a header.
func setFields(h http.Header, fields []http1.Field) {
	size := 0
	for i := range fields {
		size += len(fields[i].Name) + len(fields[i].Value)
	}
	var all strings.Builder
	all.Grow(size)
	for i := range fields {
		all.WriteString(fields[i].Name)
		all.WriteString(fields[i].Value)
	}
	rest := all.String()
	values := make([]string, len(fields))
	for i := range fields {
		n, v := len(fields[i].Name), len(fields[i].Value)
		key := http.CanonicalHeaderKey(rest[:n])
		values[i] = rest[n : n+v]
		rest = rest[n+v:]
		if old, ok := h[key]; ok {
			h[key] = append(old, values[i])
		} else {
			h[key] = values[i : i+1 : i+1]
		}
	}
}

// headerFields appends a header's fields.
func headerFields(fields []http1.Field, h http.Header) []http1.Field {
	for name, values := range h {
		id := http1.Identify(name)
		for _, v := range values {
			fields = append(fields, http1.Field{Name: name, Value: v, ID: id})
		}
	}
	return fields
}
