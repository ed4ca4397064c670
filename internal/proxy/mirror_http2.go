package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// sendHTTP2 carries the leg over a stream of HTTP/2. Unlike sendHTTP1 it lets the leg be used after it returned: the transport may still hold
// on to the body.
func (w *mirrorWorker) sendHTTP2(l *mirrorLeg) mirrorResult {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !l.attach(nil, cancel) {
		return mirrorResult{outcome: telemetry.MirrorDroppedAborted}
	}
	p, ended, over := l.take()
	if over {
		return mirrorResult{outcome: telemetry.MirrorDroppedAborted}
	}
	p = bytes.Clone(p) // the transport keeps the strings
	var head http1.Request
	n, err := head.Parse(p, http1.Limits{Line: len(p) + 1, Head: len(p) + 1, Fields: len(p)})
	if n == 0 {
		w.service.mirrors.log.Error("a mirrored head cannot be sent over HTTP/2", "service", w.service.name, "error", err)
		return mirrorResult{outcome: telemetry.MirrorDroppedAborted}
	}
	l.sent(n)

	pace := newMirrorPace(l, cancel)
	defer pace.stop()
	req := mirrorRequest(&head, w.service.upstream.Load().TLS).WithContext(ctx)
	if head.Body.Kind == http1.BodyChunked || head.Body.Length > 0 {
		req.Body = &mirrorBody{leg: l, pace: pace, done: ctx.Done(), trailers: req.Trailer, chunked: head.Body.Kind == http1.BodyChunked,
			taken: p[n:], ended: ended, closed: make(chan struct{})}
	} else {
		pace.whole()
	}
	resp, err := l.endpoint.HTTP2().RoundTrip(req)
	if err != nil {
		var ce *upstream.ConnectError
		var te *upstream.TLSError
		switch {
		case pace.expired() != telemetry.MirrorPending:
			return mirrorResult{outcome: pace.expired()}
		case errors.As(err, &ce), errors.As(err, &te):
			return mirrorResult{outcome: telemetry.MirrorFailedConnect}
		}
		return mirrorResult{outcome: telemetry.MirrorFailedReset}
	}
	_, err = io.CopyN(io.Discard, resp.Body, w.service.mirrors.opt.MaxAnswerBytes)
	resp.Body.Close()
	switch late := pace.expired(); {
	case late == telemetry.MirrorDroppedTime:
		return mirrorResult{outcome: late}
	case err != nil && err != io.EOF && late == telemetry.MirrorPending:
		return mirrorResult{outcome: telemetry.MirrorFailedReset}
	}
	// An answer without end was an answer.
	return mirrorResult{outcome: telemetry.MirrorSent}
}

// mirrorRequest is the head as the transport wants it.
func mirrorRequest(head *http1.Request, secure bool) *http.Request {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	req := &http.Request{Method: head.Method, Host: head.Authority, Header: make(http.Header, len(head.Fields)),
		URL: upstream.Target(scheme, head.Authority, head.Path, head.Query, head.HasQuery)}
	switch head.Body.Kind {
	case http1.BodyChunked:
		req.ContentLength = -1
	case http1.BodyLength:
		req.ContentLength = head.Body.Length
	}
	for _, f := range head.Fields {
		name := http.CanonicalHeaderKey(f.Name)
		switch f.ID {
		case http1.FieldHost, http1.FieldContentLength, http1.FieldTransferEncoding:
		case http1.FieldTrailer:
			for name := range strings.SplitSeq(f.Value, ",") {
				if name = strings.Trim(name, " \t"); !http1.ValidFieldName(name) {
					continue
				}
				if req.Trailer == nil {
					req.Trailer = http.Header{}
				}
				req.Trailer[http.CanonicalHeaderKey(name)] = nil
			}
		default:
			req.Header[name] = append(req.Header[name], f.Value)
		}
	}
	return req
}

