package exchange

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strconv"
	"strings"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/telemetry"
)

// Via selects the messages that name the proxy in Via (RFC 9110 §7.6.3).
type Via uint8

const (
	// ViaAll selects requests and answers.
	ViaAll Via = iota
	// ViaRequests selects requests only.
	ViaRequests
	// ViaOff selects no messages. Requests carry Weir-Via instead, which detects loops.
	ViaOff
)

const (
	// DefaultMaxHops is how many proxies a request may have passed, unless Options set another number.
	DefaultMaxHops = 10
	// maxForwardsKept is the largest value of Max-Forwards that is forwarded.
	maxForwardsKept = 1<<31 - 1
)

// These constants are the versions of a received message, as indexes in hops.
const (
	version10 = iota
	version11
	version2
	versions
)

// hops marks messages that pass through the proxy, and recognises requests that have been here before.
type hops struct {
	name     string
	requests [versions]http1.Field // by the version received
	answers  [versions]http1.Field
	tell     bool // in answers
	passes   int  // through this proxy that a request may make
	most     int  // hops that a request may have made
}

func newHops(o *Options) *hops {
	h := &hops{name: o.Pseudonym, passes: max(o.MaxPasses, 1), most: o.MaxHops, tell: o.Via == ViaAll}
	if !http1.ValidToken(h.name) {
		h.name = randomPseudonym()
	}
	if h.most <= 0 {
		h.most = DefaultMaxHops
	}
	for v, version := range [versions]string{"1.0 ", "1.1 ", "2 "} {
		via := http1.Field{Name: "Via", Value: version + h.name, ID: http1.FieldVia}
		h.answers[v] = via
		if o.Via == ViaOff {
			via.Name, via.ID = "Weir-Via", http1.FieldWeirVia
		}
		h.requests[v] = via
	}
	return h
}

// randomPseudonym returns a name for a process without one.
func randomPseudonym() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // never fails
	return "weir-" + hex.EncodeToString(b[:])
}

// judge refuses a request that has passed through this proxy too often, or through too many proxies in total. Only a
// proxy or a backend behind us that forwards requests without their Via can remove our mark: Connection and filters do
// not apply to these fields.
func (h *hops) judge(fields []http1.Field) error {
	made, own := 0, 0
	for i := range fields {
		if id := fields[i].ID; id == http1.FieldVia || id == http1.FieldWeirVia {
			for list := fields[i].Value; list != ""; {
				var by string
				if by, list = nextHop(list); by != "" {
					if made++; http1.EqualFold(by, h.name) {
						own++
					}
				}
			}
		}
	}
	switch {
	case own >= h.passes:
		return failLoop
	case made >= h.most:
		return failHops
	}
	return nil
}

// nextHop takes the first member off a Via. by is the name in the member, or the whole member if it has no version.
// nextHop does not parse comments: an unterminated one would swallow the members that others append.
func nextHop(list string) (by, rest string) {
	by, rest, _ = strings.Cut(list, ",")
	by = strings.Trim(by, " \t")
	if i := strings.IndexAny(by, " \t"); i >= 0 {
		by = strings.TrimLeft(by[i:], " \t")
		if i = strings.IndexAny(by, " \t("); i > 0 {
			by = by[:i]
		}
	}
	return by, rest
}

var (
	failLoop = &Failure{Status: http.StatusLoopDetected, Reason: telemetry.LoopDetected, Detail: "the request has come through this proxy before"}
	failHops = &Failure{Status: http.StatusLoopDetected, Reason: telemetry.LoopDetected, Detail: "the request has come through too many proxies"}
)

// mark returns the field that records how the request was received.
func (h *hops) mark(r *Request) http1.Field {
	switch {
	case r.HTTP2:
		return h.requests[version2]
	case r.Minor == 0:
		return h.requests[version10]
	}
	return h.requests[version11]
}

