package proxy

import (
	"context"
	"log/slog"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// MirrorOptions bound what mirrors may take.
type MirrorOptions struct{}

// mirrors owns the copies of requests: their targets, connections and goroutines.
type mirrors struct{}

func newMirrors(opt MirrorOptions, log *slog.Logger, metrics *telemetry.Registry) *mirrors {
	return &mirrors{}
}

// mirrorSpec is one mirror filter of a table.
type mirrorSpec struct {
	service *upstream.Service // nil: it does not exist
	name    string            // of the service
	metric  *telemetry.Mirror
}

// mirrorTarget is where the copies of one mirror filter go.
type mirrorTarget struct {
	name   string
	metric *telemetry.Mirror
}

// apply returns the targets of a new configuration, in the order of specs. State is kept by the service's name; what no spec names any more ends
// once its copies have.
func (m *mirrors) apply(specs []mirrorSpec) []*mirrorTarget {
	targets := make([]*mirrorTarget, len(specs))
	for i, s := range specs {
		targets[i] = &mirrorTarget{name: s.name, metric: s.metric}
	}
	return targets
}

// close ends all copies, gracefully as long as ctx lasts.
func (m *mirrors) close(ctx context.Context) {}

// mirrorHead is the request as the client sent it. Its strings are valid only during begin.
type mirrorHead struct {
	method    string
	target    string // path and query as received
	authority string
	fields    []http1.Field // all, hop-by-hop ones included
	namedHops bool
	body      http1.Body // BodyChunked if the length is not known
	// clientIP and scheme are for X-Forwarded-For and X-Forwarded-Proto.
	clientIP string
	scheme   string
}

// begin starts a copy, or says why it was dropped (and counts it): the leg is nil then.
func (m *mirrors) begin(target *mirrorTarget, head *mirrorHead, shard uint32) (*mirrorLeg, telemetry.MirrorOutcome) {
	return nil, telemetry.MirrorDroppedNoEndpoint
}

// mirrorLeg is one copy. The exchange calls write any number of times, then end or abort once, then outcome once as its last call.
type mirrorLeg struct{}

// write copies a piece of the body. It never blocks and never fails; a leg over its bounds is abandoned and counted.
func (l *mirrorLeg) write(p []byte) {}

// end says that the body was whole.
func (l *mirrorLeg) end(trailers []http1.Field) {}

// abort says that the request ended before its body was whole.
func (l *mirrorLeg) abort() {}

// outcome is what is known of the copy now; the leg must not be used afterwards.
func (l *mirrorLeg) outcome() telemetry.MirrorOutcome { return telemetry.MirrorPending }
