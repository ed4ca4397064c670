package curl

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
)

// command is the part of a curl command line that determines what is sent, and where to.
type command struct {
	method, agent, referer, user, bearer, byteRange, target, from string

	urls, headers, cookies, data, query, resolve, connectTo []string

	head, get, form, json, hasData, unread, upload, http10, asIs, glob, compressed, codings, follow bool

	agentGiven bool
	file       string // to upload
	// notes name the ignored options.
	notes []string
}

// option is one of curl's options.
type option struct {
	// arg: a value follows.
	arg bool
	// take is nil for an option that does not change the request, or that is ignored. told says why it is ignored.
	take func(c *command, value string) error
	told string
}

// A few kinds of options.
func text(to func(*command) *string) option {
	return option{arg: true, take: func(c *command, v string) error { *to(c) = v; return nil }}
}

func list(to func(*command) *[]string) option {
	return option{arg: true, take: func(c *command, v string) error { *to(c) = append(*to(c), v); return nil }}
}

func toggle(to func(*command) *bool) option {
	return option{take: func(c *command, _ string) error { *to(c) = true; return nil }}
}

func told(arg bool, why string) option { return option{arg: arg, told: why} }

// longNames are the long names of curl's one-letter options.
var longNames = map[byte]string{
	'#': "progress-bar", '0': "http1.0", '1': "tlsv1", '2': "sslv2", '3': "sslv3", '4': "ipv4", '6': "ipv6",
	'A': "user-agent", 'a': "append", 'B': "use-ascii", 'b': "cookie", 'C': "continue-at", 'c': "cookie-jar", 'D': "dump-header", 'd': "data",
	'E': "cert", 'e': "referer", 'F': "form", 'f': "fail", 'G': "get", 'g': "globoff", 'H': "header", 'I': "head", 'i': "include",
	'J': "remote-header-name", 'j': "junk-session-cookies", 'K': "config", 'k': "insecure", 'L': "location", 'm': "max-time", 'N': "no-buffer",
	'n': "netrc", 'O': "remote-name", 'o': "output", 'p': "proxytunnel", 'q': "disable", 'R': "remote-time", 'r': "range", 'S': "show-error",
	's': "silent", 'T': "upload-file", 'U': "proxy-user", 'u': "user", 'v': "verbose", 'w': "write-out", 'X': "request", 'x': "proxy",
	'Y': "speed-limit", 'y': "speed-time", 'Z': "parallel", 'z': "time-cond", ':': "next",
}

// quietSwitches and quietValues are options for how curl connects, verifies, waits and prints. They do not change the
// request.
const (
	quietSwitches = `progress-bar tlsv1 tlsv1.0 tlsv1.1 tlsv1.2 tlsv1.3 sslv2 sslv3 ipv4 ipv6 append use-ascii fail fail-early fail-with-body globoff include
		remote-header-name junk-session-cookies insecure no-buffer remote-name remote-name-all disable remote-time show-error silent verbose parallel parallel-immediate
		http1.1 http2 http2-prior-knowledge http3 http3-only http0.9 no-alpn no-npn alpn npn no-progress-meter no-keepalive keepalive no-sessionid no-clobber create-dirs cert-status
		basic post301 post302 post303 raw styled-output no-styled-output suppress-connect-headers tcp-fastopen tcp-nodelay trace-time trace-ids xattr
		remove-on-error retry-all-errors retry-connrefused false-start ssl ssl-reqd ssl-no-revoke ssl-allow-beast ssl-revoke-best-effort ssl-auto-client-cert
		proxy-insecure ca-native disallow-username-in-url ignore-content-length doh-insecure doh-cert-status metalink skip-existing mptcp form-escape crlf`
	quietValues = `cookie-jar dump-header max-time output output-dir speed-limit speed-time write-out connect-timeout cacert capath cert-type ciphers curves
		create-file-mode crlfile dns-interface dns-ipv4-addr dns-ipv6-addr dns-servers doh-url egd-file engine etag-save expect100-timeout happy-eyeballs-timeout-ms
		hsts alt-svc keepalive-time keepalive-cnt key key-type libcurl limit-rate local-port max-filesize max-redirs noproxy parallel-max parallel-max-host pass pinnedpubkey proto
		proto-default proto-redir random-file rate retry retry-delay retry-max-time stderr tls-max tls13-ciphers tlsauthtype tlspassword tlsuser trace trace-ascii
		trace-config login-options ip-tos vlan-priority`
)

