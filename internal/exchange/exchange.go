package exchange

import (
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/upstream"
)

// Exchange is one request and its answer. It is reused, and reset keeps its memory. Its parts are those of the pipeline
// and live in the files of the same stages.
type Exchange struct {
	pipe *Pipeline
	from Origin
	req  Request
	admission
	vouched
	routed
	outgoing
	content
	copies

	attempt attempt
	call    upstream.Call // to the endpoint
	waiting upstream.Waiting
	resp    http1.Response
	upload  upload
	silent  silent

	answer Answer
	local  []http1.Field // of the proxy's own answers
	// trailers and answerTrail are the forwarded trailers, if some were dropped.
	trailers, answerTrail []http1.Field

	id requestID
	record
	spanned
	scratch []byte // strings made for this exchange
}

// Origin is the source of a request, and the configuration that serves it.
type Origin struct {
	Client Client
	Peer   *Peer
	Shard  uint32 // of counters: one for each connection
	// Snapshot and Port serve the client's connection. Port is nil if the port is gone.
	Snapshot *Snapshot
	Port     *routing.Port
	Start    time.Time
	// Since is when the previous exchange on an HTTP/1.1 connection ended. It is zero for the first.
	Since time.Time
}

// Begin makes the exchange ready for a request, which the caller fills in. Serve or Refuse ends it.
func (ex *Exchange) Begin(p *Pipeline, from *Origin) *Request {
	ex.reset()
	ex.pipe, ex.from = p, *from
	return &ex.req
}

// reset makes the exchange ready for the next request, which the caller fills in.
func (ex *Exchange) reset() {
	ex.admission = admission{}
	ex.reported = nil
	ex.routed = routed{}
	ex.composed, ex.forwards = false, -1
	ex.body, ex.whole, ex.bodyTaken, ex.touched, ex.ended, ex.retain = nil, false, false, false, false, 0
	ex.keep = ex.keep[:0]
	ex.picked, ex.legs, ex.copied, ex.settled = ex.picked[:0], ex.legs[:0], false, false
	ex.call.Reset()
	ex.upload.running, ex.upload.failed = false, nil
	if ex.upload.answering.Load() {
		ex.upload.answering.Store(false)
	}
	ex.answer = Answer{}
	ex.id = requestID{}
	ex.spanned = spanned{}
	ex.status, ex.reason, ex.pathReading, ex.attempts, ex.in, ex.out = 0, "", routing.OneReading, 0, 0, 0
	ex.loggedAnswer = ex.loggedAnswer[:0]
	ex.judged, ex.delivered = judged{}, false
	ex.attempt.counts = false
	ex.scratch = ex.scratch[:0]
}

// Serve carries the exchange from its request's head to the end of its answer. Failures are answered only here.
func (ex *Exchange) Serve() {
	ex.setHost()
	if ex.req.Unescaped {
		ex.escapeTarget()
	}
	if t := ex.pipe.Tracer; t != nil {
		ex.beginTrace(t)
	}
	err := ex.enter()
	if err == nil {
		err = ex.run()
	}
	if err != nil {
		ex.leave() // a refusal holds no place while it is sent
		ex.fail(err)
	}
	ex.finish()
	ex.leave()
}

// Refuse answers a request that could not be read, and counts it.
func (ex *Exchange) Refuse(f *Failure) {
	ex.fail(f)
	ex.finish()
}

// Finished is when the exchange ended.
func (ex *Exchange) Finished() time.Time { return ex.finished }

// run runs the pipeline: route, access, filters, pick, forward, answer.
func (ex *Exchange) run() error {
	if ex.req.Path == "*" {
		return ex.answerOptions()
	}
	if err := ex.route(); err != nil {
		return err
	}
	if err := ex.pipe.hops.judge(ex.req.Fields); err != nil {
		return err
	}
	if err := ex.judgeIrregular(); err != nil {
		return err
	}
	if done, err := ex.limitForwards(); done || err != nil {
		return err
	}
	if f := ex.permit(); f != nil {
		return f
	}
	if done, err := ex.filter(&ex.rule.filters); done || err != nil {
		return err
	}
	if f := ex.rule.Fault; f != nil {
		return faultFailure(f)
	}
	if most := ex.pipe.MaxBody; most > 0 && ex.req.Body.Kind == http1.BodyLength && ex.req.Body.Length > most {
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
			return FailNoBackend
		}
		ex.backend = &ex.from.Snapshot.Backends[b.ID]
		if l := b.Leaf(&ex.match); l != nil {
			ex.backend = &ex.from.Snapshot.Leaves[l.ID]
		}
	}
	if f := excess(&ex.match); f != nil {
		return f // more work for a split, whose choice may be wrong
	}
	if f := ex.backend.Fault; f != nil {
		return faultFailure(f)
	}
	if done, err := ex.filter(&ex.backend.filters); done || err != nil {
		return err
	}
	ex.sample(b.Mirrors)
	return ex.forward()
}

// permit passes the request through the access stage.
func (ex *Exchange) permit() (f *Failure) {
	ex.judged, ex.scratch, f = ex.from.Snapshot.access(ex.from.Peer, ex.from.Shard, asked{ex.from.Start, ex.decision.Listener, &ex.req, &ex.match, (*endToEnd)(ex)}, ex.scratch)
	if ex.judged.plain {
		ex.req.Upgrade = "" // a server may ignore it (RFC 9110 §7.8)
	}
	return f
}

// filter runs the filters that can answer by themselves; done reports whether one did.
func (ex *Exchange) filter(f *filters) (done bool, err error) {
	if f.cors != nil && ex.preflight() {
		return true, ex.answerPreflight(f.cors)
	}
	if f.redirect != nil {
		return true, ex.answerRedirect(f.redirect)
	}
	return false, nil
}
