package exchange

import (
	"time"

	"github.com/weirmesh/weir/internal/budget"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/mirror"
	"github.com/weirmesh/weir/internal/telemetry"
)

// Pipeline is what all exchanges of a server share. After NewPipeline, only the gate's counts change.
type Pipeline struct {
	Options
	around Around

	hops        *hops
	sessionKeys *sessionKeys
	requestID   idField
	// mirrorMark is the name of the field that marks copies, if it differs from the default; copyMark is the name in
	// any case.
	mirrorMark, copyMark string
	// loggedRequest and loggedAnswer are the header fields for the access log.
	loggedRequest, loggedAnswer []string
	gate                        gate
	relaying                    Shares // the clients' relayed connections
}

// Around is what exchanges use of the server they run in.
type Around struct {
	// Mirrors take copies, which are marked by the field Mark.
	Mirrors *mirror.Set
	Mark    string
	// Memory is the budget for bodies that are kept for another attempt.
	Memory *budget.Budget
	// Current returns the present configuration, which may differ from the one an exchange began with.
	Current func() *Snapshot
	// Shortage receives errors that mean that the process had no socket, or no memory for one.
	Shortage func(error)
	// Cut is closed when exchanges must stop waiting.
	Cut <-chan struct{}
	// Connections is the number of clients' connections, and MaxConnections their bound; 0 means no bound.
	Connections    func() int64
	MaxConnections int64
}

// NewPipeline prepares what exchanges share.
func NewPipeline(opt Options, around Around) *Pipeline {
	opt.SetDefaults()
	p := &Pipeline{Options: opt, around: around, copyMark: around.Mark}
	p.gate.bound(opt.MaxInFlight)
	p.relaying.Init()
	p.hops = newHops(&opt)
	p.Pseudonym = p.hops.name // which may be random
	p.sessionKeys = newSessionKeys(opt.SessionKey)
	if http1.Identify(p.copyMark) != http1.FieldWeirMirrored {
		p.mirrorMark = p.copyMark
	}
	p.requestID = newIDField(&opt)
	p.loggedRequest, p.loggedAnswer = opt.AccessLog.RequestFields(), opt.AccessLog.ResponseFields()
	return p
}

// Strained reports whether requests wait so long that measured times say little about endpoints.
func (p *Pipeline) Strained() bool { return p.gate.strained() }

// isCut reports whether Around.Cut is closed.
func (p *Pipeline) isCut() bool {
	select {
	case <-p.around.Cut:
		return true
	default:
		return false
	}
}

// Waiting is how many exchanges and connections wait for an endpoint.
func (p *Pipeline) Waiting() int64 { return p.gate.waiting.Load() }

// Load fills in what the gate knows about the load.
func (p *Pipeline) Load(l *telemetry.Load) {
	g := &p.gate
	l.InFlight, l.MaxInFlight = g.inFlight.Load(), int64(max(p.MaxInFlight, 0))
	l.RefusedRequests, l.ShedRequests = g.refused.Load(), g.shed.Load()
	l.SharedRequests, l.SilencedRequests, l.Clients = g.shared.Load(), g.silenced.Load(), g.shares.count()
	l.QueueDelay, l.Strained = time.Duration(g.delay.Load()), g.strained()
}
