package exchange

import (
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/upstream"
)

// outgoing is the request's head as the endpoint and the copies get it.
type outgoing struct {
	authority string
	target    string
	path      string // of target
	fields    []http1.Field
	composed  bool  // these were made
	forwards  int64 // the value of Max-Forwards to send; -1 for no field
}

// attempt is one try at an endpoint.
type attempt struct {
	start time.Time
	times times
	// deadline is when the attempt ends, expired the failure if it passes.
	deadline time.Time
	expired  *Failure
	// connectBy, if not zero, limits connecting, however far away deadline is.
	connectBy time.Time
	// briefly means that another endpoint may be quicker to connect to, or one that comes meanwhile.
	briefly bool
	// informed means that interim answers were forwarded.
	informed bool
	// counts means that the attempt has an outcome to be counted.
	counts bool
	// unanswered means that the connection ended before a byte of the answer, and that the request may be repeated.
	unanswered bool
}

// forward sends the request to the backend's service, if that has capacity for another, and forwards the answer.
func (ex *Exchange) forward() error {
	service := ex.backend.Service
	if err := ex.begin(service); err != nil {
		return err
	}
	defer service.End()
	return ex.exchangeWith(service)
}

// exchangeWith sends the request to an endpoint of the service and forwards the answer. It tries again if the rule and
// the request allow that.
func (ex *Exchange) exchangeWith(service *upstream.Service) error {
	ex.compose()
	retry := ex.rule.retry
	left := 0
	if retry != nil && ex.req.Upgrade == "" {
		left = retry.attempts
		service.Retryable()
		if err := ex.keepBody(); err != nil {
			return err
		}
	}
	if ex.takeBody(); ex.tooLarge() {
		return failBodySize
	}
	if left > 0 || ex.needsHTTP2(service) || service.Meshed() {
		ex.retain = ex.pipe.MaxRetryBody // an endpoint may report that it did not process the request
	} else if idempotent(ex.req.Method) {
		ex.retain = min(ex.pipe.MaxRetryBody, upstream.JoinBody) // an endpoint may close an idle connection at this moment
	}
	var avoid *upstream.Endpoint
	moved := moves{Search: Search{Wanted: ex}}
	busy := busyMoves
	pauses := ex.pipe.MaxPauses
	for {
		e := moved.to
		if t := ex.resumed; e != nil {
		} else if t != nil && avoid == nil {
			e = t.endpoint
		} else if service.Meant() {
			if e = ex.from.Peer.endpointOf(service); e == nil {
				return ex.nowhere(service)
			}
		} else if e = service.PickFor(ex.clientAddr(), avoid); e != nil {
		} else if e = ex.first(&moved, service); e == nil {
			return ex.nowhere(service)
		}
		ex.endpoint = e
		ex.attempts++
		ex.beginAttempt()
		ex.attempt.connectBy, ex.attempt.briefly = moved.until, !moved.last
		if ex.span != nil {
			ex.traceAttempt(e)
		}
		err := ex.try(e)
		ex.tried(err)
		ex.delivered = ex.delivered || !ex.unsent(err)
		if err == failConnecting || err == failFull {
			// Another endpoint may succeed; nothing has been sent. Full is also one whose last place others took since it was chosen: of these
			// some went on, so that nobody tries for ever.
			full := err == failFull
			if !full || avoid == nil { // what a retry comes from is avoided still
				avoid = e
			}
			if full || moved.to == nil && busy > 0 && len(service.Endpoints()) > 1 {
				if moved.to = nil; !full {
					busy--
				}
				ex.attempts--
				ex.attempt.counts = false
				if ex.trying != nil {
					ex.endTraced(time.Now(), 0, err)
				}
				continue
			}
			service.Rejected(upstream.LimitConnecting)
			return err
		}
		if err == failBackendTime {
			e.TimedOut()
		}
		if ex.move(&moved, service, err) {
			ex.endAttempt(err)
			ex.backend.Metrics.Retry(ex.from.Shard)
			continue
		}
		moved.to = nil
		if left == 0 || pauses <= 0 || !ex.worthRetry(err) || !service.Retry() {
			if err != nil {
				return err
			}
			if err = ex.relay(); err != nil {
				ex.heardMore()
			}
			return err
		}
		ex.endAttempt(err)
		if err == nil {
			ex.dropAnswer()
		}
		left--
		avoid = e
		ex.backend.Metrics.Retry(ex.from.Shard)
		if retry.backoff > 0 {
			d := min(retry.backoff+rand.N(retry.backoff/4+1), pauses)
			pauses -= d
			if err := ex.pause(d); err != nil {
				return err
			}
		} else if err := ex.stillThere(); err != nil {
			return err
		}
		ex.rewind()
	}
}

