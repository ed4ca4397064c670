package proxy

import (
	"bufio"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/mirror"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/test/size"
)

// bothHeads serves cfg and adds its services. It returns the heads that the primary and its mirror get.
func bothHeads(t testing.TB, change func(*model.Rule), edit ...func(*Options)) (s *testServer, primary, copies chan string) {
	addr, primary := wire(t, okResponse)
	copy, copies := wire(t, okResponse)
	cfg := mirrored(addr, copy, 1, 1)
	if change != nil {
		change(&cfg.Routes[0].Rules[0])
	}
	return serve(t, cfg, edit...), primary, copies
}

// unmarked removes the mark from a copy's head. It returns false if the head does not have exactly one mark.
func unmarked(head, name string) (string, bool) {
	line := "\r\n" + name + ": 1\r\n"
	return strings.Replace(head, line, "\r\n", 1), strings.Count(strings.ToLower(head), "\r\n"+strings.ToLower(name)+":") == 1 && strings.Contains(head, line)
}

const forged = "X-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Proto: gopher\r\nX-Forwarded-Host: evil\r\nX_Forwarded_Host: evil\r\nX-Forwarded_For: evil\r\n" +
	"Weir-Mirrored: 1\r\nweir_mirrored: 1\r\nX-User: evil\r\nX_User: evil\r\nx.user: evil\r\nX-Gone: evil\r\nX_GONE: evil\r\n" +
	"Keep-Alive: 1\r\nKeep_Alive: 1\r\nContent_Length: 7\r\nTransfer.Encoding: chunked\r\nProxy_Authorization: evil\r\nWeir_Via: evil\r\n" +
	"Connection: X-Mine, X_Mine\r\nX-Mine: evil\r\nX_Mine: evil\r\nTE: trailers\r\nX_Kept: good\r\nmy.key: good\r\n"

func identity(r *model.Rule) {
	r.Filters.RequestHeaders = &model.HeaderEdit{
		Set: []model.HeaderValue{{Name: "X-User", Value: "anonymous"}}, Remove: []string{"X-Gone"}, Add: []model.HeaderValue{{Name: "X-Added", Value: "1"}},
	}
}

func TestMirrorsGetWhatThePrimaryGets(t *testing.T) {
	for _, test := range []struct {
		name, request string
		change        func(*model.Rule)
		want          []string // in both heads
	}{
		{"nothing to change", "GET /a//b%2Fc?x=%20y HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n\r\n", nil, []string{"GET /a//b%2Fc?x=%20y HTTP/1.1\r\nHost: a\r\nX-A: 1\r\n"}},
		{"what is forged", "GET / HTTP/1.1\r\nHost: a\r\n" + forged + "\r\n", identity,
			[]string{"X-User: anonymous\r\n", "X-Added: 1\r\n", "X-Forwarded-Proto: http\r\n", "X-Forwarded-Host: a\r\n", "X_Kept: good\r\n", "my.key: good\r\n"}},
		{"a path that is not normal", "GET /a/../../b/./c/%2e%2e/d?x=/../y HTTP/1.1\r\nHost: a\r\n\r\n", nil, []string{"GET /b/d?x=/../y HTTP/1.1\r\n"}},
		{"bytes that no URI has", "GET /a|b?\"c\" HTTP/1.1\r\nHost: a\r\n\r\n", nil, []string{"GET /a%7Cb?%22c%22 HTTP/1.1\r\n"}},
		{"the absolute form", "GET http://b/x?y HTTP/1.1\r\nHost: b\r\n\r\n", nil, []string{"GET /x?y HTTP/1.1\r\nHost: b\r\n"}},
		{"a rewrite", "GET /old/x?y HTTP/1.1\r\nHost: a\r\n\r\n", func(r *model.Rule) {
			r.Filters.Rewrite = &model.Rewrite{Hostname: "new.example", Path: &model.PathPatch{Value: "/new"}}
		}, []string{"GET /new?y HTTP/1.1\r\nHost: new.example\r\n"}},
		{"filters of the backend", "GET / HTTP/1.1\r\nHost: a\r\n" + forged + "\r\n", func(r *model.Rule) {
			b := ruleTo(serviceName)
			identity(&b)
			r.Backends[0].Filters.RequestHeaders = b.Filters.RequestHeaders
			r.Backends[0].Filters.Rewrite = &model.Rewrite{Path: &model.PathPatch{Value: "/new"}}
		}, []string{"GET /new HTTP/1.1\r\nHost: a\r\n", "X-User: anonymous\r\n"}},
		{"a mirror of the backend", "GET / HTTP/1.1\r\nHost: a\r\n" + forged + "\r\n", func(r *model.Rule) {
			identity(r)
			r.Backends[0].Filters.Mirrors, r.Filters.Mirrors = r.Filters.Mirrors, nil
		}, []string{"X-User: anonymous\r\n"}},
		{"a host from a filter", "GET / HTTP/1.1\r\nHost: a\r\n\r\n", func(r *model.Rule) {
			r.Filters.RequestHeaders = &model.HeaderEdit{Set: []model.HeaderValue{{Name: "Host", Value: "set.example"}}}
		}, []string{"GET / HTTP/1.1\r\nHost: set.example\r\n"}},
		{"a body of known length", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\nExpect: 100-continue\r\n\r\n", nil, []string{"Content-Length: 0\r\n"}},
		{"Max-Forwards", "OPTIONS / HTTP/1.1\r\nHost: a\r\nMax-Forwards: 3\r\n\r\n", nil, []string{"Max-Forwards: 2\r\n"}},
		{"HTTP/1.0 without Host", "GET / HTTP/1.0\r\n\r\n", nil, []string{"Via: 1.0 weir\r\n"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s, primary, copies := bothHeads(t, test.change)
			k := newTalk(t, s.addr())
			k.send(test.request)
			if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
				t.Fatalf("status %d", resp.StatusCode)
			}
			head, copied := <-primary, <-copies
			if got, ok := unmarked(copied, mirror.DefaultHeader); !ok || got != head {
				t.Errorf("the primary gets\n%q, its mirror\n%q", head, copied)
			}
			for _, want := range test.want {
				if !strings.Contains(head, want) {
					t.Errorf("%q is not in %q", want, head)
				}
			}
			if strings.Contains(head, "evil") || strings.Contains(strings.ToLower(head), "mirrored") || strings.Contains(head, "gopher") {
				t.Errorf("the primary gets %q", head)
			}
		})
	}
}

