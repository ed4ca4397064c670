package exchange

import (
	"log/slog"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/tracing"
)

// Options are the limits of exchanges, the fields they send about themselves, and the parts they report to. The zero
// value is usable.
type Options struct {
	// Logger; nil discards.
	Logger *slog.Logger
	// Metrics counts the exchanges; nil means a registry of its own.
	Metrics *telemetry.Registry
	// At is the pod that the proxy runs in, which observes its traffic; without one, the owner of a listener observes.
	At telemetry.Side
	// AccessLog may be nil, for no access log.
	AccessLog *telemetry.AccessLog
	// Tracer decides which requests are traced; nil: none, and what they say about traces passes unchanged.
	Tracer *tracing.Tracer
	// Beside means that the proxy stands beside one of the two ends, and is no station of its own: what a request says of
	// the proxies that it came by, such as X-Forwarded-For, goes on as it came, and nothing is added to it.
	Beside bool
	// Via selects the messages with a Via field.
	Via Via
	// Pseudonym names the proxy in Via, which detects loops (RFC 9110 §7.6.3). It is a token. Processes that serve the
	// same Gateway should share one. Others must not, or a request that passes one and then the other is taken for a
	// loop. Empty means a random one.
	Pseudonym string
	// MaxPasses is how often a request may pass proxies of the pseudonym; beyond it the answer is 508. 0 means 1.
	MaxPasses int
	// MaxHops is how many proxies of any kind a request may have passed, by its Via; beyond it the answer is 508. 0
	// means 10.
	MaxHops int
	// RequestIDs selects the requests that get ids, in RequestIDField ("X-Request-Id" if it is empty). The field's name
	// has letters, digits and hyphens. AnswerRequestID puts the id on answers, too.
	RequestIDs      RequestIDs
	RequestIDField  string
	AnswerRequestID bool
	// Underscores decides about fields whose names backends may confuse with others.
	Underscores Underscores
	// SessionKey proves that proxies issued the tokens of sessions (see model.Session). It is a secret that all proxies
	// with the same routes share. Empty means a key of the process's own, for rules without a Salt.
	SessionKey []byte
	// Limits bound the heads of requests and answers.
	Limits http1.Limits
	// StreamTimeout is how long either side may neither send nor accept a byte of a body or of a tunnel; 0 means 5 min.
	StreamTimeout time.Duration
	// ResponseTimeout is how long an endpoint may take to begin its answer once the request is sent, if the rule has no
	// timeout; 0 means 60 s.
	ResponseTimeout time.Duration
	// MaxPauses bounds the pauses before all retries of a request together; 0 means model.MaxBackoff.
	MaxPauses time.Duration
	// Succession is how long after the end of an endpoint requests wait for its successor, of which the configuration
	// brings news; 0 means 1 s. See Exchange.move.
	Succession time.Duration
	// Restart is the same for endpoints of the mesh (upstream.Endpoint.Meshed): their proxies are started again where they
	// were. 0 means 5 s.
	Restart time.Duration
	// MaxInFlight bounds the exchanges in flight. Beyond it the answer is 503, before any work is done. 0 means no
	// bound.
	MaxInFlight int
	// MaxQueueDelay is how long a request may wait for the proxy's own processors before it is refused; 0 means
	// forever. Linux only.
	MaxQueueDelay time.Duration
	// MaxBody bounds the request's body, in bytes; 0 means no bound: bodies are never kept whole.
	MaxBody int64
	// MaxRetryBody is the largest request body that is kept in memory for a rule's retries; 0 means 64 KiB.
	MaxRetryBody int
	// LookAtAll measures the wait of every request, for tests. Otherwise few are measured as long as there is no
	// overload.
	LookAtAll bool
	// Now replaces the clock of sessions in tests; nil means time.Now.
	Now func() time.Time
}

// SetDefaults fills in unset options, as NewPipeline does.
func (o *Options) SetDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Metrics == nil {
		o.Metrics = telemetry.New()
	}
	if o.RequestIDField == "" {
		o.RequestIDField = "X-Request-Id"
	}
	if o.StreamTimeout == 0 {
		o.StreamTimeout = 5 * time.Minute
	}
	if o.MaxPauses == 0 {
		o.MaxPauses = time.Duration(model.MaxBackoff)
	}
	if o.Succession == 0 {
		o.Succession = time.Second
	}
	if o.Restart == 0 {
		o.Restart = 5 * time.Second
	}
	if o.ResponseTimeout == 0 {
		o.ResponseTimeout = 60 * time.Second
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
	if o.MaxRetryBody == 0 {
		o.MaxRetryBody = 64 << 10
	}
}
