package exchange

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/policy"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// workload is one in front of whose port a listener stands.
var workload = model.Workload{Ref: model.Ref{Kind: "Pod", Namespace: "shop", Name: "web-1"}, Groups: []model.Group{{Kind: "Deployment", Name: "web"}}}

// permitting is a policy for the workload.
func permitting(change func(*model.Policy)) model.Policy {
	p := model.Policy{
		Ref: model.Ref{Kind: "TrafficRole", Namespace: "shop", Name: "r", Field: "rules[0]"}, Binding: model.Ref{Kind: "TrafficRoleBinding", Namespace: "shop", Name: "b"},
		Targets: []model.Target{{Namespace: "shop", Kind: "Deployment", Name: "web"}}, Sources: []model.Source{{Kind: "Deployment", Namespace: "shop", Name: "cart"}},
		Traffic: model.TrafficHTTP, Paths: []string{`/authors/\d+$`}, Methods: []string{"GET"},
	}
	if change != nil {
		change(&p)
	}
	return p
}

// guarded makes the configuration's first listener stand in front of the workload's port 8080.
func guarded(c *model.Config, w model.Workload, policies ...model.Policy) {
	c.Listeners[0].Workload, c.Listeners[0].WorkloadPort = w.Name(), 8080
	c.Workloads, c.Policies = []model.Workload{w}, policies
}

// identified makes the peer one whose certificate names a workload.
func identified(t testing.TB, p *Peer, id string, claims claim.Claims) {
	t.Helper()
	parsed, err := spiffe.Parse(id)
	if err != nil {
		t.Fatal(err)
	}
	x, err := claims.Extension()
	if err != nil {
		t.Fatal(err)
	}
	p.TLS = &TLSPeer{ID: parsed, Verified: &x509.Certificate{Extensions: []pkix.Extension{x}, NotAfter: time.Now().Add(time.Hour)}}
}

func TestAccessIsJudgedBeforeAnythingIsDialled(t *testing.T) {
	for _, audit := range []bool{false, true} {
		dialled := 0
		s := relayTo(t, func(c *model.Config, o *upstream.Options, _ *Around) {
			o.Refuse = func(netip.AddrPort) string { dialled++; return "" }
			if !audit {
				c.Routes[0].Rules[0].Fault = &model.Fault{Status: 500, Reason: "BackendNotFound"} // a client without access does not learn of it
			}
			w := workload
			w.Audit = audit
			guarded(c, w, permitting(nil))
		}, peertest.Refusing(t))
		c := s.connection("198.51.100.7:1234")
		up := c.Connect(s.snap, s.port)
		c.Finish()
		lines := s.logged(t)
		if len(lines) != 1 || lines[0]["route"] != "default/route" || lines[0]["access"] != "no_identity" || lines[0]["policy"] != nil {
			t.Fatalf("audit %t: logged %v", audit, lines)
		}
		if audit {
			if dialled == 0 || s.failures()[telemetry.AccessDenied] != 0 {
				t.Errorf("in audit mode %d addresses were dialled, counted %v", dialled, s.failures())
			}
			continue
		}
		if up != nil || dialled != 0 {
			t.Errorf("connected to %v, %d addresses were dialled", up, dialled)
		}
		if c.cause != failDenied || s.failures()[telemetry.AccessDenied] != 1 || lines[0]["backend"] != nil || lines[0]["reason"] != "access_denied" {
			t.Errorf("ended with %v, counted %v, logged %v", c.cause, s.failures(), lines)
		}
	}
}

func TestAConnectionIsAllowedByARuleForAllTraffic(t *testing.T) {
	for _, traffic := range []model.Traffic{model.TrafficHTTP, model.TrafficTCP, model.TrafficUDP, model.TrafficAny} {
		s := relayTo(t, func(c *model.Config, _ *upstream.Options, _ *Around) {
			c.Listeners[0].Protocol = model.TLS
			guarded(c, workload, permitting(func(p *model.Policy) { p.Traffic, p.Methods, p.Paths = traffic, nil, nil }))
		}, peertest.Refusing(t))
		c := s.connection("198.51.100.7:1234")
		identified(t, &c.Peer, "spiffe://cluster.local/ns/shop/sa/cart", claim.Claims{Pod: "cart-1", Owners: []claim.Owner{{Kind: "Deployment", Name: "cart"}}})
		c.Connect(s.snap, s.port)
		c.Finish()
		line := s.logged(t)[0]
		want := "allowed"
		if traffic == model.TrafficHTTP || traffic == model.TrafficUDP {
			want = "not_permitted"
		}
		if line["access"] != want || line["source"] != "spiffe://cluster.local/ns/shop/sa/cart" || (want == "allowed") != (line["policy"] == "TrafficRole shop/r rules[0] by TrafficRoleBinding shop/b") {
			t.Errorf("%s: logged %v, want %s", traffic, line, want)
		}
	}
}

