package model_test

import (
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

func to[T any](v T) *T { return &v }

func TestExpectedStatuses(t *testing.T) {
	plain := model.HealthCheck{}
	own := model.HealthCheck{Statuses: []model.StatusRange{{From: 200, To: 204}, {From: 401, To: 401}}}
	for status, want := range map[int][2]bool{199: {}, 200: {true, true}, 204: {true, true}, 205: {true, false}, 299: {true, false}, 300: {}, 401: {false, true}, 503: {}} {
		if got := [2]bool{plain.Expects(status), own.Expects(status)}; got != want {
			t.Errorf("%d: got %v, want %v", status, got, want)
		}
	}
}

func TestValidateAcceptsAWholeConfiguration(t *testing.T) {
	c := sample()
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

// An identity is no entry of the configuration, and stands wherever one can be named.
func TestValidateAcceptsIdentities(t *testing.T) {
	c := sample()
	c.Listeners[1].TLS = &model.ListenerTLS{Certificates: []string{"identity:workload"}}
	c.Routes[0].ClientCertificate = "identity:workload"
	c.Services[1].TLS = &model.ServiceTLS{Hostname: "v1.default", CAs: "identity:workload", SubjectAltNames: []string{"spiffe://td/ns/default/sa/v1"}}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	for name, want := range map[string]bool{
		"identity:workload": true, "identity:a/b-c.1": true, "identity:": false, "identity:A": false, "identity:a\n-----BEGIN CERTIFICATE-----": false,
		"default/identity:a": false, "": false,
	} {
		if model.IsIdentity(name) != want {
			t.Errorf("%q is an identity: %t", name, !want)
		}
	}
	if got := c.Listeners[1].TLS.Identity() + c.Services[1].TLS.Identity(); got != "identity:workloadidentity:workload" {
		t.Errorf("identities are %s", got)
	}
	if sound, left := c.Sound(); sound != &c || left != nil {
		t.Errorf("left out %v", left)
	}
	// Beside an invalid part, which is left out, identities stay.
	c.Listeners[1].TLS.Certificates = []string{"none", "identity:workload"}
	sound, left := c.Sound()
	if len(left) != 1 || sound.Listeners[1].TLS.Identity() != "identity:workload" || sound.Routes[0].ClientCertificate != "identity:workload" {
		t.Errorf("left out %v", left)
	}
	sound.Prune()
	if sound.Routes[0].ClientCertificate != "identity:workload" {
		t.Errorf("pruned to %+v", sound.Routes[0])
	}
}

// Each case breaks one thing; the error must name the object, the field and what is wrong.
func TestValidateNamesObjectFieldAndReason(t *testing.T) {
	rule := func(c *model.Config) *model.Rule { return &c.Routes[0].Rules[0] }
	for name, x := range map[string]struct {
		breakIt func(*model.Config)
		want    []string
	}{
		"certificate twice":                        {func(c *model.Config) { c.Certificates[1].Name = "default/a" }, []string{"Certificate default/a", "name", "twice"}},
		"certificate unnamed":                      {func(c *model.Config) { c.Certificates[2].Name = "" }, []string{"name", "is empty"}},
		"certificate without key":                  {func(c *model.Config) { c.Certificates[0].Key = "" }, []string{"Certificate default/a", "key", "is empty"}},
		"certificate with the name of an identity": {func(c *model.Config) { c.Certificates[0].Name = "identity:a" }, []string{"Certificate identity:a", "name", "reserved for identities"}},
		"listener with an identity and more":       {func(c *model.Config) { c.Listeners[1].TLS.Certificates[1] = "identity:a" }, []string{"tls.certificates", `"identity:a" is an identity`}},
		"listener with an identity and authorities": {func(c *model.Config) {
			c.Listeners[1].TLS = &model.ListenerTLS{Certificates: []string{"identity:a"}, ClientCAs: "PEM"}
		}, []string{"tls.clientCAs", `"identity:a"`}},
		"listener with an identity for some": {func(c *model.Config) {
			c.Listeners[1].TLS = &model.ListenerTLS{Certificates: []string{"identity:a"}, ClientOptional: true}
		}, []string{"tls.clientOptional", `"identity:a"`}},
		"listener without an identity for clients without TLS": {func(c *model.Config) { c.Listeners[1].TLS.Plain = true }, []string{"tls.plain", "only a listener with an identity"}},
		"identity without a name":                              {func(c *model.Config) { c.Listeners[1].TLS.Certificates = []string{"identity:"} }, []string{"tls.certificates[0]", `"identity:" does not exist`}},
		"service of an identity without names": {func(c *model.Config) {
			c.Services[1].TLS.CAs, c.Services[1].TLS.SubjectAltNames = "identity:a", nil
		}, []string{"tls.subjectAltNames", "is empty", `"identity:a"`}},
		"service of an identity with another name": {func(c *model.Config) {
			c.Services[1].TLS.CAs, c.Services[1].TLS.SubjectAltNames = "identity:a", []string{"spiffe://td/a", "a.example"}
		}, []string{"tls.subjectAltNames[1]", `"a.example" is not a SPIFFE ID`}},
		"chain empty":          {func(c *model.Config) { c.Certificates[0].Chain = "" }, []string{"Certificate default/a", "chain", "is empty"}},
		"service twice":        {func(c *model.Config) { c.Services[1].Name = "default/next:80" }, []string{"Service default/v1", "twice"}},
		"service unnamed":      {func(c *model.Config) { c.Services[1].Name = "" }, []string{"Service default/v1", "name", "is empty"}},
		"service not merged":   {func(c *model.Config) { c.Services[1].Extends = "x" }, []string{"Service default/v1", "extends", `not merged with "x"`}},
		"service protocol":     {func(c *model.Config) { c.Services[1].Protocol = model.HTTPS }, []string{"Service default/v1", "protocol", `"https"`}},
		"endpoint":             {func(c *model.Config) { c.Services[0].Endpoints[1].Address = "::1:80" }, []string{"Service default/next", "endpoints[1].address", `"::1:80" is not host:port`}},
		"endpoint port":        {func(c *model.Config) { c.Services[0].Endpoints[0].Address = "10.0.0.1:0" }, []string{"endpoints[0].address"}},
		"service TLS hostname": {func(c *model.Config) { c.Services[1].TLS.Hostname = "" }, []string{"Service default/v1", "tls.hostname"}},
		"client certificate":   {func(c *model.Config) { c.Routes[0].ClientCertificate = "none" }, []string{"HTTPRoute default/", "clientCertificate", `"none" does not exist`}},
		"listener unnamed":     {func(c *model.Config) { c.Listeners[0].Name = "" }, []string{"Gateway default/gw spec.listeners[0]", "name", "is empty"}},
		"listener twice":       {func(c *model.Config) { c.Listeners[1].Name = "default/gw/http" }, []string{"spec.listeners[1]", "twice"}},
		"listener clash": {func(c *model.Config) {
			c.Listeners = append(c.Listeners, c.Listeners[0])
			c.Listeners[2].Name = "other"
		}, []string{`listener "other" clashes`}},
		"listener port":        {func(c *model.Config) { c.Listeners[0].Port = 65536 }, []string{"port", "65536 is not a port"}},
		"listener address":     {func(c *model.Config) { c.Listeners[0].Address = "localhost" }, []string{"address", `"localhost" is not an IP address`}},
		"listener hostname":    {func(c *model.Config) { c.Listeners[0].Hostname = "*" }, []string{"hostname", `"*"`}},
		"listener path policy": {func(c *model.Config) { c.Listeners[0].PathPolicy = "Strict" }, []string{"spec.listeners[0]", "pathPolicy", `"Strict" is neither`}},
		"route path policy":    {func(c *model.Config) { c.Routes[0].PathPolicy = "x" }, []string{"pathPolicy", `"x" is neither`}},
		"listener upper case":  {func(c *model.Config) { c.Listeners[0].Hostname = "A.example" }, []string{"hostname", `"A.example"`}},
		"listener protocol":    {func(c *model.Config) { c.Listeners[0].Protocol = model.H2C }, []string{"protocol", `"h2c"`}},
		"cleartext with TLS":   {func(c *model.Config) { c.Listeners[0].TLS = &model.ListenerTLS{} }, []string{"spec.listeners[0]", "tls", "without TLS"}},
		"TLS without":          {func(c *model.Config) { c.Listeners[1].TLS = nil }, []string{"spec.listeners[1]", "tls", "no certificate"}},
		"listener certificate": {func(c *model.Config) { c.Listeners[1].TLS.Certificates[1] = "none" }, []string{"tls.certificates[1]", `"none" does not exist`}},
		"route unnamed":        {func(c *model.Config) { c.Routes[0].Ref.Name = "" }, []string{"HTTPRoute", "has no name"}},
		"attachment":           {func(c *model.Config) { c.Routes[0].Attachments[1].Listener = "none" }, []string{"HTTPRoute default/shop", "attachments[1].listener", `"none" does not exist`}},
		"no hostnames":         {func(c *model.Config) { c.Routes[0].Attachments[0].Hostnames = nil }, []string{"attachments[0].hostnames", "is empty"}},
		"hostname":             {func(c *model.Config) { c.Routes[0].Attachments[0].Hostnames[0] = "a.*.example" }, []string{"attachments[0].hostnames", `"a.*.example"`}},
		"no matches":           {func(c *model.Config) { rule(c).Matches = nil }, []string{"rules[0].matches", "is empty"}},
		"relative path":        {func(c *model.Config) { rule(c).Matches[0].Path = model.PathMatch{Type: model.Exact, Value: "x"} }, []string{"matches[0].path.value", `"x": the path does not begin with a slash`}},
		"path type":            {func(c *model.Config) { rule(c).Matches[0].Path.Type = "glob" }, []string{"matches[0].path.type", `"glob" is unknown`}},
		"path regex":           {func(c *model.Config) { rule(c).Matches[0].Path.Value = "(" }, []string{"matches[0].path.value", "missing closing )"}},
		"header name":          {func(c *model.Config) { rule(c).Matches[0].Headers[0].Name = "" }, []string{"matches[0].headers[0].name", "is empty"}},
		"header type":          {func(c *model.Config) { rule(c).Matches[0].Headers[0].Type = model.Prefix }, []string{"matches[0].headers[0].type", `"prefix"`}},
		"query regex":          {func(c *model.Config) { rule(c).Matches[0].Query[0].Value = "[" }, []string{"matches[0].query[0].value", "missing closing ]"}},
		"redirect and rewrite": {func(c *model.Config) { rule(c).Filters.Redirect = &model.Redirect{Status: 301} }, []string{"rules[0].filters", "both"}},
		"redirect status":      {func(c *model.Config) { c.Routes[0].Rules[1].Filters.Redirect.Status = 200 }, []string{"rules[1].filters.redirect.status", "200"}},
		"mirror service":       {func(c *model.Config) { rule(c).Filters.Mirrors[0].Service = "none" }, []string{"filters.mirrors[0].service", `"none" does not exist`}},
		"mirror denominator":   {func(c *model.Config) { rule(c).Filters.Mirrors[0].Denominator = 0 }, []string{"filters.mirrors[0]", "5/0"}},
		"mirror above one":     {func(c *model.Config) { rule(c).Filters.Mirrors[0].Denominator = 4 }, []string{"filters.mirrors[0]", "5/4"}},
		"backend of nothing":   {func(c *model.Config) { rule(c).Backends[0].Service = "" }, []string{"backends[0]", "neither"}},
		"backend of both":      {func(c *model.Config) { rule(c).Backends[1].Service = "default/v1:80" }, []string{"backends[1]", "a service and a fault"}},
		"backend service":      {func(c *model.Config) { rule(c).Backends[0].Service = "none" }, []string{"backends[0].service", `"none" does not exist`}},
		"backend fault":        {func(c *model.Config) { rule(c).Backends[1].Fault.Status = 200 }, []string{"backends[1].fault", "200"}},
		"weights": {func(c *model.Config) {
			rule(c).Backends[0].Weight, rule(c).Backends[1].Weight = 1<<32-1, 1
		}, []string{"rules[0].backends", "4294967296"}},
		"timeouts":     {func(c *model.Config) { rule(c).Timeouts.Request = -1 }, []string{"rules[0].timeouts", "negative"}},
		"retry":        {func(c *model.Config) { rule(c).Retry.Attempts = -1 }, []string{"rules[0].retry", "negative"}},
		"retry code":   {func(c *model.Config) { rule(c).Retry.Codes[0] = 200 }, []string{"rules[0].retry.codes", "200"}},
		"session type": {func(c *model.Config) { rule(c).Session = &model.Session{Name: "s", Type: "query"} }, []string{"rules[0].session.type", `"query"`}},
		"session name": {func(c *model.Config) {
			rule(c).Session = &model.Session{Name: "a b", Type: model.Cookie}
		}, []string{"rules[0].session.name", `"a b" has characters`}},
		"session without name": {func(c *model.Config) { rule(c).Session = &model.Session{Type: model.Cookie} }, []string{"rules[0].session.name", "is empty"}},
		"session header": {func(c *model.Config) {
			rule(c).Session = &model.Session{Name: "content-length", Type: model.Header}
		}, []string{"rules[0].session.name", "another use"}},
		"session timeout": {func(c *model.Config) {
			rule(c).Session = &model.Session{Name: "s", Type: model.Cookie, AbsoluteTimeout: -1}
		}, []string{"rules[0].session", "negative"}},
		"session for ever": {func(c *model.Config) {
			rule(c).Session = &model.Session{Name: "s", Type: model.Cookie, Permanent: true}
		}, []string{"rules[0].session.permanent", "absolute timeout"}},
		"limits":        {func(c *model.Config) { c.Services[0].Limits = &model.Limits{Requests: -1} }, []string{"Service default/next", "limits", "negative"}},
		"retry percent": {func(c *model.Config) { c.Services[0].Limits = &model.Limits{RetryPercent: to(101)} }, []string{"limits.retryPercent", "101"}},
		"ejection":      {func(c *model.Config) { c.Services[0].Ejection = &model.Ejection{GatewayErrors: -1} }, []string{"ejection.gatewayErrors", "negative"}},
		"ejected":       {func(c *model.Config) { c.Services[0].Ejection = &model.Ejection{MaxPercent: to(-1)} }, []string{"ejection.maxPercent", "-1"}},
		"check type":    {func(c *model.Config) { c.Services[0].HealthCheck.Type = "icmp" }, []string{"healthCheck.type", `"icmp"`}},
		"check path":    {func(c *model.Config) { c.Services[0].HealthCheck.Path = "/a b" }, []string{"healthCheck.path", `"/a b"`}},
		"check never":   {func(c *model.Config) { c.Services[0].HealthCheck.Interval = 0 }, []string{"healthCheck", "no interval"}},
		"check at once": {func(c *model.Config) { c.Services[0].HealthCheck.Unhealthy = 0 }, []string{"healthCheck", "threshold"}},
		"check status":  {func(c *model.Config) { c.Services[0].HealthCheck.Statuses[0].To = 100 }, []string{"healthCheck.statuses", "200-100"}},
		"rule fault":    {func(c *model.Config) { c.Routes[0].Rules[1].Fault.Reason = "" }, []string{"rules[1].fault"}},
		"service fault": {func(c *model.Config) { c.Services[0].Fault.Status = 99 }, []string{"Service default/next", "fault", "99"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := sample()
			x.breakIt(&c)
			err := c.Validate()
			if err == nil {
				t.Fatal("it is accepted")
			}
			for _, part := range x.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

func TestValidateReportsEverything(t *testing.T) {
	c := sample()
	c.Listeners[0].Port = 0
	c.Routes[0].Rules[0].Backends[0].Service = "none"
	c.Certificates[1].Chain = ""
	if err := c.Validate(); err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("want three lines, got %v", err)
	}
}
