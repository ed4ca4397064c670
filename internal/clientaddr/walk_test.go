package clientaddr

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
)

func trust(networks ...string) *Trust {
	var all []netip.Prefix
	for _, n := range networks {
		all = append(all, netip.MustParsePrefix(n))
	}
	return NewTrust(all)
}

func TestTrustIsWhatItsNetworksHold(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	random := func() netip.Addr {
		if r.IntN(2) == 0 {
			return netip.AddrFrom4([4]byte{10, byte(r.IntN(4)), byte(r.IntN(4)), byte(r.IntN(256))})
		}
		return netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 0, 0, 0, byte(r.IntN(4)), 15: byte(r.IntN(256))})
	}
	for range 300 {
		var networks []netip.Prefix
		for range r.IntN(12) {
			a := random()
			p, err := a.Prefix(a.BitLen() - r.IntN(20))
			if err != nil {
				t.Fatal(err)
			}
			networks = append(networks, p)
		}
		set := NewTrust(networks)
		for range 200 {
			a := random()
			want := false
			for _, p := range networks {
				want = want || p.Contains(a)
			}
			if got := set.Contains(a); got != want {
				t.Fatalf("%v in %v: %v", a, networks, got)
			}
			if a.Is4() && set.Contains(netip.AddrFrom16(a.As16())) != want {
				t.Fatalf("%v as IPv6 in %v: %v", a, networks, !want)
			}
		}
	}
	if all := trust("0.0.0.0/0", "::/0"); !all.Contains(netip.MustParseAddr("255.255.255.255")) || !all.Contains(netip.MustParseAddr("fe80::1%eth0")) {
		t.Error("the whole of both families does not hold an address")
	}
	var none *Trust
	if none.Contains(netip.MustParseAddr("127.0.0.1")) || new(Trust).Contains(netip.MustParseAddr("::1")) || trust("0.0.0.0/0").Contains(netip.Addr{}) {
		t.Error("nobody is trusted, and somebody is")
	}
}

// hops of a walk over lines of one field, the last line first.
func hops(w *Walk, line func(string) bool, lines ...string) string {
	for i := len(lines) - 1; i >= 0; i-- {
		if !line(lines[i]) {
			break
		}
	}
	return fmt.Sprint(w.Hops())
}

const proxies = "10.0.0.0/8"

func TestTheClientIsTheFirstAddressNotTrustedFromTheRight(t *testing.T) {
	for _, c := range []struct {
		name  string
		lines []string
		want  string // nearest first
	}{
		{"nothing", nil, "[]"},
		{"an empty line", []string{""}, "[]"},
		{"one", []string{"192.0.2.1"}, "[192.0.2.1]"},
		{"forged ones on the left", []string{"127.0.0.1, 10.1.1.1, 192.0.2.1"}, "[192.0.2.1]"},
		{"over trusted ones", []string{"1.1.1.1, 192.0.2.1, 10.0.0.2,10.0.0.3"}, "[10.0.0.3 10.0.0.2 192.0.2.1]"},
		{"over lines", []string{"1.1.1.1", "192.0.2.1, 10.0.0.2", "10.0.0.3"}, "[10.0.0.3 10.0.0.2 192.0.2.1]"},
		{"trusted to the end", []string{"10.0.0.1, 10.0.0.2"}, "[10.0.0.2 10.0.0.1]"},
		{"ports and brackets", []string{"192.0.2.1:4711, 10.0.0.2:80"}, "[10.0.0.2 192.0.2.1]"},
		{"IPv6", []string{"2001:db8::1"}, "[2001:db8::1]"},
		{"IPv6 in brackets", []string{"[2001:db8::1]"}, "[2001:db8::1]"},
		{"IPv6 with a port", []string{"[2001:db8::1]:443"}, "[2001:db8::1]"},
		{"IPv6 with a zone", []string{"fe80::1%eth0"}, "[fe80::1]"},
		{"IPv4 as IPv6 is IPv4", []string{"192.0.2.1, ::ffff:10.0.0.2"}, "[10.0.0.2 192.0.2.1]"},
		{"upper case", []string{"2001:DB8::A"}, "[2001:db8::a]"},
		{"empty entries", []string{"192.0.2.1,, ,\t, "}, "[192.0.2.1]"},
		{"whitespace", []string{" \t192.0.2.1 \t"}, "[192.0.2.1]"},
		{"garbage at the end", []string{"192.0.2.1, garbage"}, "[]"},
		{"garbage between", []string{"192.0.2.1, garbage, 10.0.0.2"}, "[10.0.0.2]"},
		{"garbage in a line", []string{"192.0.2.1", "x", "10.0.0.2"}, "[10.0.0.2]"},
		{"unknown", []string{"192.0.2.1, unknown"}, "[]"},
		{"an obfuscated identifier", []string{"192.0.2.1, _hidden"}, "[]"},
		{"quotes", []string{`"192.0.2.1"`}, "[]"},
		{"a name", []string{"localhost"}, "[]"},
		{"a network", []string{"192.0.2.0/24"}, "[]"},
		{"leading zeros", []string{"192.0.02.1"}, "[]"},
		{"too few numbers", []string{"192.0.2"}, "[]"},
		{"a number", []string{"3221225985"}, "[]"},
		{"hexadecimal", []string{"0xc0.0.2.1"}, "[]"},
		{"no address", []string{"0.0.0.0"}, "[]"},
		{"no address of IPv6", []string{"[::]:80"}, "[]"},
		{"a port too long", []string{"192.0.2.1:123456"}, "[]"},
		{"no port behind its colon", []string{"192.0.2.1:"}, "[]"},
		{"brackets never closed", []string{"[2001:db8::1"}, "[]"},
		{"brackets and more", []string{"[2001:db8::1]x"}, "[]"},
		{"brackets around IPv4", []string{"[192.0.2.1]"}, "[]"},
		{"control bytes", []string{"192.0.2.1\x00"}, "[]"},
		{"too long", []string{"192.0.2.1" + strings.Repeat(" ", 100) + "x"}, "[]"},
		{"too long behind one that is right", []string{strings.Repeat("x", 1000) + ", 10.0.0.2"}, "[10.0.0.2]"},
	} {
		w := &Walk{}
		w.Begin(trust(proxies))
		if got := hops(w, w.ForwardedFor, c.lines...); got != c.want {
			t.Errorf("%s: %q: %s, want %s", c.name, c.lines, got, c.want)
		}
	}
}

