package explain

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/curl"
	"github.com/weirmesh/weir/internal/exchange"
)

// question is a request as the proxy reads it.
type question struct {
	*curl.Request
	host        string // lower-case, without a port
	path, query string // of the target
	hasQuery    bool
	authority   string
	fields      fieldMap
	parsed      *exchange.PreviewedRequest // nil for a connection
	refused     *exchange.Refusal          // by the proxy, before the request is routed
}

// fieldMap holds header fields by lower-case name.
type fieldMap map[string]string

func (f fieldMap) Field(name string) (string, bool) {
	v, ok := f[name]
	return v, ok
}

// ask has the proxy read a request without changing it: later notes go to a copy.
func ask(request *curl.Request) *question {
	r := *request
	r.Notes = slices.Clone(r.Notes)
	q := &question{Request: &r, fields: fieldMap{}}
	if !r.Protocol().Requests() {
		return q
	}
	if q.parsed, q.refused = exchange.PreviewRequest(r.Head()); q.refused != nil {
		q.path, q.query, q.hasQuery = strings.Cut(r.Target, "?")
		q.host, q.authority = strings.TrimSuffix(strings.ToLower((&url.URL{Host: r.Authority}).Hostname()), "."), r.Authority
		return q
	}
	p := q.parsed
	q.path, q.query, q.hasQuery, q.host, q.authority = p.Path, p.Query, p.HasQuery, p.Host, p.Authority
	for i := range p.Fields {
		f := &p.Fields[i]
		name, value := strings.ToLower(f.Name), f.Value
		if before, ok := q.fields[name]; ok {
			value = before + ", " + value
		}
		q.fields[name] = value
	}
	if _, ok := q.fields["host"]; !ok && p.Authority != "" {
		q.fields["host"] = p.Authority
	}
	return q
}

// preflight recognises a CORS preflight request (Fetch standard).
func (q *question) preflight() bool {
	return q.Method == http.MethodOptions && q.fields["origin"] != "" && q.fields["access-control-request-method"] != ""
}
