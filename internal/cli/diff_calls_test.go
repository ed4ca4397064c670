package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDiffComparesRoutesOfServices has routes that are new, changed and gone, for all clients and for those of a namespace.
func TestDiffComparesRoutesOfServices(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	service := `
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {ports: [{port: 80, name: http}, {port: 81, name: tcp-raw}]}
---
apiVersion: v1
kind: Service
metadata: {name: cart-v2, namespace: shop}
spec: {ports: [{port: 80}]}
`
	route := func(namespace, weights string) string {
		return `
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: cart, namespace: ` + namespace + `}
spec:
  parentRefs: [{group: "", kind: Service, name: cart, namespace: shop}]
  rules: [{backendRefs: [` + weights + `]}]
`
	}
	both := "{name: cart, namespace: shop, port: 80, weight: 9}, {name: cart-v2, namespace: shop, port: 80, weight: 1}"
	none := write("none.yaml", service)
	some := write("some.yaml", service+route("shop", both))
	office := write("office.yaml", service+route("shop", both)+route("office", "{name: cart-v2, namespace: shop, port: 80}"))
	tcp := write("tcp.yaml", service+`
---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: raw, namespace: shop}
spec:
  parentRefs: [{group: "", kind: Service, name: cart, port: 81}]
  rules: [{backendRefs: [{name: cart-v2, port: 80}]}]
`)
	for _, c := range []struct {
		before, after string
		code          int
		says, not     []string
	}{
		{none, none, 0, []string{"no difference in 0 requests"}, nil},
		{some, some, 0, []string{"no difference in 2 requests asked"}, nil},
		{none, some, 1, []string{"at Service shop/cart:80", "cart-v2"}, []string{"office"}},
		{some, none, 1, []string{"at Service shop/cart:80", "cart-v2"}, nil},
		{some, office, 1, []string{"at Service shop/cart:80 from office"}, []string{"at Service shop/cart:80\n"}},
		{none, tcp, 1, []string{"tcp://localhost:81  at Service shop/cart:81", "cart-v2"}, nil},
	} {
		r := weir("", "diff", "--target", "cluster", c.before, c.after)
		r.want(t, c.code, c.says...)
		for _, text := range c.not {
			if strings.Contains(r.stdout, text) {
				t.Errorf("%s to %s: %s", filepath.Base(c.before), filepath.Base(c.after), r.stdout)
			}
		}
	}
}
