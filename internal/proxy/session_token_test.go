package proxy

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

func TestForgedAndGarbledTokensAreIgnored(t *testing.T) {
	cfg := sticky(t, model.Session{Name: "s", Type: model.Cookie, AbsoluteTimeout: model.Duration(time.Hour)})
	second := cfg.Routes[0].Rules[0]
	second.Matches = []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/second"}}}
	cfg.Routes[0].Rules = append(cfg.Routes[0].Rules, second)
	cfg.Routes[0].Rules[1].Ref.Field = "spec.rules[1]"
	s := serve(t, cfg)
	c := newClient(t)
	target := "http://" + s.addr() + "/"
	_, cookie := begin(t, c, target)
	token := strings.TrimPrefix(cookie, "s=")
	_, foreign := begin(t, c, target+"second")
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		t.Fatal(err)
	}
	forged := func(at int) string {
		b := slices.Clone(raw)
		b[at] ^= 1
		return "s=" + base64.RawURLEncoding.EncodeToString(b)
	}
	bad := map[string]string{
		"another rule": foreign, "empty": "s=", "no value": "s", "short": "s=" + token[:20], "long": cookie + "AAAA", "lines": "s=" + token[:30] + "  ",
		"not base64": "s=" + strings.Repeat("*", tokenLetters), "zero": "s=" + strings.Repeat("A", tokenLetters), "another name": "S=" + token,
		"in a value": "x=s=" + token, "address": "s=127.0.0.1:80", "other cookies": "a=b; s; =;;; s==; \"",
	}
	for at := range proofBegins { // a proof is required where others have the key, see TestTokensAreProved
		bad[fmt.Sprint("byte ", at)] = forged(at)
	}
	for name, cookies := range bad {
		got := fetch(t, c, target, "Cookie", cookies)
		if got.status != 200 || got.cookie == nil {
			t.Errorf("%s: %d by %s, cookie %v", name, got.status, got.by, got.cookie)
		}
	}
	for _, cookies := range []string{cookie, "a=b; " + cookie + " ; c=d", "s=old;" + cookie, foreign + "; " + cookie, `s="` + token + `"`} {
		if got := fetch(t, c, target, "Cookie", cookies); got.cookie != nil {
			t.Errorf("%q is not accepted", cookies)
		}
	}
	if got := fetch(t, c, target, "Cookie", "a=b", "Cookie", foreign, "Cookie", cookie); got.cookie != nil {
		t.Error("the third line is not looked at")
	}
}

// Sizes of a token and of its parts: an ID, the time, a tag, a proof.
const (
	idBytes, timeBytes, tagBytes, proofBytes = 10, 6, 8, 9
	proofBegins                              = idBytes + timeBytes + tagBytes
	tokenBytes                               = proofBegins + proofBytes
	tokenLetters                             = tokenBytes / 3 * 4
)

// handMade returns, for each endpoint, tokens with different proofs, as made by somebody who knows the input of the
// digests.
func handMade(rule string, targets map[string]string, now time.Time) []string {
	digest := func(parts ...string) []byte {
		var b []byte
		for _, p := range parts {
			b = append(binary.AppendUvarint(b, uint64(len(p))), p...)
		}
		sum := sha256.Sum256(b)
		return sum[:]
	}
	bind := func(key, time []byte, size int) []byte {
		sum := sha256.Sum256(slices.Concat(key, time))
		return sum[:size]
	}
	var all []string
	for address, serviceName := range targets {
		key := digest("weir session 1", rule, serviceName, "0", serviceName, address)
		issued := binary.BigEndian.AppendUint64(nil, uint64(now.UnixMilli()))[8-timeBytes:]
		token := slices.Concat(key[:idBytes], issued, bind(key, issued, tagBytes))
		proved := slices.Concat(token, bind(digest("weir session secret", string(make([]byte, 32)), string(key)), issued, proofBytes))
		for _, b := range [][]byte{append(slices.Clone(token), make([]byte, proofBytes)...), proved, token} {
			all = append(all, "s="+base64.RawURLEncoding.EncodeToString(b))
		}
	}
	return all
}

func TestAHandMadeTokenReachesNobodyWhoTakesNoTraffic(t *testing.T) {
	for name, key := range map[string]struct {
		option, salt string
		others       bool // tokens of another proxy are valid
	}{
		"no key": {"", "", false}, "a key": {"0123456789abcdef", "", true}, "a salt": {"", "of the route", true}, "both": {"0123456789abcdef", "of the route", true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := sticky(t, model.Session{Name: "s", Type: model.Cookie, Salt: key.salt})
			option := func(o *Options) { o.SessionKey = []byte(key.option) }
			s, other := serve(t, cfg, option), serve(t, cfg, option)
			c := newClient(t)
			target, elsewhere := "http://"+s.addr()+"/", "http://"+other.addr()+"/"
			byB, real := beginAt(t, c, target, "b")
			byA, busy := beginAt(t, c, elsewhere, "a")
			drained := *cfg
			drained.Routes = slices.Clone(cfg.Routes)
			r := cfg.Routes[0].Rules[0]
			r.Backends = slices.Clone(r.Backends)
			r.Backends[1].Weight = 0
			drained.Routes[0].Rules = []model.Rule{r}
			for _, s := range []*testServer{s, other} {
				if err := s.Apply(&drained); err != nil {
					t.Fatal(err)
				}
			}
			targets := map[string]string{}
			for _, e := range cfg.Services[1].Endpoints {
				targets[e.Address] = "default/b:80"
			}
			ref := cfg.Routes[0].Ref
			for _, token := range handMade(ref.Kind+" "+ref.Namespace+"/"+ref.Name+" index 0", targets, time.Now()) {
				if got := fetch(t, c, target, "Cookie", token); got.by[:1] != "a" || got.cookie == nil {
					t.Errorf("%q is served by %s, whose weight is 0; cookie %v", token, got.by, got.cookie)
				}
			}
			if got := fetch(t, c, target, "Cookie", real); got.by != byB || got.cookie != nil {
				t.Errorf("the session of %s goes on at %s", byB, got.by)
			}
			if got := fetch(t, c, elsewhere, "Cookie", real); (got.by == byB) != key.others {
				t.Errorf("at another proxy the session of %s goes on at %s", byB, got.by)
			}
			// An endpoint that takes traffic is open to everyone. Without a key, tokens of others are therefore valid.
			if got := fetch(t, c, target, "Cookie", busy); got.by != byA || got.cookie != nil {
				t.Errorf("the session of %s, which another proxy began, goes on at %s", byA, got.by)
			}
		})
	}
}