// busyMoves is how many other endpoints the proxy tries when an endpoint already has too many connections being opened.
const busyMoves = 2

// needsHTTP2 reports whether the request has to go over HTTP/2. HTTP/1.1 cannot carry gRPC, whatever the service's protocol.
func (ex *Exchange) needsHTTP2(s *upstream.Service) bool {
	return s.Protocol == model.H2C || ex.req.GRPC && ex.req.Upgrade == ""
}

// overHTTP2 reports whether the request goes to e over HTTP/2. A proxy of the mesh that is busy gets the requests of all
// clients over one connection, whose reads, writes and records they share; one that is not is quicker over HTTP/1.1. The few
// that HTTP/2 cannot carry as they are go over HTTP/1.1. What is laid out is not laid out anew without need.
func (ex *Exchange) overHTTP2(e *upstream.Endpoint) bool {
	c, r := &ex.call, &ex.req
	switch {
	case ex.needsHTTP2(ex.backend.Service):
		return true
	case !e.Shares():
		return false
	case c.Unsent():
		return c.Request.HTTP2
	}
	return e.Busy() && r.Upgrade == "" && !r.Expect100 && r.Method != http.MethodConnect && ex.authority != ""
}

// beginAttempt sets the attempt's times.
func (ex *Exchange) beginAttempt() {
	a := &ex.attempt
	*a = attempt{start: ex.from.Start, counts: true, times: times{began: ex.clock()}}
	if ex.attempts > 1 || ex.awaited {
		a.start = time.Now()
	}
	a.expired = failBackendTime
	d := ex.rule.backendRequest
	if d == 0 && ex.deadline.IsZero() {
		return
	}
	if d > 0 {
		a.deadline = a.start.Add(d)
	}
	if !ex.deadline.IsZero() && (d == 0 || ex.deadline.Before(a.deadline)) {
		a.deadline, a.expired = ex.deadline, failRequestTime
	}
}

// replayable reports whether the request can be sent again from its beginning: either nothing was sent, or memory holds
// all of the body read so far. No upload may run.
func (ex *Exchange) replayable() bool { return ex.call.Unsent() || ex.whole || !ex.touched }

// rewind returns to the beginning of a replayable body.
func (ex *Exchange) rewind() {
	if ex.call.Unsent() {
		ex.from.Client.Resume()
		return
	}
	if ex.whole {
		return
	}
	if len(ex.keep) > 0 {
		ex.body = ex.keep
	}
	ex.whole = ex.ended
	ex.from.Client.Resume()
}

// worthRetry reports whether the attempt's result, nil for an answer, calls for another attempt and the body permits
// it.
func (ex *Exchange) worthRetry(err error) bool {
	if err != nil && !AsFailure(err).retry || err == nil && !ex.rule.retry.code(ex.resp.Status) || ex.attempt.informed {
		return false
	}
	ex.landUpload()
	return !ex.upload.running && ex.replayable()
}

// pause waits for d before another attempt, but not beyond the request's deadline.
func (ex *Exchange) pause(d time.Duration) error {
	if !ex.deadline.IsZero() {
		d = min(d, time.Until(ex.deadline))
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ex.pipe.around.Cut:
	}
	return ex.stillThere()
}

// stillThere returns why a request needs no other attempt.
func (ex *Exchange) stillThere() error {
	if !ex.deadline.IsZero() && !time.Now().Before(ex.deadline) {
		return failRequestTime
	}
	if ex.from.Client.Gone() {
		return failClientClosed
	}
	return nil
}

