package proxy

import (
	"log/slog"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// Options are a server's limits and the parts it reports to. The zero value is usable.
type Options struct {
	// Logger; nil discards.
	Logger *slog.Logger
	// Metrics counts the exchanges; nil is a registry of its own.
	Metrics *telemetry.Registry
	// AccessLog may be nil: none.
	AccessLog *telemetry.AccessLog
	// Upstream are the limits of the connections to endpoints. Its Logger is replaced by the server's if nil.
	Upstream upstream.Options
	Mirror   MirrorOptions

	// Via says which messages have Via.
	Via Via
	// Pseudonym names the proxy in Via, and loops are found by it (RFC 9110 §7.6.3): a token. Processes that serve the same Gateway should share one;
	// others must not, or requests that come through one and then the other are taken for loops. Empty is a random one.
	Pseudonym string
	// MaxPasses is how often a request may come through proxies of the pseudonym; beyond it it is answered 508. 0 means 1.
	MaxPasses int
	// MaxHops is through how many proxies of any kind a request may have come, by its Via; beyond it it is answered 508. 0 means 10.
	MaxHops int
	// RequestIDs says whether requests are given ids, in RequestIDField ("X-Request-Id" if it is empty), a name of letters, digits and hyphens.
	// AnswerRequestID has answers bear them too.
	RequestIDs      RequestIDs
	RequestIDField  string
	AnswerRequestID bool
	// Underscores says what becomes of fields whose names backends may confuse with others.
	Underscores Underscores
	// SessionKey proves that proxies issued the tokens of sessions (see model.Session): a secret that all proxies share which serve the same routes.
	// Empty is one of the process's own, for rules that bring no Salt.
	SessionKey []byte
	// Limits bound the heads of requests and answers.
	Limits http1.Limits

	// HandshakeTimeout bounds a TLS handshake with a client; 0 means 10 s.
	HandshakeTimeout time.Duration
	// HeaderTimeout bounds the time from a request's first byte to the end of its head; 0 means 10 s.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a client's connection may stay without a request; 0 means 75 s.
	IdleTimeout time.Duration
	// MinBodyRate is the least average speed, in bytes a second, at which a client must send its request's body and take its answer; 0 means 256,
	// less than 0 no rule. Only the time counts in which the proxy waits for the client and bytes are due: see pace.
	MinBodyRate int
	// BodyGrace is how far behind MinBodyRate a client may fall, and so how long it may stall; 0 means 30 s.
	BodyGrace time.Duration
	// StreamTimeout is how long either side may neither send nor take a byte of a body or of a tunnel; 0 means 5 min.
	StreamTimeout time.Duration
	// ResponseTimeout is how long an endpoint may take to begin its answer once the request is sent, where the rule has no timeout; 0 means 60 s.
	ResponseTimeout time.Duration
	// DrainTimeout bounds how long exchanges in flight may still take when the server ends or a port is removed; 0 means 30 s.
	DrainTimeout time.Duration
	// DrainGrace is how long idle connections are kept while draining, so that a request already under way is still answered
	// (with Connection: close) rather than lost; 0 means 1 s, less than 0 none. It counts towards DrainTimeout.
	DrainGrace time.Duration

	// MaxInFlight bounds the exchanges in flight; beyond it requests are answered 503 before anything is done for them. 0 means no bound.
	MaxInFlight int
	// MaxConnections bounds the clients' connections; beyond it new ones are told so in cleartext, and closed. 0 means no bound.
	MaxConnections int
	// MaxHandshakes bounds the TLS handshakes that wait in line for a processor; beyond it new ones are closed at once. 0 means 1024.
	MaxHandshakes int
	// MaxQueueDelay is how long a request may wait for the proxy's own processors before it is refused; 0 means for ever. Linux only.
	MaxQueueDelay time.Duration
	// MaxStreams bounds the concurrent streams of an HTTP/2 connection; 0 means 250.
	MaxStreams uint32
	// MaxBody bounds the request's body, in bytes; 0 means no bound: bodies are never kept whole.
	MaxBody int64
	// MaxBuffered bounds the memory, in bytes, in which is kept what cannot be passed on yet: heads that are not complete, bodies over HTTP/2, bodies for
	// retries, copies, answers' heads; see docs/limits.md. 0 means no bound.
	MaxBuffered int64
	// MaxRetryBody is the largest request body that is kept in memory for a rule's retries; 0 means 64 KiB.
	MaxRetryBody int

	// Listen opens the socket of a port: of connections for the network "tcp", of datagrams for "udp" (see model.Protocol.Network); nil is
	// socket.Open.
	Listen socket.Opener
	// PortsChanged is called when Server.Unbound is another than after the last Apply: a port was bound at last, or cannot be for another
	// reason. nil is nobody's business.
	PortsChanged func()

	// DropsChanged is called when Server.MirrorDrops is another than after the last Apply. nil is nobody's business.
	DropsChanged func()

	// now replaces the clock of sessions in tests.
	now func() time.Time
}

func (o *Options) setDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = telemetry.New()
	}
	if o.Upstream.Logger == nil {
		o.Upstream.Logger = o.Logger
	}
	if o.RequestIDField == "" {
		o.RequestIDField = "X-Request-Id"
	}
	if o.Listen == nil {
		o.Listen = socket.Open
	}
	if o.PortsChanged == nil {
		o.PortsChanged = func() {}
	}
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&o.HandshakeTimeout, 10 * time.Second},
		{&o.HeaderTimeout, 10 * time.Second},
		{&o.IdleTimeout, 75 * time.Second},
		{&o.BodyGrace, 30 * time.Second},
		{&o.StreamTimeout, 5 * time.Minute},
		{&o.ResponseTimeout, 60 * time.Second},
		{&o.DrainTimeout, 30 * time.Second},
		{&o.DrainGrace, time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if o.Upstream.ReadBuffer == 0 {
		o.Upstream.ReadBuffer = 16 << 10 // most answers fit, head and body, and go out in one write
	}
	if o.Limits.Head == 0 {
		o.Limits.Head = http1.DefaultHead
	}
	if o.Limits.Line == 0 {
		o.Limits.Line = http1.DefaultLine
	}
	if o.Limits.Fields == 0 {
		o.Limits.Fields = http1.DefaultFields
	}
	if o.MinBodyRate == 0 {
		o.MinBodyRate = 256
	}
	if o.MaxHandshakes == 0 {
		o.MaxHandshakes = 1024
	}
	if o.MaxStreams == 0 {
		o.MaxStreams = 250
	}
	if o.MaxRetryBody == 0 {
		o.MaxRetryBody = 64 << 10
	}
}
