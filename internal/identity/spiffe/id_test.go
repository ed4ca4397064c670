package spiffe

import (
	"net/url"
	"strings"
	"testing"
)

func TestIDsThatTheStandardAllows(t *testing.T) {
	for text, want := range map[string][2]string{
		"spiffe://cluster.local/ns/shop/sa/cart":                        {"cluster.local", "/ns/shop/sa/cart"},
		"spiffe://td":                                                   {"td", ""},
		"spiffe://a_b-c.9/A.b-c_1/...":                                  {"a_b-c.9", "/A.b-c_1/..."},
		"spiffe://" + strings.Repeat("a", 255) + "/x":                   {strings.Repeat("a", 255), "/x"},
		"spiffe://td/" + strings.Repeat("a", maxID-len("spiffe://td/")): {"td", "/" + strings.Repeat("a", maxID-len("spiffe://td/"))},
	} {
		id, err := Parse(text)
		if err != nil || id.TrustDomain() != want[0] || id.Path() != want[1] || id.String() != text || id.IsZero() {
			t.Errorf("%s: %q %q, %v", text, id.TrustDomain(), id.Path(), err)
		}
	}
	if id := (ID{}); !id.IsZero() || id.String() != "" || id.TrustDomain() != "" || id.Path() != "" {
		t.Errorf("the zero ID is %q, %q, %q", id, id.TrustDomain(), id.Path())
	}
}

func TestIDsThatTheStandardForbids(t *testing.T) {
	for text, why := range map[string]string{
		"":                                     "begin",
		"td/x":                                 "begin",
		"http://td/x":                          "begin",
		"SPIFFE://td/x":                        "begin",
		"spiffe:/td/x":                         "begin",
		"spiffe:///x":                          "empty",
		"spiffe://":                            "empty",
		"spiffe://TD/x":                        "lower-case",
		"spiffe://td:443/x":                    "':'",
		"spiffe://user@td/x":                   "'@'",
		"spiffe://t%64/x":                      "'%'",
		"spiffe://tÿ/x":                        "lower-case",
		"spiffe://td?q":                        "'?'",
		"spiffe://td/":                         "empty segment",
		"spiffe://td/x/":                       "empty segment",
		"spiffe://td//x":                       "empty segment",
		"spiffe://td/./x":                      `"."`,
		"spiffe://td/x/..":                     `".."`,
		"spiffe://td/a%2fb":                    "'%'",
		"spiffe://td/a?b":                      "'?'",
		"spiffe://td/a#b":                      "'#'",
		"spiffe://td/a b":                      "' '",
		"spiffe://td/a\x00":                    `'\x00'`,
		"spiffe://td/ü":                        "letters",
		"spiffe://td/a:b":                      "':'",
		"spiffe://td/*":                        "'*'",
		"spiffe://td/a\nb":                     `'\n'`,
		"spiffe://" + strings.Repeat("a", 256): "longer than 255",
		"spiffe://td/" + strings.Repeat("a", 2048): "longer than 2048",
	} {
		if id, err := Parse(text); err == nil || !strings.Contains(err.Error(), why) || !id.IsZero() {
			t.Errorf("%q: %v, want %s", text, err, why)
		}
	}
}

// What Parse accepts is a URI of exactly these parts to others, too, and has one spelling.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"spiffe://td/a/b", "spiffe://td", "spiffe://td/", "spiffe://t.d-_/A..b", "spiffe://td/%61", "spiffe://td//", "spiffe://td/..", "spiffe://u@td:1/?a#b"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		id, err := Parse(s)
		if err != nil {
			if !id.IsZero() {
				t.Fatalf("%q is both %s and wrong: %v", s, id, err)
			}
			return
		}
		u, err := url.Parse(s)
		if err != nil {
			t.Fatalf("%q is no URI: %v", s, err)
		}
		if u.Scheme != "spiffe" || u.Host != id.TrustDomain() || u.Path != id.Path() || u.String() != s || id.String() != s ||
			u.User != nil || u.Port() != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" {
			t.Fatalf("%q is %q %q, as a URI %#v", s, id.TrustDomain(), id.Path(), u)
		}
		if clean := u.JoinPath(); id.Path() != "" && clean.Path != id.Path() {
			t.Fatalf("%q has the clean path %q", s, clean.Path)
		}
		if again, err := Parse(Scheme + id.TrustDomain() + id.Path()); err != nil || again != id {
			t.Fatalf("%q made of its parts is %s, %v", s, again, err)
		}
	})
}

func TestWhoseAnIDIs(t *testing.T) {
	for text, want := range map[string][3]string{
		"spiffe://td/ns/shop/sa/web": {"shop", "web"}, "spiffe://td/ns/shop/sa/web/x": {}, "spiffe://td/ns/shop/sa": {}, "spiffe://td/ns/shop": {}, "spiffe://td/x/ns/shop/sa/web": {},
		"spiffe://td/ns/shop/SA/web": {}, "spiffe://td": {}, "spiffe://td/node/n1": {"", "", "n1"}, "spiffe://td/node": {}, "spiffe://td/node/n1/x": {}, "spiffe://td/ns/node/sa/n": {"node", "n", ""},
	} {
		id, err := Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		namespace, account, ok := id.ServiceAccount()
		node, isNode := id.Node()
		if got := [3]string{namespace, account, node}; got != want && (ok || isNode || want != [3]string{}) || ok != (want[1] != "") || isNode != (want[2] != "") {
			t.Errorf("%s: %q %t %t, want %q", text, got, ok, isNode, want)
		}
	}
}
