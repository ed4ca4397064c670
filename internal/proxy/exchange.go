package proxy

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
	"unsafe"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// client is the side of an exchange that its request came from: an HTTP/1.1 connection or an HTTP/2 stream. The body is read by one
// goroutine, the answer written by one, which may be another. What it returns as errors are *failure, but for io.EOF.
type client interface {
	// buffered takes what is in memory of a body of known length, and one of unknown length if it is whole and without trailers, else nil; the bytes
	// stay valid as long as the exchange.
	buffered() []byte
	// ready is true if next will not wait.
	ready() bool
	// next returns the next piece of the body, valid until the next call; io.EOF after the last.
	next() ([]byte, error)
	// trailers of the request, after next's io.EOF.
	trailers() []http1.Field
	// interrupt makes a next under way fail, and so each later one until resume; nothing of the body is lost.
	interrupt()
	resume()
	// proceed tells a client that waits for it to send the body.
	proceed() error
	// gone is true if the client is known to have left.
	gone() bool

	// inform sends an interim answer.
	inform(status int, fields []http1.Field) error
	// begin takes the head of the answer, copying what it needs. Nothing is sent before write has gathered enough, flush, or end.
	begin(a *answer) error
	write(p []byte) error
	flush() error
	// end completes the answer and sends what is left.
	end(trailers []http1.Field) error
	// retract forgets an answer of which nothing was sent; false if it is too late.
	retract() bool
	// abort breaks the answer off in a way that the client notices.
	abort()
}

// request is what both protocols say about a request. Its strings are valid as long as the exchange.
type request struct {
	proto     string // "HTTP/1.1", as the access log shows it
	method    string
	target    string // as received
	path      string // raw
	query     string
	hasQuery  bool
	authority string
	host      string // of authority: lower case, without port
	fields    []http1.Field
	namedHops bool // Connection names further fields
	body      http1.Body
	upgrade   string
	expect100 bool
	form      http1.Form
	minor     int // of HTTP/1
	http2     bool
	grpc      bool
}

// answer is what both protocols need of an answer's head.
type answer struct {
	status int
	reason string
	fields []http1.Field // end to end
	body   http1.Body
	// upgrade is the protocol of a 101.
	upgrade string
	// close ends the client's connection after the answer.
	close bool
}

// exchange is one request and its answer. It is reused: reset keeps the memory.
type exchange struct {
	srv    *Server
	snap   *snapshot
	port   *routing.Port // nil if the port is gone
	client client
	conn   *conn // the client's connection
	shard  uint32

	req      request
	match    routing.Request
	decision routing.Decision
	rule     *ruleState
	backend  *backendState
	endpoint *upstream.Endpoint
	resumed  *sessionTarget // where the session of the request is; nil: it has none

	// What is sent to the endpoint.
	authority string
	target    string
	path      string // of target
	fields    []http1.Field
	body      []byte // known part of a body of known length
	whole     bool   // that is all of it
	bodyTaken bool   // body was filled in
	touched   bool   // bytes of the body are gone that cannot be had again
	ended     bool   // the client's body was read to its end
	retain    int    // how much of the body may be kept for another attempt
	attempt   attempt
	request   http2.Head
	waiting   upstream.Waiting
	resp      http1.Response
	upload    upload
	chunks    http1.ChunkReader // of the answer

	answer  answer
	picked  []*mirrorTarget // to be copied to, until the legs begin
	legs    []mirrorLegState
	copied  bool // the legs have begun
	settled bool // the legs have ended

	limited io.LimitedReader
	wire    []byte // the request in bytes
	scratch []byte // strings made for this exchange
	keep    []byte // a body kept for retries
	local   []http1.Field

	start    time.Time
	since    time.Time // the end of the exchange before on an HTTP/1.1 connection; zero: there was none
	finished time.Time
	entered  bool      // it has a place of the gate's
	crowded  bool      // few are left
	deadline time.Time // of the whole exchange; zero for none
	status   int
	reason   telemetry.Reason
	attempts int
	in, out  int64
}

// mirrorLegState is a copy and what the access log says of it. leg is nil if it was dropped at once.
type mirrorLegState struct {
	target  *mirrorTarget
	leg     *mirrorLeg
	outcome telemetry.MirrorOutcome
}