// redirecting is a snapshot whose one rule answers by itself, behind a listener in front of the workload.
func redirecting(t testing.TB, s *relaying, prev *Snapshot, edit func(*model.Config)) (*Snapshot, *routing.Port) {
	t.Helper()
	cfg := &model.Config{
		Listeners: []model.Listener{{Name: "default/gw/http", Port: 80, Protocol: model.HTTP}},
		Routes: []model.Route{{
			Ref: model.Ref{Kind: "HTTPRoute", Namespace: "default", Name: "route"}, Attachments: []model.Attachment{{Listener: "default/gw/http", Hostnames: []string{"*"}}},
			Rules: []model.Rule{{
				Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}}, Filters: model.Filters{Redirect: &model.Redirect{Status: 302}},
			}},
		}},
	}
	edit(cfg)
	table, left := routing.Compile(cfg, nil)
	if len(left) > 0 {
		t.Fatal(left)
	}
	snap := NewSnapshot(cfg, table, prev)
	set := upstream.New(upstream.Options{})
	t.Cleanup(func() { set.Close() })
	services, err := set.Apply(cfg)
	if err != nil {
		t.Fatal(err)
	}
	s.pipe.Attach(cfg, snap, services)
	return snap, table.Ports()[0]
}

// answering notes the answer of an exchange that no endpoint serves.
type answering struct {
	Client
	status int
}

func (a *answering) Begin(x *Answer) error   { a.status = x.Status; return nil }
func (a *answering) Write([]byte) error      { return nil }
func (a *answering) End([]http1.Field) error { return nil }
func (a *answering) Flush() error            { return nil }
func (a *answering) Gone() bool              { return false }

func TestRequestsAreJudgedBeforeFiltersAnswer(t *testing.T) {
	s := relayTo(t, nil)
	snap, port := redirecting(t, s, nil, func(c *model.Config) {
		guarded(c, workload, permitting(nil), permitting(func(p *model.Policy) {
			p.Ref.Field, p.Paths, p.Methods = "rules[1]", []string{"/files/.*"}, nil
			p.Headers = []model.ValueMatch{{Type: model.Regex, Name: "X-Team", Value: "a|b"}}
		}))
	})
	cart := claim.Claims{Pod: "cart-1", Owners: []claim.Owner{{Kind: "ReplicaSet", Name: "cart-7"}, {Kind: "Deployment", Name: "cart"}}}
	team := http1.Field{Name: "X-Team", Value: "a"}
	for _, c := range []struct {
		name, method, path string
		fields             []http1.Field
		id                 string
		claims             claim.Claims
		want               policy.Reason
	}{
		{"allowed", "GET", "/authors/12", nil, "spiffe://t/ns/shop/sa/cart", cart, policy.Allowed},
		{"no identity", "GET", "/authors/12", nil, "", claim.Claims{}, policy.NoIdentity},
		{"the account alone does not say which Deployment", "GET", "/authors/12", nil, "spiffe://t/ns/shop/sa/cart", claim.Claims{}, policy.UnknownSource},
		{"the Deployment of another namespace", "GET", "/authors/12", nil, "spiffe://t/ns/other/sa/cart", cart, policy.UnknownSource},
		{"claims of a node do not count", "GET", "/authors/12", nil, "spiffe://t/node/n1", cart, policy.UnknownSource},
		{"another method", "POST", "/authors/12", nil, "spiffe://t/ns/shop/sa/cart", cart, policy.NotPermitted},
		{"another path", "GET", "/authors/12/edit", nil, "spiffe://t/ns/shop/sa/cart", cart, policy.NotPermitted},
		{"the path of a dot segment", "GET", "/x/../authors/12", nil, "spiffe://t/ns/shop/sa/cart", cart, policy.AmbiguousPath},
		{"a slash of which servers differ", "GET", "/authors%2F12", nil, "spiffe://t/ns/shop/sa/cart", cart, policy.NotPermitted},
		{"an escaped letter", "GET", "/%61uthors/12", nil, "spiffe://t/ns/shop/sa/cart", cart, policy.Allowed},
		{"a header", "PUT", "/files/a", []http1.Field{team}, "spiffe://t/ns/shop/sa/cart", cart, policy.Allowed},
		{"a header twice", "PUT", "/files/a", []http1.Field{team, team}, "spiffe://t/ns/shop/sa/cart", cart, policy.NotPermitted},
		{"an ambiguous path with the header", "PUT", "/files/..%2fsecret", []http1.Field{team}, "spiffe://t/ns/shop/sa/cart", cart, policy.AmbiguousPath},
	} {
		peer := &Peer{Scheme: "http"}
		if c.id != "" {
			identified(t, peer, c.id, c.claims)
		}
		client := &answering{}
		ex := &Exchange{}
		r := ex.Begin(s.pipe, &Origin{Client: client, Peer: peer, Snapshot: snap, Port: port})
		r.Method, r.Path, r.Target, r.Authority, r.Fields = c.method, c.path, c.path, "Shop.example", c.fields
		ex.setHost()
		peer.TLS, r.Body = withoutTLS(peer), http1.Body{}
		err := ex.run()
		if ex.judged.reason != c.want && !(strings.Contains(c.path, "..%2f") && err != nil && !ex.judged.asked) {
			t.Errorf("%s: %v, want %v (%v)", c.name, ex.judged.reason, c.want, err)
		}
		if allowed := c.want == policy.Allowed; allowed != (client.status == 302) || allowed != (err == nil) {
			t.Errorf("%s: answered %d, %v", c.name, client.status, err)
		}
		if c.want != policy.Allowed && ex.judged.asked && err != error(failDenied) {
			t.Errorf("%s: %v, want the same refusal for all", c.name, err)
		}
	}
}

