package exchange

import (
	"net/http"
	"strings"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/telemetry"
)

// Underscores decides about a request's irregular fields: fields whose names have characters other than letters, digits
// and hyphens, nearly always an underscore. Backends that turn names into variables (CGI, FastCGI, WSGI, Rack, PHP)
// cannot distinguish X_User from X-User.
type Underscores uint8

const (
	// UnderscoresClashing drops fields that a backend may confuse with one of the proxy's own, such as X_Forwarded_For.
	// It also drops fields like one that a filter of the rule or the backend sets or removes, or that rules for the
	// request's host match on.
	UnderscoresClashing Underscores = iota
	// UnderscoresDropped drops all of them.
	UnderscoresDropped
	// UnderscoresRejected answers 400 to requests with any of them.
	UnderscoresRejected
	// UnderscoresPassed forwards all of them.
	UnderscoresPassed
)

// judgeIrregular refuses a request with irregular fields, if the options ask for that.
func (ex *Exchange) judgeIrregular() error {
	if ex.pipe.Underscores != UnderscoresRejected {
		return nil
	}
	for i := range ex.req.Fields {
		if ex.req.Fields[i].ID == http1.FieldIrregular {
			return failIrregular
		}
	}
	return nil
}

var failIrregular = &Failure{Status: http.StatusBadRequest, Reason: telemetry.BadRequest,
	Detail: "a field's name has a character that is neither a letter nor a digit nor a hyphen"}

// addOwn adds to out what the proxy forwards of f, a request field that is in own. It forwards nothing of most of them.
func (ex *Exchange) addOwn(out []http1.Field, f *http1.Field) []http1.Field {
	switch f.ID {
	case http1.FieldIrregular:
		mark := ex.pipe.copyMark
		if http1.HopByHop(f, ex.req.Fields) || http1.EqualFold(f.Name, mark) {
			return out
		}
		switch ex.pipe.Underscores {
		case UnderscoresPassed:
			regular := *f
			regular.ID = http1.FieldOther // filters check only the name
			return append(out, regular)
		case UnderscoresClashing:
			if !http1.Impersonates(f) && !http1.SameVariable(f.Name, mark) && !ex.impersonatesID(f) && !ex.likeMatched(f) {
				return append(out, *f)
			}
		}
	case http1.FieldForwarded, http1.FieldXForwardedFor, http1.FieldXForwardedHost, http1.FieldXForwardedPort, http1.FieldXForwardedProto, http1.FieldXRealIP, http1.FieldWeirMirrored:
		if ex.pipe.Beside && !http1.HopByHop(f, ex.req.Fields) {
			return append(out, *f)
		}
	case http1.FieldTrailer:
		if !ex.announcesDropped(f.Value, ex.dropsTrailer) && !http1.HopByHop(f, ex.req.Fields) {
			return append(out, *f)
		}
	}
	return out
}

// requestTrailers returns the trailers for the endpoint, after the request's body was read to its end. It leaves out
// trailers that the filters of request fields would have dropped.
func (ex *Exchange) requestTrailers() []http1.Field {
	if ex.req.Body.Kind != http1.BodyChunked {
		return nil
	}
	return without(ex.from.Client.Trailers(), &ex.trailers, ex.dropsTrailer)
}

// dropsTrailer reports whether filters change a trailer of the request.
func (ex *Exchange) dropsTrailer(f *http1.Field) bool {
	if f.ID == http1.FieldIrregular && ex.pipe.Underscores == UnderscoresDropped {
		return true
	}
	if ex.pipe.requestID.ids != RequestIDsOff && (ex.pipe.requestID.is(f) || ex.impersonatesID(f)) {
		return true
	}
	if ex.pipe.Underscores != UnderscoresPassed && ex.decidesBy(f.Name, http1.SameVariable) {
		return true // rules and policies have decided without it
	}
	return ex.rule.filters.request.touches(f) || ex.backendFilters().request.touches(f)
}

// likeMatched reports whether a backend may confuse an irregular field with one that rules for the request's host match
// or policies match on: otherwise X_Role would pass a rule that looks at X-Role. A field that rules name as it is is not meant.
func (ex *Exchange) likeMatched(f *http1.Field) bool {
	return ex.decidesBy(f.Name, http1.SameVariable) && !ex.decidesBy(f.Name, http1.EqualFold)
}

// sentTrailers returns an answer's trailers as the client gets them.
func (ex *Exchange) sentTrailers(all []http1.Field) []http1.Field {
	return without(all, &ex.answerTrail, ex.dropsAnswerTrailer)
}

// dropsAnswerTrailer reports whether filters, CORS or the session change a trailer of the answer. It keeps gRPC's
// status, because that ends the answer.
func (ex *Exchange) dropsAnswerTrailer(f *http1.Field) bool {
	rule, backend := &ex.rule.filters, ex.backendFilters()
	if len(f.Name) == len("grpc-status") && http1.EqualFold(f.Name, "grpc-status") {
		return false
	}
	if s := ex.rule.session; s != nil && s.is(f.Name) {
		return true
	}
	return (rule.cors != nil || backend.cors != nil) && isCORSAnswer(f.Name) || rule.response.touches(f) || backend.response.touches(f)
}

// announcesDropped reports whether a Trailer field names a trailer that is dropped.
func (ex *Exchange) announcesDropped(list string, drops func(*http1.Field) bool) bool {
	for more := true; more; {
		var f http1.Field
		f.Name, list, more = strings.Cut(list, ",")
		f.Name = strings.Trim(f.Name, " \t")
		if f.ID = http1.Identify(f.Name); drops(&f) {
			return true
		}
	}
	return false
}

// without returns all fields except those that drops selects. It returns all itself if drops selects none, and
// otherwise a copy in buf.
func without(all []http1.Field, buf *[]http1.Field, drops func(*http1.Field) bool) []http1.Field {
	for i := range all {
		if !drops(&all[i]) {
			continue
		}
		kept := append((*buf)[:0], all[:i]...)
		for j := i + 1; j < len(all); j++ {
			if !drops(&all[j]) {
				kept = append(kept, all[j])
			}
		}
		*buf = kept
		return kept
	}
	return all
}

// backendFilters returns the backend's filters; none if there is no backend.
func (ex *Exchange) backendFilters() *filters {
	if ex.backend == nil {
		return &noFilters
	}
	return &ex.backend.filters
}

var noFilters filters
