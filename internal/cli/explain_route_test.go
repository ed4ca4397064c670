package cli_test

import (
	"os"
	"path/filepath"
	"testing"
)

const callsOfCart = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart, namespace: shop}
spec:
  parentRefs: [{group: "", kind: Service, name: cart}]
  rules:
  - matches: [{path: {value: /old}}]
    filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /carts}, statusCode: 301}}]
  - matches: [{path: {value: /trolleys}}]
    filters: [{type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /carts}}}]
    backendRefs: [{name: cart, port: 80}]
  - matches: [{path: {value: /carts}}]
    backendRefs: [{name: cart, port: 80, weight: 3}, {name: gone, port: 80}]
`

// TestExplainFromFollowsTheClientsRoutes has the route, the split, the endpoint and the server's policy in one answer.
func TestExplainFromFollowsTheClientsRoutes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	routes := write("routes.yaml", callsOfCart)
	split := write("split.yaml", `
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: carts, namespace: shop}
spec: {service: cart, backends: [{service: cart, weight: 1}, {service: cart-v2, weight: 3}]}
---
apiVersion: v1
kind: Service
metadata: {name: cart-v2, namespace: shop}
spec: {selector: {app: report}, ports: [{port: 80, targetPort: 8080}]}
`)
	for _, c := range []struct {
		code  int
		asked []string
		says  []string
	}{
		{0, []string{routes, "--", "GET", "http://cart/carts/7"}, []string{
			"HTTPRoute shop/cart rules[2]", "75 %    shop/cart:80  at 127.0.0.1:15102", "note: 25 % of the calls have no backend: BackendNotFound", "allowed     by 1 workload"}},
		{3, []string{routes, "--", "GET", "http://cart/carts/7/card"}, []string{"HTTPRoute shop/cart rules[2]", "denied      by 1 workload, the answer is 403"}},
		// The server judges what the route makes of the request.
		{0, []string{routes, "--", "GET", "http://cart/trolleys/7"}, []string{"gets GET /carts/7", "allowed     by 1 workload"}},
		{3, []string{routes, "--", "GET", "http://cart/trolleys/x"}, []string{"/carts/x does not match"}},
		{3, []string{routes, "--", "GET", "http://cart/old/7"}, []string{"301 to http://cart/carts/7", "refused     the client's sidecar answers it itself, with 301"}},
		{3, []string{routes, "--", "GET", "http://cart/else"}, []string{"refused     the client's sidecar answers it: no rule of the listener matches, the answer is 404"}},
		// Splits are followed without routes, and behind them.
		{0, []string{split, "--", "GET", "http://cart/carts/7"}, []string{"split by TrafficSplit shop/carts", "allowed     by 2 workloads", "Deployment shop/report", "Deployment shop/cart"}},
		{0, []string{routes, split, "--", "GET", "http://cart/trolleys/7"}, []string{"HTTPRoute shop/cart rules[1]", "split by TrafficSplit shop/carts", "Deployment shop/report"}},
	} {
		args := append([]string{"explain", "--from", "deployment/shop/web", "../../examples/mesh"}, c.asked...)
		weir("", args...).want(t, c.code, c.says...)
	}
}
