package control

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// made returns a result for two Gateways with a listener and a route each; change makes a part of it invalid.
func made(change func(*model.Config)) Result {
	r := Result{Config: &model.Config{}}
	for _, name := range []string{"a", "b"} {
		listener, service := "default/"+name+"/http", model.ServiceName("default", name, 80)
		r.Config.Listeners = append(r.Config.Listeners, model.Listener{
			Name: listener, Owner: model.Owner("default/" + name), Ref: model.Ref{Kind: "Gateway", Namespace: "default", Name: name}, Port: 80, Protocol: model.HTTP,
		})
		r.Config.Services = append(r.Config.Services, model.Service{Name: service, Protocol: model.HTTP})
		r.Config.Routes = append(r.Config.Routes, model.Route{
			Ref: model.Ref{Kind: "HTTPRoute", Namespace: "default", Name: name}, Attachments: []model.Attachment{{Listener: listener, Hostnames: []string{name + ".example"}}},
			Rules: []model.Rule{{Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}}, Backends: []model.Backend{{Service: service, Weight: 1}}}},
		})
		is := []resource.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted"}, {Type: "Programmed", Status: "True", Reason: "Programmed"}}
		r.Statuses = append(r.Statuses, resource.Status{
			Ref: model.Ref{Kind: "Gateway", Namespace: "default", Name: name}, Conditions: is,
			Listeners: []resource.ListenerStatus{{Name: "http", Conditions: is}},
		})
	}
	if change != nil {
		change(r.Config)
	}
	return r
}

func TestGatewayWithAnInvalidConfigurationIsLeftOut(t *testing.T) {
	if err := made(nil).Config.Validate(); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*model.Config){
		"a listener": func(c *model.Config) { c.Listeners[1].Port = 0 },
		"a route":    func(c *model.Config) { c.Routes[1].Rules[0].Backends[0].Service = "default/none:80" },
		"a service":  func(c *model.Config) { c.Services[1].Endpoints = []model.Endpoint{{Address: "none"}} },
	} {
		t.Run(name, func(t *testing.T) {
			r := made(change)
			before := r.Statuses
			if r.Config.Validate() == nil {
				t.Fatal("it is valid")
			}
			if !r.leaveOut(nil) || len(r.Invalid) != 1 || r.Invalid["default/b"] == nil {
				t.Fatalf("invalid: %v, want Gateway b", r.Invalid)
			}
			if got := r.Config.Owners(); len(got) != 1 || got[0] != "default/a" || !r.Config.Of("default/a").Equal(made(nil).Config.Of("default/a")) {
				t.Errorf("Gateways %v; want a as it was, and it alone", got)
			}
			if len(r.Findings) != 1 || r.Findings[0].Code != codeModel || r.Findings[0].Ref.Name != "b" {
				t.Errorf("findings %v, want one about b", r.Findings)
			}
			for i, want := range []string{"True Programmed, True Programmed", "False Invalid, False Pending"} {
				s := r.Statuses[i]
				is, listener := s.Conditions[1], s.Listeners[0].Conditions[1]
				if got := fmt.Sprintf("%s %s, %s %s", is.Status, is.Reason, listener.Status, listener.Reason); got != want {
					t.Errorf("Gateway %s: %s, want %s", s.Ref.Name, got, want)
				}
				if s.Conditions[0].Status != "True" {
					t.Errorf("Gateway %s is not accepted", s.Ref.Name)
				}
			}
			if before[1].Conditions[1].Status != "True" || before[1].Listeners[0].Conditions[1].Status != "True" {
				t.Error("the statuses given were changed")
			}
		})
	}
}

func TestWhatNoGatewayUsesHoldsUpNone(t *testing.T) {
	r := made(func(c *model.Config) {
		c.Services = append(c.Services, model.Service{Name: "default/unused:80", Protocol: "none"})
	})
	if r.Config.Validate() == nil {
		t.Fatal("it is valid")
	}
	if !r.leaveOut(nil) || len(r.Invalid) != 0 || len(r.Config.Owners()) != 2 || r.Config.Validate() != nil {
		t.Errorf("%v left out of %v", r.Invalid, r.Config.Owners())
	}
}

func TestWhatLiesBetweenGatewaysIsNotGuessed(t *testing.T) {
	r := made(func(c *model.Config) { c.Listeners[1].Name = c.Listeners[0].Name })
	if r.leaveOut(nil) || r.Invalid != nil || len(r.Config.Listeners) != 2 {
		t.Errorf("%v is left out for a name that two have", r.Invalid)
	}
}

func TestReasonIsOneLineOfBoundedLength(t *testing.T) {
	r := made(func(c *model.Config) {
		for i := range c.Routes[1].Rules {
			for range 1000 {
				c.Routes[1].Rules[i].Backends = append(c.Routes[1].Rules[i].Backends, model.Backend{Service: "default/none:80", Weight: 1})
			}
		}
	})
	if !r.leaveOut(nil) {
		t.Fatal("not left out")
	}
	if m := r.Statuses[1].Conditions[1].Message; strings.Contains(m, "\n") || len(m) > 2*maxReason {
		t.Errorf("%d bytes: %q", len(m), m)
	}
}

func TestWhatTheDataPlaneLeavesOutIsAFinding(t *testing.T) {
	ref := model.Ref{Kind: "HTTPRoute", Namespace: "default", Name: "r", Field: "spec.rules[0]"}
	left := []model.Omission{{Ref: ref, Reason: "no reason"}}
	own := []resource.Finding{{Code: "WR101", Ref: model.Ref{Kind: "A"}}}
	var got [][]resource.Finding
	s := state{whole: &model.Config{}, loop: &Loop{
		Publish: func(map[model.Owner]*model.Config) map[model.Owner]error { return nil }, LeftOut: func() []model.Omission { return left },
		Report: func(r Report) { got = append(got, r.Findings) },
	}}
	s.publishing.want(map[model.Owner]*model.Config{"": s.whole})
	s.report.translated.findings = own
	s.publish()
	s.publish() // what is not published anew is still left out, and told of once
	for _, findings := range got {
		if len(findings) != 2 || findings[1].Code != finding.CodeLeftOut || findings[1].Ref != ref || findings[1].Message != "no reason" || findings[1].Fix == "" {
			t.Errorf("findings %+v", findings)
		}
	}
	if len(got) != 2 || len(own) != 1 {
		t.Errorf("%d reports", len(got))
	}
}
