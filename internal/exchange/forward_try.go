package exchange

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

const (
	// look is how often an exchange that waits for its endpoint checks whether the client is still there.
	look = time.Second
)

// try sends the request to e and reads the answer's head into ex.resp. With a nil error, ex.call has the answer's body.
// try repeats a request that the endpoint did not process, or that may be repeated: see upstream.Call.Again.
func (ex *Exchange) try(e *upstream.Endpoint) error {
	c, a := &ex.call, &ex.attempt
	for try := 1; ; try++ {
		http2 := ex.overHTTP2(e)
		if c.Unsent() && c.Request.HTTP2 != http2 {
			if c.Reset(); !ex.replayable() {
				return failStranded
			}
			ex.rewind()
		}
		if !c.Unsent() {
			if err := ex.layOut(http2); err != nil {
				return err
			}
		}
		if err := ex.open(e, try); err != nil {
			if http2 && !ex.overHTTP2(e) {
				continue // e has just shown that it does not take HTTP/2
			}
			return err
		}
		if c.Asks() {
			ex.beginCopies() // they take memory and wait: see mirror.waitingCopies
		}
		err := c.Send(true)
		ex.beginCopies() // after the write, so that they do not keep the primary waiting
		if err == nil && !c.Sent() {
			ex.startUpload()
		}
		if err == nil || !c.Unsent() {
			// A backend may have answered before it closed the connection.
			if herr := ex.awaitHead(); herr == nil {
				return ex.returned()
			} else if err == nil {
				err = herr
			}
		}
		cerr := ex.stopUpload()
		if !ex.from.Client.Unwatch() {
			cerr = failClientClosed
		}
		again := false
		if cerr == nil {
			ex.blame(err)
			again = !a.informed && c.Again(err, idempotent(ex.req.Method)) && ex.replayable()
			a.unanswered = !a.informed && c.Unanswered(err) && idempotent(ex.req.Method) && ex.replayable()
		}
		ex.resp.Reset() // a head may have been cut off
		c.Close()
		switch {
		case cerr != nil:
			return cerr
		case !again:
			return callFailure(err)
		case ex.expired():
			return a.expired
		}
		ex.rewind()
	}
}

// returned takes the request back if the answer says that nobody got it. It goes elsewhere if memory has all that was read
// of it.
func (ex *Exchange) returned() error {
	if !ex.call.Returned() || ex.attempt.informed {
		return nil
	}
	err := ex.stopUpload()
	if !ex.from.Client.Unwatch() {
		err = failClientClosed
	}
	ex.call.Skip()
	ex.call.Close()
	switch {
	case err != nil:
		return err
	case !ex.replayable():
		return failStranded
	}
	ex.rewind()
	return failReturned
}

// layOut writes the request as it is sent, with the part of its body that has arrived.
func (ex *Exchange) layOut(http2 bool) error {
	c, r := &ex.call, &ex.req
	fields := ex.fields
	if http2 {
		if r.Method == http.MethodConnect {
			return FailConnect
		}
		if r.Expect100 {
			if err := ex.from.Client.Proceed(); err != nil {
				return err
			}
			r.Expect100 = false
		}
		if te, _ := http1.GetID(r.Fields, http1.FieldTE); r.GRPC || http1.HasToken(te, "trailers") {
			fields = append(fields, http1.Field{Name: "te", Value: "trailers", ID: http1.FieldTE})
			ex.fields = fields[:len(ex.fields)]
		}
	}
	q := &c.Request
	q.Method, q.Target, q.Authority, q.Fields, q.Body = r.Method, ex.target, ex.authority, fields, r.Body
	q.Expect100, q.Upgrade, q.HTTP2 = r.Expect100, r.Upgrade, http2
	c.Begin()
	c.First(ex.body)
	if ex.whole {
		c.End(ex.requestTrailers())
		return nil
	}
	if r.Body.Kind == http1.BodyChunked {
		return ex.gather()
	}
	return nil
}

// gather takes the part of a body of unknown length that has arrived, so that it goes out with the head.
func (ex *Exchange) gather() error {
	c := &ex.call
	ex.beginCopies()
	for c.Laid() < upstream.JoinBody && ex.from.Client.Ready() {
		p, err := ex.next()
		if err == io.EOF {
			c.End(ex.requestTrailers())
			return nil
		}
		if err != nil {
			c.Reset()
			return err
		}
		c.Add(p)
	}
	return nil
}