func TestAClientsMarkReachesNobody(t *testing.T) {
	for name, edit := range map[string]func(*Options){
		"Weir-Mirrored": func(*Options) {},
		"X-Shadow":      func(o *Options) { o.Mirror.Header = "X-Shadow" },
		"X_Shadow":      func(o *Options) { o.Mirror.Header = "X_Shadow" },
		"":              func(o *Options) { o.Mirror.Unmarked = true },
	} {
		for _, underscores := range []exchange.Underscores{exchange.UnderscoresClashing, exchange.UnderscoresPassed, exchange.UnderscoresDropped} {
			s, primary, copies := bothHeads(t, nil, edit, func(o *Options) { o.Underscores = underscores })
			k := newTalk(t, s.addr())
			mark := name
			if mark == "" {
				mark = mirror.DefaultHeader
			}
			spelt := strings.ReplaceAll(mark, "-", "_") + ": evil\r\n" + strings.ReplaceAll(mark, "-", ".") + ": evil\r\n"
			if underscores == exchange.UnderscoresPassed {
				spelt = "" // for backends that tell the names apart
			}
			k.send("GET / HTTP/1.1\r\nHost: a\r\n" + mark + ": evil\r\n" + strings.ToUpper(mark) + ": 1\r\nWeir-Mirrored: evil\r\n" + spelt + "\r\n")
			k.answer("GET")
			head, copied := <-primary, <-copies
			got, ok := copied, true
			if name != "" {
				got, ok = unmarked(copied, name)
			}
			if lower := strings.ToLower(head); !ok || got != head || strings.Contains(lower, "evil") || strings.Contains(lower, strings.ToLower(mark)) {
				t.Errorf("%q, %d: the primary gets\n%q, its mirror\n%q", name, underscores, head, copied)
			}
		}
	}
}