// reset makes the exchange ready for the next request, which is to be filled in.
func (ex *exchange) reset() {
	ex.match = routing.Request{}
	ex.decision = routing.Decision{}
	ex.rule, ex.backend, ex.endpoint = nil, nil, nil
	ex.resumed = nil
	ex.body, ex.whole, ex.bodyTaken, ex.touched, ex.ended, ex.retain = nil, false, false, false, false, 0
	ex.answer = answer{}
	ex.picked, ex.legs, ex.copied, ex.settled = ex.picked[:0], ex.legs[:0], false, false
	ex.scratch = ex.scratch[:0]
	ex.keep = ex.keep[:0]
	ex.deadline = time.Time{}
	ex.upload.running, ex.upload.stopped, ex.upload.failed = false, false, nil
	ex.status, ex.reason, ex.attempts, ex.in, ex.out = 0, "", 0, 0, 0
	ex.entered, ex.crowded = false, false
}

// serve carries the exchange from its request's head to the end of its answer. This is the one place where failures are answered.
func (ex *exchange) serve() {
	err := ex.enter()
	if err == nil {
		err = ex.run()
	}
	if err != nil {
		ex.fail(err)
	}
	ex.finish()
	ex.leave()
}

// run is the pipeline: route, filters, pick, forward, respond.
func (ex *exchange) run() error {
	if ex.req.path == "*" {
		return ex.answerOptions()
	}
	if err := ex.route(); err != nil {
		return err
	}
	if done, err := ex.filter(&ex.rule.filters); done || err != nil {
		return err
	}
	if f := ex.rule.fault; f != nil {
		return faultFailure(f)
	}
	if most := ex.srv.opt.MaxBody; most > 0 && ex.req.body.Kind == http1.BodyLength && ex.req.body.Length > most {
		return failBodySize
	}
	ex.sample(ex.decision.Rule.Mirrors)
	var b *routing.Backend
	if s := ex.rule.session; s != nil {
		b = ex.resume(s)
	}
	if b != nil {
		ex.backend = ex.resumed.state
	} else {
		if b = ex.decision.Rule.Pick(); b == nil {
			return failNoBackend
		}
		ex.backend = &ex.snap.backends[b.ID]
		if l := b.Leaf(&ex.match); l != nil {
			ex.backend = &ex.snap.leaves[l.ID]
		}
	}
	if f := ex.backend.fault; f != nil {
		return faultFailure(f)
	}
	if done, err := ex.filter(&ex.backend.filters); done || err != nil {
		return err
	}
	ex.sample(b.Mirrors)
	return ex.forward()
}

// route finds the rule.
func (ex *exchange) route() error {
	r := &ex.req
	if ex.port == nil {
		return failNoListener
	}
	l := ex.port.Listener(r.host)
	if l == nil {
		return failNoListener
	}
	if ex.conn.tls != nil && !ex.conn.mayReach(ex.snap, ex.port, l) {
		return failMisdirected
	}
	m := &ex.match
	m.Host, m.Method, m.Query, m.Fields = r.host, r.method, r.query, ex
	if r.method == http.MethodConnect {
		m.Path = "/"
	} else {
		var err error
		if m.Path, err = routing.NormalizePath(r.path); err != nil {
			return &failure{status: http.StatusBadRequest, reason: telemetry.BadRequest, detail: err.Error()}
		}
	}
	if !l.Match(m, &ex.decision) {
		if r.method == http.MethodConnect {
			return failConnect
		}
		return failNoRoute
	}
	if r.method == http.MethodConnect && (ex.decision.Match.Method != http.MethodConnect || r.http2) {
		return failConnect
	}
	ex.rule = &ex.snap.rules[ex.decision.Rule.ID]
	if d := ex.rule.request; d > 0 {
		ex.deadline = ex.start.Add(d)
	}
	return nil
}

// Field implements routing.Fields.
func (ex *exchange) Field(name string) (string, bool) {
	value, found, joined := "", false, []string(nil)
	for i := range ex.req.fields {
		f := &ex.req.fields[i]
		if len(f.Name) != len(name) || !http1.EqualFold(f.Name, name) {
			continue
		}
		switch {
		case !found:
			value, found = f.Value, true
		case joined == nil:
			joined = []string{value, f.Value}
		default:
			joined = append(joined, f.Value)
		}
	}
	if joined != nil {
		value = strings.Join(joined, ", ")
	}
	if !found && name == "host" && ex.req.authority != "" {
		return ex.req.authority, true
	}
	return value, found
}

// filter runs the filters that may answer by themselves; done says that one did.
func (ex *exchange) filter(f *filters) (done bool, err error) {
	if f.cors != nil && ex.preflight() {
		return true, ex.answerPreflight(f.cors)
	}
	if f.redirect != nil {
		return true, ex.answerRedirect(f.redirect)
	}
	return false, nil
}

