package model_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

// sample is a configuration that uses every field.
func sample() model.Config {
	ref := func(kind, name, field string) model.Ref {
		return model.Ref{Kind: kind, Namespace: "default", Name: name, Field: field}
	}
	edit := &model.HeaderEdit{
		Set: []model.HeaderValue{{Name: "B", Value: "1"}, {Name: "A", Value: "2"}}, Add: []model.HeaderValue{{Name: "C", Value: "3"}},
		Remove: []string{"E", "D"},
	}
	return model.Config{
		Listeners: []model.Listener{
			{Name: "default/gw/http", Ref: ref("Gateway", "gw", "spec.listeners[0]"), Port: 80, Protocol: model.HTTP, Hostname: "*.example"},
			{Name: "default/gw/https", Ref: ref("Gateway", "gw", "spec.listeners[1]"), Address: "127.0.0.1", Port: 443, Protocol: model.HTTPS,
				TLS: &model.ListenerTLS{Certificates: []string{"default/b", "default/a"}, ClientCAs: "pem", ClientOptional: true}},
		},
		Routes: []model.Route{{
			Ref: ref("HTTPRoute", "shop", ""), Created: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Kind: model.RouteGRPC, ClientCertificate: "default/c",
			Attachments: []model.Attachment{
				{Listener: "default/gw/http", Hostnames: []string{"*.a.example", "a.example"}},
				{Listener: "default/gw/https", Hostnames: []string{"*"}},
			},
			Rules: []model.Rule{{
				Ref: ref("HTTPRoute", "shop", "spec.rules[0]"), Name: "main",
				Matches: []model.Match{{
					Path: model.PathMatch{Type: model.Regex, Value: "/v[0-9]+"}, Method: "GET",
					Headers: []model.ValueMatch{{Type: model.Exact, Name: "x", Value: "y"}},
					Query:   []model.ValueMatch{{Type: model.Regex, Name: "q", Value: ".*"}},
				}},
				Filters: model.Filters{
					RequestHeaders: edit, ResponseHeaders: edit,
					Rewrite: &model.Rewrite{Hostname: "in.example", Path: &model.PathPatch{Value: "/x"}},
					CORS: &model.CORS{AllowOrigins: []string{"*"}, AllowCredentials: true, AllowMethods: []string{"GET"},
						AllowHeaders: []string{"A"}, ExposeHeaders: []string{"B"}, MaxAge: 5},
					Mirrors: []model.Mirror{{Ref: ref("HTTPRoute", "shop", "spec.rules[0].filters[0]"), Service: "default/next:80", Numerator: 5, Denominator: 1000}},
				},
				Backends: []model.Backend{
					{Ref: ref("HTTPRoute", "shop", "spec.rules[0].backendRefs[0]"), Service: "default/v1:80", Weight: 9, Filters: model.Filters{RequestHeaders: edit}},
					{Ref: ref("HTTPRoute", "shop", "spec.rules[0].backendRefs[1]"), Weight: 1,
						Fault: &model.Fault{Status: 500, Reason: "BackendNotFound", Message: "no such Service"}},
				},
				Timeouts: model.Timeouts{Request: model.Duration(time.Second), BackendRequest: model.Duration(time.Millisecond)},
				Retry:    &model.Retry{Codes: []int{503}, Attempts: 2, Backoff: model.Duration(time.Microsecond)},
			}, {
				Ref:     ref("HTTPRoute", "shop", "spec.rules[1]"),
				Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}},
				Filters: model.Filters{Redirect: &model.Redirect{Scheme: "https", Hostname: "h", Port: 8443, Path: &model.PathPatch{Prefix: true, Value: "/"}, Status: 301}},
				Fault:   &model.Fault{Status: 503, Reason: "NoBackends"},
			}},
		}},
		Services: []model.Service{
			{Name: "default/next:80", Ref: ref("Service", "next", "spec.ports[0]"), Protocol: model.H2C,
				Endpoints: []model.Endpoint{{Address: "10.0.0.1:80"}, {Address: "[::1]:80"}}, Fault: &model.Fault{Status: 500, Reason: "X"},
				Limits:   &model.Limits{Requests: 9, EndpointRequests: 5, Connecting: 4, RetryPercent: to(0)},
				Ejection: &model.Ejection{Failures: -1, GatewayErrors: 3, MaxPercent: to(100)},
				HealthCheck: &model.HealthCheck{Type: model.CheckHTTP, Path: "/up?full", Host: "up.example", Service: "s", Statuses: []model.StatusRange{{From: 200, To: 204}},
					Interval: model.Duration(time.Second), Timeout: model.Duration(time.Millisecond), Healthy: 1, Unhealthy: 2}},
			{Name: "default/v1:80", Ref: ref("Service", "v1", "spec.ports[0]"), Protocol: model.HTTP,
				TLS:       &model.ServiceTLS{Hostname: "v1", CAs: "pem", SubjectAltNames: []string{"a"}},
				Endpoints: []model.Endpoint{{Address: "api.example:80"}}},
		},
		Certificates: []model.Certificate{
			{Name: "default/a", Chain: "chain a", Key: "key a"},
			{Name: "default/b", Chain: "chain b", Key: "key b"},
			{Name: "default/c", Chain: "chain c", Key: "key c"},
		},
	}
}

