package model_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// everyKind is a configuration with a listener of each protocol, on a port of its own, and a route of each kind that it takes.
func everyKind() *model.Config {
	c := &model.Config{
		Services:     []model.Service{{Name: "default/a:80", Protocol: model.HTTP}},
		Certificates: []model.Certificate{{Name: "default/cert", Chain: "chain", Key: "key"}},
	}
	for i, p := range model.ListenerProtocols() {
		l := model.Listener{Name: "gw/" + string(p), Ref: model.Ref{Kind: "Gateway", Name: "gw"}, Port: int32(1000 + i), Protocol: p}
		if p.TLS() {
			l.TLS = &model.ListenerTLS{Certificates: []string{"default/cert"}}
		}
		c.Listeners = append(c.Listeners, l)
		for _, k := range model.RouteKinds() {
			if !p.Takes(k) {
				continue
			}
			rule := model.Rule{Backends: []model.Backend{{Service: "default/a:80", Weight: 1}}}
			if k.Requests() {
				rule.Matches = []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}}
			}
			c.Routes = append(c.Routes, model.Route{
				Ref: model.Ref{Kind: "Route", Namespace: "default", Name: string(p) + "-" + k.String()}, Kind: k,
				Attachments: []model.Attachment{{Listener: l.Name, Hostnames: []string{"*"}}},
				Rules:       []model.Rule{rule},
			})
		}
	}
	return c
}

func TestEachKindHasItsTraits(t *testing.T) {
	c := everyKind()
	if err := c.Validate(); err != nil {
		t.Fatal(err)
	}
	for _, p := range model.ListenerProtocols() {
		if !p.OnListeners() || p.Network() != "tcp" || p.Requests() != p.Takes(model.RouteHTTP) {
			t.Errorf("protocol %q: %v %q %v", p, p.OnListeners(), p.Network(), p.Requests())
		}
		if p.Requests() && !p.Hosts() {
			t.Errorf("protocol %q: requests have a host", p)
		}
	}
	for _, k := range model.RouteKinds() {
		taken := slices.ContainsFunc(model.ListenerProtocols(), func(p model.Protocol) bool { return p.Takes(k) && p.Requests() == k.Requests() })
		if !taken || k.String() == "" || strings.HasPrefix(k.String(), `"`) {
			t.Errorf("kind %s: no listener takes it, or it has no name", k)
		}
	}
}

func TestWhatIsUnknownHasNoTrait(t *testing.T) {
	for _, p := range []model.Protocol{"", "udp", "quic", "HTTP", model.H2C} {
		if p.OnListeners() || p.Network() != "" || p.Requests() || p.Hosts() || p.TLS() || p.Takes(model.RouteHTTP) || p.Takes(model.RouteTCP) {
			t.Errorf("protocol %q has traits of a listener's", p)
		}
	}
	for _, k := range []model.RouteKind{"http", "udp", "TCP"} {
		if k.Known() || k.Requests() || k.String() != `"`+string(k)+`"` {
			t.Errorf("kind %s is known", k)
		}
	}
}

func TestKindsInJSON(t *testing.T) {
	for k, want := range map[model.RouteKind]string{
		model.RouteHTTP: `{"ref":{"kind":"","name":""},"attachments":null,"rules":null}`,
		model.RouteGRPC: `{"ref":{"kind":"","name":""},"kind":"grpc","attachments":null,"rules":null}`,
		model.RouteTCP:  `{"ref":{"kind":"","name":""},"kind":"tcp","attachments":null,"rules":null}`,
	} {
		if got, err := json.Marshal(model.Route{Kind: k}); err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", k, got, err, want)
		}
	}
}

// TestAnUnknownKindOfRouteLetsNothingPass has a route of a kind that only a newer release knows. Its requests must not fall to a route that
// is less specific.
func TestAnUnknownKindOfRouteLetsNothingPass(t *testing.T) {
	c := everyKind()
	before := len(c.Routes)
	for i := range before {
		r := c.Routes[i]
		r.Ref.Name, r.Kind = "new-"+r.Ref.Name, "webtransport"
		r.Rules = slices.Clone(r.Rules)
		r.Rules[0].Filters.Redirect = &model.Redirect{Status: 302}
		c.Routes = append(c.Routes, r)
	}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(), `kind: "webtransport" is unknown to this version`) {
		t.Errorf("Validate: %v", err)
	}
	sound, left := c.Sound()
	if err := sound.Validate(); err != nil {
		t.Fatalf("what Sound returns is not valid: %v", err)
	}
	if len(left) != before {
		t.Errorf("%d parts are told of, want %d: %v", len(left), before, left)
	}
	for _, o := range left {
		if !strings.Contains(o.Reason, `kind: "webtransport" is unknown`) {
			t.Errorf("omission %v", o)
		}
	}
	for i, want := range c.Routes[before:] {
		at := slices.IndexFunc(sound.Routes, func(r model.Route) bool { return r.Ref == want.Ref })
		if !c.Routes[i].Kind.Requests() {
			if at >= 0 {
				t.Errorf("%s: connections come to %+v", want.Ref, sound.Routes[at])
			}
			continue
		}
		if at < 0 {
			t.Errorf("%s: its requests fall to another route", want.Ref)
			continue
		}
		r := sound.Routes[at].Rules[0]
		if r.Fault == nil || r.Fault.Status != 500 || len(r.Backends) > 0 || r.Filters.Redirect != nil || len(r.Matches) != 1 {
			t.Errorf("%s: its rule is %+v, want a fault of 500", want.Ref, r)
		}
	}
}

func TestAListenerOfAnUnknownProtocolIsLeftOut(t *testing.T) {
	for _, p := range []model.Protocol{"", "udp", model.H2C} {
		c := everyKind()
		c.Listeners = append(c.Listeners, model.Listener{Name: "gw/new", Ref: model.Ref{Kind: "Gateway", Name: "new"}, Port: 1000, Protocol: p})
		c.Routes[0].Attachments = append(c.Routes[0].Attachments, model.Attachment{Listener: "gw/new", Hostnames: []string{"*"}})
		sound, left := c.Sound()
		if len(sound.Listeners) != len(model.ListenerProtocols()) || len(sound.Routes) != len(c.Routes) || len(sound.Routes[0].Attachments) != 1 {
			t.Errorf("protocol %q: %+v", p, sound)
		}
		if len(left) != 1 || !strings.Contains(left[0].Reason, "is unknown to this version") {
			t.Errorf("protocol %q: left out %v", p, left)
		}
	}
}

func TestValidateKnowsWhichListenersTakeARoute(t *testing.T) {
	for _, p := range model.ListenerProtocols() {
		for _, k := range model.RouteKinds() {
			c := everyKind()
			at := slices.IndexFunc(c.Routes, func(r model.Route) bool { return r.Kind == k })
			c.Routes[at].Attachments[0].Listener = "gw/" + string(p)
			err := c.Validate()
			if p.Takes(k) != (err == nil) || err != nil && !strings.Contains(err.Error(), "takes no "+k.String()+" route") {
				t.Errorf("%s route on %q: %v", k, p, err)
			}
		}
	}
}