// mirrorPace ends a copy whose time is up: the service's for taking bytes and for answering, or that of the copy as a whole while its primary
// streams.
type mirrorPace struct {
	mu      sync.Mutex
	timer   *time.Timer
	timeout time.Duration
	last    time.Time
	idle    bool // it is the primary that is waited for
	ended   bool
	late    telemetry.MirrorOutcome
}

func newMirrorPace(l *mirrorLeg, cancel context.CancelFunc) *mirrorPace {
	opt := &l.service.mirrors.opt
	p := &mirrorPace{timeout: opt.Timeout, last: l.born.Add(opt.MaxDuration)}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.timer = time.AfterFunc(p.timeout, func() {
		p.mu.Lock()
		if !p.ended && p.late == telemetry.MirrorPending {
			p.late = telemetry.MirrorFailedTimeout
			if p.idle {
				p.late = telemetry.MirrorDroppedTime
			}
		}
		p.mu.Unlock()
		cancel()
	})
	return p
}

// set says what is waited for from now on.
func (p *mirrorPace) set(idle bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended {
		return
	}
	d := time.Until(p.last)
	p.idle = idle || d <= 0
	if !p.idle {
		d = min(d, p.timeout)
	}
	p.timer.Reset(d)
}

// whole says that the copy is sent: the service has its full time to answer.
func (p *mirrorPace) whole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.ended {
		p.idle = false
		p.timer.Reset(p.timeout)
	}
}

func (p *mirrorPace) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.timer.Stop()
}

// expired is what the end of the time means, MirrorPending if it has not come.
func (p *mirrorPace) expired() telemetry.MirrorOutcome {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.late
}

// mirrorBody is what a leg gathers as the body of a request over HTTP/2.
type mirrorBody struct {
	leg      *mirrorLeg
	pace     *mirrorPace
	done     <-chan struct{}
	trailers http.Header // declared
	chunked  bool

	closed chan struct{}
	once   sync.Once

	// One goroutine reads.
	chunks http1.ChunkReader
	taken  []byte
	data   []byte // decoded, of taken
	ended  bool   // nothing follows taken
	eof    bool
}

var errMirrorOver = errors.New("the copy was given up")

func (b *mirrorBody) Read(p []byte) (int, error) {
	for {
		if len(b.data) > 0 {
			n := copy(p, b.data)
			b.data = b.data[n:]
			b.pace.set(false)
			return n, nil
		}
		if len(b.taken) > 0 && !b.eof {
			if err := b.decode(); err != nil {
				return 0, err
			}
			continue
		}
		if b.eof || b.ended {
			if b.eof = true; b.trailers != nil {
				for _, f := range b.chunks.Trailers() {
					if name := http.CanonicalHeaderKey(f.Name); b.declared(name) {
						b.trailers[name] = append(b.trailers[name], f.Value)
					}
				}
				b.trailers = nil
			}
			b.pace.whole()
			return 0, io.EOF
		}
		var over bool
		if b.taken, b.ended, over = b.leg.take(); over {
			return 0, errMirrorOver
		}
		if len(b.taken) > 0 || b.ended {
			continue
		}
		b.pace.set(true)
		select {
		case <-b.leg.wake:
		case <-b.done:
			return 0, errMirrorOver
		case <-b.closed:
			return 0, errMirrorOver
		case <-b.leg.service.mirrors.quit:
			return 0, errMirrorOver
		}
	}
}

// decode makes data of taken.
func (b *mirrorBody) decode() error {
	if !b.chunked {
		b.data, b.taken = b.taken, nil
		b.leg.sent(len(b.data))
		return nil
	}
	data, n, done, err := b.chunks.Next(b.taken)
	if err != nil {
		return err
	}
	b.data, b.taken, b.eof = data, b.taken[n:], done
	b.leg.sent(n)
	return nil
}

func (b *mirrorBody) declared(name string) bool {
	_, ok := b.trailers[name]
	return ok
}

// Close ends a Read under way.
func (b *mirrorBody) Close() error {
	b.once.Do(func() { close(b.closed) })
	return nil
}
