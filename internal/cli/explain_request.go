package cli

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
)

// clientRequest is the request to explain.
type clientRequest struct {
	Method string `json:"method"`
	URL    string `json:"url"`
	// Headers are those sent, "name: value", but for Host where that is the URL's.
	Headers []string `json:"headers,omitempty"`
	// From is the address that the connection comes from.
	From string `json:"from,omitempty"`
	// Notes say what of the command was read in another way than one might think, or not at all.
	Notes []string `json:"notes,omitempty"`

	scheme, host string // host is lower-case, without a port
	address      string // where the connection goes, whatever the field Host says
	port         int32  // 0: not given
	target       string // as sent
	path, query  string // of target
	hasQuery     bool
	authority    string // of the URL
	lines        []string
	minor        int
	follow       bool // redirects
	fields       fieldMap
	from         netip.Addr // not valid: not given
	parsed       *exchange.PreviewedRequest
	refused      *exchange.Refusal // by the proxy, before it is routed
}

// fieldMap is header fields by lower-case name.
type fieldMap map[string]string

func (f fieldMap) Field(name string) (string, bool) {
	v, ok := f[name]
	return v, ok
}

// maxCommand bounds a command that is read from the standard input, in bytes.
const maxCommand = 1 << 20

// readRequest is parseRequest; the one word "-" stands for a command in the standard input.
func readRequest(args []string, stdin io.Reader) (*clientRequest, error) {
	if len(args) == 1 && args[0] == "-" {
		text, err := io.ReadAll(io.LimitReader(stdin, maxCommand+1))
		switch {
		case err != nil:
			return nil, err
		case len(text) > maxCommand:
			return nil, flags.Errorf("the command in the standard input is longer than %d bytes", maxCommand)
		}
		return parseCommand(string(text))
	}
	return parseRequest(args)
}

// parseCommand reads a whole command, as it is pasted from somewhere.
func parseCommand(text string) (*clientRequest, error) {
	words, rest, err := shellWords(text)
	if err != nil {
		return nil, err
	}
	r, err := parseRequest(words)
	if err == nil && rest != "" {
		line, _, _ := strings.Cut(rest, "\n")
		r.Notes = append(r.Notes, fmt.Sprintf("what follows in the command is not looked at: %s", line))
	}
	return r, err
}

// parseRequest reads a request as curl reads its command line: "curl", if that is written; a method, if it is written without -X; options and
// the URL in any order. One word may be all of it in quotes.
func parseRequest(args []string) (*clientRequest, error) {
	if len(args) == 1 && strings.ContainsAny(args[0], " \n") && !strings.Contains(args[0][:strings.IndexAny(args[0], " \n")], "/") {
		return parseCommand(args[0])
	}
	if len(args) > 0 && args[0] == "$" { // of a prompt
		args = args[1:]
	}
	c := &curlCommand{}
	real := len(args) > 0 && (args[0] == "curl" || args[0] == "curl.exe")
	if real {
		args = args[1:]
	}
	if err := c.parse(args); err != nil {
		return nil, err
	}
	if len(c.urls) == 2 && c.method == "" && !real {
		c.method, c.urls = c.urls[0], c.urls[1:]
	}
	switch {
	case len(c.urls) > 1 && real:
		c.notes = append(c.notes, fmt.Sprintf("of %d URLs the first is explained", len(c.urls)))
	case len(c.urls) != 1:
		return nil, flags.Errorf("which request? Write it after --, such as: GET http://shop.example/cart, or a curl command")
	}
	r := &clientRequest{Method: c.methodOf(), URL: c.address(c.urls[0]), From: c.from, follow: c.follow, minor: 1}
	if c.http10 {
		r.minor = 0
	}
	if r.From != "" {
		from, err := netip.ParseAddr(r.From)
		if err != nil {
			return nil, flags.Errorf("--from %q: want the IP address that the connection comes from", r.From)
		}
		r.from = from.Unmap().WithZone("")
	}
	if err := r.parseURL(c); err != nil {
		return nil, err
	}
	if !r.protocol().Requests() {
		r.Notes = c.notes
		return r, nil
	}
	if real {
		r.curlPath(c)
	}
	if c.target != "" {
		r.target = c.target
	}
	if err := r.head(c, real); err != nil {
		return nil, err
	}
	r.Notes = append(r.Notes, c.notes...)
	return r, nil
}

