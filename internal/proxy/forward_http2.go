package proxy

import (
	"context"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/upstream"
)

// streamAttempt is an attempt over HTTP/2, by the library's transport.
type streamAttempt struct {
	ex     *exchange
	resp   *http.Response
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer  // ends the attempt at its deadline; nil for none
	body   *requestBody // nil for a request without

	watch    *time.Timer // calls look
	k        *conn       // an HTTP/1.1 client; nil for a stream, whose context tells
	grpc     bool
	patience time.Duration
	silent   time.Duration // since the request was sent
	sent     atomic.Bool
	answered atomic.Bool
}

// errEnded is the cause of a context whose attempt came to its end.
var errEnded = errors.New("the attempt ended")

// context bounds what is done for the client.
func (ex *exchange) context() context.Context {
	if s, ok := ex.client.(*stream); ok {
		return s.context()
	}
	return ex.srv.cut
}

// tryHTTP2 sends the request to e and fills ex.resp with the answer's head. With a nil error ex.attempt.h2 has the answer's body.
func (ex *exchange) tryHTTP2(e *upstream.Endpoint) error {
	if ex.req.expect100 {
		if err := ex.client.proceed(); err != nil {
			return err
		}
		ex.req.expect100 = false
	}
	a := &ex.attempt
	h := &streamAttempt{ex: ex, grpc: ex.req.grpc, patience: ex.srv.opt.ResponseTimeout}
	h.k, _ = ex.client.(*conn)
	h.ctx, h.cancel = context.WithCancelCause(ex.context())
	req := ex.streamRequest(h)
	a.h2 = h
	if late := a.late; !a.deadline.IsZero() {
		h.timer = time.AfterFunc(time.Until(a.deadline), func() { h.cancel(late) })
	}
	h.sent.Store(h.body == nil || h.body.whole)
	h.watch = time.AfterFunc(math.MaxInt64, h.look)
	h.watch.Reset(look)
	resp, err := e.HTTP2().RoundTrip(req)
	if err == nil {
		h.resp = resp
		h.answered.Store(true)
		ex.streamAnswer(resp)
		return nil
	}
	cause := context.Cause(h.ctx)
	h.close()
	a.h2 = nil
	return h.failure(err, cause)
}

// failure is what an error of the transport means.
func (h *streamAttempt) failure(err, cause error) error {
	var f *failure
	if errors.As(cause, &f) {
		return f
	}
	if h.body != nil && h.body.failed != nil {
		return h.body.failed
	}
	if h.ex.client.gone() {
		return failClientClosed
	}
	var ce *upstream.ConnectError
	var te *upstream.TLSError
	if errors.As(err, &ce) || errors.As(err, &te) {
		return connectFailure(err)
	}
	return streamFailure(err)
}

// look ends the attempt when an HTTP/1.1 client has left, or the endpoint does not begin to answer a request it has. gRPC has deadlines of its
// own: a server that streams may begin with its first message, whenever that is.
func (h *streamAttempt) look() {
	switch {
	case h.ctx.Err() != nil:
		return
	case h.k != nil && h.k.gone():
		h.cancel(failClientClosed)
		return
	case h.answered.Load() || h.grpc:
	case !h.sent.Load():
		h.sent.Store(h.body.eof.Load())
	default:
		if h.silent += look; h.silent >= h.patience {
			h.cancel(failBackendTime)
			return
		}
	}
	h.watch.Reset(look)
}

// streamRequest makes the library's request. The strings are copied: the transport may look at them after the exchange.
func (ex *exchange) streamRequest(h *streamAttempt) *http.Request {
	r := &ex.req
	header := make(http.Header, len(ex.fields)+1)
	setFields(header, ex.fields)
	header.Del("Trailer")
	te, _ := http1.GetID(r.fields, http1.FieldTE)
	if r.grpc || http1.HasToken(te, "trailers") {
		header["Te"] = []string{"trailers"}
	}
	scheme := "http"
	if ex.backend.service.TLS {
		scheme = "https"
	}
	authority := strings.Clone(ex.authority)
	path, query, hasQuery := strings.Cut(strings.Clone(ex.target), "?")
	req := &http.Request{
		Method: strings.Clone(r.method), URL: upstream.Target(scheme, authority, path, query, hasQuery), Host: authority,
		Proto: "HTTP/2.0", ProtoMajor: 2, Header: header,
	}
	ex.copyHead()
	if !ex.attemptsBefore() {
		ex.copyBody(ex.body)
		if ex.whole {
			ex.copyEnd(true, nil)
		}
	}
	if r.body.Kind == http1.BodyChunked || r.body.Length > 0 {
		b := &requestBody{ex: ex, rest: ex.body, whole: ex.whole}
		if r.body.Kind == http1.BodyChunked {
			req.ContentLength = -1
			if req.Trailer = ex.trailerNames(); req.Trailer != nil {
				b.trailer = req.Trailer
			}
		} else {
			req.ContentLength = r.body.Length
		}
		h.body, req.Body = b, b
	}
	return req.WithContext(h.ctx)
}

func (ex *exchange) attemptsBefore() bool { return ex.attempts > 1 }