// keepBody reads a small body into memory, so that it can be sent more than once.
func (ex *Exchange) keepBody() error {
	ex.takeBody()
	if ex.whole || ex.req.Body.Kind != http1.BodyLength || ex.req.Body.Length > int64(ex.pipe.MaxRetryBody) || !ex.mayKeep(int(ex.req.Body.Length)) {
		return nil
	}
	if err := ex.from.Client.Proceed(); err != nil {
		return err
	}
	ex.req.Expect100 = false
	ex.keep = append(ex.keep[:0], ex.body...)
	for int64(len(ex.keep)) < ex.req.Body.Length {
		p, err := ex.read()
		if err != nil {
			return BodyFailure(unexpected(err))
		}
		ex.in += int64(len(p))
		ex.keep = append(ex.keep, p...)
	}
	ex.body, ex.whole = ex.keep, true
	return nil
}

// compose makes the request for the backend and for the copies, once for an exchange.
func (ex *Exchange) compose() {
	if ex.composed {
		return
	}
	ex.composed = true
	ex.rewrite()
	ex.requestFields()
}

// rewrite makes the authority and target for the backend. A backend's own rewrite takes precedence over the rule's.
func (ex *Exchange) rewrite() {
	r := &ex.req
	ex.authority = ex.asked()
	if r.Method == http.MethodConnect {
		ex.target = r.Target
		return
	}
	w := ex.backendFilters().rewrite
	if w == nil {
		w = ex.rule.filters.rewrite
	}
	if w != nil && http1.ValidAuthority(w.Hostname) {
		ex.authority = w.Hostname
	}
	if w != nil && w.Path != nil {
		ex.path = ex.patchPath(w.Path)
	} else {
		ex.path = ex.forwardPath()
		if r.Form == http1.FormOrigin && ex.path == r.Path {
			ex.target = r.Target // the target is unchanged
			return
		}
	}
	ex.target = ex.join(ex.path, r.Query, r.HasQuery)
}

// own are the fields that the proxy rewrites, drops or reads. The others pass unchanged.
var own = func() (set [256]bool) {
	for id := range set {
		set[id] = id < 64 && http1.FieldID(id).HopByHop()
	}
	for _, id := range []http1.FieldID{http1.FieldContentLength, http1.FieldExpect, http1.FieldForwarded, http1.FieldHost, http1.FieldXForwardedFor,
		http1.FieldXForwardedHost, http1.FieldXForwardedPort, http1.FieldXForwardedProto, http1.FieldXRealIP, http1.FieldWeirMirrored, http1.FieldTrailer,
		http1.FieldIrregular} {
		set[id] = true
	}
	return set
}()

// requestFields makes the fields for the backend: the client's end-to-end fields, the forwarding fields, the changes of
// filters, and Via. It drops a client's claim that the request is a copy.
func (ex *Exchange) requestFields() {
	r := &ex.req
	out := ex.fields[:0]
	mark := ex.pipe.mirrorMark
	if ex.pipe.Beside {
		mark = ""
	}
	id, made := ex.identify()
	for i := range r.Fields {
		f := &r.Fields[i]
		if own[f.ID] {
			out = ex.addOwn(out, f)
			continue
		}
		if ex.untold(f) || made && ex.pipe.requestID.is(f) {
			continue
		}
		if mark != "" && len(f.Name) == len(mark) && http1.EqualFold(f.Name, mark) {
			continue
		}
		if r.NamedHops && http1.HopByHop(f, r.Fields) {
			continue
		}
		if ex.span != nil && ex.retraced(f) {
			continue
		}
		out = append(out, *f)
	}
	if !ex.pipe.Beside {
		out = ex.forwardedFields(out)
	}
	if ex.span != nil {
		out = append(out, ex.traceField())
	}
	if made {
		out = append(out, ex.pipe.requestID.field(id))
	}
	for _, e := range [...]*headerEdit{ex.rule.filters.request, ex.backendFilters().request} {
		if e != nil {
			out = e.apply(out)
			if e.host != "" {
				ex.authority = e.host
			}
		}
	}
	if ex.forwards >= 0 {
		ex.putForwards(out)
	}
	ex.fields = append(out, ex.pipe.hops.mark(r)) // after the filters
}