func text(t testing.TB, c model.Config) string {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestMergeIsByteEqualWhateverTheOrder(t *testing.T) {
	want := text(t, model.Merge(sample()))
	for range 50 {
		// Spread the parts over two configurations, each in any order.
		var halves [2]model.Config
		c := sample()
		shuffle(c.Listeners)
		shuffle(c.Services)
		shuffle(c.Certificates)
		for i := range c.Routes {
			shuffle(c.Routes[i].Attachments)
			for _, a := range c.Routes[i].Attachments {
				shuffle(a.Hostnames)
			}
		}
		for i := range c.Services {
			shuffle(c.Services[i].Endpoints)
		}
		halves[rand.IntN(2)].Listeners = c.Listeners
		halves[rand.IntN(2)].Routes = c.Routes
		halves[rand.IntN(2)].Services = c.Services
		halves[rand.IntN(2)].Certificates = c.Certificates
		if got := text(t, model.Merge(halves[0], halves[1])); got != want {
			t.Fatalf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func shuffle[T any](s []T) { rand.Shuffle(len(s), func(i, j int) { s[i], s[j] = s[j], s[i] }) }

func TestMergeLeavesItsInputAlone(t *testing.T) {
	c := sample()
	slices.Reverse(c.Services)
	slices.Reverse(c.Routes[0].Attachments)
	slices.Reverse(c.Routes[0].Attachments[0].Hostnames)
	slices.Reverse(c.Services[0].Endpoints)
	other := sample()
	slices.Reverse(other.Services)
	slices.Reverse(other.Routes[0].Attachments)
	slices.Reverse(other.Routes[0].Attachments[0].Hostnames)
	slices.Reverse(other.Services[0].Endpoints)
	model.Merge(c, model.Config{Services: []model.Service{{Name: "default/v1:80", Extends: "default/v1:80"}}})
	if !reflect.DeepEqual(c, other) {
		t.Errorf("the input is now\n%s\nit was\n%s", text(t, c), text(t, other))
	}
}

func TestMergeKeepsTheEarlierOfTwo(t *testing.T) {
	first, second := sample(), sample()
	second.Listeners = []model.Listener{
		{Name: "default/gw/http", Port: 81, Protocol: model.HTTP},                               // the name
		{Name: "other/gw/same-host", Port: 80, Protocol: model.HTTP, Hostname: "*.example"},     // the hostname
		{Name: "other/gw/protocol", Port: 80, Protocol: model.HTTPS, Hostname: "x.example.org"}, // the protocol
		{Name: "other/gw/fine", Port: 80, Protocol: model.HTTP},
	}
	second.Routes = []model.Route{
		{Ref: model.Ref{Kind: "HTTPRoute", Name: "lost"}, Attachments: []model.Attachment{{Listener: "other/gw/same-host", Hostnames: []string{"*"}}}},
		{Ref: model.Ref{Kind: "HTTPRoute", Name: "kept"}, Attachments: []model.Attachment{
			{Listener: "other/gw/protocol", Hostnames: []string{"*"}}, {Listener: "other/gw/fine", Hostnames: []string{"*"}}}},
	}
	second.Services[1].Endpoints = nil
	second.Certificates[0].Chain = "other"
	got := model.Merge(first, second)
	var listeners, routes []string
	for _, l := range got.Listeners {
		listeners = append(listeners, fmt.Sprintf("%s:%d", l.Name, l.Port))
	}
	for _, r := range got.Routes {
		routes = append(routes, fmt.Sprintf("%s:%d", r.Ref.Name, len(r.Attachments)))
	}
	if want := []string{"default/gw/http:80", "default/gw/https:443", "other/gw/fine:80"}; !slices.Equal(listeners, want) {
		t.Errorf("listeners %v, want %v", listeners, want)
	}
	if want := []string{"kept:1", "shop:2"}; !slices.Equal(routes, want) {
		t.Errorf("routes with attachments %v, want %v", routes, want)
	}
	if len(got.Services[1].Endpoints) != 1 {
		t.Errorf("the later service won: %v", got.Services[1])
	}
	if got.Certificates[0].Chain != "chain a" {
		t.Errorf("the later certificate won: %v", got.Certificates[0])
	}
	if err := got.Validate(); err != nil {
		t.Error(err)
	}
}

func TestMergeLaysServicesOverThoseTheyExtend(t *testing.T) {
	base := sample()
	base.Services[1].TLS = nil
	base.Services[1].Fault = &model.Fault{Status: 500, Reason: "UnsupportedProtocol"}
	base.Services[1].Limits, base.Services[1].HealthCheck = base.Services[0].Limits, base.Services[0].HealthCheck
	base.Routes[0].Rules[0].Backends = append(base.Routes[0].Rules[0].Backends, model.Backend{Service: "default/gone:80", Weight: 1})
	over := model.Config{Services: []model.Service{
		{Name: "default/v1:80", Extends: "default/v1:80", TLS: &model.ServiceTLS{Hostname: "v1"}},
		{Name: "default/gone:80", Extends: "default/gone:80", TLS: &model.ServiceTLS{Hostname: "gone"}},
	}}
	for _, got := range []model.Config{model.Merge(base, over), model.Merge(over, base)} {
		services := map[string]model.Service{}
		for _, s := range got.Services {
			services[s.Name] = s
		}
		plain, gone := services["default/v1:80"], services["default/gone:80"]
		if plain.TLS == nil || plain.Fault != nil || plain.Protocol != model.HTTP || len(plain.Endpoints) != 1 || plain.Ref.Name != "v1" ||
			plain.Limits == nil || plain.HealthCheck == nil {
			t.Errorf("laid over itself: %+v", plain)
		}
		if gone.Fault == nil {
			t.Errorf("over nothing: %+v", gone)
		}
		if err := got.Validate(); err != nil {
			t.Error(err)
		}
	}
}

func TestPruneDropsWhatNothingRefersTo(t *testing.T) {
	c := sample()
	c.Services = append(c.Services, model.Service{Name: "default/unused:80", Protocol: model.HTTP,
		TLS: &model.ServiceTLS{Hostname: "x"}})
	c.Certificates = append(c.Certificates, model.Certificate{Name: "default/d"}, model.Certificate{Name: "default/e"})
	c.Prune()
	if got, want := text(t, c), text(t, sample()); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestConfigSurvivesJSONButForSecrets(t *testing.T) {
	c := sample()
	var back model.Config
	d := json.NewDecoder(bytes.NewReader([]byte(text(t, c))))
	d.DisallowUnknownFields()
	if err := d.Decode(&back); err != nil {
		t.Fatal(err)
	}
	for i := range c.Certificates {
		if back.Certificates[i].Key != "[redacted]" {
			t.Errorf("the key reads %q", back.Certificates[i].Key.Reveal())
		}
		back.Certificates[i].Key = c.Certificates[i].Key
	}
	if !reflect.DeepEqual(c, back) {
		t.Errorf("got\n%s\nwant\n%s", text(t, back), text(t, c))
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	c := sample().Certificates[0]
	for _, shown := range []string{fmt.Sprint(c), fmt.Sprintf("%+v", c), fmt.Sprintf("%#v", c), fmt.Sprintf("%q", c.Key), text(t, sample())} {
		if bytes.Contains([]byte(shown), []byte("key a")) {
			t.Errorf("the key shows in %s", shown)
		}
	}
	if c.Key.Reveal() != "key a" {
		t.Errorf("Reveal gives %q", c.Key.Reveal())
	}
}

func TestCompareNamesComparesTheWholeText(t *testing.T) {
	names := []string{"a", "a-b", "a.b", "ab", "b", "a-", "x"}
	for _, na := range names {
		for _, a := range names {
			for _, nb := range names {
				for _, b := range names {
					if got, want := model.CompareNames(na, a, nb, b), strings.Compare(na+"/"+a, nb+"/"+b); got != want {
						t.Errorf("%s/%s and %s/%s: %d, want %d", na, a, nb, b, got, want)
					}
				}
			}
		}
	}
}
