package reach

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
)

// forbidden are IPv4 addresses, at and around the edges, that no endpoint of a cluster may have; allowed are their
// neighbours.
var (
	forbidden = []string{
		"0.0.0.0", "0.0.0.1", "0.255.255.255", "127.0.0.1", "127.0.0.0", "127.0.0.53", "127.255.255.255", "169.254.0.0", "169.254.169.254",
		"169.254.255.255", "224.0.0.1", "239.255.255.255", "255.255.255.255", "100.100.100.200", "168.63.129.16", "192.0.0.192",
	}
	allowed = []string{
		"1.0.0.0", "10.0.0.1", "126.255.255.255", "128.0.0.0", "169.253.255.255", "169.255.0.0", "172.16.0.1", "192.168.0.1", "223.255.255.255",
		"240.0.0.1", "255.255.255.254", "100.64.0.1", "192.0.2.1", "168.63.129.17",
	}
)

// forms6 are the IPv6 addresses that stand for an IPv4 address.
func forms6(v4 netip.Addr) []netip.Addr {
	b := v4.As4()
	hi, lo := binary.BigEndian.Uint16(b[:2]), binary.BigEndian.Uint16(b[2:])
	short := netip.MustParseAddr("64:ff9b:1::").As16() // a prefix of 48 bits, RFC 6052 §2.2
	short[6], short[7], short[9], short[10] = b[0], b[1], b[2], b[3]
	out := []netip.Addr{netip.AddrFrom16(short)}
	for _, text := range []string{
		fmt.Sprintf("::ffff:%s", v4), fmt.Sprintf("::ffff:%x:%x", hi, lo), fmt.Sprintf("0:0:0:0:0:FFFF:%04X:%04X", hi, lo),
		fmt.Sprintf("::ffff:0:%s", v4), fmt.Sprintf("64:ff9b::%s", v4), fmt.Sprintf("64:ff9b::%x:%x", hi, lo), fmt.Sprintf("64:ff9b:1::%s", v4),
		fmt.Sprintf("2002:%x:%x::", hi, lo), fmt.Sprintf("2002:%x:%x::1", hi, lo), fmt.Sprintf("2002:%x:%x:1:2:3:4:5", hi, lo),
	} {
		out = append(out, netip.MustParseAddr(text))
	}
	return out
}

func TestJudgeRefusesEveryFormOfWhatIsForbidden(t *testing.T) {
	for _, text := range forbidden {
		a := netip.MustParseAddr(text)
		if Judge(a) == "" {
			t.Errorf("%s is allowed", a)
		}
		for _, form := range forms6(a) {
			if a.As4()[0] == 0 && nat64Local.Contains(form) {
				continue // no place holds it
			}
			if Judge(form) == "" {
				t.Errorf("%s, which stands for %s, is allowed", form, a)
			}
		}
	}
	for _, text := range []string{
		"::", "::1", "::%lo", "::1%lo", "fe80::1", "fe80::1%eth0", "febf:ffff::1", "ff02::1", "ff05::2%eth0", "fd00:ec2::254", "fd20:ce::254", "::127.0.0.1", "::7f00:1",
	} {
		if Judge(netip.MustParseAddr(text)) == "" {
			t.Errorf("%s is allowed", text)
		}
	}
	if Judge(netip.Addr{}) == "" {
		t.Error("no address is allowed")
	}
}

func TestJudgeAllowsTheRest(t *testing.T) {
	for _, text := range allowed {
		a := netip.MustParseAddr(text)
		for _, form := range append(forms6(a), a) {
			if why := Judge(form); why != "" {
				t.Errorf("%s, for %s: %s", form, a, why)
			}
		}
	}
	for _, text := range []string{"2001:db8::1", "fd00::1", "fc00::1", "fec0::1", "64:ff9b:2::7f00:1", "2003:7f00:1::", "fe7f::1", "::2:0:7f00:1"} {
		if why := Judge(netip.MustParseAddr(text)); why != "" {
			t.Errorf("%s: %s", text, why)
		}
	}
}

// FuzzJudge compares what is judged of IPv6 addresses with the IPv4 addresses that they stand for, and with the library's words.
func FuzzJudge(f *testing.F) {
	for _, text := range append(forbidden, allowed...) {
		a := netip.MustParseAddr(text)
		f.Add(a.AsSlice()) // of IPv4 in 4 bytes, for which the forms of IPv6 are made below
		b := a.As16()
		f.Add(b[:])
		for _, form := range forms6(a) {
			b := form.As16()
			f.Add(b[:])
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, ok := netip.AddrFromSlice(data)
		if !ok {
			return
		}
		why := Judge(a)
		ip := net.IP(data)
		if why == "" && (ip.IsLoopback() || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLinkLocalUnicast()) {
			t.Fatalf("%s is allowed", a)
		}
		if again := Judge(a.Unmap()); again != why {
			t.Fatalf("%s: %q, unmapped %q", a, why, again)
		}
		if len(data) != 4 {
			return
		}
		for _, form := range forms6(a) {
			if data[0] == 0 && nat64Local.Contains(form) {
				continue
			}
			if why != "" && Judge(form) == "" {
				t.Fatalf("%s is refused, but not %s, which stands for it", a, form)
			}
		}
	})
}

