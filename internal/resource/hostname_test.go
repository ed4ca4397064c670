package resource

import "testing"

func TestHostNamesThatAreAllowed(t *testing.T) {
	var none *HostNames
	if why, _ := none.Refuse("localhost"); why != "" {
		t.Errorf("without a rule: %s", why)
	}
	list := &HostNames{Suffixes: []string{"example.com", ".corp.example."}}
	all := &HostNames{Suffixes: []string{"*"}, ClusterDomain: "k8s.corp.test"}
	for _, c := range []struct {
		names *HostNames
		host  string
		ok    bool
	}{
		{&HostNames{}, "api.example.com", false},
		{list, "example.com", true},
		{list, "api.example.com.", true},
		{list, "API.Example.COM", true},
		{list, "a.corp.example", true},
		{list, "badexample.com", false},
		{list, "example.com.evil.test", false},
		{list, "metadata.google.internal", false},
		{all, "api.example.com", true},
		{all, "api.other.svc.k8s.corp.test", false},
		{all, "api.other.svc.k8s.corp.test.", false},
		{all, "1-2-3-4.other.pod.k8s.corp.test", false},
		{all, "API.Other.SVC", false},
		{all, "api.other.svc", false},
		{all, "api", false},
		{all, "localhost", false},
		{all, "x.localhost", false},
		{&HostNames{Suffixes: []string{"*"}}, "api.other.svc.cluster.local", false},
		{&HostNames{Suffixes: []string{"cluster.local"}}, "api.other.svc.cluster.local", false},
		{all, "", false},
		{all, ".", false},
		{all, "127.0.0.1", false},
		{all, "127.1", false},
		{all, "2130706433", false},
		{all, "0x7f000001", false},
		{all, "0x7f.1", false},
		{all, "0177.0.0.01", false},
		{all, "0300.0250.0x1", false},
		{all, "::1", false},
		{all, "fe80::1%eth0", false},
		{all, "10.0.0.1.example.com", true},
		{all, "deadbeef.example.0x", false},
	} {
		why, fix := c.names.Refuse(c.host)
		if (why == "") != c.ok || (fix == "") != c.ok {
			t.Errorf("%q with %v: %q, %q", c.host, c.names.Suffixes, why, fix)
		}
	}
}