func TestForwardedIsWalkedLikewise(t *testing.T) {
	for _, c := range []struct {
		name              string
		lines             []string
		want, proto, host string
	}{
		{"one", []string{"for=192.0.2.1"}, "[192.0.2.1]", "", ""},
		{"all parameters", []string{`For="192.0.2.1:47"; by=203.0.113.43;PROTO=https ; host="shop.example:8443"`}, "[192.0.2.1]", "https", "shop.example:8443"},
		{"over trusted ones", []string{`for=1.1.1.1;proto=gopher, for=192.0.2.1;proto=https;host=a, for=10.0.0.2;proto=http;host=b`}, "[10.0.0.2 192.0.2.1]", "https", "a"},
		{"over lines", []string{"for=1.1.1.1", "for=192.0.2.1", "for=10.0.0.2"}, "[10.0.0.2 192.0.2.1]", "", ""},
		{"IPv6", []string{`for="[2001:db8::1]"`}, "[2001:db8::1]", "", ""},
		{"IPv6 with a port", []string{`for="[2001:db8::1]:443"`}, "[2001:db8::1]", "", ""},
		{"IPv6 not quoted", []string{`for=[2001:db8::1]`}, "[2001:db8::1]", "", ""},
		{"an obfuscated port", []string{`for="192.0.2.1:_p1"`}, "[192.0.2.1]", "", ""},
		{"an extension", []string{`for=192.0.2.1;secret="a,b;c"`}, "[192.0.2.1]", "", ""},
		{"a quote that is never closed, before", []string{`for="1.1.1.1, for=192.0.2.1`}, "[192.0.2.1]", "", ""},
		{"an escape that is never closed, before", []string{`for="1.1.1.1\, for="192.0.2.1"`}, "[192.0.2.1]", "", ""},
		{"a quoted comma, before", []string{`for=1.1.1.1;x=", for=10.0.0.9, for=192.0.2.1;y="a,b"`}, "[192.0.2.1]", "", ""},
		{"empty elements", []string{"for=192.0.2.1, ,,"}, "[192.0.2.1]", "", ""},
		{"unknown", []string{"for=192.0.2.1, for=unknown"}, "[]", "", ""},
		{"unknown between", []string{"for=192.0.2.1, for=unknown;proto=https, for=10.0.0.2;proto=http"}, "[10.0.0.2]", "http", ""},
		{"an obfuscated identifier", []string{`for=192.0.2.1, for="_x"`}, "[]", "", ""},
		{"IPv6 without brackets", []string{`for="2001:db8::1"`}, "[]", "", ""},
		{"for twice", []string{"for=192.0.2.1;for=192.0.2.2"}, "[]", "", ""},
		{"no for", []string{"for=192.0.2.1, by=10.0.0.1;proto=https"}, "[]", "", ""},
		{"no value", []string{"for="}, "[]", "", ""},
		{"no parameter", []string{"192.0.2.1"}, "[]", "", ""},
		{"an escaped address", []string{`for="192.0.2.\1"`}, "[]", "", ""},
		{"garbage behind the quote", []string{`for="192.0.2.1"x`}, "[]", "", ""},
		{"a space in a token", []string{`for=192.0.2.1 x`}, "[]", "", ""},
		{"quotes all over", []string{strings.Repeat(`"`, 1000)}, "[]", "", ""},
		{"escapes all over", []string{strings.Repeat(`\`, 1000) + `"`}, "[]", "", ""},
		{"too long", []string{"for=192.0.2.1;x=" + strings.Repeat("y", 600)}, "[]", "", ""},
	} {
		w := &Walk{}
		w.Begin(trust(proxies))
		if got := hops(w, w.Forwarded, c.lines...); got != c.want || w.Proto != c.proto || w.Host != c.host {
			t.Errorf("%s: %q: %s proto %q host %q, want %s, %q, %q", c.name, c.lines, got, w.Proto, w.Host, c.want, c.proto, c.host)
		}
	}
}

func TestAWalkLooksAtABoundedNumberOfEntries(t *testing.T) {
	for _, entry := range []string{"10.0.0.1,", ","} {
		many := strings.Repeat(entry, 10_000)
		w := &Walk{}
		w.Begin(trust(proxies))
		if w.ForwardedFor(many) {
			t.Errorf("10,000 times %q: the walk is not over", entry)
		}
		if n := len(w.Hops()); n > MaxHops {
			t.Errorf("10,000 times %q: %d hops, more than %d", entry, n, MaxHops)
		}
		w.Begin(trust(proxies))
		if w.Forwarded(strings.ReplaceAll(many, "10", "for=10")) {
			t.Errorf("10,000 elements of %q: the walk is not over", entry)
		}
		w.Begin(trust(proxies))
		lines := 0
		for range 10_000 {
			if lines++; !w.ForwardedFor(strings.TrimSuffix(entry, ",")) {
				break
			}
		}
		if lines > MaxHops {
			t.Errorf("%d lines of %q were looked at", lines, entry)
		}
	}
}

func TestAWalkAllocatesNothing(t *testing.T) {
	set := trust(proxies)
	n := testing.AllocsPerRun(100, func() {
		var w Walk
		w.Begin(set)
		w.ForwardedFor("unknown, _x, 192.0.2.1, 10.0.0.2, [::ffff:10.0.0.3]:80")
		w.Begin(set)
		w.Forwarded(`for=unknown, for="[2001:db8::1]:80";proto=https;host="a.example", for=10.0.0.2`)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzWalk holds, of whatever a trusted proxy passes on in front of its own entry: the client is never what stands left of the first address that is not
// trusted, and no address on the way but the client is without trust.
func FuzzWalk(f *testing.F) {
	for _, s := range []string{"", "1.1.1.1", `for="`, `"\`, "10.0.0.1, 10.0.0.2", `for="[2001:db8::1]:80";proto=https`, "unknown", "a,b,,c", "fe80::1%,0"} {
		f.Add(s, s)
	}
	set := trust(proxies)
	f.Fuzz(func(t *testing.T, forged, other string) {
		check := func(field string, w *Walk, line func(string) bool) {
			h := w.Hops()
			if len(h) < 2 || h[0].String() != "10.0.0.2" || h[1].String() != "192.0.2.1" || len(h) > 2 || line == nil {
				t.Errorf("%s: %v behind %q", field, h, forged)
			}
		}
		w := &Walk{}
		w.Begin(set)
		w.ForwardedFor(forged + ", 192.0.2.1, 10.0.0.2")
		check("X-Forwarded-For", w, w.ForwardedFor)
		w.Begin(set)
		w.Forwarded(forged + `, for="192.0.2.1:47";proto=https, for=10.0.0.2`)
		check("Forwarded", w, w.Forwarded)
		if w.Proto != "https" {
			t.Errorf("proto %q behind %q", w.Proto, forged)
		}
		for _, walk := range []func(*Walk) func(string) bool{
			func(w *Walk) func(string) bool { return w.ForwardedFor }, func(w *Walk) func(string) bool { return w.Forwarded },
		} {
			w.Begin(set)
			line := walk(w)
			if line(other) {
				line(forged)
			}
			for i, a := range w.Hops() {
				if !a.IsValid() || a.Zone() != "" || a.Is4In6() || i < len(w.Hops())-1 && !set.Contains(a) {
					t.Errorf("hop %d of %v in %q, %q", i, w.Hops(), other, forged)
				}
			}
		}
	})
}