// BenchmarkAccess is the access stage of a request over a connection that has had one before.
func BenchmarkAccess(b *testing.B) {
	for _, rules := range []int{0, 1, 1000} {
		b.Run(fmt.Sprintf("rules=%d", rules), func(b *testing.B) {
			s := relayTo(b, nil)
			snap, _ := redirecting(b, s, nil, func(c *model.Config) {
				var policies []model.Policy
				for i := range rules {
					policies = append(policies, permitting(func(p *model.Policy) {
						if i != rules/2 {
							p.Paths = []string{fmt.Sprintf(`/service%d/\w+$`, i)}
						}
					}))
				}
				guarded(c, workload, policies...)
			})
			peer := &Peer{Scheme: "http"}
			identified(b, peer, "spiffe://t/ns/shop/sa/cart", claim.Claims{Pod: "cart-1", Owners: []claim.Owner{{Kind: "Deployment", Name: "cart"}}})
			a := asked{at: time.Now(), listener: snap.Table.Listeners()[0], request: &Request{}, match: &routing.Request{Path: "/authors/12"}, fields: (*endToEnd)(&Exchange{})}
			a.request.Method, a.request.Path = "GET", "/authors/12"
			want := policy.Allowed
			if rules == 0 {
				want = policy.Ungoverned
			}
			var scratch []byte
			b.ReportAllocs()
			for b.Loop() {
				var j judged
				if j, scratch, _ = snap.access(peer, 0, a, scratch); j.reason != want {
					b.Fatal(j.reason)
				}
			}
		})
	}
}

// withoutTLS keeps the identity of a peer, as a listener without host names in its handshakes would.
func withoutTLS(p *Peer) *TLSPeer {
	if p.TLS != nil {
		p.TLS.Listener = "default/gw/http"
	}
	return p.TLS
}

func TestAListenerWhoseWorkloadIsGoneIsClosed(t *testing.T) {
	s := relayTo(t, nil)
	snap, port := redirecting(t, s, nil, func(c *model.Config) {
		guarded(c, workload, permitting(nil))
		c.Workloads = nil
	})
	peer := &Peer{Scheme: "http"}
	identified(t, peer, "spiffe://t/ns/shop/sa/cart", claim.Claims{Pod: "cart-1", Owners: []claim.Owner{{Kind: "Deployment", Name: "cart"}}})
	ex := &Exchange{}
	r := ex.Begin(s.pipe, &Origin{Client: &answering{}, Peer: peer, Snapshot: snap, Port: port})
	r.Method, r.Path, r.Target = "GET", "/authors/12", "/authors/12"
	peer.TLS = withoutTLS(peer)
	if err := ex.run(); err != error(failDenied) {
		t.Errorf("%v, want a refusal", err)
	}
}