// TestCopiesOfFailedRequestsAreClean: mirrors also get copies of requests that no backend could take. These copies are
// just as clean.
func TestCopiesOfFailedRequestsAreClean(t *testing.T) {
	for name, change := range map[string]func(*model.Rule){
		"no backend":  func(r *model.Rule) { r.Backends = nil },
		"a fault":     func(r *model.Rule) { r.Backends[0].Fault = &model.Fault{Status: 500, Reason: "BackendNotFound"} },
		"no endpoint": func(r *model.Rule) { r.Backends[0].Service = "default/empty:80" },
	} {
		t.Run(name, func(t *testing.T) {
			copy, copies := wire(t, okResponse)
			cfg := mirrored("127.0.0.1:1", copy, 1, 1)
			cfg.Services = append(cfg.Services, service("default/empty:80", model.HTTP))
			identity(&cfg.Routes[0].Rules[0])
			change(&cfg.Routes[0].Rules[0])
			k := newTalk(t, serve(t, cfg).addr())
			k.send("GET /a/../b HTTP/1.1\r\nHost: a\r\n" + forged + "\r\n")
			if resp, _ := k.answer("GET"); resp.StatusCode < 500 {
				t.Errorf("status %d", resp.StatusCode)
			}
			copied, ok := unmarked(<-copies, mirror.DefaultHeader)
			if !ok || !strings.HasPrefix(copied, "GET /b HTTP/1.1\r\nHost: a\r\n") || strings.Contains(copied, "evil") || !strings.Contains(copied, "X-User: anonymous\r\n") {
				t.Errorf("the mirror gets %q", copied)
			}
		})
	}
}

// TestNoSpellingPassesFilters sends any fields through any filters. A copy is what the primary gets, plus a mark. A
// backend must not see a field of the client that it could mistake for one that a filter or the proxy sets or removes.
func TestNoSpellingPassesFilters(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	protected := []string{"X-User", "X-Gone", "X-Forwarded-For", "X-Forwarded-Proto", "X-Forwarded-Host", "X-Forwarded-Port", "X-Real-IP", "Weir-Mirrored", "Weir-Via",
		"Content-Length", "Transfer-Encoding", "Keep-Alive", "Proxy-Authorization", "X_Odd"}
	s, primary, copies := bothHeads(t, func(rule *model.Rule) {
		identity(rule)
		e := rule.Filters.RequestHeaders
		e.Set = append(e.Set, model.HeaderValue{Name: "X_Odd", Value: "set"})
	})
	k := newTalk(t, s.addr())
	for range size.Of(50, 500) {
		request := "GET / HTTP/1.1\r\nHost: a\r\n"
		for range 8 {
			name := []byte(protected[r.IntN(len(protected))])
			for i, c := range name {
				if c == '-' || c == '_' {
					if name[i] = "-_.!#$%&'*+^`|~"[r.IntN(15)]; r.IntN(2) == 0 {
						name[i] = '_'
					}
				} else if r.IntN(2) == 0 && c >= 'A' {
					name[i] ^= 0x20
				}
			}
			value := "evil"
			switch http1.Identify(string(name)) {
			case http1.FieldContentLength, http1.FieldTransferEncoding, http1.FieldXForwardedFor:
				continue // these fields have their regular meaning
			case http1.FieldWeirVia:
				continue
			}
			if strings.EqualFold(string(name), "X-Real-IP") || strings.EqualFold(string(name), "X-Forwarded-Port") {
				continue // not set by the proxy
			}
			request += string(name) + ": " + value + "\r\n"
		}
		k.send(request + "\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
			t.Fatalf("status %d to %q", resp.StatusCode, request)
		}
		head, copied := <-primary, <-copies
		if got, ok := unmarked(copied, mirror.DefaultHeader); !ok || got != head || strings.Contains(head, "evil") {
			t.Fatalf("%q became\n%q, and at the mirror\n%q", request, head, copied)
		}
	}
}

