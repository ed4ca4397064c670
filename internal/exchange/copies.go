package exchange

import (
	"net/http"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/mirror"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
)

// copies holds the copies of an exchange's request.
type copies struct {
	picked  []*mirror.Target // mirrors that get a copy, until the legs begin
	legs    []copyLeg
	copied  bool // the legs have begun
	settled bool // the legs have ended
}

// copyLeg is a copy and its entry in the access log. leg is nil if the copy was dropped at once.
type copyLeg struct {
	target  *mirror.Target
	leg     *mirror.Leg
	outcome telemetry.MirrorOutcome
}

// sample decides which mirrors get a copy.
func (ex *Exchange) sample(mirrors []*routing.Mirror) {
	if len(mirrors) == 0 || ex.req.Upgrade != "" || ex.req.Method == http.MethodConnect {
		return
	}
	for _, m := range mirrors {
		t := ex.from.Snapshot.mirrors[m.ID]
		chosen := m.Sample()
		t.Metric.Consider(ex.from.Shard, chosen)
		if !chosen {
			continue
		}
		l, ok := m.CopyLeaf(&ex.match)
		if !ok {
			t.Metric.Count(ex.from.Shard, telemetry.MirrorDroppedMatch)
			continue
		}
		if l != nil {
			t = ex.from.Snapshot.mirrorLeaves[l.ID]
		}
		ex.picked = append(ex.picked, t)
	}
}

// beginCopies begins the copies, once, with what is known about the body.
func (ex *Exchange) beginCopies() {
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

func (ex *Exchange) copyHead() {
	r := &ex.req
	head := mirror.Head{Method: r.Method, Target: ex.target, Authority: ex.authority, Fields: ex.fields, Body: r.Body, GRPC: r.GRPC, From: ex}
	if te, _ := http1.GetID(r.Fields, http1.FieldTE); r.GRPC || http1.HasToken(te, "trailers") {
		head.Trailers = true
	}
	if s := ex.span; s != nil {
		attempt := ex.trying
		ex.sendTrace(s) // the copies are not part of the attempt
		if attempt != nil {
			defer ex.sendTrace(attempt)
		}
	}
	for _, t := range ex.picked {
		leg, outcome := ex.pipe.around.Mirrors.Begin(t, &head, ex.from.Shard)
		ex.legs = append(ex.legs, copyLeg{target: t, leg: leg, outcome: outcome})
	}
}

func (ex *Exchange) copyBody(p []byte) {
	for i := range ex.legs {
		if l := ex.legs[i].leg; l != nil {
			l.Write(p)
		}
	}
}

// copyEnd ends the copies: with the body complete, or cut off.
func (ex *Exchange) copyEnd(whole bool, trailers []http1.Field) {
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
