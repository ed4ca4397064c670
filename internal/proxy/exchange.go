package proxy

import (
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/mirror"
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
	told   *told // heard, if there is a trusted proxy in front
	heard  told

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
	composed  bool   // these were made
	forwards  int64  // what Max-Forwards is to be, -1 for none
	body      []byte // known part of a body of known length
	whole     bool   // that is all of it
	bodyTaken bool   // body was filled in
	touched   bool   // bytes of the body are gone that cannot be had again
	ended     bool   // the client's body was read to its end
	retain    int    // how much of the body may be kept for another attempt
	attempt   attempt
	call      upstream.Call // to the endpoint
	waiting   upstream.Waiting
	resp      http1.Response
	upload    upload

	answer  answer
	picked  []*mirror.Target // to be copied to, until the legs begin
	legs    []mirrorLegState
	copied  bool // the legs have begun
	settled bool // the legs have ended

	scratch []byte // strings made for this exchange
	keep    []byte // a body kept for retries
	kept    int    // how much was drawn for it
	local   []http1.Field
	// Trailers that are sent on, where not all are.
	trailers, answerTrail []http1.Field

	start       time.Time
	since       time.Time // the end of the exchange before on an HTTP/1.1 connection; zero: there was none
	finished    time.Time
	entered     bool      // it has a place of the gate's
	crowded     bool      // few are left
	deadline    time.Time // of the whole exchange; zero for none
	status      int
	reason      telemetry.Reason
	pathReading routing.Reading // what a path policy refused
	attempts    int
	in, out     int64
	id          requestID

	// The lines of header fields that the access log wants.
	loggedRequest, loggedAnswer []telemetry.Field
}

// reset makes the exchange ready for the next request, which is to be filled in.
func (ex *exchange) reset() {
	ex.match = routing.Request{}
	ex.decision = routing.Decision{}
	ex.rule, ex.backend, ex.endpoint = nil, nil, nil
	ex.told = nil
	ex.resumed = nil
	ex.composed, ex.forwards = false, -1
	ex.body, ex.whole, ex.bodyTaken, ex.touched, ex.ended, ex.retain = nil, false, false, false, false, 0
	ex.call.Reset()
	ex.answer = answer{}
	ex.picked, ex.legs, ex.copied, ex.settled = ex.picked[:0], ex.legs[:0], false, false
	ex.scratch = ex.scratch[:0]
	ex.keep = ex.keep[:0]
	ex.deadline = time.Time{}
	ex.upload.running, ex.upload.failed = false, nil
	ex.status, ex.reason, ex.pathReading, ex.attempts, ex.in, ex.out = 0, "", routing.OneReading, 0, 0, 0
	ex.entered, ex.crowded = false, false
	ex.id, ex.loggedAnswer = requestID{}, ex.loggedAnswer[:0]
}

// serve carries the exchange from its request's head to the end of its answer. This is the one place where failures are answered.
func (ex *exchange) serve() {
	err := ex.enter()
	if err == nil {
		err = ex.run()
	}
	if err != nil {
		ex.leave() // a refusal takes no place while it is told
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
	if err := ex.srv.hops.judge(ex.req.fields); err != nil {
		return err
	}
	if err := ex.judgeIrregular(); err != nil {
		return err
	}
	if done, err := ex.limitForwards(); done || err != nil {
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
	if f := excess(&ex.match); f != nil {
		return f // of a split, which may not be the one
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
