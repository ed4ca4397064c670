package exchange

import (
	"net/http"
	"strings"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/telemetry"
)

// Refusal is the proxy's own answer to a request that it does not forward.
type Refusal struct {
	// Status is the answer's status, Reason the reason in metrics and the access log.
	Status int
	Reason telemetry.Reason
	// Detail is a sentence for people.
	Detail string
}

func refusalOf(err error) *Refusal {
	if err == nil {
		return nil
	}
	f := AsFailure(err)
	return &Refusal{f.Status, f.Reason, f.Detail}
}

// PreviewedRequest is a request as the proxy reads it from a connection.
type PreviewedRequest struct {
	*http1.Request
	// Host is the request's host in the form that selects listeners and routes: lower case, without a port.
	Host string
}

// PreviewRequest reads a request's head, including the empty line at its end. It reads as a connection does, with the
// default limits of a server, and judges the request before routing. HTTP/2 requests are refused for the same reasons.
func PreviewRequest(head []byte) (*PreviewedRequest, *Refusal) {
	var o Options
	o.SetDefaults()
	r := &http1.Request{}
	n, err := r.Parse(head, o.Limits)
	if err != nil {
		return nil, refusalOf(ParseFailure(err))
	}
	if n == 0 {
		return nil, refusalOf(FailMalformed) // it has no end
	}
	ex := &Exchange{req: Request{Authority: r.Authority}}
	ex.setHost()
	return &PreviewedRequest{r, strings.Clone(ex.req.host)}, nil
}

// Judge returns the refusal of a request after a rule was found and before the rule applies. The request may have
// passed too many proxies. Or the proxy answers it here, as Max-Forwards demands of OPTIONS and TRACE. nil: the request
// goes on.
func (r *PreviewedRequest) Judge() *Refusal {
	if err := previewed.hops.judge(r.Fields); err != nil {
		return refusalOf(err)
	}
	ex := &Exchange{pipe: previewed, outgoing: outgoing{forwards: -1}, req: Request{Method: r.Method, Fields: r.Fields}}
	switch err := ex.readForwards(); {
	case err != nil:
		return refusalOf(err)
	case ex.forwards != 0:
		return nil
	case r.Method == http.MethodTrace:
		return &Refusal{Status: http.StatusOK, Detail: "Max-Forwards is 0: the proxy repeats the request in its answer"}
	}
	return &Refusal{Status: http.StatusNoContent, Detail: "Max-Forwards is 0: the proxy says what methods it knows"}
}

// AnswersItself returns the proxy's answer to OPTIONS for "*", which asks about the proxy itself (RFC 9110 §9.3.7); nil
// for other requests.
func (r *PreviewedRequest) AnswersItself() *Refusal {
	if r.Path != "*" {
		return nil
	}
	return &Refusal{Status: http.StatusNoContent, Detail: "OPTIONS * asks about the proxy itself"}
}