func TestWhatAPeerMayDoIsFoundOncePerConnectionAndPolicies(t *testing.T) {
	s := relayTo(t, nil)
	snap, _ := redirecting(t, s, nil, func(c *model.Config) { guarded(c, workload, permitting(nil)) })
	g := snap.Listeners[0].guard
	peer := &Peer{}
	now := time.Now()
	first := peer.subject(g, now)
	if peer.subject(g, now) != first {
		t.Error("it was found again for the same policies")
	}
	same, _ := redirecting(t, s, snap, func(c *model.Config) {
		c.Listeners[0].Workload, c.Listeners[0].WorkloadPort = workload.Name(), 8080
		c.Workloads, c.Policies = []model.Workload{workload}, g.table.Policies()
	})
	if same.Listeners[0].guard.table != g.table {
		t.Error("policies that did not change were compiled again")
	}
	other, _ := redirecting(t, s, snap, func(c *model.Config) { guarded(c, workload) })
	if peer.subject(other.Listeners[0].guard, now) == first {
		t.Error("the peer is judged by policies that were replaced")
	}
}

func TestEveryReasonHasAResult(t *testing.T) {
	for r := policy.Allowed; r <= policy.TooMuchWork; r++ {
		got, ok := accessResults[r]
		if !ok || got.String() != r.String() {
			t.Errorf("%v is %v", r, got)
		}
	}
}

// FuzzPathsAreJudgedAsBackendsSeeThem holds that two paths which servers decode alike are one path to policies, and that
// the path which is judged is decoded to what servers decode.
func FuzzPathsAreJudgedAsBackendsSeeThem(f *testing.F) {
	for _, s := range [][2]string{{"/a%40b", "/a@b"}, {"/a%2fb", "/a/b"}, {"/a%3bb", "/a;b"}, {"/%41", "/A"}, {"/a%25%34%30", "/a%40"}, {"/%e2%82%ac", "/€"}, {"/a+b", "/a%2Bb"}} {
		f.Add(s[0], s[1])
	}
	f.Fuzz(func(t *testing.T, a, b string) {
		judge := func(raw string) (plain, decoded string, ok bool) {
			normal, err := model.NormalizePath(raw)
			if err != nil || routing.Ambiguity(raw) != routing.OneReading {
				return "", "", false
			}
			plain, _ = policy.Path(normal, nil)
			if decoded, err = url.PathUnescape(plain); err != nil {
				t.Fatalf("%q is judged as %q, which cannot be decoded", raw, plain)
			}
			if was, err := url.PathUnescape(raw); err != nil || was != decoded && raw != "" {
				t.Fatalf("%q is %q to servers, and judged as %q", raw, was, decoded)
			}
			return plain, decoded, true
		}
		plainA, decodedA, ok := judge(a)
		plainB, decodedB, okB := judge(b)
		if ok && okB && (plainA == plainB) != (decodedA == decodedB) {
			t.Fatalf("%q and %q are judged as %q and %q, and decoded to %q and %q", a, b, plainA, plainB, decodedA, decodedB)
		}
	})
}

func TestThePeerIsWhoItsCertificateNames(t *testing.T) {
	p := &Peer{}
	if got := p.client(); !reflect.DeepEqual(got, &policy.Peer{}) {
		t.Errorf("without TLS: %+v", got)
	}
	identified(t, p, "spiffe://t/ns/shop/sa/cart", claim.Claims{Pod: "cart-1", Owners: []claim.Owner{{Kind: "Job", Name: "j"}}})
	want := &policy.Peer{ID: "spiffe://t/ns/shop/sa/cart", Namespace: "shop", Account: "cart", Pod: "cart-1", Owners: []policy.Owner{{Kind: "Job", Name: "j"}}}
	if got := p.client(); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	p.TLS.Verified.Extensions = append(p.TLS.Verified.Extensions, p.TLS.Verified.Extensions...)
	if got := p.client(); got.Pod != "" || got.Account != "cart" {
		t.Errorf("with claims twice: %+v", got)
	}
	p.TLS.Verified = nil
	if got := p.client(); got.Pod != "" || got.Account != "cart" {
		t.Errorf("without a certificate: %+v", got)
	}
}