const (
	untoldProxy = "it is taken to go straight to Weir"
	untoldAuth  = "what it would put into Authorization is not there"
	untoldFile  = "the file is not read"
)

// options are all known options, by their long names.
var options = func() map[string]option {
	data := func(c *command, v string) error {
		c.hasData = true
		if strings.HasPrefix(v, "@") {
			c.unread = true
			c.notes = append(c.notes, "-d "+v+": "+untoldFile)
			return nil
		}
		c.data = append(c.data, v)
		return nil
	}
	all := map[string]option{
		"request":        text(func(c *command) *string { return &c.method }),
		"header":         list(func(c *command) *[]string { return &c.headers }),
		"url":            list(func(c *command) *[]string { return &c.urls }),
		"referer":        text(func(c *command) *string { return &c.referer }),
		"user":           text(func(c *command) *string { return &c.user }),
		"oauth2-bearer":  text(func(c *command) *string { return &c.bearer }),
		"range":          text(func(c *command) *string { return &c.byteRange }),
		"request-target": text(func(c *command) *string { return &c.target }),
		"from":           text(func(c *command) *string { return &c.from }), // not curl's
		"resolve":        list(func(c *command) *[]string { return &c.resolve }),
		"connect-to":     list(func(c *command) *[]string { return &c.connectTo }),
		"head":           toggle(func(c *command) *bool { return &c.head }),
		"get":            toggle(func(c *command) *bool { return &c.get }),
		"location":       toggle(func(c *command) *bool { return &c.follow }),
		"http1.0":        toggle(func(c *command) *bool { return &c.http10 }),
		"path-as-is":     toggle(func(c *command) *bool { return &c.asIs }),
		"globoff":        toggle(func(c *command) *bool { return &c.glob }),
		"compressed":     toggle(func(c *command) *bool { return &c.compressed }),
		"tr-encoding":    toggle(func(c *command) *bool { return &c.codings }),
		"user-agent":     {arg: true, take: func(c *command, v string) error { c.agent, c.agentGiven = v, true; return nil }},
		"data":           {arg: true, take: data},
		"data-ascii":     {arg: true, take: data},
		"data-binary":    {arg: true, take: data},
		"data-raw":       {arg: true, take: func(c *command, v string) error { c.hasData, c.data = true, append(c.data, v); return nil }},
		"data-urlencode": {arg: true, take: func(c *command, v string) error {
			c.hasData = true
			if text, ok := encoded(v); ok {
				c.data = append(c.data, text)
				return nil
			}
			c.unread = true
			c.notes = append(c.notes, "--data-urlencode "+v+": "+untoldFile)
			return nil
		}},
		"json": {arg: true, take: func(c *command, v string) error { c.json = true; return data(c, v) }},
		"url-query": {arg: true, take: func(c *command, v string) error {
			if raw, ok := strings.CutPrefix(v, "+"); ok {
				c.query = append(c.query, raw)
			} else if text, ok := encoded(v); ok {
				c.query = append(c.query, text)
			} else {
				c.notes = append(c.notes, "--url-query "+v+": "+untoldFile)
			}
			return nil
		}},
		"cookie": {arg: true, take: func(c *command, v string) error {
			if strings.Contains(v, "=") {
				c.cookies = append(c.cookies, v)
			} else if v != "" {
				c.notes = append(c.notes, "-b "+v+": "+untoldFile)
			}
			return nil
		}},
		"form":        {arg: true, take: func(c *command, _ string) error { c.form = true; return nil }},
		"form-string": {arg: true, take: func(c *command, _ string) error { c.form = true; return nil }},
		"upload-file": {arg: true, take: func(c *command, v string) error { c.upload, c.file = true, v; return nil }},
		"continue-at": {arg: true, take: func(c *command, v string) error {
			if v == "-" {
				c.notes = append(c.notes, "-C -: how much there is already is not known, so there is no Range")
			} else if v != "0" {
				c.byteRange = v + "-"
			}
			return nil
		}},

		"location-trusted": toggle(func(c *command) *bool { return &c.follow }),
		"time-cond":        told(true, "If-Modified-Since is not there"),
		"etag-compare":     told(true, untoldFile+", so If-None-Match is not there"),
		"config":           told(true, untoldFile),
		"netrc":            told(false, untoldAuth), "netrc-optional": told(false, untoldAuth), "netrc-file": told(true, untoldAuth),
		"digest": told(false, untoldAuth), "ntlm": told(false, untoldAuth), "ntlm-wb": told(false, untoldAuth), "negotiate": told(false, untoldAuth),
		"anyauth": told(false, untoldAuth), "aws-sigv4": told(true, untoldAuth), "delegation": told(true, untoldAuth), "service-name": told(true, untoldAuth),
		"cert":             told(true, "whether the listener accepts the client's certificate is not judged"),
		"interface":        told(true, "say by --from ADDRESS where the connection comes from"),
		"haproxy-protocol": told(false, "say by --from ADDRESS where the connection comes from"),
		"haproxy-clientip": told(true, "say by --from ADDRESS where the connection comes from"),
		"proxy":            told(true, untoldProxy), "proxy1.0": told(true, untoldProxy), "preproxy": told(true, untoldProxy), "proxytunnel": told(false, untoldProxy),
		"socks4": told(true, untoldProxy), "socks4a": told(true, untoldProxy), "socks5": told(true, untoldProxy), "socks5-hostname": told(true, untoldProxy),
		"proxy-user": told(true, untoldProxy), "proxy-header": told(true, untoldProxy),
		"unix-socket": told(true, untoldProxy), "abstract-unix-socket": told(true, untoldProxy),
	}
	for _, name := range strings.Fields(quietSwitches) {
		if _, ok := all[name]; !ok {
			all[name] = option{}
		}
	}
	for _, name := range strings.Fields(quietValues) {
		all[name] = option{arg: true}
	}
	return all
}()

