package dataplane

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/proxy"
	"github.com/weirmesh/weir/internal/telemetry"
)

// fieldFlags say what the proxy adds to messages, and what of them it does not let through; see docs/fields.md.
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
	f.Var(&o.via, "via", "add Via to requests and answers, to requests alone, or to none; loops are found all the same")
	f.StringVar(&o.pseudonym, "via-name", "", "`name` of this proxy in Via, one for all replicas and for nobody else; empty draws one")
	f.IntVar(&o.hops, "max-hops", proxy.DefaultMaxHops, "`number` of proxies that a request may have come through; beyond it is answered 508")
	f.IntVar(&o.passes, "max-passes", 1, "how often (`number`) a request may come through this proxy; beyond it is answered 508")
	f.Var(&o.requestID, "request-id", "give requests an id that come without, or with one of somebody who is not trusted; trusted: with one of anybody but a trusted proxy")
	f.StringVar(&o.requestIDHeader, "request-id-header", "X-Request-Id", "`name` of the header field with the id")
	f.BoolVar(&o.requestIDAnswer, "request-id-answer", false, "tell clients the id, in the same field of the answer")
	f.Var(&o.underscores, "underscore-fields", "what becomes of request fields such as X_User, which backends may take for X-User")
	f.StringVar(&o.sessionKey, "session-key-file", "", "`file` with a secret of 16 bytes or more that proves session tokens, the same for all replicas")
}

// apply fills in the server's options.
func (o *fieldFlags) apply(to *proxy.Options) error {
	to.Via = map[string]proxy.Via{"on": proxy.ViaAll, "requests": proxy.ViaRequests, "off": proxy.ViaOff}[o.via.Value]
	to.Underscores = map[string]proxy.Underscores{
		"drop-clashing": proxy.UnderscoresClashing, "drop": proxy.UnderscoresDropped, "reject": proxy.UnderscoresRejected, "pass": proxy.UnderscoresPassed,
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
	to.RequestIDs = map[string]proxy.RequestIDs{"on": proxy.RequestIDsMissing, "trusted": proxy.RequestIDsTrusted, "off": proxy.RequestIDsOff}[o.requestID.Value]
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