// sample decides which mirrors get a copy.
func (ex *exchange) sample(mirrors []*routing.Mirror) {
	if len(mirrors) == 0 || ex.req.upgrade != "" || ex.req.method == http.MethodConnect {
		return
	}
	for _, m := range mirrors {
		t := ex.snap.mirrors[m.ID]
		chosen := m.Sample()
		t.metric.Consider(ex.shard, chosen)
		if !chosen {
			continue
		}
		if l := m.Leaf(&ex.match); l != nil {
			t = ex.snap.mirrorLeaves[l.ID]
		}
		ex.picked = append(ex.picked, t)
	}
}

// beginCopies begins the copies, once, with what is known of the body.
func (ex *exchange) beginCopies() {
	if ex.copied || len(ex.picked) == 0 {
		return
	}
	ex.copied = true
	ex.copyHead()
	ex.copyBody(ex.body)
	if ex.whole {
		ex.copyEnd(true, nil)
	}
}

func (ex *exchange) copyHead() {
	r := &ex.req
	head := mirrorHead{
		method: r.method, target: r.target, authority: ex.asked(), fields: r.fields, namedHops: r.namedHops, body: r.body,
		clientIP: ex.conn.ip, scheme: ex.conn.scheme,
	}
	if r.form == http1.FormAbsolute {
		head.target = ex.join(r.path, r.query, r.hasQuery)
	}
	for _, t := range ex.picked {
		leg, outcome := ex.srv.mirrors.begin(t, &head, ex.shard)
		ex.legs = append(ex.legs, mirrorLegState{target: t, leg: leg, outcome: outcome})
	}
}

func (ex *exchange) copyBody(p []byte) {
	for i := range ex.legs {
		if l := ex.legs[i].leg; l != nil {
			l.write(p)
		}
	}
}

// copyEnd ends the copies: with the body whole, or broken off.
func (ex *exchange) copyEnd(whole bool, trailers []http1.Field) {
	if ex.settled {
		return
	}
	ex.settled = true
	for i := range ex.legs {
		if l := ex.legs[i].leg; l == nil {
			continue
		} else if whole {
			l.end(trailers)
		} else {
			l.abort()
		}
	}
}

// next is the client's next piece of the body, counted, copied and, as far as retain allows, kept for another attempt.
func (ex *exchange) next() ([]byte, error) {
	p, err := ex.client.next()
	if len(p) > 0 {
		ex.in += int64(len(p))
		if ex.tooLarge() {
			ex.touched = true
			return nil, failBodySize
		}
		ex.copyBody(p)
		ex.keepPiece(p)
	}
	if err == io.EOF {
		ex.ended = true
		ex.copyEnd(true, ex.client.trailers())
	}
	return p, err
}

// tooLarge is true if more of the body has come than may.
func (ex *exchange) tooLarge() bool {
	most := ex.srv.opt.MaxBody
	return most > 0 && ex.in > most
}

// keepPiece appends p to what is kept.
func (ex *exchange) keepPiece(p []byte) {
	if ex.touched {
		return
	}
	if len(ex.keep) == 0 && len(ex.body)+len(p) <= ex.retain {
		ex.keep = append(ex.keep, ex.body...)
	}
	if len(ex.keep)+len(p) > ex.retain {
		ex.touched = true
		return
	}
	ex.keep = append(ex.keep, p...)
}

// takeBody learns how much of the body is in memory.
func (ex *exchange) takeBody() {
	if ex.bodyTaken {
		return
	}
	ex.bodyTaken = true
	switch ex.req.body.Kind {
	case http1.BodyNone:
		ex.whole = true
	case http1.BodyChunked:
		if ex.body = ex.client.buffered(); ex.body != nil {
			ex.in += int64(len(ex.body))
			ex.whole, ex.ended = true, true
		}
	case http1.BodyLength:
		ex.body = ex.client.buffered()
		ex.in += int64(len(ex.body))
		if ex.whole = int64(len(ex.body)) == ex.req.body.Length; ex.whole {
			ex.req.expect100 = false
		}
	}
}

// finish counts and logs what became of the exchange.
func (ex *exchange) finish() {
	if len(ex.picked) > 0 {
		if !ex.copied {
			// No attempt was made. What is in memory of the request may still be all of it.
			ex.takeBody()
			ex.beginCopies()
		}
		ex.copyEnd(false, nil)
	}
	ex.finished = time.Now()
	d := ex.finished.Sub(ex.start)
	m := ex.metrics()
	m.Observe(ex.shard, ex.status, d, ex.in, ex.out)
	if ex.reason != "" {
		m.Fail(ex.shard, ex.reason)
	}
	if ex.srv.opt.AccessLog != nil || len(ex.legs) > 0 {
		ex.log(d)
	}
}