// open gets a connection or a stream to e. It gives up if the client of an HTTP/2 stream leaves.
func (ex *Exchange) open(e *upstream.Endpoint, try int) error {
	c, a, w := &ex.call, &ex.attempt, &ex.waiting
	o := ex.pipe
	c.Limits, c.Stall, c.Deadline, c.Look = o.Limits, o.StreamTimeout, a.deadline, look
	w.Until, w.Wanted, w.Briefly = a.connectDeadline(), ex, a.briefly
	if e.Announces() {
		w.From = ex.Addresses()
	}
	if err := c.Open(e, w, try, a.start); err != nil {
		switch {
		case c.Request.HTTP2 && ex.from.Client.Gone():
			return failClientClosed
		case ex.expired():
			return a.expired
		}
		return ConnectFailure(err)
	}
	if w.Waited {
		ex.isConnected()
	}
	ex.from.Client.Watch(c)
	return nil
}

// Wanted is for upstream.Waiting and Search.
func (ex *Exchange) Wanted() bool { return !ex.from.Client.Gone() }

// blame counts the call's error against the endpoint, unless this side ended the call.
func (ex *Exchange) blame(err error) {
	var f *Failure
	if !errors.As(err, &f) {
		ex.call.Blame(err)
	}
}

// idempotent reports whether a method is idempotent (RFC 9110 §9.2.2).
func idempotent(method string) bool {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPut, http.MethodDelete, http.MethodOptions, http.MethodTrace:
		return true
	}
	return false
}

// expired reports whether the attempt's time is over.
func (ex *Exchange) expired() bool {
	return !ex.attempt.deadline.IsZero() && !time.Now().Before(ex.attempt.deadline)
}

// stillWanted returns why the exchange should stop waiting for an answer, nil if it should go on. since is when the
// endpoint last sent or received something.
func (ex *Exchange) stillWanted(now time.Time, since *time.Time, silence time.Duration) error {
	a := &ex.attempt
	if !a.deadline.IsZero() && !now.Before(a.deadline) {
		return a.expired
	}
	if ex.pollUpload(); ex.upload.running && !ex.from.Client.WaitsToBegin() {
		*since = now // an endpoint may be silent while it receives
	} else if since.IsZero() {
		*since = now.Add(-look)
	}
	if now.Sub(*since) >= silence {
		return failBackendTime
	}
	if ex.from.Client.Gone() {
		return failClientClosed
	}
	return nil
}

// awaitHead waits for the head of the final answer and forwards interim ones.
func (ex *Exchange) awaitHead() error {
	var since time.Time
	for {
		err := ex.call.Head(&ex.resp)
		if err == upstream.ErrTimeout {
			if err = ex.stillWaiting(&since, ex.pipe.ResponseTimeout); err == nil {
				continue
			}
		}
		if err != nil {
			return err
		}
		if s := ex.resp.Status; s >= 200 || s == http.StatusSwitchingProtocols {
			ex.frame()
			return nil
		}
		if err := ex.inform(); err != nil {
			return err
		}
		since = time.Time{}
	}
}

// frame makes an answer that came over HTTP/2 suitable for an HTTP/1.1 client.
func (ex *Exchange) frame() {
	r := &ex.resp
	if !ex.call.Request.HTTP2 || ex.req.HTTP2 || ex.req.Method == http.MethodHead {
		return
	}
	switch r.Body.Kind {
	case http1.BodyNone: // the endpoint must be told that there is no body
		if r.Status != http.StatusNoContent && r.Status != http.StatusNotModified {
			r.Body = http1.Body{Kind: http1.BodyLength}
		}
	case http1.BodyLength: // and has trailers only after chunks
		if _, announced := http1.GetID(r.Fields, http1.FieldTrailer); announced {
			r.Body = http1.Body{Kind: http1.BodyChunked}
		}
	}
}

// stillWaiting is stillWanted after a wait without an answer. gRPC has deadlines of its own: a streaming server may
// stay silent as long as it likes.
func (ex *Exchange) stillWaiting(since *time.Time, silence time.Duration) error {
	now := time.Now()
	if ex.req.GRPC {
		*since = now
	}
	return ex.stillWanted(now, since, silence)
}

var failInterim = &Failure{Status: 502, Reason: telemetry.MalformedResponse, Detail: "unexpected 1xx response from the backend"}

// inform forwards an interim answer, with the changes of filters. CORS and the session say what they have to say in the
// final answer; a backend says nothing in their name before that either.
func (ex *Exchange) inform() error {
	ex.attempt.informed = true
	if ex.resp.Status == http.StatusContinue {
		return ex.from.Client.Inform(http.StatusContinue, nil) // it says that alone
	}
	rule, backend := &ex.rule.filters, ex.backendFilters()
	cors := rule.cors != nil || backend.cors != nil
	session := ex.rule.session
	n := 0
	all := ex.resp.Fields
	for i := range all {
		f := &all[i]
		switch {
		case f.ID == http1.FieldContentLength || http1.HopByHop(f, all),
			cors && isCORSAnswer(f.Name),
			session != nil && session.is(f.Name):
		default:
			all[n] = *f
			n++
		}
	}
	fields := rule.response.apply(backend.response.apply(all[:n]))
	ex.resp.Fields = fields
	return ex.from.Client.Inform(ex.resp.Status, fields)
}
