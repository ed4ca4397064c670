package e2e

import (
	"fmt"
	"strings"
	"testing"
)

// counts are how many lines there are of each kind.
func counts(text string) map[string]int {
	n := map[string]int{}
	for line := range strings.Lines(text) {
		n[strings.TrimSpace(line)]++
	}
	return n
}

// TestRoutesOfServices has routes whose parents are Services, of producers and of a consumer, with requests and with connections. One of
// the Services has no pods of its own.
func TestRoutesOfServices(t *testing.T) {
	t.Parallel()
	w, office := newWorldNamed(t, "e2e-routes"), newWorldNamed(t, "e2e-routes-office")
	for _, w := range []*world{w, office} {
		w.kubectl("", "label", "namespace", w.namespace, "weirmesh.github.io/inject=enabled")
	}
	w.callers("front", "fresh", "one", "two")
	office.callers("desk")
	w.apply(`
apiVersion: v1
kind: Service
metadata: {name: whole}
spec: {ports: [{name: http, port: 80}]}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: whole}
spec:
  parentRefs: [{group: "", kind: Service, name: whole, port: 80}]
  rules:
  - matches: [{path: {value: /parts}}]
    backendRefs: [{name: one, port: 80, weight: 3}, {name: two, port: 80, weight: 1}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: lines}
spec:
  parentRefs: [{group: "", kind: Service, name: one, sectionName: tcp-lines}]
  rules: [{backendRefs: [{name: two, port: 9001}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: late}
spec:
  parentRefs: [{group: "", kind: Service, name: whole}]
  rules: [{backendRefs: [{name: two, port: 9001}]}]
`)
	office.apply(fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: whole}
spec:
  parentRefs: [{group: "", kind: Service, name: whole, namespace: %[1]s}]
  rules: [{backendRefs: [{name: two, namespace: %[1]s, port: 80}]}]
`, w.namespace))
	for _, c := range []struct {
		in         *world
		from       string
		args, want string // want is the beginning
	}{
		{w, "front", "get http://whole/parts", "200 "},
		{w, "front", "get http://whole/else", "404 "},
		{w, "two", "get http://whole/parts", "200 "}, // a backend of the route is its client, too
		{w, "front", "say one:9001 x", "two says x"},
		{office, "desk", "get http://whole.e2e-routes/else", "200 two"},
		{office, "desk", "say one.e2e-routes:9001 x", "two says x"},
		{office, "desk", "get http://one.e2e-routes/", "200 one"},
	} {
		c.in.eventually(func() error {
			if got := c.in.call(c.from, strings.Split(c.args, " ")...); !strings.HasPrefix(got, c.want) {
				return fmt.Errorf("%s: %s: %q, want %q", c.from, c.args, got, c.want)
			}
			return nil
		})
	}
	// Weights are met exactly in each block of a client's requests, of which it has sent none before.
	for range 2 {
		if n := counts(w.call("fresh", "get", "http://whole/parts", "100")); n["200 one"] != 75 || n["200 two"] != 25 {
			t.Errorf("%v, want 75 and 25", n)
		}
	}
	if n := counts(office.call("desk", "get", "http://whole.e2e-routes/parts", "20")); n["200 two"] != 20 {
		t.Errorf("the consumer has a route of its own: %v", n)
	}
	for object, want := range map[string]string{"httproute/whole": "True Accepted", "tcproute/lines": "True Accepted", "tcproute/late": "False Conflicted"} {
		w.eventually(func() error {
			if got := w.kubectl("", "get", object, `--output=jsonpath={.status.parents[0].conditions[?(@.type=="Accepted")]['status','reason']}`); got != want {
				return fmt.Errorf("%s: %q, want %q", object, got, want)
			}
			return nil
		})
	}
	// A route goes: what is left is the Service.
	w.kubectl("", "delete", "tcproute/lines")
	w.eventually(func() error {
		if got := w.call("front", "say", "one:9001", "x"); got != "one says x" {
			return fmt.Errorf("%q", got)
		}
		return nil
	})
}
