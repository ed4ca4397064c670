package model_test

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

func TestTrustedNetworksAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.0/8": "10.0.0.0/8", "192.0.2.1": "192.0.2.1/32", "2001:db8::/32": "2001:db8::/32", "2001:DB8::1": "2001:db8::1/128",
		"::ffff:192.0.2.1": "192.0.2.1/32", "0.0.0.0/0": "0.0.0.0/0",
		"": "", "10.0.0.1/8": "", "10.0.0.0/33": "", "fe80::1%eth0": "", "::ffff:10.0.0.0/104": "", "example.com": "", "10/8": "", "10.0.0.0/-1": "", "010.0.0.0/8": "",
	} {
		p, err := model.ParseTrusted(text)
		if (err == nil) != (want != "") || err == nil && p.String() != want {
			t.Errorf("%q: %v, %v, want %q", text, p, err, want)
		}
		if err != nil {
			continue
		}
		all := model.TrustedProxies([]netip.Prefix{p, p})
		c := model.Config{Listeners: []model.Listener{{Name: "a", Port: 80, Protocol: model.HTTP, Front: &model.Front{TrustedProxies: all}}}}
		if err := c.Validate(); err != nil || len(all) != 1 {
			t.Errorf("%q: %v: %v", text, all, err)
		}
	}
}

func TestFrontsThatAreNotValidAreTold(t *testing.T) {
	for want, change := range map[string]func(c *model.Config){
		"front.trustedProxies[0]": func(c *model.Config) { c.Listeners[0].Front = &model.Front{TrustedProxies: []string{"10.0.0.1/8"}} },
		"front.trustedProxies[1]": func(c *model.Config) {
			c.Listeners[0].Front = &model.Front{TrustedProxies: []string{"10.0.0.0/8", "192.0.2.1"}}
		},
		"front.trustedProxies: has": func(c *model.Config) {
			c.Listeners[0].Front = &model.Front{TrustedProxies: slices.Repeat([]string{"10.0.0.0/8"}, model.MaxTrustedProxies+1)}
		},
		"front.clientAddress": func(c *model.Config) { c.Listeners[0].Front = &model.Front{ClientAddress: "via"} },
		"clashes":             func(c *model.Config) { c.Listeners[1].Front = &model.Front{ProxyProtocol: true} },
		"proxyProtocol": func(c *model.Config) {
			c.Services = []model.Service{{Name: "a/b:80", Protocol: model.HTTP, ProxyProtocol: 3}}
		},
	} {
		c := &model.Config{Listeners: []model.Listener{{Name: "a", Port: 80, Protocol: model.HTTP, Hostname: "a.example"}, {Name: "b", Port: 80, Protocol: model.HTTP}}}
		if err := c.Validate(); err != nil {
			t.Fatal(err)
		}
		change(c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestListenersOfAPortAgreeOnTheirPROXYHeader: what is merged is valid, and the first has the port.
func TestListenersOfAPortAgreeOnTheirPROXYHeader(t *testing.T) {
	front := &model.Front{TrustedProxies: []string{"10.0.0.0/8"}, ProxyProtocol: true}
	c := model.Merge(
		model.Config{Listeners: []model.Listener{{Name: "a", Port: 80, Protocol: model.HTTP, Hostname: "a.example", Front: front}}},
		model.Config{Listeners: []model.Listener{
			{Name: "b", Port: 80, Protocol: model.HTTP}, {Name: "c", Port: 80, Protocol: model.HTTP, Hostname: "c.example", Front: front},
			{Name: "d", Port: 80, Protocol: model.HTTP, Hostname: "d.example", Front: &model.Front{TrustedProxies: []string{"0.0.0.0/0"}, ProxyProtocol: true}},
		}})
	var names []string
	for _, l := range c.Listeners {
		names = append(names, l.Name)
	}
	if err := c.Validate(); err != nil || !slices.Equal(names, []string{"a", "c"}) {
		t.Errorf("%v, %v", names, err)
	}
}
