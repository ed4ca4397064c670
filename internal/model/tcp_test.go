package model_test

import (
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// connections is a configuration with a route for TCP.
func connections() model.Config {
	return model.Config{
		Listeners: []model.Listener{
			{Name: "gw/db", Ref: model.Ref{Kind: "Gateway", Name: "gw"}, Port: 5432, Protocol: model.TCP},
			{Name: "gw/http", Ref: model.Ref{Kind: "Gateway", Name: "gw"}, Port: 80, Protocol: model.HTTP},
		},
		Routes: []model.Route{{
			Ref: model.Ref{Kind: "TCPRoute", Name: "r"}, Kind: model.RouteTCP,
			Attachments: []model.Attachment{{Listener: "gw/db", Hostnames: []string{"*"}}},
			Rules:       []model.Rule{{Backends: []model.Backend{{Service: "default/db:5432", Weight: 1}}}},
		}},
		Services: []model.Service{{Name: "default/db:5432", Protocol: model.HTTP}},
	}
}

func TestValidateKnowsWhatARouteForTCPHas(t *testing.T) {
	c := connections()
	if err := c.Validate(); err != nil {
		t.Errorf("a sound one: %v", err)
	}
	rule := func(c *model.Config) *model.Rule { return &c.Routes[0].Rules[0] }
	for want, breakIt := range map[string]func(*model.Config){
		"hostname: is set, but clients name no host":           func(c *model.Config) { c.Listeners[0].Hostname = "a.example" },
		"attachments[0].listener: listener \"gw/http\"":        func(c *model.Config) { c.Routes[0].Attachments[0].Listener = "gw/http" },
		"attachments[0].listener: listener \"gw/db\"":          func(c *model.Config) { c.Routes[0].Kind = model.RouteHTTP },
		"rules[0].matches: is empty":                           func(c *model.Config) { c.Routes[0].Kind = model.RouteHTTP },
		"rules: a TCP route must have one rule":                func(c *model.Config) { c.Routes[0].Rules = nil },
		"rules[0]: a TCP rule cannot have":                     func(c *model.Config) { rule(c).Timeouts.Request = 1 },
		"rules[0]: a TCP rule cannot have matches":             func(c *model.Config) { rule(c).Filters.Redirect = &model.Redirect{Status: 302} },
		"rules[0].backends: a TCP backend cannot have filters": func(c *model.Config) { rule(c).Backends[0].Filters.CORS = &model.CORS{} },
	} {
		c := connections()
		breakIt(&c)
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
