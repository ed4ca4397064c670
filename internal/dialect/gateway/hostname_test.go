package gateway

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestIntersectionOfHostnames(t *testing.T) {
	for _, x := range []struct {
		a, b, want string
		ok         bool
	}{
		{"", "", "", true},
		{"", "a.example", "a.example", true},
		{"", "*.example", "*.example", true},
		{"a.example", "a.example", "a.example", true},
		{"a.example", "b.example", "", false},
		{"*.example.com", "test.example.com", "test.example.com", true},
		{"*.example.com", "foo.test.example.com", "foo.test.example.com", true},
		{"*.example.com", "example.com", "", false},
		{"*.example.com", "badexample.com", "", false},
		{"*.example.com", "*.test.example.com", "*.test.example.com", true},
		{"*.example.com", "*.com", "*.example.com", true},
		{"*.example.com", "*.example.net", "", false},
	} {
		for _, pair := range [][2]string{{x.a, x.b}, {x.b, x.a}} {
			if got, ok := intersect(pair[0], pair[1]); got != x.want || ok != x.ok {
				t.Errorf("intersect(%q, %q) = %q, %t, want %q, %t", pair[0], pair[1], got, ok, x.want, x.ok)
			}
		}
	}
}

// A host is in the intersection exactly when it is in both.
func TestIntersectionHoldsTheHostsOfBoth(t *testing.T) {
	in := func(host, name string) bool {
		return name == "" || host == name || strings.HasPrefix(name, "*.") && strings.HasSuffix(host, name[1:]) && len(host) >= len(name)
	}
	name := func() string {
		n := rand.IntN(4)
		labels := make([]string, n)
		for i := range labels {
			labels[i] = string("ab"[rand.IntN(2)])
		}
		if n > 0 && rand.IntN(2) == 0 {
			labels[0] = "*"
		}
		if s := strings.Join(labels, "."); s != "*" {
			return s
		}
		return ""
	}
	for range 20_000 {
		a, b, host := name(), name(), strings.ReplaceAll(name(), "*", "a")
		if host == "" {
			continue
		}
		both, ok := intersect(a, b)
		if got, want := ok && in(host, both), in(host, a) && in(host, b); got != want {
			t.Fatalf("%q in intersection %q (%t) of %q and %q: %t, want %t", host, both, ok, a, b, got, want)
		}
	}
}