// head makes the request's head of the options and has the proxy read it.
func (r *clientRequest) head(c *curlCommand, real bool) error {
	own := c.own(real)
	host := true
	for _, h := range c.headers {
		if strings.HasPrefix(h, "@") {
			c.notes = append(c.notes, "-H "+h+": "+untoldFile)
			continue
		}
		if strings.ContainsAny(h, "\r\n\x00") {
			return flags.Errorf("-H %q: want 'NAME: VALUE' in one line", h)
		}
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			if name, ok = strings.CutSuffix(strings.TrimRight(h, " "), ";"); !ok {
				return flags.Errorf("-H %q: want 'NAME: VALUE'", h)
			}
			h = name + ":"
		} else if strings.TrimSpace(name) == "" {
			return flags.Errorf("-H %q: want 'NAME: VALUE'", h)
		} else if strings.Trim(value, " \t") == "" { // as curl has it, this takes a field of its own away
			h = ""
		}
		same := func(line string) bool {
			n, _, _ := strings.Cut(line, ":")
			return strings.EqualFold(n, strings.TrimSpace(name))
		}
		own = slices.DeleteFunc(own, same)
		if same("Host") {
			host = false
		}
		if h != "" {
			r.Headers = append(r.Headers, h)
		}
	}
	r.Headers = append(own, r.Headers...)
	if host {
		r.lines = append(r.lines, "Host: "+r.authority)
	}
	r.lines = append(r.lines, r.Headers...)
	head := fmt.Sprintf("%s %s HTTP/1.%d\r\n%s\r\n\r\n", r.Method, r.target, r.minor, strings.Join(r.lines, "\r\n"))
	r.fields = fieldMap{}
	if r.parsed, r.refused = exchange.PreviewRequest([]byte(head)); r.refused != nil {
		r.path, r.query, r.hasQuery = strings.Cut(r.target, "?")
		r.host = strings.TrimSuffix(strings.ToLower((&url.URL{Host: r.authority}).Hostname()), ".")
		return nil
	}
	p := r.parsed
	r.path, r.query, r.hasQuery, r.host, r.authority = p.Path, p.Query, p.HasQuery, p.Host, p.Authority
	for i := range p.Fields {
		f := &p.Fields[i]
		name, value := strings.ToLower(f.Name), f.Value
		if before, ok := r.fields[name]; ok {
			value = before + ", " + value
		}
		r.fields[name] = value
	}
	if _, ok := r.fields["host"]; !ok && p.Authority != "" {
		r.fields["host"] = p.Authority
	}
	return nil
}

// parseURL takes the URL apart without judging the path: that is the proxy's to do.
func (r *clientRequest) parseURL(c *curlCommand) error {
	scheme, rest, ok := strings.Cut(r.URL, "://")
	if !ok {
		scheme, rest = "http", r.URL
	}
	rest, _, _ = strings.Cut(rest, "#")
	r.scheme = strings.ToLower(scheme)
	connection := r.protocol().OnListeners() && !r.protocol().Requests()
	authority := rest
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, rest = rest[:i], rest[i:]
	} else {
		rest = ""
	}
	if user, host, ok := cutLast(authority, "@"); ok && !connection {
		authority = host
		if c.user == "" {
			name, password, _ := strings.Cut(user, ":")
			c.user = unescaped(name) + ":" + unescaped(password)
		}
	}
	r.path, r.query, r.hasQuery = strings.Cut(rest, "?")
	if r.path == "" {
		r.path = "/"
	}
	u, err := url.Parse("//" + authority)
	if connection {
		r.Method = ""
		if err != nil || u.Port() == "" || r.path != "/" || r.hasQuery {
			return flags.Errorf("URL %q: want %s://HOST:PORT", r.URL, r.scheme)
		}
	} else if err != nil || u.Hostname() == "" || !r.protocol().Requests() {
		return flags.Errorf("URL %q: want http://HOST/PATH or https://HOST/PATH", r.URL)
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return flags.Errorf("URL %q: port %s is out of range", r.URL, p)
		}
		r.port = int32(n)
	}
	r.address, r.authority = u.Hostname(), authority
	r.host = strings.TrimSuffix(strings.ToLower(r.address), ".")
	r.setTarget()
	return r.reroute(c)
}

