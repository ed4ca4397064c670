package feed

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/weirmesh/weir/internal/model"
)

// oldRoute is what releases before there were kinds know of a route's kind.
type oldRoute struct {
	Ref         model.Ref          `json:"ref"`
	GRPC        bool               `json:"grpc,omitempty"`
	TCP         bool               `json:"tcp,omitempty"`
	Attachments []model.Attachment `json:"attachments"`
	Rules       []model.Rule       `json:"rules"`
}

type oldConfig struct {
	Routes []oldRoute `json:"routes,omitempty"`
}

// ofKind is a configuration of one route.
func ofKind(k model.RouteKind) *model.Config {
	rule := model.Rule{Backends: []model.Backend{{Fault: &model.Fault{Status: 500, Reason: "X"}, Weight: 1}}}
	if k != model.RouteTCP {
		rule.Matches = []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}}
	}
	return &model.Config{Routes: []model.Route{{
		Ref: model.Ref{Kind: "R", Namespace: "n", Name: "r"}, Kind: k,
		Attachments: []model.Attachment{{Listener: "l", Hostnames: []string{"*"}}}, Rules: []model.Rule{rule},
	}}}
}

// TestOlderProxiesReadTheKindsTheyKnow has a newer control plane: an older proxy reads all kinds that it has, and cannot read a part of
// another, rather than take it for one of requests.
func TestOlderProxiesReadTheKindsTheyKnow(t *testing.T) {
	for k, want := range map[model.RouteKind]oldRoute{
		model.RouteHTTP: {}, model.RouteGRPC: {GRPC: true}, model.RouteTCP: {TCP: true},
	} {
		var b bytes.Buffer
		if err := encodePart(&b, ofKind(k)); err != nil {
			t.Fatal(err)
		}
		var old oldConfig
		d := json.NewDecoder(&b)
		d.DisallowUnknownFields()
		if err := d.Decode(&old); err != nil || len(old.Routes) != 1 || old.Routes[0].GRPC != want.GRPC || old.Routes[0].TCP != want.TCP {
			t.Errorf("%s: an older proxy reads %+v, %v", k, old, err)
		}
	}
	var b bytes.Buffer
	if err := encodePart(&b, ofKind("udp")); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(&b)
	d.DisallowUnknownFields()
	if err := d.Decode(new(oldConfig)); err == nil || !strings.Contains(err.Error(), "kind") {
		t.Errorf("an older proxy reads a kind that it does not know: %v", err)
	}
}

// TestKindsOfOlderControlPlanesAreRead has an older control plane, or a state file that an older proxy wrote.
func TestKindsOfOlderControlPlanesAreRead(t *testing.T) {
	const route = `"ref":{"kind":"R","namespace":"n","name":"r"},"attachments":[{"listener":"l","hostnames":["*"]}],"rules":[]`
	for written, want := range map[string]model.RouteKind{
		``: model.RouteHTTP, `"grpc":true,`: model.RouteGRPC, `"tcp":true,`: model.RouteTCP,
		`"kind":"grpc",`: model.RouteGRPC, `"kind":"tcp",`: model.RouteTCP, `"kind":"udp",`: "udp",
	} {
		c, err := decodePart("route/R/n/r", []byte(`{"routes":[{`+written+route+`}]}`))
		if err != nil || len(c.Routes) != 1 || c.Routes[0].Kind != want {
			t.Errorf("%s: %+v, %v, want the kind %s", written, c, err, want)
		}
	}
	for _, written := range []string{`"grpc":true,"tcp":true,`, `"grpc":true,"kind":"tcp",`, `"tcp":true,"kind":"udp",`} {
		if c, err := decodePart("route/R/n/r", []byte(`{"routes":[{`+written+route+`}]}`)); err == nil {
			t.Errorf("%s is read as %+v", written, c)
		}
	}
	r := &discovery.DeltaDiscoveryResponse{Resources: []*discovery.Resource{
		{Name: "route/R/n/r", Resource: &anypb.Any{TypeUrl: typeURL, Value: []byte(`{"routes":[{"tcp":true,` + route + `}]}`)}},
	}}
	a := &assembly{}
	if err := a.update(r, maxConfig); err != nil {
		t.Fatal(err)
	}
	data, err := encodeState("n/g", a.parts)
	if err != nil {
		t.Fatal(err)
	}
	if a, _, err = decodeState(data, "n/g", maxConfig); err != nil || a.parts[0].content.Routes[0].Kind != model.RouteTCP {
		t.Errorf("from the state file: %+v, %v", a, err)
	}
}

// TestKindsOfNewerControlPlanesAreLeftOut has parts that only a newer release knows: they are told of, and hold up nothing else.
func TestKindsOfNewerControlPlanesAreLeftOut(t *testing.T) {
	c := &model.Config{
		Listeners: []model.Listener{
			{Name: "l", Port: 80, Protocol: model.HTTP}, {Name: "m", Port: 81, Protocol: model.TCP}, {Name: "new", Port: 82, Protocol: "quic"},
		},
	}
	for i, on := range []string{"l", "l", "m", "m", "new"} {
		r := ofKind([]model.RouteKind{model.RouteHTTP, "webtransport", model.RouteTCP, "udp", "udp"}[i]).Routes[0]
		r.Ref.Name, r.Attachments[0].Listener = string(rune('a'+i)), on
		if i == 3 || i == 4 {
			r.Rules[0].Matches = nil
		}
		c.Routes = append(c.Routes, r)
	}
	c.Sort()
	a := &assembly{}
	var fresh []*received
	for l, p := range parts(c) {
		var b bytes.Buffer
		if err := encodePart(&b, p); err != nil {
			t.Fatal(err)
		}
		fresh = append(fresh, newReceived(string(appendName(nil, l, p)), b.Bytes()))
	}
	if err := a.merge(fresh, maxConfig); err != nil {
		t.Fatal(err)
	}
	got, left := a.config()
	if err := got.Validate(); err != nil {
		t.Fatal(err)
	}
	if len(left) != 4 || len(got.Listeners) != 2 || len(got.Routes) != 3 {
		t.Errorf("listeners %+v\nroutes %+v\nleft out %v", got.Listeners, got.Routes, left)
	}
	for _, r := range got.Routes {
		if fault := r.Rules[0].Fault; (fault != nil) != (r.Ref.Name == "b") {
			t.Errorf("%s: fault %+v", r.Ref, fault)
		}
	}
	for _, o := range left {
		if !strings.Contains(o.Reason, "is unknown to this version") {
			t.Errorf("omission %v", o)
		}
	}
}