// metrics is the series that the exchange belongs to.
func (ex *exchange) metrics() *telemetry.Exchange {
	switch {
	case ex.backend != nil:
		return ex.backend.metrics
	case ex.rule != nil:
		return ex.rule.metrics
	}
	return ex.srv.opt.Metrics.Unrouted()
}

// log ends the copies' part in the exchange and writes the access log.
func (ex *exchange) log(d time.Duration) {
	var results []telemetry.MirrorResult
	for i := range ex.legs {
		l := &ex.legs[i]
		if l.leg != nil {
			l.outcome = l.leg.outcome()
			l.leg = nil
		}
		if ex.srv.opt.AccessLog != nil {
			results = append(results, telemetry.MirrorResult{Mirror: l.target.name, Outcome: l.outcome})
		}
	}
	if ex.srv.opt.AccessLog == nil {
		return
	}
	r := &ex.req
	rec := telemetry.Record{
		Time: ex.start, Client: ex.conn.remote(), Method: r.method, Host: r.authority, Path: r.path, Query: r.query, Protocol: r.proto,
		Status: ex.status, Reason: ex.reason, Duration: d, Attempts: ex.attempts, BytesIn: ex.in, BytesOut: ex.out, Mirrors: results,
	}
	if ex.rule != nil {
		rec.Listener = ex.decision.Listener.Listener.Name
		rec.Route, rec.Rule = ex.rule.route, ex.rule.name
	}
	if ex.backend != nil {
		rec.Backend = ex.backend.name
	}
	if ex.endpoint != nil {
		rec.Endpoint = ex.endpoint.Address
		rec.BackendDuration = ex.attempt.duration(ex.finished)
	}
	for i := range r.fields {
		switch f := &r.fields[i]; f.ID {
		case http1.FieldUserAgent:
			rec.UserAgent = f.Value
		case http1.FieldXRequestID:
			rec.RequestID = f.Value
		case http1.FieldOther:
			switch {
			case len(f.Name) == len("referer") && http1.EqualFold(f.Name, "referer"):
				rec.Referer = f.Value
			case len(f.Name) == len("traceparent") && http1.EqualFold(f.Name, "traceparent"):
				rec.TraceParent = f.Value
			}
		}
	}
	ex.srv.opt.AccessLog.Log(&rec)
}

// text makes the bytes appended to scratch since the mark a string that is valid as long as the exchange.
func (ex *exchange) text(mark int) string {
	b := ex.scratch[mark:]
	return unsafe.String(unsafe.SliceData(b), len(b))
}

// join makes a target of a path and a query.
func (ex *exchange) join(path, query string, hasQuery bool) string {
	if !hasQuery {
		return path
	}
	mark := len(ex.scratch)
	ex.scratch = append(ex.scratch, path...)
	ex.scratch = append(ex.scratch, '?')
	ex.scratch = append(ex.scratch, query...)
	return ex.text(mark)
}

// asked is the authority that the backend is asked for, filters aside. Where the client named none, as in HTTP/1.0 it may, that is the
// address it came to (RFC 9112 §3.3): an HTTP/1.1 server may refuse an empty Host.
func (ex *exchange) asked() string {
	if ex.req.authority != "" || ex.conn.sock == nil {
		return ex.req.authority
	}
	a, ok := ex.conn.sock.LocalAddr().(*net.TCPAddr)
	if !ok {
		return ""
	}
	local := a.AddrPort()
	return netip.AddrPortFrom(local.Addr().Unmap().WithZone(""), local.Port()).String()
}

// setHost splits the authority (RFC 9110 §7.2) into what routing compares.
func (ex *exchange) setHost() {
	h := ex.req.authority
	if i := strings.LastIndexByte(h, ':'); i >= 0 && strings.IndexByte(h[i:], ']') < 0 {
		h = h[:i]
	}
	h = strings.TrimSuffix(h, ".")
	for i := 0; i < len(h); i++ {
		if c := h[i]; 'A' <= c && c <= 'Z' {
			mark := len(ex.scratch)
			for j := 0; j < len(h); j++ {
				c := h[j]
				if 'A' <= c && c <= 'Z' {
					c |= 0x20
				}
				ex.scratch = append(ex.scratch, c)
			}
			h = ex.text(mark)
			break
		}
	}
	ex.req.host = h
}

// faultFailure is the failure that a fault of the configuration prescribes.
func faultFailure(f *model.Fault) error {
	status := f.Status
	if status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	return &failure{status: status, reason: telemetry.FaultReason(f.Reason), detail: "the route's backend is not usable: " + f.Reason}
}