func (r *clientRequest) setTarget() {
	r.target = r.path
	if r.hasQuery {
		r.target += "?" + r.query
	}
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}

func unescaped(s string) string {
	if u, err := url.PathUnescape(s); err == nil {
		return u
	}
	return s
}

// reroute is what --resolve and --connect-to make of where the connection goes.
func (r *clientRequest) reroute(c *curlCommand) error {
	port := strconv.Itoa(int(r.wantedPort()))
	for _, x := range c.resolve {
		parts := hostParts(strings.TrimPrefix(x, "+"), 3)
		if strings.HasPrefix(x, "-") {
			continue
		}
		if len(parts) != 3 || parts[2] == "" {
			return flags.Errorf("--resolve %q: want HOST:PORT:ADDRESS", x)
		}
		if (parts[0] == "*" || strings.EqualFold(parts[0], r.address)) && parts[1] == port {
			r.address, _, _ = strings.Cut(parts[2], ",")
			break
		}
	}
	for _, x := range c.connectTo {
		parts := hostParts(x, 4)
		if len(parts) != 4 {
			return flags.Errorf("--connect-to %q: want HOST1:PORT1:HOST2:PORT2", x)
		}
		if parts[0] != "" && !strings.EqualFold(parts[0], r.host) || parts[1] != "" && parts[1] != port {
			continue
		}
		if parts[2] != "" {
			r.address = parts[2]
		}
		if parts[3] != "" {
			n, err := strconv.ParseUint(parts[3], 10, 16)
			if err != nil || n == 0 {
				return flags.Errorf("--connect-to %q: port %s is out of range", x, parts[3])
			}
			r.port = int32(n)
		}
		break
	}
	return nil
}

// hostParts splits at colons that are not in brackets, which it drops, into as many parts as there may be; the last has the rest.
func hostParts(s string, most int) (parts []string) {
	depth, start := 0, 0
	for i := 0; i <= len(s); i++ {
		switch {
		case i == len(s) || s[i] == ':' && depth == 0 && len(parts) < most-1:
			parts = append(parts, strings.Trim(s[start:i], "[]"))
			start = i + 1
		case s[i] == '[':
			depth++
		case s[i] == ']':
			depth--
		}
	}
	return parts
}

// protocol is what the listener speaks that the URL's scheme asks for.
func (r *clientRequest) protocol() model.Protocol { return model.Protocol(r.scheme) }

// wantedPort is the URL's, or the scheme's own.
func (r *clientRequest) wantedPort() int32 {
	switch {
	case r.port != 0:
		return r.port
	case r.protocol().TLS():
		return 443
	}
	return 80
}

// curlPath is what curl does to a URL before it sends it.
func (r *clientRequest) curlPath(c *curlCommand) {
	if strings.ContainsAny(r.path+r.query, "{}[]") && !c.glob {
		r.Notes = append(r.Notes, "curl reads {} and [] in a URL as several URLs; it is taken as it is written, as with -g")
	}
	if c.asIs {
		return
	}
	if path := removeDots(r.path); path != r.path {
		r.Notes = append(r.Notes, fmt.Sprintf("curl sends the path %s for %s, unless --path-as-is is set", path, r.path))
		r.path = path
		r.setTarget()
	}
}

// removeDots removes dot segments (RFC 3986 §5.2.4) as curl does: those that are not escaped.
func removeDots(path string) string {
	var out []string
	segments := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, s := range segments {
		last := i == len(segments)-1
		switch s {
		case ".", "..":
			if s == ".." && len(out) > 0 {
				out = out[:len(out)-1]
			}
			if last {
				out = append(out, "")
			}
		default:
			out = append(out, s)
		}
	}
	return "/" + strings.Join(out, "/")
}

// preflight recognises a CORS preflight request (Fetch standard).
func (r *clientRequest) preflight() bool {
	return r.Method == http.MethodOptions && r.fields["origin"] != "" && r.fields["access-control-request-method"] != ""
}

// wire are the fields as the proxy reads them.
func (r *clientRequest) wire() []http1.Field { return r.parsed.Fields }
