package exchange

import (
	"net/http"
	"strings"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/telemetry"
)

// Refusal is what the proxy answers by itself to a request that it does not pass on.
type Refusal struct {
	// Status is the answer's, Reason the one that metrics and the access log have.
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

// PreviewedRequest is a request as the proxy reads it off a connection.
type PreviewedRequest struct {
	*http1.Request
	// Host is the request's, as listeners and routes are found by it: lower case, without a port.
	Host string
}

// PreviewRequest reads a request's head, with the empty line that ends it, as a connection does with the limits that a server has unless
// Options say otherwise, and judges it before it is routed. A client that speaks HTTP/2 is refused for the same reasons.
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

// Judge says what becomes of a request after a rule was found for it and before that is asked: whether it has come through too many
// proxies, or, as OPTIONS and TRACE may ask (Max-Forwards), is answered here. nil: it goes on.
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

// AnswersItself says what the proxy answers to OPTIONS for "*", which asks about itself (RFC 9110 §9.3.7); nil for other requests.
func (r *PreviewedRequest) AnswersItself() *Refusal {
	if r.Path != "*" {
		return nil
	}
	return &Refusal{Status: http.StatusNoContent, Detail: "OPTIONS * asks about the proxy itself"}
}
