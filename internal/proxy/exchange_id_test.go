package proxy

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

var uuid = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// ids answers with the X-Request-Id lines that arrive, and with lines that could be taken for X-Request-Id.
func ids(w http.ResponseWriter, r *http.Request) {
	io.Copy(io.Discard, r.Body)
	for name, values := range r.Header {
		if strings.EqualFold(strings.ReplaceAll(name, "_", "-"), "x-request-id") || name == "Trace-No" {
			for _, v := range values {
				fmt.Fprintf(w, "%s=%s;", name, v)
			}
		}
	}
	for name := range r.Trailer {
		fmt.Fprintf(w, "trailer %s;", name)
	}
	w.Header().Set("X-Request-Id", "the backend's")
}

func TestRequestsAreGivenIDs(t *testing.T) {
	backends := map[model.Protocol]string{model.HTTP: backend(t, ids), model.H2C: h2cBackend(t, ids)}
	long := strings.Repeat("i", 128)
	trusting := &model.Front{TrustedProxies: model.TrustedProxies([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")})}
	guarded := &model.Front{TrustedProxies: model.TrustedProxies([]netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")})}
	off := func(o *Options) {}
	on := func(o *Options) { o.RequestIDs = exchange.RequestIDsMissing }
	trusted := func(o *Options) { o.RequestIDs = exchange.RequestIDsTrusted }
	for name, test := range map[string]struct {
		edit  func(*Options)
		front *model.Front
		sent  string // field lines
		want  string // what the backend gets; "" is a new id
	}{
		"off":                       {off, nil, "", "none"},
		"off, sent":                 {off, nil, "X-Request-Id: a\r\nX_Request_Id: b\r\n", "X-Request-Id=a;X_request_id=b;"},
		"none":                      {on, nil, "", ""},
		"sent":                      {on, nil, "X-REQUEST-ID: Root=1-6:7/8+9\r\n", "X-Request-Id=Root=1-6:7/8+9;"},
		"as long as may be":         {on, nil, "X-Request-Id: " + long + "\r\n", "X-Request-Id=" + long + ";"},
		"too long":                  {on, nil, "X-Request-Id: " + long + "i\r\n", ""},
		"empty":                     {on, nil, "X-Request-Id:\r\n", ""},
		"two":                       {on, nil, "X-Request-Id: a\r\nx-request-id: b\r\n", ""},
		"a list":                    {on, nil, "X-Request-Id: a,b\r\n", ""},
		"quotes":                    {on, nil, "X-Request-Id: a\"b\r\n", ""},
		"spaces":                    {on, nil, "X-Request-Id: a b\r\n", ""},
		"not ASCII":                 {on, nil, "X-Request-Id: \xc3\xa9\r\n", ""},
		"of the connection":         {on, nil, "X-Request-Id: a\r\nConnection: x-request-id\r\n", ""},
		"that may be taken for one": {on, nil, "X_Request_Id: a\r\n", ""},
		"beside one":                {on, nil, "X-Request-Id: a\r\nX_Request_Id: b\r\n", "X-Request-Id=a;"},
		"of a trusted proxy":        {on, trusting, "X-Request-Id: a\r\n", "X-Request-Id=a;"},
		"of somebody else":          {on, guarded, "X-Request-Id: a\r\n", ""},
		"nobody trusted":            {trusted, nil, "X-Request-Id: a\r\n", ""},
		"trusted":                   {trusted, trusting, "X-Request-Id: a\r\n", "X-Request-Id=a;"},
		"not trusted":               {trusted, guarded, "X-Request-Id: a\r\n", ""},
		"of another name": {func(o *Options) { o.RequestIDs, o.RequestIDField = exchange.RequestIDsMissing, "Trace-No" }, nil,
			"trace-no: a\r\nX-Request-Id: b\r\n", "Trace-No=a;X-Request-Id=b;"},
	} {
		for protocol, addr := range backends {
			t.Run(name+" "+string(protocol), func(t *testing.T) {
				cfg := config([]model.Service{service(serviceName, protocol, addr)}, ruleTo(serviceName))
				cfg.Listeners[0].Front = test.front
				s := serve(t, cfg, test.edit)
				k := newTalk(t, s.addr())
				seen := map[string]bool{}
				for range 2 {
					k.send("GET / HTTP/1.1\r\nHost: a\r\n" + test.sent + "\r\n")
					_, got := k.answer("GET")
					switch id, made := strings.CutPrefix(got, "X-Request-Id="); {
					case test.want == "none" && got == "":
					case test.want == "":
						if id, _ = strings.CutSuffix(id, ";"); !made || !uuid.MatchString(id) || seen[id] {
							t.Errorf("the backend got %q", got)
						}
						seen[id] = true
					case len(got) != len(test.want) || !sameParts(got, test.want):
						t.Errorf("the backend got %q, want %q", got, test.want)
					}
				}
			})
		}
	}
}

// sameParts reports whether two lists have the same parts, each of which ends with ";".
func sameParts(a, b string) bool {
	for part := range strings.SplitSeq(b, ";") {
		if part != "" && !strings.Contains(a, part+";") {
			return false
		}
	}
	return true
}

func TestATrailerIsNoRequestID(t *testing.T) {
	s := serve(t, plain(backend(t, ids)), func(o *Options) { o.RequestIDs = exchange.RequestIDsMissing })
	k := newTalk(t, s.addr())
	k.send("POST / HTTP/1.1\r\nHost: a\r\nX-Request-Id: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Request-Id: b\r\nX_Request_Id: c\r\nX-Sum: d\r\n\r\n")
	if _, got := k.answer("POST"); strings.Contains(strings.ToLower(got), "trailer x-request") || !strings.Contains(got, "X-Request-Id=a;") {
		t.Errorf("the backend got %q", got)
	}
}

// TestTheRequestIDIsTheSameEverywhere: the request, its copy, the answer and the log have the same id. Filters of
// routes apply later.
func TestTheRequestIDIsTheSameEverywhere(t *testing.T) {
	copied := make(chan string, 10)
	copies := backend(t, func(w http.ResponseWriter, r *http.Request) { copied <- r.Header.Get("X-Request-Id") })
	for protocol, addr := range map[model.Protocol]string{model.HTTP: backend(t, ids), model.H2C: h2cBackend(t, ids)} {
		cfg := config([]model.Service{service(serviceName, protocol, addr), service("default/copy:80", model.HTTP, copies)}, ruleTo(serviceName))
		cfg.Routes[0].Rules[0].Filters.Mirrors = []model.Mirror{{Service: "default/copy:80", Numerator: 1, Denominator: 1}}
		cfg.Routes[0].Rules[0].Matches[0].Path.Value = "/here"
		l := newLogged(t, telemetry.AccessLogOptions{})
		s := serve(t, cfg, l.into, func(o *Options) { o.RequestIDs, o.AnswerRequestID = exchange.RequestIDsMissing, true })
		k := newTalk(t, s.addr())
		k.send("GET /here HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, body := k.answer("GET")
		id := resp.Header.Values("X-Request-Id")
		if len(id) != 1 || !uuid.MatchString(id[0]) || body != "X-Request-Id="+id[0]+";" {
			t.Errorf("the client got %v, the backend %q", id, body)
		}
		if c := <-copied; c != id[0] {
			t.Errorf("the copy has %q", c)
		}
		k.send("GET /elsewhere HTTP/1.1\r\nHost: a\r\n\r\n")
		resp, _ = k.answer("GET")
		none := resp.Header.Values("X-Request-Id")
		if len(none) != 1 || !uuid.MatchString(none[0]) || none[0] == id[0] || resp.StatusCode != 404 {
			t.Errorf("without a route the client got %v", none)
		}
		records := l.records(t, s)
		if len(records) != 2 || records[0]["request_id"] != id[0] || records[1]["request_id"] != none[0] {
			t.Errorf("the log has %v", records)
		}
	}
}

func TestIDsAndLoggedFieldsAllocateNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool drop what it is given")
	}
	fields := telemetry.AccessLogOptions{RequestFields: []string{"Cookie", "Accept"}, ResponseFields: []string{"Server", "Date"}}
	for name, edit := range map[string]func(*Options){
		"ids":            func(o *Options) { o.RequestIDs = exchange.RequestIDsMissing },
		"ids in answers": func(o *Options) { o.RequestIDs, o.AnswerRequestID = exchange.RequestIDsMissing, true },
		"log":            newLogged(t, telemetry.AccessLogOptions{}).into,
		"log of fields":  newLogged(t, fields).into,
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, plain(cannedBackend(t, cannedResponse(1024))), edit)
			request := strings.Replace(benchRequest, "X-Request-Id: 0123456789\r\n", "", 1)
			r := &requester{c: dial(t, s.addr()), request: []byte(request), buf: make([]byte, 8<<10)}
			for range 3000 { // the log's buffers grow to their final size
				if err := r.do(); err != nil {
					t.Fatal(err)
				}
			}
			if n := testing.AllocsPerRun(2000, func() {
				if err := r.do(); err != nil {
					t.Fatal(err)
				}
			}); n != 0 {
				t.Errorf("%v allocations for each exchange", n)
			}
		})
	}
}
