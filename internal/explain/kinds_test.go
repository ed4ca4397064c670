package explain

import (
	"fmt"
	"testing"

	"github.com/weirmesh/weir/internal/curl"
	"github.com/weirmesh/weir/internal/model"
)

// TestExplainKnowsEachProtocol explains a request or a connection for each protocol that a listener may have.
func TestExplainKnowsEachProtocol(t *testing.T) {
	for _, p := range model.ListenerProtocols() {
		for _, k := range model.RouteKinds() {
			if !p.Takes(k) {
				continue
			}
			rule := model.Rule{Backends: []model.Backend{{Service: "n/a:80", Weight: 1}}}
			if k.Requests() {
				rule.Matches = []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}}
			}
			cfg := &model.Config{
				Listeners: []model.Listener{{Name: "l", Port: 1000, Protocol: p}},
				Routes: []model.Route{{
					Ref: model.Ref{Kind: "R", Name: "r"}, Kind: k, Attachments: []model.Attachment{{Listener: "l", Hostnames: []string{"*"}}}, Rules: []model.Rule{rule},
				}},
				Services: []model.Service{{Name: "n/a:80", Protocol: model.HTTP, Endpoints: []model.Endpoint{{Address: "127.0.0.1:1"}}}},
			}
			r, err := curl.Parse([]string{fmt.Sprintf("%s://a:1000", p)})
			if err != nil {
				t.Errorf("%s: %v", p, err)
				continue
			}
			if e := explain(cfg, ask(r)); !e.Matched() || len(e.Backends) != 1 || len(e.Backends[0].Endpoints) != 1 {
				t.Errorf("%s route on %s: %+v", k, p, e)
			}
			for _, other := range model.ListenerProtocols() {
				if other == p {
					continue
				}
				if r, err = curl.Parse([]string{fmt.Sprintf("%s://a:1000", other)}); err != nil {
					t.Fatal(err)
				}
				if e := explain(cfg, ask(r)); e.Matched() || e.Reason == "" {
					t.Errorf("%s is served on a port of %s", other, p)
				}
			}
		}
	}
	if _, err := curl.Parse([]string{"udp://a:1000"}); err == nil {
		t.Error("a URL of an unknown scheme is read")
	}
}