func TestUnderscores(t *testing.T) {
	request := "GET / HTTP/1.1\r\nHost: a\r\nX_User: evil\r\nx_request_id: 1\r\nX_Forwarded_Host: evil\r\na.b: 2\r\nX-Plain: 3\r\n\r\n"
	for rule, want := range map[exchange.Underscores]string{
		exchange.UnderscoresClashing: "x_request_id: 1\r\na.b: 2\r\nX-Plain: 3\r\n",
		exchange.UnderscoresDropped:  "X-Plain: 3\r\n",
		exchange.UnderscoresPassed:   "X_User: evil\r\nx_request_id: 1\r\nX_Forwarded_Host: evil\r\na.b: 2\r\nX-Plain: 3\r\n",
		exchange.UnderscoresRejected: "",
	} {
		addr, heads := wire(t, okResponse)
		cfg := plain(addr)
		identity(&cfg.Routes[0].Rules[0])
		s := serve(t, cfg, func(o *Options) { o.Underscores = rule })
		k := newTalk(t, s.addr())
		k.send(request)
		resp, body := k.answer("GET")
		if want == "" {
			if resp.StatusCode != 400 || len(heads) > 0 || !strings.HasPrefix(body, "bad_request: ") {
				t.Errorf("status %d, %q", resp.StatusCode, body)
			}
			k = newTalk(t, s.addr())
			k.send("GET / HTTP/1.1\r\nHost: a\r\nX-Plain: 3\r\n\r\n")
			if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
				t.Errorf("without an underscore: status %d", resp.StatusCode)
			}
			continue
		}
		if head := <-heads; !strings.HasPrefix(head, "GET / HTTP/1.1\r\nHost: a\r\n"+want+"X-Forwarded-For: ") {
			t.Errorf("%d: the backend gets %q", rule, head)
		}
		// The same over HTTP/2.
		req, _ := http.NewRequest("GET", "http://"+s.addr()+"/", nil)
		req.Header = http.Header{"X_User": {"evil"}, "X_Forwarded_Host": {"evil"}, "X_kept": {"1"}}
		resp, err := h2cClient(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		head := strings.ToLower(<-heads)
		if strings.Contains(head, "evil") != (rule == exchange.UnderscoresPassed) || strings.Contains(head, "x_kept: 1") != (rule != exchange.UnderscoresDropped) {
			t.Errorf("%d: over HTTP/2 the backend gets %q", rule, head)
		}
	}
}

// TestAnIrregularNameInAFilter: a filter that names a field with an underscore means exactly this field. When it
// removes the field, the client's field with a hyphen stays, because it is another field.
func TestAnIrregularNameInAFilter(t *testing.T) {
	addr, heads := wire(t, okResponse)
	cfg := plain(addr)
	cfg.Routes[0].Rules[0].Filters.RequestHeaders = &model.HeaderEdit{Remove: []string{"X_Gone"}, Set: []model.HeaderValue{{Name: "X_User", Value: "set"}}}
	k := newTalk(t, serve(t, cfg).addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\nX-Gone: kept\r\nX_Gone: evil\r\nX.Gone: evil\r\nX-User: evil\r\nX_User: evil\r\n\r\n")
	k.answer("GET")
	if head := <-heads; !strings.Contains(head, "X-Gone: kept\r\n") || !strings.Contains(head, "\r\nX_User: set\r\n") || strings.Contains(head, "evil") {
		t.Errorf("the backend gets %q", head)
	}
}

// TestNoSpellingPassesARuleThatMatchesOnAField: a rule keeps requests with a role back, and the backend may read other
// spellings, or trailers, as that role. Rules of other hosts take nothing away.
func TestNoSpellingPassesARuleThatMatchesOnAField(t *testing.T) {
	addr, heads := trailing(t, "")
	cfg := plain(addr)
	guard, elsewhere := cfg.Routes[0].Rules[0], cfg.Routes[0]
	guard.Matches = []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}, Headers: []model.ValueMatch{
		{Type: model.Exact, Name: "x-role", Value: "admin"}, {Type: model.Exact, Name: "tenant_id", Value: "a"}}}}
	guard.Backends, guard.Fault = nil, &model.Fault{Status: 403, Reason: "Kept"}
	other := guard
	other.Matches = []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}, Headers: []model.ValueMatch{{Type: model.Exact, Name: "my-key", Value: "1"}}}}
	elsewhere.Ref.Name, elsewhere.Rules = "elsewhere", []model.Rule{other}
	elsewhere.Attachments = []model.Attachment{{Listener: cfg.Listeners[0].Name, Hostnames: []string{"elsewhere.example"}}}
	cfg.Routes[0].Rules = append([]model.Rule{guard}, cfg.Routes[0].Rules...)
	cfg.Routes = append(cfg.Routes, elsewhere)
	for _, h2 := range []bool{false, true} {
		to := cfg
		if h2 { // to an endpoint of HTTP/2
			inner := serve(t, plain(addr), func(o *Options) { o.Pseudonym = "inner"; o.Underscores = exchange.UnderscoresPassed })
			to = plain(inner.addr())
			to.Services[0].Protocol = model.H2C
			to.Routes = cfg.Routes
		}
		k := newTalk(t, serve(t, to).addr())
		k.send("POST / HTTP/1.1\r\nHost: a\r\nX-Role: user\r\nX_Role: admin\r\nx.role: admin\r\ntenant_id: a\r\nmy_key: good\r\nTransfer-Encoding: chunked\r\n\r\n" +
			"1\r\na\r\n0\r\nX-Role: admin\r\nX_ROLE: admin\r\nX-Sum: 7\r\n\r\n")
		if resp, _ := k.answer("POST"); resp.StatusCode != 200 {
			t.Fatalf("status %d", resp.StatusCode)
		}
		if head := strings.ToLower(<-heads); strings.Contains(head, "admin") || !strings.Contains(head, "x-role: user\r\n") || !strings.Contains(head, "tenant_id: a\r\n") ||
			!strings.Contains(head, "my_key: good\r\n") || !strings.Contains(head, "x-sum: 7\r\n") {
			t.Errorf("the backend gets %q", head)
		}
	}
}

