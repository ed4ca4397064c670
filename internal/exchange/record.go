package exchange

import (
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
)

// record is what is counted and logged about an exchange.
type record struct {
	finished    time.Time
	status      int
	reason      telemetry.Reason
	pathReading routing.Reading // the reading that a path policy refused
	judged      judged
	attempts    int
	delivered   bool  // to an endpoint, of the request or a part of it
	in, out     int64 // bytes of the bodies
	// loggedRequest and loggedAnswer are the lines of header fields for the access log.
	loggedRequest, loggedAnswer []telemetry.Field
}

// finish counts and logs the result of the exchange.
func (ex *Exchange) finish() {
	if len(ex.picked) > 0 {
		if !ex.copied {
			// No attempt was made. The part of the request in memory may still be the whole request.
			ex.takeBody()
			ex.beginCopies()
		}
		ex.copyEnd(false, nil)
	}
	d := time.Since(ex.from.Start)
	ex.finished = ex.from.Start.Add(d)
	ex.countIn(d)
	ex.endLastAttempt(d)
	if ex.span != nil {
		ex.endTrace()
	}
	if taps := ex.pipe.Metrics.Taps(); taps != nil {
		ex.offer(taps, d)
	}
	m := ex.metrics()
	m.Observe(ex.from.Shard, ex.status, d, ex.in, ex.out)
	if ex.reason != "" {
		m.Fail(ex.from.Shard, ex.reason)
	}
	if ex.pipe.AccessLog != nil || len(ex.legs) > 0 {
		ex.log(d)
	}
}

// metrics returns the series that counts the exchange.
func (ex *Exchange) metrics() *telemetry.Exchange {
	switch {
	case ex.backend != nil:
		return ex.backend.Metrics
	case ex.rule != nil:
		return ex.rule.Metrics
	}
	return ex.pipe.Metrics.Unrouted()
}

// log writes the access log, and completes the exchange's part in its copies.
func (ex *Exchange) log(d time.Duration) {
	route := ""
	if ex.rule != nil {
		route = ex.rule.Route
	}
	wanted := ex.pipe.AccessLog.Wants(ex.status, ex.reason, route, d)
	var results []telemetry.MirrorResult
	for i := range ex.legs {
		l := &ex.legs[i]
		if l.leg != nil {
			l.outcome = l.leg.Outcome()
			l.leg = nil
		}
		if wanted {
			results = append(results, telemetry.MirrorResult{Mirror: l.target.Name, Outcome: l.outcome})
		}
	}
	if !wanted {
		return
	}
	r := &ex.req
	client, peer := ex.logged()
	rec := telemetry.Record{
		Time: ex.from.Start, Client: client, Peer: peer, Method: r.Method, Host: r.Authority, Path: r.Path, Query: r.Query, Target: r.Target, Protocol: r.Proto,
		Status: ex.status, Reason: ex.reason, PathReading: ex.pathReading.String(), Duration: d, Attempts: ex.attempts, BytesIn: ex.in, BytesOut: ex.out, Mirrors: results,
	}
	ex.judged.note(&rec)
	if ex.rule != nil {
		rec.Listener = ex.decision.Listener.Listener.Name
		rec.Route, rec.Rule = route, ex.rule.Name
	}
	if ex.backend != nil {
		rec.Backend = ex.backend.Name
	}
	if ex.endpoint != nil {
		rec.Endpoint = ex.endpoint.Address
		rec.BackendConnect, rec.BackendFirstByte, rec.BackendDuration = ex.attempt.times.of()
	}
	for i := range r.Fields {
		switch f := &r.Fields[i]; f.ID {
		case http1.FieldUserAgent:
			rec.UserAgent = f.Value
		case http1.FieldOther:
			switch {
			case len(f.Name) == len("referer") && http1.EqualFold(f.Name, "referer"):
				rec.Referer = f.Value
			case len(f.Name) == len("traceparent") && http1.EqualFold(f.Name, "traceparent"):
				rec.TraceParent = f.Value
			}
		}
	}
	if ex.span != nil {
		rec.TraceParent = ex.span.Context().String()
	}
	rec.RequestID, _ = ex.identify()
	rec.RequestFields, rec.ResponseFields = ex.loggedFields(), ex.loggedAnswer
	ex.pipe.AccessLog.Log(&rec)
}
