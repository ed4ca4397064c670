package scrape

import (
	"context"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/metrics/embedded"
	"github.com/weirmesh/weir/internal/reach"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/workload"
)

// pods is a set with pods, "namespace/name", and their addresses.
func pods(all map[string][]string) *resource.Set {
	c := resource.NewCollection(workload.Kinds())
	for name, addresses := range all {
		namespace, name, _ := strings.Cut(name, "/")
		pod := &workload.Pod{}
		pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		pod.ObjectMeta = metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{
			"app.kubernetes.io/managed-by": "weir", "gateway.networking.k8s.io/gateway-name": "edge", "gateway.networking.k8s.io/gateway-class-name": "weir",
		}}
		pod.Addresses = addresses
		c.Put(resource.Adopt(workload.Kinds(), pod))
	}
	return c.Set()
}

// reading is proxies that connected, and what they ask for.
func reading(set *resource.Set, connected ...string) (p *Fleet, asked *[]string) {
	asked = &[]string{}
	p = &Fleet{Pods: &Pods{}, Port: 19080, Connected: func() []string { return connected }, Read: func(url string) func(context.Context) (telemetry.Report, error) {
		return func(context.Context) (telemetry.Report, error) {
			*asked = append(*asked, url)
			return telemetry.Report{}, nil
		}
	}}
	if set != nil {
		p.Pods.Known(set)
	}
	return p, asked
}

// outcome is what reading each source says, by its name.
func outcome(all []embedded.Source) map[string]string {
	out := map[string]string{}
	for _, s := range all {
		text := "read"
		if _, err := s.Read(context.Background()); err != nil {
			text = err.Error()
		}
		out[s.Name] = text
	}
	return out
}

// TestOnlyProxiesThatConnectedAreRead: a pod with the labels of a proxy is none.
func TestOnlyProxiesThatConnectedAreRead(t *testing.T) {
	set := pods(map[string][]string{
		"shop/edge-1": {"10.0.0.7", "fd00::7"}, "shop/fake": {"10.0.0.8"}, "blog/edge-6": {"fd00::6"}, "blog/second": {"127.0.0.1", "10.0.0.9"},
	})
	p, asked := reading(set, "shop/edge-1", "blog/edge-6", "blog/second", "shop/edge-1")
	all := p.Sources()
	if got := fmt.Sprint(outcome(all)); got != "map[blog/edge-6:read blog/second:read shop/edge-1:read]" {
		t.Error(got)
	}
	if want := []string{"http://[fd00::6]:19080/edges", "http://10.0.0.9:19080/edges", "http://10.0.0.7:19080/edges"}; !slices.Equal(*asked, want) {
		t.Errorf("asked %q, want %q", *asked, want)
	}
	for _, s := range all {
		if namespace, name, _ := strings.Cut(s.Name, "/"); s.At != (telemetry.Side{Kind: "Pod", Namespace: namespace, Name: name}) {
			t.Errorf("%s may speak for %v", s.Name, s.At)
		}
	}
}

// TestProxiesThatCannotBeReadSayWhy, and none is asked for anything.
func TestProxiesThatCannotBeReadSayWhy(t *testing.T) {
	addresses := map[string]string{
		"loopback": "127.0.0.1", "six": "::1", "mapped": "::ffff:127.0.0.1", "node": "169.254.1.1", "cloud": "169.254.169.254", "azure": "168.63.129.16",
		"nat": "64:ff9b::7f00:1", "zone": "fd00::1%eth0", "none": "0.0.0.0", "name": "localhost", "port": "10.0.0.1:80", "path": "10.0.0.1/x?", "empty": "",
	}
	want := map[string]string{
		"loopback": "loopback", "six": "loopback", "mapped": "loopback", "node": "link-local", "cloud": "link-local", "azure": "metadata",
		"nat": "loopback", "zone": "zone", "none": "unspecified", "name": "not an IP address", "port": "not an IP address", "path": "not an IP address",
		"empty": "not an IP address",
	}
	all := map[string][]string{"a/away": nil}
	connected := []string{"a/unknown", "a/away"} // the one has gone, the other has no address yet
	for name, address := range addresses {
		all["a/"+name] = []string{address}
		connected = append(connected, "a/"+name)
	}
	p, asked := reading(pods(all), connected...)
	got := outcome(p.Sources())
	if len(got) != len(want) || len(*asked) > 0 {
		t.Errorf("%d sources, asked %v", len(got), *asked)
	}
	for name, why := range want {
		if !strings.Contains(got["a/"+name], why) {
			t.Errorf("%s: %q, want %q", name, got["a/"+name], why)
		}
	}
}

