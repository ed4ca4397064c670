package cli

import (
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"github.com/weirmesh/weir/internal/flags"
)

// clientRequest is the request to explain.
type clientRequest struct {
	Method string `json:"method"`
	URL    string `json:"url"`
	// Headers are as given, "name: value".
	Headers []string `json:"headers,omitempty"`
	// From is the address that the connection comes from.
	From string `json:"from,omitempty"`

	scheme, host string // host is lower-case, without a port
	address      string // the URL's host, whatever the field Host says
	port         int32  // 0: not given
	path, query  string // as received
	hasQuery     bool
	fields       fieldMap
	from         netip.Addr // not valid: not given
}

// fieldMap is header fields by lower-case name.
type fieldMap map[string]string

func (f fieldMap) Field(name string) (string, bool) {
	v, ok := f[name]
	return v, ok
}

func parseRequest(args []string) (*clientRequest, error) {
	r := &clientRequest{fields: fieldMap{}}
	f := pflag.NewFlagSet("request", pflag.ContinueOnError)
	f.Usage = func() {}
	f.StringVarP(&r.Method, "request", "X", "", "")
	f.StringArrayVarP(&r.Headers, "header", "H", nil, "")
	data := f.StringP("data", "d", "", "")
	f.StringVar(&r.From, "from", "", "")
	if err := f.Parse(args); err != nil {
		return nil, flags.Errorf("request: %w (known: -X METHOD, -H 'NAME: VALUE', -d DATA, --from ADDRESS)", err)
	}
	words := f.Args()
	if len(words) == 2 && r.Method == "" {
		r.Method, words = words[0], words[1:]
	}
	if len(words) != 1 {
		return nil, flags.Errorf("which request? Write it after --, such as: GET http://shop.example/cart")
	}
	r.URL = words[0]
	if r.Method == "" {
		r.Method = http.MethodGet
		if *data != "" {
			r.Method = http.MethodPost
		}
	}
	for _, h := range r.Headers {
		name, value, ok := strings.Cut(h, ":")
		name = strings.ToLower(strings.TrimSpace(name))
		if !ok || name == "" {
			return nil, flags.Errorf("-H %q: want 'NAME: VALUE'", h)
		}
		value = strings.TrimSpace(value)
		if before, ok := r.fields[name]; ok {
			value = before + ", " + value
		}
		r.fields[name] = value
	}
	if r.From != "" {
		from, err := netip.ParseAddr(r.From)
		if err != nil {
			return nil, flags.Errorf("--from %q: want the IP address that the connection comes from", r.From)
		}
		r.from = from.Unmap().WithZone("")
	}
	return r, r.parseURL()
}

// parseURL takes the URL apart without judging the path: that is the proxy's to do.
func (r *clientRequest) parseURL() error {
	scheme, rest, ok := strings.Cut(r.URL, "://")
	if !ok {
		scheme, rest = "http", r.URL
	}
	rest, _, _ = strings.Cut(rest, "#")
	r.scheme = strings.ToLower(scheme)
	authority := rest
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, rest = rest[:i], rest[i:]
	} else {
		rest = ""
	}
	r.path, r.query, r.hasQuery = strings.Cut(rest, "?")
	if r.path == "" {
		r.path = "/"
	}
	u, err := url.Parse("//" + authority)
	if r.scheme == "tcp" {
		r.Method = ""
		if err != nil || u.Port() == "" || r.path != "/" || r.hasQuery {
			return flags.Errorf("URL %q: want tcp://HOST:PORT", r.URL)
		}
	} else if err != nil || u.User != nil || u.Hostname() == "" || r.scheme != "http" && r.scheme != "https" {
		return flags.Errorf("URL %q: want http://HOST/PATH or https://HOST/PATH", r.URL)
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return flags.Errorf("URL %q: port %s is out of range", r.URL, p)
		}
		r.port = int32(n)
	}
	r.address = u.Hostname()
	if host, ok := r.fields["host"]; ok { // as curl -H 'Host: ...'
		authority = host
	}
	r.fields["host"] = authority
	r.host = strings.TrimSuffix(strings.ToLower((&url.URL{Host: authority}).Hostname()), ".")
	return nil
}

// preflight recognises a CORS preflight request (Fetch standard).
func (r *clientRequest) preflight() bool {
	return r.Method == http.MethodOptions && r.fields["origin"] != "" && r.fields["access-control-request-method"] != ""
}
