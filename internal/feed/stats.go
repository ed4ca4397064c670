package feed

import (
	"context"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc/stats"

	"github.com/weirmesh/weir/internal/model"
)

// Stats are the counts of a Server since it was made.
type Stats struct {
	// Proxies is how many streams are open now, Workloads how many of them are of workloads.
	Proxies, Workloads int64
	// Responses is how many were sent, Parts how many parts they added or removed, Bytes how many bytes they have on
	// the wire, before TLS.
	Responses, Parts, Bytes uint64
	// Refusals is how many responses proxies did not apply (NACK).
	Refusals uint64
	// Unauthenticated is how many streams were refused for their token.
	Unauthenticated uint64
	// TurnedAway is how many connections were closed before their handshake, because their address had too many or made
	// them too fast, or to make room for other addresses.
	TurnedAway uint64
}

// Stats returns the counts.
func (s *Server) Stats() Stats {
	s.init()
	c := &s.counts
	return Stats{Proxies: c.proxies.Load(), Workloads: c.workloads.Load(), Responses: c.responses.Load(), Parts: c.parts.Load(), Bytes: c.bytes.Load(), Refusals: c.nacks.Load(), Unauthenticated: c.refused.Load(),
		TurnedAway: s.door.turned.Load()}
}

// counters is also the handler through which gRPC reports the bytes it sends.
type counters struct {
	proxies, workloads                      atomic.Int64
	responses, parts, bytes, nacks, refused atomic.Uint64
}

func (c *counters) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if out, ok := s.(*stats.OutPayload); ok && ctx.Value(besideKey{}) == nil {
		c.bytes.Add(uint64(out.WireLength))
	}
}

// stream counts one of an owner's that begins, or with -1 ends.
func (c *counters) stream(of model.Owner, n int64) {
	c.proxies.Add(n)
	if of.Kind() == model.OwnerWorkload {
		c.workloads.Add(n)
	}
}

// besideKey is that of a context of a stream that brings no configurations.
type besideKey struct{}

func (c *counters) TagRPC(ctx context.Context, info *stats.RPCTagInfo) context.Context {
	if strings.HasPrefix(info.FullMethodName, "/"+besideService+"/") {
		return context.WithValue(ctx, besideKey{}, true)
	}
	return ctx
}
func (c *counters) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *counters) HandleConn(context.Context, stats.ConnStats)                       {}