func TestAPeerIsNobodyOnceItsCertificateHasEnded(t *testing.T) {
	s := relayTo(t, nil)
	snap, port := redirecting(t, s, nil, func(c *model.Config) { guarded(c, workload, permitting(nil)) })
	peer := &Peer{Scheme: "http"}
	identified(t, peer, "spiffe://t/ns/shop/sa/cart", claim.Claims{Pod: "cart-1", Owners: []claim.Owner{{Kind: "Deployment", Name: "cart"}}})
	peer.TLS = withoutTLS(peer)
	for _, c := range []struct {
		at   time.Time
		want policy.Reason
	}{{peer.TLS.Verified.NotAfter, policy.Allowed}, {peer.TLS.Verified.NotAfter.Add(time.Second), policy.NoIdentity}, {peer.TLS.Verified.NotAfter.Add(-time.Second), policy.Allowed}} {
		ex := &Exchange{}
		r := ex.Begin(s.pipe, &Origin{Client: &answering{}, Peer: peer, Snapshot: snap, Port: port, Start: c.at})
		r.Method, r.Path, r.Target = "GET", "/authors/12", "/authors/12"
		ex.run()
		if ex.judged.reason != c.want {
			t.Errorf("at %v: %v, want %v", c.at, ex.judged.reason, c.want)
		}
	}
}

func TestANodeIsWhoItsCertificateNames(t *testing.T) {
	p := &Peer{}
	identified(t, p, "spiffe://t/node/n1", claim.Claims{Pod: "cart-1"})
	if got, want := p.client(), (&policy.Peer{ID: "spiffe://t/node/n1", Node: "n1"}); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
}

// What Connection names ends here, so policies do not see it; they see what is hop-by-hop by itself, and all others.
func TestPoliciesDoNotSeeWhatConnectionNames(t *testing.T) {
	ex := &Exchange{}
	ex.req.Fields = []http1.Field{{Name: "Connection", Value: "X-Team, Upgrade"}, {Name: "X-Team", Value: "a"}, {Name: "X-Other", Value: "b"}, {Name: "Upgrade", Value: "c"}}
	ex.req.NamedHops = true
	for name, want := range map[string]string{"x-team": "", "x-other": "b", "upgrade": "c", "x-absent": ""} {
		if got, ok := (*endToEnd)(ex).Field(name); got != want || ok != (want != "") {
			t.Errorf("%s is %q, %t", name, got, ok)
		}
	}
	ex.req.Fields[0].Value, ex.req.NamedHops = "Upgrade", false
	for name, want := range map[string]string{"x-team": "a", "upgrade": "c"} {
		if got, ok := (*endToEnd)(ex).Field(name); got != want || !ok {
			t.Errorf("with no other field named, %s is %q, %t", name, got, ok)
		}
	}
}

func TestFieldsDecideByRulesAndByPolicies(t *testing.T) {
	s := relayTo(t, nil)
	header := func(name string) []model.ValueMatch {
		return []model.ValueMatch{{Type: model.Exact, Name: name, Value: "a"}}
	}
	snap, port := redirecting(t, s, nil, func(c *model.Config) {
		c.Routes[0].Rules[0].Matches = append(c.Routes[0].Rules[0].Matches, model.Match{Path: model.PathMatch{Type: model.Prefix, Value: "/a"}, Headers: header("X-Rule")})
		c.Listeners = append(c.Listeners, model.Listener{Name: "default/gw/open", Hostname: "open.example", Port: 80, Protocol: model.HTTP})
		c.Routes[0].Attachments = append(c.Routes[0].Attachments, model.Attachment{Listener: "default/gw/open", Hostnames: []string{"*"}})
		guarded(c, workload, permitting(func(p *model.Policy) { p.Headers = header("X-Policy") }))
	})
	asked := func(host string) *Exchange {
		ex := &Exchange{}
		r := ex.Begin(s.pipe, &Origin{Client: &answering{}, Peer: &Peer{Scheme: "http"}, Snapshot: snap, Port: port})
		r.Method, r.Path, r.Target, r.Authority = "GET", "/", "/", host
		ex.setHost()
		ex.run()
		return ex
	}
	judged, open := asked("shop.example"), asked("open.example")
	early, refused := &Exchange{}, asked("shop.example")
	early.Begin(s.pipe, &Origin{Snapshot: snap, Port: port})
	refused.from.Snapshot = nil
	for name, c := range map[string]struct {
		ex           *Exchange
		rule, policy bool
	}{"a workload's": {judged, true, true}, "without a workload": {open, true, false}, "not yet led to a rule": {early, false, false}, "without a configuration": {refused, true, false}} {
		if rule, policy := c.ex.decidesBy("x-rule", http1.EqualFold), c.ex.decidesBy("x-policy", http1.EqualFold); rule != c.rule || policy != c.policy {
			t.Errorf("%s: X-Rule decides: %t, X-Policy decides: %t", name, rule, policy)
		}
		if c.ex.decidesBy("x-none", http1.EqualFold) {
			t.Errorf("%s: X-None decides", name)
		}
	}
}