// markAnswer returns the field that records how the answer was received.
func (ex *Exchange) markAnswer() http1.Field {
	h := ex.pipe.hops
	switch {
	case ex.call.Request.HTTP2:
		return h.answers[version2]
	case ex.resp.Minor == 0:
		return h.answers[version10]
	}
	return h.answers[version11]
}

const maxForwardsName = "max-forwards"

// limitForwards applies Max-Forwards to TRACE and OPTIONS (RFC 9110 §7.6.2). At zero it answers the request here,
// otherwise it decrements the value to forward.
func (ex *Exchange) limitForwards() (done bool, err error) {
	if err := ex.readForwards(); err != nil {
		return true, err
	}
	switch {
	case ex.forwards < 0:
		return false, nil
	case ex.forwards > 0:
		ex.forwards--
		return false, nil
	case ex.req.Method == http.MethodTrace:
		return true, ex.answerTrace()
	}
	return true, ex.answerOptions()
}

// readForwards reads Max-Forwards into forwards. The value stays -1 without the field, and for methods that ignore it.
func (ex *Exchange) readForwards() error {
	if m := ex.req.Method; m != http.MethodOptions && m != http.MethodTrace {
		return nil
	}
	for i := range ex.req.Fields {
		f := &ex.req.Fields[i]
		if len(f.Name) != len(maxForwardsName) || !http1.EqualFold(f.Name, maxForwardsName) {
			continue
		}
		n, err := strconv.ParseUint(f.Value, 10, 64)
		if err != nil && strings.Trim(f.Value, "0123456789") == "" && f.Value != "" {
			n, err = maxForwardsKept+1, nil // more than fits
		}
		if err != nil || ex.forwards >= 0 {
			return failForwards
		}
		ex.forwards = int64(min(n, maxForwardsKept+1))
	}
	return nil
}

var failForwards = &Failure{Status: http.StatusBadRequest, Reason: telemetry.BadRequest, Detail: "Max-Forwards is not one number"}

// traced are the fields that an answer to TRACE repeats. Other fields may be secrets of the client or of a proxy in
// front, and a script may read the answer (RFC 9110 §9.3.8).
var traced = []string{"Host", "Via", "Weir-Via", "Max-Forwards", "User-Agent", "Accept", "Accept-Encoding", "Accept-Language"}

// answerTrace answers TRACE as its final recipient, with the request as it arrived.
func (ex *Exchange) answerTrace() error {
	r := &ex.req
	mark := len(ex.scratch)
	ex.scratch = append(ex.scratch, "TRACE "...)
	ex.scratch = append(ex.scratch, r.Target...)
	ex.scratch = append(ex.scratch, ' ')
	ex.scratch = append(ex.scratch, r.Proto...)
	ex.scratch = append(ex.scratch, "\r\n"...)
	if r.HTTP2 && r.Authority != "" {
		ex.scratch = http1.AppendField(ex.scratch, "Host", r.Authority)
	}
	for i := range r.Fields {
		f := &r.Fields[i]
		for _, name := range traced {
			if len(name) == len(f.Name) && http1.EqualFold(name, f.Name) && (f.ID != http1.FieldHost || !r.HTTP2) {
				ex.scratch = http1.AppendField(ex.scratch, f.Name, f.Value)
			}
		}
	}
	ex.scratch = http1.AppendEnd(ex.scratch)
	return ex.reply(http.StatusOK, append(ex.local[:0], http1.Field{Name: "Content-Type", Value: "message/http"},
		http1.Field{Name: "X-Content-Type-Options", Value: "nosniff"}), strings.Clone(ex.text(mark)))
}

// putForwards writes the remaining Max-Forwards into fields.
func (ex *Exchange) putForwards(fields []http1.Field) {
	for i := range fields {
		if f := &fields[i]; len(f.Name) == len(maxForwardsName) && http1.EqualFold(f.Name, maxForwardsName) {
			mark := len(ex.scratch)
			ex.scratch = strconv.AppendInt(ex.scratch, ex.forwards, 10)
			f.Value = ex.text(mark)
		}
	}
}