// TestOnlyConnectedSidecarsAreRead: neither those of pods without one, nor those that would be the node's; and what they
// observe is told from what proxies of Gateways do.
func TestOnlyConnectedSidecarsAreRead(t *testing.T) {
	set := pods(map[string][]string{"shop/web": {"10.0.0.7"}, "shop/bare": {"10.0.0.8"}, "shop/host": {"10.0.0.9"}, "shop/away": {"10.0.0.10"}, "shop/odd": {"127.0.0.1"}})
	for _, p := range workload.PodList.In(set) {
		p.Sidecar, p.HostNetwork = p.Name != "bare", p.Name == "host"
	}
	p, asked := reading(set, "shop/web", "shop/bare", "shop/host", "shop/odd", "shop/unknown")
	p.Sidecars, p.Port = true, 15021
	p.Pods.Known(set)
	all := p.Sources()
	got := outcome(all)
	if len(got) != 2 || got["sidecar of shop/web"] != "read" || !strings.Contains(got["sidecar of shop/odd"], "loopback") {
		t.Error(got)
	}
	if want := []string{"http://10.0.0.7:15021/edges"}; !slices.Equal(*asked, want) {
		t.Errorf("asked %q, want %q", *asked, want)
	}
	for _, s := range all {
		if s.Name == "sidecar of shop/web" && (s.At != (telemetry.Side{Kind: "Pod", Namespace: "shop", Name: "web"}) || s.As != (telemetry.Side{Kind: "Sidecar", Namespace: "shop", Name: "web"})) {
			t.Errorf("%+v", s)
		}
	}
}

func TestBeforePodsAreKnownNoneIsRead(t *testing.T) {
	p, asked := reading(nil, "a/b")
	if got := fmt.Sprint(outcome(p.Sources())); got != "map[]" || len(*asked) > 0 {
		t.Errorf("%s, asked %v", got, *asked)
	}
}

func TestProxiesAreBounded(t *testing.T) {
	var connected []string
	all := map[string][]string{}
	for i := range MaxProxies + 5 {
		connected = append(connected, fmt.Sprintf("a/p%05d", MaxProxies+4-i))
		all[connected[i]] = []string{"10.0.0.1"}
	}
	p, _ := reading(pods(all), connected...)
	sources := p.Sources()
	if len(sources) != MaxProxies || p.LeftOut() != 5 || sources[0].Name != "a/p00000" {
		t.Errorf("%d sources, the first %s, %d left out", len(sources), sources[0].Name, p.LeftOut())
	}
	p.Connected = func() []string { return nil }
	if all := p.Sources(); len(all) != 0 || p.LeftOut() != 0 {
		t.Errorf("%d sources, %d left out, as none is connected", len(all), p.LeftOut())
	}
}

// FuzzSources: whatever a proxy is called and a pod's address says, nothing but the report of an address that endpoints may
// have is asked for.
func FuzzSources(f *testing.F) {
	for _, address := range []string{"10.0.0.7", "fd00::7", "127.0.0.1", "::ffff:127.0.0.1", "fe80::1%eth0", "10.0.0.1:80/x", "2002:7f00:1::"} {
		f.Add("shop/edge-1", address)
	}
	f.Add("a/b/c", "10.0.0.1")
	f.Add("/", "10.0.0.1")
	f.Fuzz(func(t *testing.T, name, address string) {
		p, asked := reading(pods(map[string][]string{"shop/edge-1": {address}}), "shop/edge-1", name)
		for _, s := range p.Sources() {
			_, _ = s.Read(t.Context())
			if s.Name != "shop/edge-1" || s.At != (telemetry.Side{Kind: "Pod", Namespace: "shop", Name: "edge-1"}) {
				t.Errorf("%q may speak for %+v", s.Name, s.At)
			}
		}
		for _, text := range *asked {
			u, err := url.Parse(text)
			if err != nil || u.Scheme != "http" || u.Path != "/edges" || u.RawQuery != "" || u.User != nil {
				t.Fatalf("asked %q: %v", text, err)
			}
			at, err := netip.ParseAddrPort(u.Host)
			if err != nil || at.Port() != 19080 || reach.Judge(at.Addr()) != "" {
				t.Errorf("asked %q: %v", text, err)
			}
		}
	})
}
