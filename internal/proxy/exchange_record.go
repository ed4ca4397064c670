package proxy

import (
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/telemetry"
)

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
	d := time.Since(ex.start)
	ex.finished = ex.start.Add(d)
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
	route := ""
	if ex.rule != nil {
		route = ex.rule.route
	}
	wanted := ex.srv.opt.AccessLog.Wants(ex.status, ex.reason, route, d)
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
		Time: ex.start, Client: client, Peer: peer, Method: r.method, Host: r.authority, Path: r.path, Query: r.query, Target: r.target, Protocol: r.proto,
		Status: ex.status, Reason: ex.reason, PathReading: ex.pathReading.String(), Duration: d, Attempts: ex.attempts, BytesIn: ex.in, BytesOut: ex.out, Mirrors: results,
	}
	if ex.rule != nil {
		rec.Listener = ex.decision.Listener.Listener.Name
		rec.Route, rec.Rule = route, ex.rule.name
	}
	if ex.backend != nil {
		rec.Backend = ex.backend.name
	}
	if ex.endpoint != nil {
		rec.Endpoint = ex.endpoint.Address
		rec.BackendConnect, rec.BackendFirstByte, rec.BackendDuration = ex.attempt.times.of()
	}
	for i := range r.fields {
		switch f := &r.fields[i]; f.ID {
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
	rec.RequestID, _ = ex.identify()
	rec.RequestFields, rec.ResponseFields = ex.loggedFields(), ex.loggedAnswer
	ex.srv.opt.AccessLog.Log(&rec)
}