// encoded returns the value of --data-urlencode as it is sent; false if it must be read from a file.
func encoded(v string) (string, bool) {
	i := strings.IndexAny(v, "=@")
	if i >= 0 && v[i] == '@' {
		return "", false
	}
	name := ""
	if i > 0 {
		name = v[:i] + "="
	}
	return name + url.QueryEscape(v[i+1:]), true
}

// parse reads the options and URLs in any order, as curl does.
func (c *command) parse(args []string) error {
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		name, long := strings.CutPrefix(arg, "--")
		switch {
		case arg == "--":
			c.urls = append(c.urls, args...)
			return nil
		case arg == "-:" || arg == "--next":
			c.notes = append(c.notes, arg+": only the request before it is explained")
			return nil
		case long:
			name, value, joined := strings.Cut(name, "=")
			option, ok := options[name]
			if !ok {
				if off, ok := options[strings.TrimPrefix(name, "no-")]; ok && !off.arg && !joined {
					continue // a disabled option has no effect
				}
				return unknown("--" + name)
			}
			switch {
			case joined && !option.arg:
				return fmt.Errorf("request: --%s takes no value", name)
			case !joined && option.arg:
				if len(args) == 0 {
					return fmt.Errorf("request: --%s needs a value", name)
				}
				value, args = args[0], args[1:]
			}
			if err := c.take(option, "--"+name, value); err != nil {
				return err
			}
		case len(arg) > 1 && arg[0] == '-':
			rest, err := c.short(arg, args)
			if err != nil {
				return err
			}
			args = rest
		default:
			c.urls = append(c.urls, arg)
		}
	}
	return nil
}