func TestWhatLastsIsJudgedAgainWherePoliciesChanged(t *testing.T) {
	s := relayTo(t, nil)
	tcp := permitting(func(p *model.Policy) { p.Traffic, p.Methods, p.Paths = model.TrafficTCP, nil, nil })
	serve := func(prev *Snapshot, edit func(*model.Config)) (*Snapshot, *routing.Listener) {
		snap, port := redirecting(t, s, prev, edit)
		return snap, port.Listeners[0]
	}
	first, l := serve(nil, func(c *model.Config) { guarded(c, workload, tcp) })
	peer := &Peer{Scheme: "http"}
	identified(t, peer, "spiffe://t/ns/shop/sa/cart", claim.Claims{Pod: "cart-1", Owners: []claim.Owner{{Kind: "Deployment", Name: "cart"}}})
	found, _, f := first.access(peer, 0, asked{at: time.Now(), listener: l}, nil)
	if f != nil || found.reason != policy.Allowed {
		t.Fatal(found, f)
	}
	again := func(j judged, snap *Snapshot, l *routing.Listener) (judged, bool) {
		goesOn := snap.again(&j, peer, 0, asked{at: time.Now(), listener: l})
		return j, goesOn
	}

	if _, ok := again(found, first, nil); ok {
		t.Error("what was judged goes on where no listener is left")
	}
	if _, ok := again(judged{}, first, nil); !ok {
		t.Error("what nobody judged is cut where no listener is left")
	}
	ended := *peer.TLS.Verified
	ended.NotAfter = time.Now().Add(-time.Hour)
	before := peer.TLS.Verified
	peer.TLS.Verified = &ended
	same, sameL := serve(first, func(c *model.Config) { guarded(c, workload, tcp) })
	if j, ok := again(found, same, sameL); !ok || j.reason != policy.Allowed {
		t.Errorf("with the same policies it is judged again: %v, goes on: %t", j.reason, ok)
	}
	if j, ok := again(found, first, l); !ok || j.reason != policy.Allowed {
		t.Errorf("with the same snapshot it is judged again: %v, goes on: %t", j.reason, ok)
	}
	peer.TLS.Verified = before
	open, openL := serve(first, func(*model.Config) {})
	j, ok := again(found, open, openL)
	if !ok || j.by != nil {
		t.Errorf("where nobody is judged any more it goes on: %t, judged by %v", ok, j.by)
	}
	if _, ok = again(j, open, nil); !ok {
		t.Error("what nobody judges any more is cut where no listener is left")
	}
	if j, ok = again(judged{}, first, l); !ok || j.by == nil || j.reason != policy.Allowed {
		t.Errorf("judged for the first time it is %+v, goes on: %t", j, ok)
	}
	onPort := func(c *model.Config) {
		guarded(c, workload, tcp)
		c.Policies[0].Ports = []int32{8080}
	}
	limited, limitedL := serve(first, onPort)
	if j, ok = again(found, limited, limitedL); !ok || j.by.port != 8080 {
		t.Errorf("on the policy's port it goes on: %t", ok)
	}
	moved, movedL := serve(limited, func(c *model.Config) { onPort(c); c.Listeners[0].WorkloadPort = 8081 })
	if moved.Listeners[0].guard.table != limited.Listeners[0].guard.table {
		t.Error("the policies were compiled again")
	}
	if j, ok = again(j, moved, movedL); ok || j.reason != policy.NotPermitted {
		t.Errorf("on another port it goes on: %t, %v", ok, j.reason)
	}
	denied, deniedL := serve(first, func(c *model.Config) { guarded(c, workload, permitting(nil)) })
	if j, ok = again(found, denied, deniedL); ok || j.reason != policy.NotPermitted {
		t.Errorf("denied it goes on: %t, %v", ok, j.reason)
	}
}

