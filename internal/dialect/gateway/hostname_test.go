package gateway

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

func TestWiderHostnamesAreThoseThatStandForAll(t *testing.T) {
	hostname := func() string {
		var labels []string
		for range rand.IntN(4) {
			labels = append(labels, string('a'+byte(rand.IntN(2))))
		}
		if len(labels) > 0 && rand.IntN(2) == 0 {
			labels[0] = "*"
			if len(labels) == 1 {
				labels = append(labels, "a")
			}
		}
		return strings.Join(labels, ".")
	}
	for range 20_000 {
		a, b := hostname(), hostname()
		_, meet := intersect(a, b)
		if found := a == b || slices.Contains(wider(a), b) || slices.Contains(wider(b), a); found != meet {
			t.Fatalf("%q and %q: found %t, intersect says %t", a, b, found, meet)
		}
	}
}

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

func TestOverlapsAreToldInPart(t *testing.T) {
	for n, want := range map[int]int{1: 1, overlapsTold: overlapsTold, overlapsTold + 1: overlapsTold + 1, 1000: overlapsTold + 1} {
		l := &listener{}
		for i := range n {
			l.overlaps = append(l.overlaps, strings.Repeat("x", i+1))
		}
		if l.settleOverlaps(); len(l.overlaps) != want {
			t.Errorf("%d overlaps are told as %d, want %d", n, len(l.overlaps), want)
		}
	}
}
