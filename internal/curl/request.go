package curl

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/weirmesh/weir/internal/model"
)

// Request is the request that a command sends, and where to. The JSON form omits what follows from the rest.
type Request struct {
	// Method is empty for a connection.
	Method string `json:"method"`
	// URL is the URL that results from the options.
	URL string `json:"url"`
	// Headers are the fields sent, "name: value", without Host if it equals the URL's.
	Headers []string `json:"headers,omitempty"`
	// From is the address that the connection comes from; empty if unknown.
	From string `json:"from,omitempty"`
	// Notes list the parts of the command that are read in an unexpected way, or not at all.
	Notes []string `json:"notes,omitempty"`

	// Scheme is the URL's scheme in lower case, which is the scheme of a model.Protocol.
	Scheme string `json:"-"`
	// Address is the connection's destination, a host name or an IP address, whatever Host says.
	Address string `json:"-"`
	// Port is the connection's port; 0 if the command names none, which means the scheme's default.
	Port int32 `json:"-"`
	// Authority is the URL's "host:port", as written.
	Authority string `json:"-"`
	// Target is the request target, as sent.
	Target string `json:"-"`
	// Peer is From; not valid if From is empty.
	Peer netip.Addr `json:"-"`
	// Follow reports that redirects are followed.
	Follow bool `json:"-"`

	path, query string // of the URL
	hasQuery    bool
	ownHost     bool // Headers have no Host
	minor       int  // of HTTP/1
}

// ErrOneURL means that a command has no URL, or several that are not curl's.
var ErrOneURL = errors.New("want one URL, such as: GET http://shop.example/cart, or a curl command")

// ParseText parses a whole pasted command. An error reports a mistake in it.
func ParseText(text string) (*Request, error) {
	words, rest, err := split(text)
	if err != nil {
		return nil, err
	}
	r, err := Parse(words)
	if err == nil && rest != "" {
		line, _, _ := strings.Cut(rest, "\n")
		r.Notes = append(r.Notes, fmt.Sprintf("what follows in the command is not looked at: %s", line))
	}
	return r, err
}

// Parse reads the words of a command line as curl does: "curl", if present, a method, if written without -X, and
// options and the URL in any order. A single word may quote the whole command line. An error reports a mistake in the
// command line.
func Parse(args []string) (*Request, error) {
	if len(args) == 1 && strings.ContainsAny(args[0], " \n") && !strings.Contains(args[0][:strings.IndexAny(args[0], " \n")], "/") {
		return ParseText(args[0])
	}
	if len(args) > 0 && args[0] == "$" { // of a prompt
		args = args[1:]
	}
	c := &command{}
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
		return nil, ErrOneURL
	}
	r := &Request{Method: c.methodOf(), URL: c.address(c.urls[0]), From: c.from, Follow: c.follow, minor: 1}
	if c.http10 {
		r.minor = 0
	}
	if r.From != "" {
		from, err := netip.ParseAddr(r.From)
		if err != nil {
			return nil, fmt.Errorf("--from %q: want the IP address that the connection comes from; an identity is given before the paths", r.From)
		}
		r.Peer = from.Unmap().WithZone("")
	}
	if err := r.parseURL(c); err != nil {
		return nil, err
	}
	if !r.Protocol().Requests() {
		r.Notes = c.notes
		return r, nil
	}
	if real {
		r.curlPath(c)
	}
	if c.target != "" {
		r.Target = c.target
	}
	if err := r.fields(c, real); err != nil {
		return nil, err
	}
	r.Notes = append(r.Notes, c.notes...)
	return r, nil
}