func TestTokensAreProved(t *testing.T) {
	cfg := sticky(t, model.Session{Name: "s", Type: model.Cookie, Salt: "of the route"})
	s := serve(t, cfg)
	c := newClient(t)
	target := "http://" + s.addr() + "/"
	_, cookie := begin(t, c, target)
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(cookie, "s="))
	if err != nil || len(raw) != tokenBytes {
		t.Fatal(len(raw), err)
	}
	for at := range raw {
		b := slices.Clone(raw)
		b[at] ^= 0x80
		if got := fetch(t, c, target, "Cookie", "s="+base64.RawURLEncoding.EncodeToString(b)); got.status != 200 || got.cookie == nil {
			t.Errorf("byte %d: %d by %s, cookie %v", at, got.status, got.by, got.cookie)
		}
	}
	if got := fetch(t, c, target, "Cookie", cookie); got.cookie != nil {
		t.Error("the token itself is not accepted")
	}
}

func TestSessionsEndWithTheirTimeout(t *testing.T) {
	var clock atomic.Int64
	base := time.Now()
	pass := func(d time.Duration) { clock.Add(int64(d)) }
	cfg := sticky(t, model.Session{Name: "s", Type: model.Cookie, AbsoluteTimeout: model.Duration(time.Hour), Permanent: true})
	s := serve(t, cfg, func(o *Options) { o.Now = func() time.Time { return base.Add(time.Duration(clock.Load())) } })
	c := newClient(t)
	target := "http://" + s.addr() + "/"
	start := func() fetched {
		t.Helper()
		got := fetch(t, c, target)
		if got.cookie == nil || got.cookie.MaxAge != 3600 {
			t.Fatalf("a new session's cookie is %v", got.cookie)
		}
		return got
	}
	first := start()
	token := "s=" + first.cookie.Value
	pass(time.Hour - time.Second)
	if got := fetch(t, c, target, "Cookie", token); got.by != first.by || got.cookie != nil {
		t.Errorf("after an hour but a second: by %s, not %s, cookie %v", got.by, first.by, got.cookie)
	}
	pass(time.Second)
	if got := fetch(t, c, target, "Cookie", token); got.cookie == nil || got.cookie.MaxAge != 3600 {
		t.Errorf("the session did not end after an hour: cookie %v", got.cookie)
	}
	// The token comes from a clock that runs ahead: that of a replica by a little, but not by a day.
	pass(time.Minute)
	ahead := start()
	pass(-time.Minute)
	if got := fetch(t, c, target, "Cookie", "s="+ahead.cookie.Value); got.by != ahead.by || got.cookie != nil {
		t.Errorf("a minute ahead: by %s, not %s, cookie %v", got.by, ahead.by, got.cookie)
	}
	pass(24 * time.Hour)
	ahead = start()
	pass(-24 * time.Hour)
	if got := fetch(t, c, target, "Cookie", "s="+ahead.cookie.Value); got.cookie == nil {
		t.Error("a day ahead is accepted")
	}
}

func TestSessionCookieAttributes(t *testing.T) {
	cfg := sticky(t, model.Session{Name: "s", Type: model.Cookie})
	cfg.Routes[0].Rules[0].Matches = append(cfg.Routes[0].Rules[0].Matches, model.Match{Path: model.PathMatch{Type: model.Prefix, Value: "/shop"}})
	cfg.Routes[0].Rules[0].Filters.ResponseHeaders = &model.HeaderEdit{Remove: []string{"Set-Cookie"}}
	s := serve(t, cfg)
	for path, want := range map[string]string{"/shop/cart": "/shop", "/about": "/"} {
		f := fetch(t, newClient(t), "http://"+s.addr()+path)
		if k := f.cookie; k == nil || k.Path != want || !k.HttpOnly || k.SameSite != http.SameSiteLaxMode || k.Secure || k.MaxAge != 0 || k.Domain != "" {
			t.Errorf("%s: %v", path, k)
		}
	}
	pool := secure(t, cfg, "shop.example")
	k := newTLSTalk(t, serve(t, cfg).addr(), pool, "shop.example")
	k.send("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
	if resp, _ := k.answer("GET"); len(resp.Cookies()) != 1 || !resp.Cookies()[0].Secure {
		t.Errorf("over TLS: %v", resp.Cookies())
	}
}