// short reads one-letter options that share a word. The last one may have its value in that word, or in the next one.
func (c *command) short(arg string, args []string) (rest []string, err error) {
	for letters := arg[1:]; letters != ""; {
		option, ok := options[longNames[letters[0]]]
		name := "-" + letters[:1]
		if !ok {
			return nil, unknown(name)
		}
		letters = letters[1:]
		value := ""
		if option.arg {
			if value, letters = letters, ""; value == "" {
				if len(args) == 0 {
					return nil, fmt.Errorf("request: %s needs a value", name)
				}
				value, args = args[0], args[1:]
			}
		}
		if err := c.take(option, name, value); err != nil {
			return nil, err
		}
	}
	return args, nil
}

func unknown(name string) error {
	return fmt.Errorf("request: unknown option %s; of curl's options those about HTTP are known, such as -X METHOD, -H 'NAME: VALUE' and -d DATA, and --from ADDRESS", name)
}

func (c *command) take(o option, name, value string) error {
	switch {
	case o.take != nil:
		return o.take(c, value)
	case o.told != "":
		if o.arg {
			name += " " + value
		}
		c.notes = append(c.notes, name+": "+o.told)
	}
	return nil
}

// methodOf returns the method that results from the options.
func (c *command) methodOf() string {
	switch {
	case c.method != "":
		return c.method
	case c.head:
		return http.MethodHead
	case c.upload:
		return http.MethodPut
	case c.form, c.hasData && !c.get:
		return http.MethodPost
	}
	return http.MethodGet
}

// own returns the header fields that curl itself writes, in its order. real reports that the command is curl's, and
// names curl as its agent.
func (c *command) own(real bool) (fields []string) {
	add := func(name, value string) { fields = append(fields, name+": "+value) }
	switch {
	case c.bearer != "":
		add("Authorization", "Bearer "+c.bearer)
	case c.user != "":
		if !strings.Contains(c.user, ":") {
			c.notes = append(c.notes, "-u "+c.user+": curl asks for the password, which is taken to be empty")
			c.user += ":"
		}
		add("Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(c.user)))
	}
	if c.byteRange != "" {
		add("Range", "bytes="+c.byteRange)
	}
	switch {
	case c.agentGiven && c.agent != "":
		add("User-Agent", c.agent)
	case real && !c.agentGiven:
		add("User-Agent", userAgent)
	}
	switch {
	case c.json:
		add("Accept", "application/json")
	case real:
		add("Accept", "*/*")
	}
	if c.compressed {
		add("Accept-Encoding", "deflate, gzip, br, zstd")
	}
	if c.codings {
		add("Connection", "TE")
		add("TE", "gzip")
	}
	if r, _, _ := strings.Cut(c.referer, ";auto"); r != "" {
		add("Referer", r)
	}
	if len(c.cookies) > 0 {
		add("Cookie", strings.Join(c.cookies, ";"))
	}
	switch {
	case c.form:
		add("Content-Type", "multipart/form-data; boundary=------------------------weir")
	case c.upload:
		add("Transfer-Encoding", "chunked") // the length of the file does not matter
	case c.hasData && !c.get:
		kind := "application/x-www-form-urlencoded"
		if c.json {
			kind = "application/json"
		}
		if !c.unread {
			add("Content-Length", strconv.Itoa(len(c.body())))
		}
		add("Content-Type", kind)
	}
	return fields
}

// userAgent is the agent that curl names, of some version.
const userAgent = "curl/8"

func (c *command) body() string {
	separator := "&"
	if c.json {
		separator = ""
	}
	return strings.Join(c.data, separator)
}

// address returns the URL that results from the options.
func (c *command) address(u string) string {
	query := c.query
	if c.get && c.hasData {
		query = append(query, c.body())
	}
	if c.upload && c.file != "-" && c.file != "." && strings.HasSuffix(u, "/") {
		u += url.PathEscape(path.Base(c.file))
	}
	if len(query) == 0 {
		return u
	}
	u, _, _ = strings.Cut(u, "#")
	switch {
	case !strings.Contains(u, "?"):
		if _, rest, ok := strings.Cut(u, "://"); !strings.Contains(rest, "/") && ok || !ok && !strings.Contains(u, "/") {
			u += "/"
		}
		u += "?"
	case !strings.HasSuffix(u, "?"):
		u += "&"
	}
	return u + strings.Join(query, "&")
}