// answerFields makes the fields for the client, in place: the backend's end-to-end fields with the changes of filters.
func (ex *Exchange) answerFields() {
	all := ex.resp.Fields
	bodyless := ex.resp.Body.Kind == http1.BodyNone
	n := 0
	for i := range all {
		f := &all[i]
		if f.ID != http1.FieldOther {
			if f.ID == http1.FieldContentLength && !bodyless || f.ID.HopByHop() {
				continue
			}
			if f.ID == http1.FieldTrailer && ex.announcesDropped(f.Value, ex.dropsAnswerTrailer) {
				continue
			}
		}
		if ex.resp.NamedHops && http1.HopByHop(f, all) {
			continue
		}
		if n != i {
			all[n] = *f
		}
		n++
	}
	fields := all[:n]
	if ex.pipe.hops.tell {
		fields = append(fields, ex.markAnswer())
	}
	fields = ex.tellID(fields)
	fields = ex.backend.filters.response.apply(fields)
	fields = ex.rule.filters.response.apply(fields)
	if c := ex.backend.filters.cors; c != nil {
		fields = ex.markCORS(c, fields)
	} else if c := ex.rule.filters.cors; c != nil {
		fields = ex.markCORS(c, fields)
	}
	if s := ex.rule.session; s != nil {
		fields = ex.markSession(s, fields)
	}
	ex.resp.Fields = fields
}

// head sends the client the answer's head.
func (ex *Exchange) head() error {
	ex.answerFields()
	if ex.pollUpload(); ex.upload.running {
		ex.upload.answering.Store(true)
	}
	r := &ex.resp
	ex.answer = Answer{Status: r.Status, Reason: r.Reason, Fields: r.Fields, Body: r.Body}
	if ex.Reading() && r.Status >= 400 {
		ex.answer.Close = true // the backend accepts no more of the body
	}
	ex.status = r.Status
	return ex.beginAnswer()
}

// dropAnswer abandons an answer that another attempt will replace.
func (ex *Exchange) dropAnswer() {
	ex.call.Skip()
	ex.endCall()
}

// Dispose releases what a panic left behind. The exchange must not be used again.
func (ex *Exchange) Dispose() {
	if ex.call.Opened() {
		ex.stopUpload()
		ex.from.Client.Unwatch()
		ex.call.Abort()
		ex.call.Close()
	}
	ex.copyEnd(false, nil)
	ex.leave()
}

// keptSize is the largest buffer that is kept for the next exchange.
const keptSize = 64 << 10

// Shrink releases buffers that are too large to keep.
func (ex *Exchange) Shrink() {
	ex.call.Shrink(keptSize)
	if cap(ex.scratch) > keptSize {
		ex.scratch = nil
	}
	if cap(ex.keep) > keptSize {
		ex.keep = nil
	}
	clear(ex.picked[:cap(ex.picked)])
	clear(ex.legs[:cap(ex.legs)])
	clear(ex.loggedRequest[:cap(ex.loggedRequest)])
	clear(ex.loggedAnswer[:cap(ex.loggedAnswer)])
	ex.id, ex.spanned = requestID{}, spanned{}
	ex.reported, ex.clientReport = nil, clientReport{}
	ex.req = Request{}
	ex.from = Origin{}
	ex.rule, ex.backend, ex.endpoint = nil, nil, nil
	ex.resumed = nil
}

// connectDeadline is when connecting must end; zero if the exchange sets no time.
func (a *attempt) connectDeadline() time.Time {
	if !a.connectBy.IsZero() && (a.deadline.IsZero() || a.connectBy.Before(a.deadline)) {
		return a.connectBy
	}
	return a.deadline
}

// brokenAnswer returns the error that ends an exchange whose answer broke off.
func (ex *Exchange) brokenAnswer(err error) error {
	if f := callFailure(err); f != failBackendTime {
		return f
	}
	return ex.attempt.expired
}