func TestAPortsAccessIsTheSameOnlyIfEachListenersIs(t *testing.T) {
	s := relayTo(t, nil)
	serve := func(prev *Snapshot, change func(*model.Config)) (*Snapshot, *routing.Port) {
		return redirecting(t, s, prev, func(c *model.Config) {
			c.Listeners = append(c.Listeners, model.Listener{Name: "default/gw/second", Hostname: "b.example", Port: 80, Protocol: model.HTTP})
			c.Routes[0].Attachments = append(c.Routes[0].Attachments, model.Attachment{Listener: "default/gw/second", Hostnames: []string{"*"}})
			guarded(c, workload, permitting(nil))
			if change != nil {
				change(c)
			}
		})
	}
	first, before := serve(nil, nil)
	for name, c := range map[string]struct {
		change func(*model.Config)
		same   bool
	}{
		"nothing":           {nil, true},
		"a rule":            {func(c *model.Config) { c.Routes[0].Rules[0].Filters.Redirect.Status = 301 }, true},
		"a policy":          {func(c *model.Config) { c.Policies[0].Methods = []string{"PUT"} }, false},
		"a workload":        {func(c *model.Config) { c.Listeners[1].Workload, c.Listeners[1].WorkloadPort = workload.Name(), 8080 }, false},
		"a workload's port": {func(c *model.Config) { c.Listeners[0].WorkloadPort = 8081 }, false},
		"a host name":       {func(c *model.Config) { c.Listeners[1].Hostname = "c.example" }, false},
		"a name": {func(c *model.Config) {
			c.Listeners[1].Name, c.Routes[0].Attachments[1].Listener = "default/gw/third", "default/gw/third"
		}, false},
		"one listener fewer": {func(c *model.Config) {
			c.Listeners, c.Routes[0].Attachments = c.Listeners[:1], c.Routes[0].Attachments[:1]
		}, false},
		"one listener more": {func(c *model.Config) {
			c.Listeners = append(c.Listeners, model.Listener{Name: "default/gw/third", Hostname: "c.example", Port: 80, Protocol: model.HTTP})
		}, false},
	} {
		snap, port := serve(first, c.change)
		if got := snap.SameAccess(port, first, before); got != c.same {
			t.Errorf("changed %s: the same access: %t", name, got)
		}
	}
	other := *before
	other.Protocol = model.HTTPS
	if first.SameAccess(&other, first, before) {
		t.Error("another protocol has the same access")
	}
}

func TestAListenerWithoutWorkloadLeavesTheOthersJudged(t *testing.T) {
	s := relayTo(t, nil)
	snap, port := redirecting(t, s, nil, func(c *model.Config) {
		guarded(c, workload, permitting(nil))
		second := c.Listeners[0]
		second.Name, second.Hostname = "default/gw/second", "b.example"
		c.Listeners[0].Workload = ""
		c.Listeners = append(c.Listeners, second)
	})
	if len(port.Listeners) != 2 || snap.Listeners[0].guard != nil || snap.Listeners[1].guard == nil {
		t.Errorf("%+v", snap.Listeners)
	}
}

func TestAnUpgradeNeedsThePermissionOfAConnection(t *testing.T) {
	for traffic, want := range map[model.Traffic]bool{model.TrafficHTTP: false, model.TrafficTCP: true, model.TrafficAny: true} {
		table := policy.Compile(&workload, []model.Policy{permitting(func(p *model.Policy) {
			p.Traffic, p.Methods, p.Paths, p.Sources = traffic, nil, nil, []model.Source{{}}
		})})
		s := table.Subject(&policy.Peer{ID: "spiffe://t/ns/shop/sa/cart"}, 8080)
		for protocol, may := range map[string]bool{"": true, "websocket": true, "WebSocket": true, "h2c": want, "websockets": want} {
			if got := mayUpgrade(s, protocol); got != may {
				t.Errorf("allowed %s, an upgrade to %q is allowed: %t", traffic, protocol, got)
			}
		}
	}
}