// fields makes the request's header fields from the options.
func (r *Request) fields(c *command, real bool) error {
	own := c.own(real)
	for _, part := range append([]string{r.Method, r.Target, r.Authority}, own...) {
		if strings.ContainsAny(part, "\r\n\x00") {
			return fmt.Errorf("request: %q: want one line", part)
		}
	}
	host := true
	for _, h := range c.headers {
		if strings.HasPrefix(h, "@") {
			c.notes = append(c.notes, "-H "+h+": "+untoldFile)
			continue
		}
		if strings.ContainsAny(h, "\r\n\x00") {
			return fmt.Errorf("-H %q: want 'NAME: VALUE' in one line", h)
		}
		name, value, ok := strings.Cut(h, ":")
		if !ok {
			if name, ok = strings.CutSuffix(strings.TrimRight(h, " "), ";"); !ok {
				return fmt.Errorf("-H %q: want 'NAME: VALUE'", h)
			}
			h = name + ":"
		} else if strings.TrimSpace(name) == "" {
			return fmt.Errorf("-H %q: want 'NAME: VALUE'", h)
		} else if strings.Trim(value, " \t") == "" { // an empty value drops a field of curl's own, as in curl
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
	r.ownHost = host
	return nil
}

// Head returns the head of the request in HTTP/1 form.
func (r *Request) Head() []byte {
	lines := r.Headers
	if r.ownHost {
		lines = append([]string{"Host: " + r.Authority}, lines...)
	}
	return fmt.Appendf(nil, "%s %s HTTP/1.%d\r\n%s\r\n\r\n", r.Method, r.Target, r.minor, strings.Join(lines, "\r\n"))
}

// parseURL splits the URL without judging the path, which is up to the proxy.
func (r *Request) parseURL(c *command) error {
	scheme, rest, ok := strings.Cut(r.URL, "://")
	if !ok {
		scheme, rest = "http", r.URL
	}
	rest, _, _ = strings.Cut(rest, "#")
	r.Scheme = strings.ToLower(scheme)
	authority := rest
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, rest = rest[:i], rest[i:]
	} else {
		rest = ""
	}
	connection := r.Protocol().OnListeners() && !r.Protocol().Requests()
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
			return fmt.Errorf("URL %q: want %s://HOST:PORT", r.URL, r.Scheme)
		}
	} else if err != nil || u.Hostname() == "" || !r.Protocol().Requests() {
		return fmt.Errorf("URL %q: want http://HOST/PATH or https://HOST/PATH", r.URL)
	}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return fmt.Errorf("URL %q: port %s is out of range", r.URL, p)
		}
		r.Port = int32(n)
	}
	r.Address, r.Authority = u.Hostname(), authority
	r.setTarget()
	return r.reroute(c)
}

func (r *Request) setTarget() {
	r.Target = r.path
	if r.hasQuery {
		r.Target += "?" + r.query
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

// reroute applies --resolve and --connect-to to the connection's destination.
func (r *Request) reroute(c *command) error {
	port, host := strconv.Itoa(int(r.WantedPort())), strings.TrimSuffix(r.Address, ".")
	for _, x := range c.resolve {
		parts := hostParts(strings.TrimPrefix(x, "+"), 3)
		if strings.HasPrefix(x, "-") {
			continue
		}
		if len(parts) != 3 || parts[2] == "" {
			return fmt.Errorf("--resolve %q: want HOST:PORT:ADDRESS", x)
		}
		if (parts[0] == "*" || strings.EqualFold(parts[0], r.Address)) && parts[1] == port {
			r.Address, _, _ = strings.Cut(parts[2], ",")
			break
		}
	}
	for _, x := range c.connectTo {
		parts := hostParts(x, 4)
		if len(parts) != 4 {
			return fmt.Errorf("--connect-to %q: want HOST1:PORT1:HOST2:PORT2", x)
		}
		if parts[0] != "" && !strings.EqualFold(parts[0], host) || parts[1] != "" && parts[1] != port {
			continue
		}
		if parts[2] != "" {
			r.Address = parts[2]
		}
		if parts[3] != "" {
			n, err := strconv.ParseUint(parts[3], 10, 16)
			if err != nil || n == 0 {
				return fmt.Errorf("--connect-to %q: port %s is out of range", x, parts[3])
			}
			r.Port = int32(n)
		}
		break
	}
	return nil
}

// hostParts splits s at colons outside brackets, into at most the given number of parts, and drops the brackets. The
// last part has the rest.
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

// Protocol is the protocol of the listener that the URL's scheme needs.
func (r *Request) Protocol() model.Protocol { return model.Protocol(r.Scheme) }

// WantedPort is the URL's port, or the scheme's default.
func (r *Request) WantedPort() int32 {
	switch {
	case r.Port != 0:
		return r.Port
	case r.Protocol().TLS():
		return 443
	}
	return 80
}

// curlPath changes the path as curl does before it sends the URL.
func (r *Request) curlPath(c *command) {
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

// removeDots removes unescaped dot segments (RFC 3986 §5.2.4), as curl does.
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
