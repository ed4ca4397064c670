package control

import (
	"fmt"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/routing"
)

// sharedHostname is a Gateway for routes of all namespaces, the victim's route, and the attackers' routes, each in a namespace of its own or
// all in one, which are younger.
func sharedHostname(victim string, attackers []string) string {
	var b strings.Builder
	b.WriteString(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: infra}
spec:
  gatewayClassName: weir
  listeners: [{name: http, port: 80, protocol: HTTP, allowedRoutes: {namespaces: {from: All}}}]
`)
	route := func(namespace, name, created, rules string) {
		fmt.Fprintf(&b, `---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s, namespace: %s, creationTimestamp: "%s"}
spec:
  parentRefs: [{name: edge, namespace: infra}]
  hostnames: [shop.example]
  rules: %s
`, name, namespace, created, rules)
	}
	route("victim", "shop", "2026-01-01T00:00:00Z", victim)
	for i, rules := range attackers {
		route("attacker", fmt.Sprint("evil", i), fmt.Sprintf("2026-02-01T00:00:%02dZ", i), rules)
	}
	return b.String()
}

// matchShared matches a request for the hostname, with a path and a header of so many bytes, and says which route has it.
func matchShared(t *testing.T, manifests string, length int) (route string, excess routing.Excess, findings []resource.Finding) {
	t.Helper()
	set, err := resource.Load(Options{}.Kinds(), []string{"-"}, strings.NewReader(manifests))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Options{}.Translate(set)
	if err != nil {
		t.Fatal(err)
	}
	table, left := routing.Compile(r.Config, nil)
	if len(left) > 0 {
		t.Fatalf("left out: %v", left)
	}
	value := strings.Repeat("y", length)
	req := routing.Request{Host: "shop.example", Method: "GET", Path: "/" + value, Fields: sharedFields(value)}
	var d routing.Decision
	if table.Listeners()[0].Match(&req, &d) {
		route = d.Rule.Route.Ref.Namespace
	}
	return route, req.Excess(), r.Findings
}

type sharedFields string

func (f sharedFields) Field(name string) (string, bool) { return string(f), name == "cookie" }

// TestWhoComesLaterHasNoRequestsOfOthersRefused has a namespace fill a hostname that another one had before with patterns, as far as each
// route may.
func TestWhoComesLaterHasNoRequestsOfOthersRefused(t *testing.T) {
	const most = 8 << 10
	byPath := `[{matches: [{path: {type: RegularExpression, value: "/.*"}}]}]`
	byPrefix := `[{matches: [{path: {type: PathPrefix, value: "/"}}]}]`
	heavy := func(match string) string {
		var b strings.Builder
		for i := range 8 {
			fmt.Fprintf(&b, "- matches: ["+match+"]\n  ", fmt.Sprintf("x{0,1000}z%d", i))
		}
		return "\n  " + strings.TrimSpace(b.String())
	}
	for name, attack := range map[string]string{
		"paths": heavy(`{path: {type: RegularExpression, value: "/%s"}}`), "headers": heavy(`{headers: [{type: RegularExpression, name: cookie, value: "%s"}]}`),
		"many small ones": `[` + strings.Repeat(`{matches: [{headers: [{type: RegularExpression, name: cookie, value: "(x{0,90}){2}z"}]}]}, `, 15) + `{}]`,
	} {
		for kind, victim := range map[string]string{"a pattern": byPath, "a prefix": byPrefix} {
			var attackers []string
			for range 40 {
				attackers = append(attackers, attack)
			}
			route, excess, findings := matchShared(t, sharedHostname(victim, attackers), most-1)
			if route != "victim" || excess != routing.NoExcess {
				t.Errorf("%s against %s: route of %q, excess %v", name, kind, route, excess)
			}
			refused := 0
			for _, f := range findings {
				if f.Code == "WR567" {
					refused++
				}
			}
			if refused == 0 {
				t.Errorf("%s against %s: no finding", name, kind)
			}
		}
	}
	// A namespace alone on its hostname may have as much as before.
	manifests := strings.ReplaceAll(sharedHostname(byPath, []string{heavy(`{path: {type: RegularExpression, value: "/%s"}}`)}), "namespace: attacker", "namespace: victim")
	if route, excess, findings := matchShared(t, manifests, 100); route != "victim" || excess != routing.NoExcess {
		t.Errorf("alone: %q, %v, %v", route, excess, findings)
	}
}

// TestMatchesOfOnePathHaveABound has a namespace put as many matches of one path before another's as it may.
func TestMatchesOfOnePathHaveABound(t *testing.T) {
	match := `{path: {type: PathPrefix, value: "/"}, headers: [{name: x, value: "1"}]}`
	rule := `{matches: [` + strings.Repeat(match+", ", 7) + match + `]}`
	rules := `[` + strings.Repeat(rule+", ", 15) + rule + `]` // 128 matches
	var attackers []string
	for range 12 {
		attackers = append(attackers, rules)
	}
	_, _, findings := matchShared(t, sharedHostname(`[{}]`, attackers), 1)
	refused := map[string]bool{}
	for _, f := range findings {
		if f.Code == "WR567" {
			refused[f.Ref.Name] = true
		}
	}
	if len(refused) != 4 || !refused["evil11"] || refused["evil7"] {
		t.Errorf("refused: %v, want the newest 4 of 12", refused)
	}
}