// trailerNames are the trailers that the request announces.
func (ex *exchange) trailerNames() http.Header {
	var names http.Header
	for i := range ex.req.fields {
		if f := &ex.req.fields[i]; f.ID == http1.FieldTrailer {
			for n := range strings.SplitSeq(f.Value, ",") {
				if n = strings.Trim(n, " \t"); http1.ValidFieldName(n) {
					if names == nil {
						names = http.Header{}
					}
					names[http.CanonicalHeaderKey(strings.Clone(n))] = nil
				}
			}
		}
	}
	return names
}

// streamAnswer makes ex.resp of the library's response.
func (ex *exchange) streamAnswer(resp *http.Response) {
	r := &ex.resp
	r.Reset()
	r.Status, r.KeepAlive = resp.StatusCode, true
	r.Fields = headerFields(r.Fields, resp.Header)
	slices.SortStableFunc(r.Fields, func(a, b http1.Field) int { return strings.Compare(a.Name, b.Name) })
	_, sized := resp.Header["Content-Length"]
	switch {
	case ex.req.method == http.MethodHead, r.Status == http.StatusNoContent, r.Status == http.StatusNotModified,
		resp.ContentLength == 0 && !sized:
		r.Body = http1.Body{Kind: http1.BodyNone}
	case resp.ContentLength >= 0 && (ex.req.http2 || len(resp.Trailer) == 0): // HTTP/1.1 has trailers only behind chunks
		r.Body = http1.Body{Kind: http1.BodyLength, Length: resp.ContentLength}
	default:
		r.Body = http1.Body{Kind: http1.BodyChunked}
	}
}

// relayHTTP2 passes the answer on from an HTTP/2 stream.
func (ex *exchange) relayHTTP2() error {
	h := ex.attempt.h2
	err := ex.head()
	if err == nil && ex.resp.Body.Kind != http1.BodyNone {
		err = ex.relayStream(h)
	}
	cause := context.Cause(h.ctx)
	trailers := headerFields(nil, h.resp.Trailer)
	h.close()
	ex.attempt.h2 = nil
	if err == nil {
		return ex.client.end(trailers)
	}
	var f *failure
	if errors.As(err, &f) {
		return f
	}
	return h.failure(unexpected(err), cause)
}

func (ex *exchange) relayStream(h *streamAttempt) error {
	p := piecePool.Get().(*piece)
	defer piecePool.Put(p)
	// The body of a short answer is about to come: head and body go out together.
	wait := ex.resp.Body.Kind == http1.BodyChunked || ex.resp.Body.Length > gather
	for {
		if wait {
			if err := ex.client.flush(); err != nil {
				return err
			}
		}
		n, err := h.resp.Body.Read(p.b[:])
		if n > 0 {
			if werr := ex.write(p.b[:n]); werr != nil {
				return werr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		wait = true
	}
}

// close ends the attempt and makes sure that nothing of the exchange is used by the transport any more.
func (h *streamAttempt) close() {
	h.cancel(errEnded)
	if h.timer != nil {
		h.timer.Stop()
	}
	if h.watch != nil {
		h.watch.Stop()
	}
	if h.resp != nil {
		h.resp.Body.Close()
	}
	if h.body != nil {
		h.body.detach()
	}
}

// requestBody is the client's body as the transport reads it.
type requestBody struct {
	mu      sync.Mutex // held while the exchange is used
	ex      *exchange
	rest    []byte
	whole   bool // rest is all there is
	trailer http.Header
	failed  error // the client's failure
	eof     atomic.Bool
	over    bool // detached

	guard sync.Mutex // held while the client is interrupted, which never waits
	gone  bool       // nor may it be any more
}

var errDetached = errors.New("the request's exchange has ended")

func (b *requestBody) Read(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over {
		return 0, errDetached
	}
	if b.failed != nil {
		return 0, b.failed
	}
	if len(b.rest) == 0 {
		err := io.EOF
		if !b.whole && !b.eof.Load() {
			b.rest, err = b.ex.next()
		}
		if err == io.EOF {
			b.end()
			return 0, io.EOF
		}
		if err != nil {
			b.failed = err
			return 0, err
		}
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	if len(b.rest) == 0 && b.whole {
		b.end()
		return n, io.EOF
	}
	return n, nil
}

// end notes that the body was whole.
func (b *requestBody) end() {
	if b.eof.Swap(true) || b.trailer == nil {
		return
	}
	trailers := b.ex.client.trailers()
	for i := range trailers {
		key := http.CanonicalHeaderKey(trailers[i].Name)
		if _, ok := b.trailer[key]; ok {
			b.trailer[strings.Clone(key)] = append(b.trailer[key], strings.Clone(trailers[i].Value))
		}
	}
}

// Close is called by the transport, also while a Read waits for the client: that one must end.
func (b *requestBody) Close() error {
	b.guard.Lock()
	defer b.guard.Unlock()
	if !b.gone && !b.eof.Load() && !b.whole {
		b.ex.client.interrupt()
	}
	return nil
}

// detach waits for a Read under way and lets no other reach the exchange.
func (b *requestBody) detach() {
	b.Close()
	b.guard.Lock()
	b.gone = true
	b.guard.Unlock()
	b.mu.Lock()
	b.over = true
	b.mu.Unlock()
}

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
