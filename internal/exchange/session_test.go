package exchange

import (
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/upstream"
)

func TestCookiesHaveThePathThatIsMatched(t *testing.T) {
	for path, want := range map[model.PathMatch]string{
		{Type: model.Prefix, Value: "/"}:                   "/",
		{Type: model.Prefix, Value: "/shop"}:               "/shop",
		{Type: model.Exact, Value: "/shop/cart"}:           "/shop/cart",
		{Type: model.Exact, Value: "/a;b/c"}:               "/",
		{Type: model.Exact, Value: "/shop/caf\u00e9/c"}:    "/shop",
		{Type: model.Regex, Value: "/p1/p2/[^/]+/p3"}:      "/p1/p2",
		{Type: model.Regex, Value: "/p1/p[0-9]/p3"}:        "/p1",
		{Type: model.Regex, Value: "/plain/path"}:          "/plain/path",
		{Type: model.Regex, Value: "/a|/b"}:                "/",
		{Type: model.Regex, Value: "(?i)/shop/.*"}:         "/",
		{Type: model.Regex, Value: "(?:/shop)?/cart/list"}: "/",
	} {
		if got := cookiePath(path); got != want {
			t.Errorf("%s %s: path %s, want %s", path.Type, path.Value, got, want)
		}
	}
}

func FuzzSessionCookies(f *testing.F) {
	// With the same key, every process makes the same token.
	p := NewPipeline(Options{Now: func() time.Time { return time.Unix(1<<30, 0) }, SessionKey: []byte("a key of sixteen bytes or more")}, Around{})
	r := &routing.Rule{Route: &model.Route{}, Rule: &model.Rule{
		Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}},
		Session: &model.Session{Name: "s", Type: model.Cookie, AbsoluteTimeout: model.Duration(time.Hour)},
	}}
	to := &model.Backend{Service: "default/app:80", Weight: 1}
	r.Backends = []*routing.Backend{{Backend: to, Rule: r}}
	services := upstream.New(upstream.Options{})
	f.Cleanup(func() { services.Close() })
	all, err := services.Apply(&model.Config{Services: []model.Service{{Name: to.Service, Protocol: model.HTTP, Endpoints: []model.Endpoint{{Address: "127.0.0.1:1"}}}}})
	if err != nil {
		f.Fatal(err)
	}
	snap := &Snapshot{Backends: []Backend{{Service: all.Service(to.Service, "")}}}
	s := compileSession(r.Rule.Session, r, snap, p.sessionKeys)
	var token string
	for spot := range s.bySpot {
		ex := &Exchange{pipe: p, from: Origin{Peer: &Peer{}}, routed: routed{backend: spot.backend, endpoint: spot.endpoint}}
		ex.decision.Rule, ex.decision.Match = r, &r.Rule.Matches[0]
		value := ex.markSession(s, nil)[0].Value
		token, _, _ = strings.Cut(strings.TrimPrefix(value, "s="), ";")
	}
	f.Add("s=" + token)
	f.Add("a=b; s=\"" + token + "\"; c")
	f.Add("s=" + token[:31])
	f.Fuzz(func(t *testing.T, cookies string) {
		ex := &Exchange{pipe: p}
		if ex.acceptCookie(s, cookies) && !strings.Contains(cookies, token) {
			t.Errorf("%q is accepted", cookies)
		}
	})
}

// TestAHandMadeTokenReachesNoIdleLeaf: an idle leaf of a split is as closed as an idle backend.
func TestAHandMadeTokenReachesNoIdleLeaf(t *testing.T) {
	b, leaf, idle := &routing.Backend{Backend: &model.Backend{Weight: 1}}, &routing.Leaf{Leaf: &model.Leaf{Weight: 1}}, &routing.Leaf{Leaf: &model.Leaf{}}
	for _, test := range []struct {
		b    *routing.Backend
		l    *routing.Leaf
		want bool
	}{{b, nil, false}, {b, leaf, false}, {b, idle, true}, {b, &routing.Leaf{}, true}, {&routing.Backend{Backend: &model.Backend{}}, leaf, true}} {
		if got := idleTarget(test.b, test.l); got != test.want {
			t.Errorf("weight %d, leaf %v: %v", test.b.Backend.Weight, test.l, got)
		}
	}
}
