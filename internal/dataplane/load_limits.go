package dataplane

import (
	"log/slog"
	"math"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/proxy"
)

// loadFlags bound the proxy's load; see docs/resilience.md.
type loadFlags struct {
	inFlight, connections, relays flags.Bound
	buffered                      flags.SizeBound
	delay                         time.Duration
}

func (l *loadFlags) flags(f *pflag.FlagSet) {
	l.inFlight, l.connections, l.relays, l.buffered = flags.Automatic, flags.Automatic, flags.Automatic, flags.SizeBound(flags.Automatic)
	f.Var(&l.inFlight, "max-in-flight", "maximum requests in flight, others are answered 503; auto depends on memory and descriptors, 0 is no limit")
	f.Var(&l.connections, "max-connections", "maximum client connections, others are refused; auto depends on memory and descriptors, 0 is no limit")
	f.Var(&l.relays, "max-tcp-per-service", "maximum TCP connections to one service unless its annotation max-requests says otherwise, others are reset; auto depends on descriptors, 0 is no limit")
	f.Var(&l.buffered, "max-buffered", "maximum memory for data that cannot be forwarded yet, such as unfinished heads; auto is an eighth of the memory, 0 is no limit")
	f.DurationVar(&l.delay, "max-queue-delay", time.Second, "maximum time that a request waits for the processor before it is refused; 0 for no limit")
}

// apply fills in the server's options.
func (l *loadFlags) apply(o *proxy.Options, m process.Machine, log *slog.Logger) error {
	if l.delay < 0 {
		return flags.Errorf("--max-queue-delay is below zero")
	}
	auto := boundsOf(m)
	o.MaxInFlight, o.MaxConnections, o.MaxQueueDelay = auto.inFlight, auto.connections, l.delay
	if l.inFlight != flags.Automatic {
		o.MaxInFlight = int(l.inFlight)
	}
	if l.connections != flags.Automatic {
		o.MaxConnections = int(l.connections)
	}
	if o.MaxBuffered = auto.buffered; l.buffered != flags.SizeBound(flags.Automatic) {
		o.MaxBuffered = int64(l.buffered)
	}
	o.Upstream.MaxConnections = int64(auto.endpoints)
	if o.Upstream.MaxRelays = int64(auto.relays); l.relays != flags.Automatic {
		o.Upstream.MaxRelays = int64(l.relays)
	}
	if m.Files > 0 && (o.MaxConnections == 0 || o.MaxConnections > m.Files-auto.endpoints) {
		// Connections to endpoints get the remaining ones.
		log.Warn("--max-connections leaves too few descriptors for endpoints", "connections", o.MaxConnections, "descriptors", m.Files)
	}
	log.Info("limits", "in_flight", o.MaxInFlight, "connections", o.MaxConnections, "endpoint_connections", auto.endpoints, "tcp_per_service", o.Upstream.MaxRelays,
		"buffered", o.MaxBuffered, "descriptors", m.Files, "memory", m.Memory)
	return nil
}

// Assumptions for calculating the bounds.
const (
	exchangeMemory   = 128 << 10 // of one request in flight, with both its connections' buffers and a piece of a body
	connectionMemory = 32 << 10  // of a client connection, most of the time idle
	fewestFiles      = 64
	relayFiles       = 6 // descriptors of a relayed connection: two sockets, and a pipe for each direction, by which the kernel moves bytes
	fewestRelays     = 8
	fewestBuffered   = 1 << 20
	mostLines        = 4 << 20 // of the access log
	fewestLines      = 256 << 10
)

// bounds are the limits that suit the machine.
type bounds struct {
	inFlight, connections, endpoints int
	relays                           int   // TCP connections to one service
	buffered                         int64 // bytes that are kept until they can be passed on
	lines                            int   // bytes of the access log's lines that wait
}

// boundsOf divides the memory, see docs/limits.md. Half is for connections and a quarter for requests, by what each
// needs anyway. An eighth is for what some of them keep beyond that. The rest is for everything else and for the
// garbage collector. An eighth of the descriptors is for listeners, files and health checks; half of the others are for
// clients, half for endpoints and mirrors. Connections that are relayed to one service may use half of the others.
func boundsOf(m process.Machine) bounds {
	usable := math.MaxInt32
	if m.Files > 0 {
		usable = max(m.Files-max(m.Files/8, fewestFiles), fewestFiles)
	}
	b := bounds{endpoints: usable / 5 * 2} // mirrors have a quarter as many
	b.connections = int(min(int64(usable/2), max(m.Memory/2/connectionMemory, fewestFiles)))
	b.relays = max(usable/relayFiles/2, fewestRelays)
	b.inFlight = int(min(int64(b.endpoints), max(m.Memory/4/exchangeMemory, fewestFiles)))
	b.buffered = max(m.Memory/8, fewestBuffered)
	b.lines = int(min(max(m.Memory/64, fewestLines), mostLines))
	return b
}