// trailing runs a backend that hands over each request's trailers and answers with trailers.
func trailing(t testing.TB, trailers string) (addr string, got chan string) {
	got = make(chan string, 10)
	return rawBackend(t, func(c net.Conn) {
		r := bufio.NewReader(c)
		for {
			head, err := rawHead(r)
			if err != nil {
				return
			}
			var all strings.Builder
			for strings.Contains(head, "Transfer-Encoding: chunked\r\n") {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if line == "0\r\n" {
					rest, err := rawHead(r)
					if err != nil {
						return
					}
					all.WriteString(rest)
					break
				}
			}
			got <- head + all.String()
			io.WriteString(c, "HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n"+trailers+"\r\n")
		}
	}), got
}

const evilTrailers = "X-Of-Backend: evil\r\nx_of_backend: evil\r\nX-User: evil\r\nx_user: evil\r\nX-Gone: evil\r\nX.Gone: evil\r\nX-Added: evil\r\nX-Forwarded-For: evil\r\nX_Forwarded_Proto: evil\r\nX-Forwarded-Port: evil\r\n" +
	"X-Real-IP: evil\r\nForwarded: evil\r\nVia: evil\r\nWeir-Via: evil\r\nWeir-Mirrored: evil\r\nContent-Length: 9\r\ncontent_type: evil\r\nSet_Cookie: evil\r\nHost: evil\r\nAuthorization: evil\r\n" +
	"X-Sum: 7\r\nmy_key: good\r\n"

func TestTrailersDoNotPassFilters(t *testing.T) {
	for _, protocol := range []model.Protocol{model.HTTP, model.H2C} {
		for _, early := range []bool{true, false} { // the body comes with the head, or later
			t.Run(fmt.Sprint(protocol, early), func(t *testing.T) {
				addr, got := trailing(t, "X-Out: evil\r\nX-Away: evil\r\nX-Sum: 7\r\nContent-Length: 3\r\nAccess-Control-Allow-Origin: evil\r\nmy_key: good\r\n")
				copy, copied := trailing(t, "")
				cfg := mirrored(addr, copy, 1, 1)
				if protocol == model.H2C {
					inner := serve(t, plain(addr), func(o *Options) { o.Pseudonym = "inner" })
					cfg.Services[0].Endpoints[0].Address, cfg.Services[0].Protocol = inner.addr(), protocol
				}
				rule := &cfg.Routes[0].Rules[0]
				identity(rule)
				rule.Backends[0].Filters.RequestHeaders = &model.HeaderEdit{Remove: []string{"X-Of-Backend"}}
				rule.Filters.ResponseHeaders = &model.HeaderEdit{Set: []model.HeaderValue{{Name: "X-Out", Value: "1"}}}
				rule.Backends[0].Filters.ResponseHeaders = &model.HeaderEdit{Remove: []string{"x-away"}}
				rule.Filters.CORS = &model.CORS{AllowOrigins: []string{"https://a.example"}}
				s := serve(t, cfg)
				k := newTalk(t, s.addr())
				head := "POST / HTTP/1.1\r\nHost: a\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n"
				if early {
					k.send(head + "3\r\nabc\r\n0\r\n" + evilTrailers + "\r\n")
				} else {
					k.send(head)
					k.send("3\r\nabc\r\n")
					k.send("0\r\n" + evilTrailers + "\r\n")
				}
				resp, body := k.answer("POST")
				if body != "ok" || len(resp.Trailer["X-Out"])+len(resp.Trailer["X-Away"])+len(resp.Trailer["Access-Control-Allow-Origin"]) > 0 ||
					resp.Trailer.Get("X-Sum") != "7" || resp.Header.Get("X-Out") != "1" {
					t.Errorf("the client gets %q, %v", body, resp.Trailer)
				}
				for name, ch := range map[string]chan string{"primary": got, "mirror": copied} {
					if all := <-ch; strings.Contains(all, "evil") || !strings.HasSuffix(strings.ToLower(all), "\r\nx-sum: 7\r\nmy_key: good\r\n\r\n") {
						t.Errorf("the %s gets %q", name, all)
					}
				}
			})
		}
	}
}

