package dataplane

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/proxy"
	"github.com/weirmesh/weir/internal/telemetry"
)

// fieldFlags configure the fields that the proxy adds to messages, and those that it removes; see docs/fields.md.
type fieldFlags struct {
	via, underscores flags.Choice
	pseudonym        string
	hops, passes     int
	sessionKey       string
	requestID        flags.Choice
	requestIDHeader  string
	requestIDAnswer  bool
}

func newFieldFlags() fieldFlags {
	return fieldFlags{via: flags.NewChoice("on", "requests", "off"), underscores: flags.NewChoice("drop-clashing", "drop", "reject", "pass"), requestID: flags.NewChoice("on", "trusted", "off")}
}

func (o *fieldFlags) flags(f *pflag.FlagSet) {
	f.Var(&o.via, "via", "add Via to requests and responses, to requests only, or to none; loops are detected in any case")
	f.StringVar(&o.pseudonym, "via-name", "", "`name` of this proxy in Via, shared by its replicas and by no other proxy; empty picks a random one")
	f.IntVar(&o.hops, "max-hops", exchange.DefaultMaxHops, "`number` of proxies that a request may have passed at most; others are answered 508")
	f.IntVar(&o.passes, "max-passes", 1, "how often (`number`) a request may pass this proxy at most; others are answered 508")
	f.Var(&o.requestID, "request-id", "give an id to requests without one, or with one from a client that is not trusted; trusted: keep only the ids of trusted proxies")
	f.StringVar(&o.requestIDHeader, "request-id-header", "X-Request-Id", "`name` of the header field with the id")
	f.BoolVar(&o.requestIDAnswer, "request-id-answer", false, "send the id to clients, in the same field of the response")
	f.Var(&o.underscores, "underscore-fields", "policy for request fields such as X_User, which backends may read as X-User")
	f.StringVar(&o.sessionKey, "session-key-file", "", "`file` with a secret of 16 bytes or more that signs session tokens, the same for all replicas")
}

// apply fills in the server's options.
func (o *fieldFlags) apply(to *proxy.Options) error {
	to.Via = map[string]exchange.Via{"on": exchange.ViaAll, "requests": exchange.ViaRequests, "off": exchange.ViaOff}[o.via.Value]
	to.Underscores = map[string]exchange.Underscores{
		"drop-clashing": exchange.UnderscoresClashing, "drop": exchange.UnderscoresDropped, "reject": exchange.UnderscoresRejected, "pass": exchange.UnderscoresPassed,
	}[o.underscores.Value]
	if o.pseudonym != "" && !http1.ValidToken(o.pseudonym) {
		return flags.Errorf("--via-name %q: want a name of letters, digits, hyphens and dots", o.pseudonym)
	}
	if o.hops < 1 || o.passes < 1 {
		return flags.Errorf("--max-hops and --max-passes must be above zero")
	}
	to.Pseudonym, to.MaxHops, to.MaxPasses = o.pseudonym, o.hops, o.passes
	if err := telemetry.CheckIDField(o.requestIDHeader); err != nil {
		return flags.Errorf("--request-id-header %q: %w", o.requestIDHeader, err)
	}
	to.RequestIDs = map[string]exchange.RequestIDs{"on": exchange.RequestIDsMissing, "trusted": exchange.RequestIDsTrusted, "off": exchange.RequestIDsOff}[o.requestID.Value]
	to.RequestIDField, to.AnswerRequestID = o.requestIDHeader, o.requestIDAnswer
	if o.sessionKey == "" {
		return nil
	}
	key, err := os.ReadFile(o.sessionKey)
	if err != nil {
		return fmt.Errorf("--session-key-file: %w", err)
	}
	if key = bytes.TrimSpace(key); len(key) < minSessionKey {
		return flags.Errorf("--session-key-file: %s has %d bytes, want %d or more: head -c 32 /dev/urandom | base64", o.sessionKey, len(key), minSessionKey)
	}
	to.SessionKey = key
	return nil
}

// minSessionKey is the length below which a key could be guessed.
const minSessionKey = 16
