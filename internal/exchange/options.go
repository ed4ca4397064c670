package exchange

import (
	"log/slog"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/telemetry"
)

// Options are the limits of exchanges, the fields they send about themselves, and the parts they report to. The zero
// value is usable.
type Options struct {
	// Logger; nil discards.
	Logger *slog.Logger
	// Metrics counts the exchanges; nil means a registry of its own.
	Metrics *telemetry.Registry
	// AccessLog may be nil, for no access log.
	AccessLog *telemetry.AccessLog
	// Via selects the messages with a Via field.
	Via Via
	// Pseudonym names the proxy in Via, and loops are found by it (RFC 9110 §7.6.3): a token. Processes that serve the same Gateway should share one;
	// others must not, or requests that come through one and then the other are taken for loops. Empty is a random one.
	Pseudonym string
	// MaxPasses is how often a request may come through proxies of the pseudonym; beyond it it is answered 508. 0 means 1.
	MaxPasses int
	// MaxHops is through how many proxies of any kind a request may have come, by its Via; beyond it it is answered 508. 0 means 10.
	MaxHops int
	// RequestIDs selects the requests that get ids, in RequestIDField ("X-Request-Id" if it is empty). The field's name
	// has letters, digits and hyphens. AnswerRequestID puts the id on answers, too.
	RequestIDs      RequestIDs
	RequestIDField  string
	AnswerRequestID bool
	// Underscores decides about fields whose names backends may confuse with others.
	Underscores Underscores
	// SessionKey proves that proxies issued the tokens of sessions (see model.Session): a secret that all proxies share which serve the same routes.
	// Empty is one of the process's own, for rules that bring no Salt.
	SessionKey []byte
	// Limits bound the heads of requests and answers.
	Limits http1.Limits
	// StreamTimeout is how long either side may neither send nor take a byte of a body or of a tunnel; 0 means 5 min.
	StreamTimeout time.Duration
	// ResponseTimeout is how long an endpoint may take to begin its answer once the request is sent, where the rule has no timeout; 0 means 60 s.
	ResponseTimeout time.Duration
	// MaxInFlight bounds the exchanges in flight; beyond it requests are answered 503 before anything is done for them. 0 means no bound.
	MaxInFlight int
	// MaxQueueDelay is how long a request may wait for the proxy's own processors before it is refused; 0 means for ever. Linux only.
	MaxQueueDelay time.Duration
	// MaxBody bounds the request's body, in bytes; 0 means no bound: bodies are never kept whole.
	MaxBody int64
	// MaxRetryBody is the largest request body that is kept in memory for a rule's retries; 0 means 64 KiB.
	MaxRetryBody int
	// LookAtAll has it looked at each request how long it waited, in tests; otherwise it is at few, as long as there is no overload.
	LookAtAll bool
	// Now replaces the clock of sessions in tests; nil is time.Now.
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
