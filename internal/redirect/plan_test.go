package redirect

import (
	"flag"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func annotations(pairs ...string) map[string]string {
	out := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		out[Prefix+pairs[i]] = pairs[i+1]
	}
	return out
}

func TestRulesAreThoseOfTheGoldenFile(t *testing.T) {
	p, err := Parse(annotations(SkipInboundPorts, "22, 8000-8100", SkipOutbound, "5432", SkipNetworks, "fd00::/8,10.0.0.0/8,10.1.2.3", SkipUsers, "1001,0"), Default())
	if err != nil {
		t.Fatal(err)
	}
	got := p.Describe() + "\n" + Text(p.Rules())
	const file = "testdata/rules.golden"
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil || got != string(want) {
		t.Errorf("%v; got:\n%s", err, got)
	}
}

func TestErrorsNameAnnotationValueReasonAndFix(t *testing.T) {
	many := strings.TrimSuffix(strings.Repeat("1,", MaxListed+1), ",")
	for _, x := range []struct{ name, value, want string }{
		{SkipInboundPorts, "22,http", `annotation weirmesh.github.io/skip-inbound-ports "http": this is no port and no range of ports; write numbers`},
		{SkipInboundPorts, "0", "no port"},
		{SkipInboundPorts, "022", "no port"},
		{SkipInboundPorts, "65536", "no port"},
		{SkipInboundPorts, "1,", "no port"},
		{SkipInboundPorts, "9-8", "write 8-9"},
		{SkipInboundPorts, "80; -j ACCEPT", "no port"},
		{SkipInboundPorts, "15000-16000", "at which the sidecar accepts"},
		{SkipInboundPorts, many, "more than 64 elements"},
		{SkipInboundPorts, strings.Repeat(" ", maxValue+1), "more than 4096 bytes"},
		{SkipNetworks, "10.0.0.1/8", "write 10.0.0.0/8"},
		{SkipNetworks, "::ffff:10.0.0.0/104", "a network of IPv4"},
		{SkipNetworks, "fe80::1%eth0", "no network"},
		{SkipUsers, "root", "no user"},
		{SkipUsers, "4294967295", "no user"},
		{SidecarUser, "0", "cannot run as root"},
		{InboundPorts, "80", "1024 or greater"},
		{InboundPorts, "15004-15006", "also for what the pod dials"},
		{OutboundPorts, "2000-3000", "1 to 16 ports"},
		{"skip-inbound-port", "22", "there is no such annotation; correct its name to one of skip-inbound-ports"},
	} {
		_, err := Parse(annotations(x.name, x.value), Default())
		if err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), Prefix+x.name) {
			t.Errorf("%s %.40q: %v, want %q", x.name, x.value, err, x.want)
		}
	}
	if _, err := Parse(map[string]string{"other/skip-x": "1", Prefix + "path-policy": "strict"}, Default()); err != nil {
		t.Errorf("annotations of others: %v", err)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("22,8000-8100", "5432", "10.0.0.0/8,::1", "0,1001", "15000")
	f.Add("-", ",", "::ffff:1.2.3.4/120", "-1", "")
	f.Fuzz(func(t *testing.T, in, out, networks, users, user string) {
		p, err := Parse(annotations(SkipInboundPorts, in, SkipOutbound, out, SkipNetworks, networks, SkipUsers, users, SidecarUser, user), Default())
		if err != nil {
			if len(err.Error()) > 1024 {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		settings := map[string]string{}
		for _, a := range p.Args() {
			name, value, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
			settings[name] = value
		}
		again, err := ParseSettings(settings, Default())
		if err != nil || !reflect.DeepEqual(again, p) {
			t.Errorf("%v of %q: %v, %v", p, p.Args(), again, err)
		}
		for _, line := range strings.Split(Text(p.Rules()), "\n") {
			if strings.ContainsAny(line, "\r\x00") || len(line) > 100 {
				t.Errorf("a line %q", line)
			}
		}
	})
}

func TestPodsThatCannotHaveARedirectAreTold(t *testing.T) {
	p := Default()
	user := func(n int64) *int64 { return &n }
	for _, x := range []struct {
		pod  Pod
		want []string
	}{
		{Pod{Containers: []Container{{Kind: "containers", Name: "shop"}}}, nil},
		{Pod{User: user(15000), Containers: []Container{{Kind: "containers", Name: "shop"}, {Kind: "containers", Name: "log", User: user(1)}}},
			[]string{`container "shop" would run as user 15000 (spec.securityContext.runAsUser)`}},
		{Pod{User: user(1), Containers: []Container{{Kind: "initContainers", Name: "seed", User: user(15000)}}},
			[]string{`(spec.initContainers[seed].securityContext.runAsUser), which is the sidecar's: its connections would not be redirected; choose another user, or another one for the sidecar by the annotation weirmesh.github.io/sidecar-user`}},
		{Pod{User: user(1<<32 + 15000), Containers: []Container{{Kind: "containers", Name: "shop"}}}, nil},
		{Pod{HostNetwork: true}, []string{"spec.hostNetwork"}},
		{Pod{Containers: []Container{{Kind: "containers", Name: "shop", Ports: []int32{80, 15003}}}}, []string{"has port 15003"}},
	} {
		got := p.Problems(&x.pod)
		if len(got) != len(x.want) {
			t.Errorf("%+v: %q", x.pod, got)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], x.want[i]) {
				t.Errorf("%q, want %q", got[i], x.want[i])
			}
		}
	}
}

func TestOwnPortsAreKnown(t *testing.T) {
	p := Default()
	ofPod := func(a netip.Addr) bool { return a == netip.MustParseAddr("10.0.0.7") }
	for address, want := range map[string]bool{
		"10.0.0.7:15011": true, "[::ffff:10.0.0.7]:15004": true, "127.0.0.1:15001": true, "[::1]:15014": true, "0.0.0.0:15011": true,
		"10.0.0.8:15011": false, "10.0.0.7:15010": false, "10.0.0.7:80": false,
	} {
		if got := p.Own(netip.MustParseAddrPort(address), ofPod); got != want {
			t.Errorf("%s: %v", address, got)
		}
	}
}
