package upstream

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/net/http2"
)

// http2Attempts bounds how often a request is sent that the endpoint did not process.
const http2Attempts = 4

// Target makes the URL with which HTTP2 sends exactly path and query as they stand ("*" too), with scheme "http" or "https".
func Target(scheme, authority, path, query string, hasQuery bool) *url.URL {
	u := &url.URL{Scheme: scheme, Host: authority, Opaque: path, RawQuery: query, ForceQuery: hasQuery && query == ""}
	if strings.HasPrefix(path, "//") {
		// Opaque with a leading "//" would be taken for an authority; the transport cuts this one off again.
		u.Opaque = "//" + authority + path
	}
	return u
}

// RoundTrip implements http.RoundTripper; see Endpoint.HTTP2.
func (p *http2Pool) RoundTrip(req *http.Request) (*http.Response, error) {
	e := p.endpoint
	e.inFlight.Add(1)
	resp, err := p.roundTrip(req)
	if err != nil {
		e.inFlight.Add(-1)
		return nil, err
	}
	return resp, nil
}

func (p *http2Pool) roundTrip(req *http.Request) (*http.Response, error) {
	e := p.endpoint
	out := p.outgoing(req)
	body := &requestBody{rc: req.Body}
	defer body.settle()
	if p.isDrained() && !e.set.adopt(e) {
		body.close()
		return nil, closedError(e.Address)
	}
	for attempt := 1; ; attempt++ {
		h, err := p.acquire(req.Context())
		if err != nil {
			body.close()
			return nil, err
		}
		var part *bodyAttempt
		if req.Body != nil && req.Body != http.NoBody {
			part = &bodyAttempt{body: body}
			out.Body = part
		}
		resp, err := h.RoundTrip(out)
		if err == nil {
			e.Answered(resp.StatusCode)
			p.watch(resp, h)
			return resp, nil
		}
		connection, stream := unprocessed(err)
		p.release(h, connection)
		untouched := part == nil || part.detach()
		if untouched && (connection && attempt < http2Attempts || stream && attempt == 1) && req.Context().Err() == nil {
			continue
		}
		body.close()
		if !connection && !body.failed.Load() && h.Err() != nil && req.Context().Err() == nil && !p.isClosed() {
			e.Failed()
		}
		return nil, err
	}
}

// outgoing is the request as the transport wants it.
func (p *http2Pool) outgoing(req *http.Request) *http.Request {
	out := new(http.Request)
	*out = *req
	if out.URL.Host == "" {
		u := *out.URL
		u.Host = p.endpoint.Address
		out.URL = &u
	}
	if _, ok := out.Header["User-Agent"]; !ok { // none, or else the transport adds its own
		out.Header = maps.Clone(out.Header)
		if out.Header == nil {
			out.Header = http.Header{}
		}
		out.Header["User-Agent"] = nil
	}
	return out
}

// unprocessed says whether the endpoint did not process the request because the connection takes no more streams, or because it
// refused this one (RFC 9113 §8.7). The library does not export the former errors; tests hold their texts.
func unprocessed(err error) (connection, stream bool) {
	switch err.Error() {
	case "http2: client conn not usable", "http2: Transport received Server's graceful shutdown GOAWAY":
		return true, false
	}
	var se http2.StreamError
	return false, errors.As(err, &se) && se.Code == http2.ErrCodeRefusedStream
}

// watch ends the exchange with the response's body.
func (p *http2Pool) watch(resp *http.Response, h *http2Conn) {
	b := &responseBody{ReadCloser: resp.Body, pool: p, conn: h}
	if resp.Body == nil || resp.Body == http.NoBody {
		b.end()
		return
	}
	resp.Body = b
}

// responseBody knows when the exchange is over.
type responseBody struct {
	io.ReadCloser
	pool  *http2Pool
	conn  *http2Conn
	ended atomic.Bool
}

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.end()
	}
	return n, err
}

func (b *responseBody) Close() error {
	err := b.ReadCloser.Close()
	b.end()
	return err
}

func (b *responseBody) end() {
	if b.ended.Swap(true) {
		return
	}
	b.pool.release(b.conn, false)
	b.pool.endpoint.inFlight.Add(-1)
}

// requestBody is a request's body over several attempts: a body that was not touched can be sent again, though the transport closes it
// when an attempt fails.
type requestBody struct {
	failed atomic.Bool // by itself, which is not the endpoint's fault

	mu      sync.Mutex
	rc      io.ReadCloser
	started bool
	asked   bool // an attempt that did not start to read has closed it
	settled bool // there will be no other attempt
	closed  bool
}

// settle says that the last attempt was made.
func (b *requestBody) settle() {
	b.mu.Lock()
	b.settled = true
	asked := b.asked
	b.mu.Unlock()
	if asked {
		b.close()
	}
}

func (b *requestBody) close() error {
	b.mu.Lock()
	closed := b.closed
	b.closed = true
	b.mu.Unlock()
	if closed || b.rc == nil {
		return nil
	}
	return b.rc.Close()
}

// bodyAttempt is the body as one attempt sees it.
type bodyAttempt struct {
	body     *requestBody
	detached bool // guarded by body.mu
}

func (a *bodyAttempt) Read(p []byte) (int, error) {
	b := a.body
	b.mu.Lock()
	if a.detached {
		b.mu.Unlock()
		return 0, http.ErrBodyReadAfterClose
	}
	b.started = true
	b.mu.Unlock()
	n, err := b.rc.Read(p)
	if err != nil && err != io.EOF {
		b.failed.Store(true)
	}
	return n, err
}

func (a *bodyAttempt) Close() error {
	b := a.body
	b.mu.Lock()
	if a.detached {
		b.mu.Unlock()
		return nil
	}
	if !b.started && !b.settled {
		b.asked = true
		b.mu.Unlock()
		return nil
	}
	b.mu.Unlock()
	return b.close()
}

// detach ends the attempt's hold on the body and is true if it was not touched.
func (a *bodyAttempt) detach() bool {
	b := a.body
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.started {
		return false
	}
	a.detached = true
	b.asked = false
	return true
}
