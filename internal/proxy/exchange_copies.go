package proxy

import (
	"net/http"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/mirror"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
)

// mirrorLegState is a copy and what the access log says of it. leg is nil if it was dropped at once.
type mirrorLegState struct {
	target  *mirror.Target
	leg     *mirror.Leg
	outcome telemetry.MirrorOutcome
}

// sample decides which mirrors get a copy.
func (ex *exchange) sample(mirrors []*routing.Mirror) {
	if len(mirrors) == 0 || ex.req.upgrade != "" || ex.req.method == http.MethodConnect {
		return
	}
	for _, m := range mirrors {
		t := ex.snap.mirrors[m.ID]
		chosen := m.Sample()
		t.Metric.Consider(ex.shard, chosen)
		if !chosen {
			continue
		}
		l, ok := m.CopyLeaf(&ex.match)
		if !ok {
			t.Metric.Count(ex.shard, telemetry.MirrorDroppedMatch)
			continue
		}
		if l != nil {
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
	ex.compose()
	ex.copyHead()
	ex.copyBody(ex.body)
	if ex.whole {
		ex.copyEnd(true, nil)
	}
}

func (ex *exchange) copyHead() {
	r := &ex.req
	head := mirror.Head{Method: r.method, Target: ex.target, Authority: ex.authority, Fields: ex.fields, Body: r.body, GRPC: r.grpc, From: ex}
	if te, _ := http1.GetID(r.fields, http1.FieldTE); r.grpc || http1.HasToken(te, "trailers") {
		head.Trailers = true
	}
	for _, t := range ex.picked {
		leg, outcome := ex.srv.mirrors.Begin(t, &head, ex.shard)
		ex.legs = append(ex.legs, mirrorLegState{target: t, leg: leg, outcome: outcome})
	}
}

func (ex *exchange) copyBody(p []byte) {
	for i := range ex.legs {
		if l := ex.legs[i].leg; l != nil {
			l.Write(p)
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
			l.End(trailers)
		} else {
			l.Abort()
		}
	}
}
