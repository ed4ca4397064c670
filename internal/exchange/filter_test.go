package exchange

import (
	"net/url"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
)

func TestOriginsAreTakenApart(t *testing.T) {
	for pattern, origins := range map[string]map[string]bool{
		"https://*.good.example": {
			"https://a.good.example": true, "https://a.b.good.example": true, "HTTPS://A.GOOD.example": true, "https://a.good.example:443": true, "https://a_b-1.good.example": true,
			"https://evil.com/.good.example": false, "https://evil.com?.good.example": false, "https://evil.com#.good.example": false, "https://evil.com\\.good.example": false,
			"https://evil.com@a.good.example": false, "https://evil.com:443@a.good.example": false, "https://user:pw@a.good.example": false, "https://a.good.example/": false,
			"https://.good.example": false, "https://a..good.example": false, "https://good.example": false, "https://evilgood.example": false, "https://a.good.example.": false,
			"http://a.good.example": false, "https://a.good.example:8443": false, "https://a.good.example:": false, "https://a.good.example:0443": false, "https://evil.com:1.good.example": false,
			"https://[::1].good.example": false, "https://%61.good.example": false, "https://a b.good.example": false, "https://a\t.good.example": false, "https://\xe9.good.example": false,
			"https://evil.com, https://a.good.example": false, "https://evil.com https://a.good.example": false, "null": false, "": false, "a.good.example": false, "//a.good.example": false,
			"xhttps://a.good.example": false, "https:///a.good.example": false, "https://evil.com/https://a.good.example": false,
		},
		"http://*":              {"http://a": true, "http://a.b": true, "http://[::1]": true, "http://127.0.0.1": true, "http://a:80": true, "http://a:81": false, "https://a": false, "http://a/": false, "http://": false, "http://a@b": false, "http://[::1": false, "http://[::1%25x]": false},
		"http://*:8080":         {"http://a.b:8080": true, "http://a.b": false, "http://a:1@b:8080": false, "http://[::1]:8080": true},
		"http://[2001:db8::1]":  {"http://[2001:db8::1]": true, "http://[2001:DB8::1]:80": true, "http://[2001:db8::2]": false, "http://[2001:db8::1].evil": false, "http://2001:db8::1": false},
		"https://shop.example":  {"https://shop.example": true, "https://Shop.Example:443": true, "https://shop.example:80": false, "https://shop.example.": false, "https://shop.example:00443": false},
		"https://app-*.example": {"https://app-1.example": true, "https://app-.example": false, "https://app-a/b.example": false},
		"null":                  {"null": false, "https://null": false},
		"https://a:*":           {"https://a:1": false, "https://a": false, "https://a:*": false},
	} {
		c := compileCORS(&model.CORS{AllowOrigins: []string{pattern}, AllowCredentials: true})
		for value, want := range origins {
			if got := c.allows(value); got != want {
				t.Errorf("%s allows %q: %v", pattern, value, got)
			}
		}
	}
	all := compileCORS(&model.CORS{AllowOrigins: []string{"*"}, AllowCredentials: true})
	for value, want := range map[string]bool{"null": true, "https://a": true, "": false, "*": false, "https://a, https://b": false, "https://a/b": false, "Null": false} {
		if got := all.allows(value); got != want {
			t.Errorf("* with credentials allows %q: %v", value, got)
		}
	}
}

// FuzzOriginsAreWhole: another reader of URLs sees an origin that a pattern allows as an origin and nothing more, and
// its host ends as the pattern does.
func FuzzOriginsAreWhole(f *testing.F) {
	for _, s := range []string{"https://a.good.example", "https://evil.com/.good.example", "https://a@b.good.example", "https://[::1].good.example", "https://a:443.good.example", "https://a.good.example:443"} {
		f.Add(s)
	}
	c := compileCORS(&model.CORS{AllowOrigins: []string{"https://*.good.example", "http://x*y.example:81"}})
	f.Fuzz(func(t *testing.T, value string) {
		if !c.allows(value) {
			return
		}
		u, err := url.Parse(value)
		if err != nil || u.User != nil || u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.ContainsAny(value, "#?@\\ ,%") {
			t.Fatalf("%q is no origin: %+v, %v", value, u, err)
		}
		host := strings.ToLower(u.Hostname())
		switch {
		case u.Scheme == "https" && (u.Port() == "" || u.Port() == "443") && strings.HasSuffix(host, ".good.example") && len(host) > len(".good.example"):
		case u.Scheme == "http" && u.Port() == "81" && strings.HasPrefix(host, "x") && strings.HasSuffix(host, "y.example"):
		default:
			t.Fatalf("%q is allowed", value)
		}
	})
}

func TestEditsKeepFraming(t *testing.T) {
	e := compileEdit(&model.HeaderEdit{
		Set:    []model.HeaderValue{{Name: "Transfer-Encoding", Value: "chunked"}, {Name: "Host", Value: "set.example"}, {Name: "Connection", Value: "x"}},
		Add:    []model.HeaderValue{{Name: "content-length", Value: "3"}, {Name: "X-Bad", Value: "a\r\nb: c"}, {Name: "b ad", Value: "x"}},
		Remove: []string{"TE", "Trailer", "upgrade"},
	})
	in := []http1.Field{{Name: "Trailer", Value: "x", ID: http1.FieldTrailer}}
	if out := e.apply(in); len(out) != 1 || e.host != "set.example" {
		t.Errorf("%v, host %q", out, e.host)
	}
}
