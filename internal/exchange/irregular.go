package exchange

import (
	"net/http"
	"strings"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/telemetry"
)

// Underscores says what becomes of a request's irregular fields: those whose names have other characters than letters, digits and hyphens, nearly
// always an underscore. Backends that make variables of names (CGI, FastCGI, WSGI, Rack, PHP) read X_User and X-User as one.
type Underscores uint8

const (
	// UnderscoresClashing drops the fields that may be taken for one of the proxy's own, such as X_Forwarded_For, or for one that a filter of the
	// rule or the backend sets or removes.
	UnderscoresClashing Underscores = iota
	// UnderscoresDropped drops all of them.
	UnderscoresDropped
	// UnderscoresRejected answers requests with any of them 400.
	UnderscoresRejected
	// UnderscoresPassed sends all of them on.
	UnderscoresPassed
)

// judgeIrregular refuses a request with irregular fields, if that is what is wanted.
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

// addOwn adds to out what is sent on of f, one of the request's that is in own: of most of them nothing.
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
			regular.ID = http1.FieldOther // filters look at no more than the name
			return append(out, regular)
		case UnderscoresClashing:
			if !http1.Impersonates(f) && !http1.SameVariable(f.Name, mark) && !ex.impersonatesID(f) {
				return append(out, *f)
			}
		}
	case http1.FieldTrailer:
		if !ex.announcesDropped(f.Value, ex.dropsTrailer) && !http1.HopByHop(f, ex.req.Fields) {
			return append(out, *f)
		}
	}
	return out
}

// requestTrailers are the trailers behind a request's body that was read to its end, as the endpoint gets them: those that the filters of request
// fields would not have let pass are left out.
func (ex *Exchange) requestTrailers() []http1.Field {
	if ex.req.Body.Kind != http1.BodyChunked {
		return nil
	}
	return without(ex.from.Client.Trailers(), &ex.trailers, ex.dropsTrailer)
}

// dropsTrailer says whether a trailer of the request is one that filters change.
func (ex *Exchange) dropsTrailer(f *http1.Field) bool {
	if f.ID == http1.FieldIrregular && ex.pipe.Underscores == UnderscoresDropped {
		return true
	}
	if ex.pipe.requestID.ids != RequestIDsOff && (ex.pipe.requestID.is(f) || ex.impersonatesID(f)) {
		return true
	}
	return ex.rule.filters.request.touches(f) || ex.backendFilters().request.touches(f)
}

// sentTrailers are an answer's trailers as the client gets them.
func (ex *Exchange) sentTrailers(all []http1.Field) []http1.Field {
	return without(all, &ex.answerTrail, ex.dropsAnswerTrailer)
}

// dropsAnswerTrailer says whether a trailer of the answer is one that filters, CORS or the session change. gRPC's status is no field that could be
// done without: it ends the answer.
func (ex *Exchange) dropsAnswerTrailer(f *http1.Field) bool {
	rule, backend := &ex.rule.filters, ex.backendFilters()
	if len(f.Name) == len("grpc-status") && http1.EqualFold(f.Name, "grpc-status") {
		return false
	}
	if s := ex.rule.session; s != nil && s.header && len(f.Name) == len(s.name) && http1.EqualFold(f.Name, s.name) {
		return true
	}
	return (rule.cors != nil || backend.cors != nil) && isCORSAnswer(f.Name) || rule.response.touches(f) || backend.response.touches(f)
}

// announcesDropped reports whether a Trailer field names a trailer that does not come.
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

// without is all but what drops says: all itself, if that is nothing, else a copy in buf.
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

// backendFilters are those of the backend, none if there is no backend.
func (ex *Exchange) backendFilters() *filters {
	if ex.backend == nil {
		return &noFilters
	}
	return &ex.backend.filters
}

var noFilters filters