func TestATrailerFieldDoesNotAnnounceWhatIsDropped(t *testing.T) {
	addr, heads := wire(t, "HTTP/1.1 200 OK\r\nTrailer: X-Sum, X-Out\r\nContent-Length: 2\r\n\r\nok")
	cfg := plain(addr)
	identity(&cfg.Routes[0].Rules[0])
	cfg.Routes[0].Rules[0].Filters.ResponseHeaders = &model.HeaderEdit{Remove: []string{"X-Out"}}
	k := newTalk(t, serve(t, cfg).addr())
	for _, announced := range []string{"X-Sum", "X-Sum, x_user", "X-Gone"} {
		k.send("GET / HTTP/1.1\r\nHost: a\r\nTrailer: " + announced + "\r\n\r\n")
		resp, _ := k.answer("GET")
		if got := strings.Contains(<-heads, "Trailer: "); got != (announced == "X-Sum") {
			t.Errorf("%q is announced: %v", announced, got)
		}
		if len(resp.Header["Trailer"]) > 0 || len(resp.Trailer) > 0 {
			t.Errorf("the client gets Trailer %v", resp.Trailer)
		}
	}
}

// TestInterimAnswersDoNotPassFilters: what filters, CORS and a session keep back from clients does not come earlier.
func TestInterimAnswersDoNotPassFilters(t *testing.T) {
	const interim = "X-Out: evil\r\nX-Away: evil\r\nAccess-Control-Allow-Origin: evil\r\nX-Session: evil\r\nLink: </a.css>\r\n"
	addr, _ := wire(t, "HTTP/1.1 100 Continue\r\n"+interim+"\r\nHTTP/1.1 103 Early Hints\r\n"+interim+"\r\n"+okResponse)
	for _, protocol := range []model.Protocol{model.HTTP, model.H2C} {
		cfg := plain(addr)
		if protocol == model.H2C {
			inner := serve(t, plain(addr), func(o *Options) { o.Pseudonym = "inner" })
			cfg.Services[0].Endpoints[0].Address, cfg.Services[0].Protocol = inner.addr(), protocol
		}
		rule := &cfg.Routes[0].Rules[0]
		rule.Filters.ResponseHeaders = &model.HeaderEdit{Set: []model.HeaderValue{{Name: "X-Out", Value: "1"}}}
		rule.Backends[0].Filters.ResponseHeaders = &model.HeaderEdit{Remove: []string{"x-away"}}
		rule.Filters.CORS = &model.CORS{AllowOrigins: []string{"https://a.example"}}
		rule.Session = &model.Session{Name: "X-Session", Type: model.Header}
		s := serve(t, cfg)
		k := newTalk(t, s.addr())
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		seen := ""
		for {
			resp, _ := k.answer("GET")
			seen += fmt.Sprint(resp.StatusCode, " ")
			if resp.StatusCode >= 200 {
				break
			}
			for name, values := range resp.Header {
				if strings.Contains(fmt.Sprint(values), "evil") {
					t.Errorf("%v: %d has %s: %q", protocol, resp.StatusCode, name, values)
				}
			}
			if resp.StatusCode == 103 && (resp.Header.Get("Link") != "</a.css>" || resp.Header.Get("X-Out") != "1") {
				t.Errorf("%v: the interim answer has %v", protocol, resp.Header)
			}
		}
		if !strings.HasSuffix(seen, "103 200 ") {
			t.Errorf("%v: the client gets %s", protocol, seen)
		}
	}
}
