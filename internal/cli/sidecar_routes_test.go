package cli_test

import (
	"net/http"
	"testing"
)

const routesOfCart = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: producer, namespace: shop}
spec:
  parentRefs: [{group: "", kind: Service, name: cart}]
  rules:
  - matches: [{path: {value: /old}}]
    filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplacePrefixMatch, replacePrefixMatch: /carts}, statusCode: 301}}]
  - matches: [{path: {value: /see}}]
    filters: [{type: RequestRedirect, requestRedirect: {statusCode: 303, path: {type: ReplaceFullPath, replaceFullPath: /carts}}}]
  - matches: [{path: {value: /tls}}]
    filters: [{type: RequestRedirect, requestRedirect: {statusCode: 307, scheme: https, hostname: shop.example}}]
  - matches: [{path: {value: /port}}]
    filters: [{type: RequestRedirect, requestRedirect: {statusCode: 308, port: 8443}}]
  - matches: [{path: {value: /carts}}]
    filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: route, value: producer}]}}]
    backendRefs: [{name: cart, port: 80}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: consumer, namespace: office}
spec:
  parentRefs: [{group: "", kind: Service, name: cart, namespace: shop}]
  rules:
  - filters: [{type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: route, value: consumer}]}}]
    backendRefs: [{name: cart, namespace: shop, port: 80}]
---
apiVersion: v1
kind: Pod
metadata: {name: app, namespace: office, labels: {app: app}}
spec: {serviceAccountName: app, containers: [{name: app}]}
status: {podIP: 10.0.0.99}
`

// TestSidecarsServeRoutesOfServices has a producer's routes for clients of its own namespace, and a consumer's for those of another.
func TestSidecarsServeRoutesOfServices(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.write("access.yaml", "")
	m.write("routes.yaml", routesOfCart)
	weir("", "identity", m.trust, m.dir).want(t, 0)
	m.cart()
	web, app := m.client("web"), m.clientOf("office/app")
	for _, c := range []*http.Client{web, app} {
		c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	}
	for _, x := range []struct {
		client                    *http.Client
		at                        string
		status                    int
		route, location, received string
	}{
		{web, "http://cart/carts/1", 200, "producer", "", "GET /carts/1"},
		{web, "http://cart.shop:80/carts/2", 200, "producer", "", "GET /carts/2"},
		{web, "http://cart/old/3", 301, "", "http://cart/carts/3", ""},
		{web, "http://cart.shop:80/see/3?a=b", 303, "", "http://cart.shop/carts?a=b", ""},
		{web, "http://cart/tls/3", 307, "", "https://shop.example/tls/3", ""},
		{web, "http://cart/port", 308, "", "http://cart:8443/port", ""},
		{web, "http://cart/else", 404, "", "", ""},
		{app, "http://cart.shop/carts/4", 200, "consumer", "", "GET /carts/4"},
		{app, "http://cart.shop.svc/else", 200, "consumer", "", "GET /else"},
		// A bare name is of the client's own namespace.
		{app, "http://cart/carts/5", 404, "", "", ""},
	} {
		a, err := x.client.Get(x.at)
		if err != nil {
			t.Fatal(err)
		}
		a.Body.Close()
		if a.StatusCode != x.status || a.Header.Get("route") != x.route || a.Header.Get("location") != x.location {
			t.Errorf("%s: %d, route %q, location %q", x.at, a.StatusCode, a.Header.Get("route"), a.Header.Get("location"))
		}
		if x.received != "" && a.StatusCode == 200 {
			if got := <-m.received; got != x.received {
				t.Errorf("%s: the application received %s", x.at, got)
			}
		}
		m.nothing()
	}
}