func guardOf(cluster bool, own ...string) *Guard {
	return &Guard{Cluster: cluster, interfaces: func() ([]net.Addr, error) {
		var out []net.Addr
		for _, text := range own {
			out = append(out, &net.IPNet{IP: net.ParseIP(text), Mask: net.CIDRMask(8, 32)})
		}
		return out, nil
	}}
}

func TestGuardOfAClusterRefusesThePodsOwnAddresses(t *testing.T) {
	g := guardOf(true, "127.0.0.1", "10.1.2.3", "fd00::5")
	for _, to := range []string{
		"10.1.2.3:80", "10.1.2.3:19080", "[::ffff:10.1.2.3]:80", "[64:ff9b::a01:203]:80", "[2002:a01:203::]:80", "[fd00::5]:1", "127.0.0.1:1", "[fe80::1%eth0]:80",
	} {
		if g.Refuse(netip.MustParseAddrPort(to)) == "" {
			t.Errorf("%s is not refused", to)
		}
	}
	for _, to := range []string{"10.1.2.4:19080", "[fd00::6]:1", "192.0.2.1:443"} {
		if why := g.Refuse(netip.MustParseAddrPort(to)); why != "" {
			t.Errorf("%s is refused: %s", to, why)
		}
	}
}

func TestGuardRefusesSocketsWhoseConnectionsAreRelayed(t *testing.T) {
	g := guardOf(false, "127.0.0.1", "10.1.2.3")
	var relays []netip.AddrPort
	g.Relays = func() []netip.AddrPort { return relays }
	refused := func(to string) bool { return g.Refuse(netip.MustParseAddrPort(to)) != "" }
	if refused("127.0.0.1:9000") {
		t.Error("refused before anything is relayed")
	}
	relays = []netip.AddrPort{netip.MustParseAddrPort("[::]:9000"), netip.MustParseAddrPort("10.1.2.3:9001")}
	for to, want := range map[string]bool{
		"127.0.0.1:9000": true, "127.9.9.9:9000": true, "[::1]:9000": true, "10.1.2.3:9000": true, "[::ffff:10.1.2.3]:9000": true, "0.0.0.0:9000": true,
		"10.1.2.3:9001": true, "0.0.0.0:9001": true, "127.0.0.1:9001": false, "127.0.0.1:9002": false, "10.1.2.4:9000": false,
	} {
		if refused(to) != want {
			t.Errorf("%s is refused: %v, want %v", to, !want, want)
		}
	}
	if relays = nil; refused("127.0.0.1:9000") {
		t.Error("refused when nothing is relayed any more")
	}
}

func TestGuardRefusesWhatLeadsToAProtectedSocket(t *testing.T) {
	for _, c := range []struct {
		socket           string
		refused, allowed []string
	}{
		{"127.0.0.1:15000",
			[]string{"127.0.0.1:15000", "[::ffff:127.0.0.1]:15000", "0.0.0.0:15000", "[::]:15000", "[64:ff9b::7f00:1]:15000", "[2002:7f00:1::]:15000", "[::127.0.0.1]:15000"},
			[]string{"127.0.0.1:8080", "127.0.0.2:15000", "10.1.2.3:15000", "192.0.2.1:15000"}},
		{"[::]:15000",
			[]string{"127.0.0.1:15000", "127.9.9.9:15000", "[::1]:15000", "[::]:15000", "0.0.0.0:15000", "10.1.2.3:15000", "[::ffff:10.1.2.3]:15000"},
			[]string{"127.0.0.1:8080", "10.1.2.3:80", "10.1.2.4:15000"}},
		{"10.1.2.3:15000", []string{"10.1.2.3:15000", "[::ffff:a01:203]:15000"}, []string{"127.0.0.1:15000", "10.1.2.4:15000"}},
	} {
		g := guardOf(false, "127.0.0.1", "10.1.2.3")
		if why := g.Refuse(netip.MustParseAddrPort(c.refused[0])); why != "" {
			t.Errorf("refused before Protect: %s", why)
		}
		g.Protect(netip.MustParseAddrPort("127.0.0.1:1"))
		g.Protect(netip.MustParseAddrPort(c.socket))
		for _, to := range c.refused {
			if g.Refuse(netip.MustParseAddrPort(to)) == "" {
				t.Errorf("%s is not refused, which leads to %s", to, c.socket)
			}
		}
		for _, to := range c.allowed {
			if why := g.Refuse(netip.MustParseAddrPort(to)); why != "" {
				t.Errorf("%s is refused with %s protected: %s", to, c.socket, why)
			}
		}
	}
}
