package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTutorialsAndExamplesPassForTheirTarget holds that what a newcomer copies first is met without a warning: the tutorial's files for a
// cluster, one by one, together and as one stream, and the examples for "weir run".
func TestTutorialsAndExamplesPassForTheirTarget(t *testing.T) {
	text, err := os.ReadFile("../../docs/tutorial-kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		name, _, found := strings.Cut(strings.TrimPrefix(block, "# "), "\n")
		if !found || !strings.HasSuffix(name, ".yaml") {
			t.Fatalf("a block without a name: %s", block)
		}
		files[name] = block
	}
	if len(files) != 4 {
		t.Fatalf("the tutorial has %d files", len(files))
	}
	for name, content := range files {
		weir(content, "check", "--target", "cluster", "--fail-on", "warning", "-").want(t, 0, "object", "!target: ")
		if name != "route.yaml" && name != "mirror.yaml" {
			continue
		}
		dir := t.TempDir()
		for _, n := range []string{"shop.yaml", "edge.yaml", name} {
			if err := os.WriteFile(filepath.Join(dir, n), []byte(files[n]), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		const because = "target: a cluster, as there is a Deployment"
		weir("", "check", "--fail-on", "warning", dir).want(t, 0, because, "nothing to complain about")
		stream := strings.Join([]string{files["shop.yaml"], files["edge.yaml"], content}, "---\n")
		weir(stream, "check", "--fail-on", "warning", "-").want(t, 0, because, "nothing to complain about")
		weir(stream, "check", "--target", "files", "--fail-on", "warning", "-").want(t, 1, "WR480", "outside of a cluster nothing makes them", "!target: ")
		// The same files are explained and compared as the cluster would serve them.
		weir(stream, "explain", "-", "--", "http://shop.example/cart").want(t, 0, "shop/edge", "at shop-v1.shop.svc:80", "!no endpoint")
		weir(stream, "dump", "-").want(t, 0, `"gateway": "shop/edge"`, `"shop-v1.shop.svc:80"`)
		weir("", "diff", dir, dir).want(t, 0, "no difference in")
	}

	mesh, err := os.ReadFile("../../docs/tutorial-mesh.md")
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, block := range strings.Split(string(mesh), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		all = append(all, block)
	}
	weir(strings.Join(all, "---\n"), "check", "--fail-on", "warning", "-").want(t, 0, "14 objects, nothing to complain about")

	examples, err := os.ReadDir("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range examples {
		// cross-namespace shows a mistake on purpose.
		if e.IsDir() && e.Name() != "cross-namespace" {
			weir("", "check", "--fail-on", "warning", "../../examples/"+e.Name()).want(t, 0, "target: weir run, as ", "nothing to complain about")
		}
	}
}

const forCluster = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: weir}
spec:
  controllerName: weirmesh.github.io/gateway-controller
  parametersRef: {group: "", kind: ConfigMap, name: defaults, namespace: weir-system}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  gatewayClassName: weir
  infrastructure: {parametersRef: {group: "", kind: ConfigMap, name: small}}
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: https, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: made-by-an-issuer}]}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: other, namespace: shop}
spec:
  gatewayClassName: installed-elsewhere
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop, namespace: shop}
spec:
  parentRefs: [{name: edge}, {name: other}]
  rules:
  - backendRefs: [{name: shop, port: 80}, {name: next, port: 80, weight: 0}]
---
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: shop}
spec: {selector: {app: shop}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: next, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: shop, namespace: shop}
---
apiVersion: gateway.networking.k8s.io/v1
kind: TLSRoute
metadata: {name: passed, namespace: shop}
`

func TestManifestsForAClusterAreReadAsTheControllerWould(t *testing.T) {
	r := weir(forCluster, "check", "--fail-on", "error", "-")
	r.want(t, 0, "target: a cluster, as there is a ServiceAccount", "WR487", "Secret shop/made-by-an-issuer is not among the files", "WR488",
		"!WR480", "!WR502", "!WR504", "!WR506", "!WR105")
	weir(forCluster, "check", "--target", "files", "-").want(t, 1, "WR480", "WR502", "WR509")
	// What the cluster may have is no error; a name that is misspelt beside others is.
	weir(strings.Replace(forCluster, "{name: shop, port: 80}", "{name: shpo, port: 80}", 1), "check", "-").want(t, 1, "WR530", "Service shop/shpo does not exist")
	weir(strings.Replace(forCluster, "name: other}", "name: edge, namespace: infra}", 1), "check", "-").want(t, 0, "Gateway infra/edge is not among the files")
	// An object that is there and not valid is not elsewhere.
	weir(strings.Replace(forCluster, "port: 80, protocol: HTTP}", "port: 0, protocol: HTTP}", 1), "check", "-").want(t, 1,
		"WR520", "Gateway shop/edge is left out, because it is not valid (WR201 at -:", "mend WR201")

	var plain struct{ Target, TargetBy string }
	if err := json.Unmarshal([]byte(weir(forCluster, "check", "-o", "json", "-").stdout), &plain); err != nil || plain.Target != "cluster" || plain.TargetBy == "" {
		t.Errorf("%+v, %v", plain, err)
	}
	var log struct {
		Runs []struct {
			Properties struct{ Target, TargetBy string }
		}
	}
	if err := json.Unmarshal([]byte(weir(forCluster, "check", "-o", "sarif", "-").stdout), &log); err != nil || log.Runs[0].Properties.Target != "cluster" {
		t.Errorf("%+v, %v", log, err)
	}
	weir(forCluster, "check", "-o", "github", "-").want(t, 0, "target: a cluster")
	if r := weir("", "check", "--target", "moon", "x"); r.code != 2 || !strings.Contains(r.err, "want guess, files, cluster") {
		t.Errorf("%+v", r)
	}
	weir("", "__complete", "check", "--target", "").want(t, 0, "files", "cluster")
	// Both Gateways have port 80: each is compared by itself.
	dir := t.TempDir()
	for name, text := range map[string]string{"old": forCluster, "new": strings.Replace(forCluster, "{name: edge}, {name: other}", "{name: edge}", 1)} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "x.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	weir("", "diff", filepath.Join(dir, "old"), filepath.Join(dir, "new")).want(t, 1, "  at shop/other\n", "404", "!at shop/edge")
}

// TestMigrationExamplesPassForACluster holds that what docs/coming-from.md shows is met without a warning, and that requests go where the page
// says: by weights exactly, and by a cookie to the canary.
func TestMigrationExamplesPassForACluster(t *testing.T) {
	text, err := os.ReadFile("../../docs/coming-from.md")
	if err != nil {
		t.Fatal(err)
	}
	var blocks []string
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if strings.Contains(block, "TrafficRole") {
			block = migrationCart + block
		}
		weir(block, "check", "--target", "cluster", "--fail-on", "warning", "-").want(t, 0, "object")
		blocks = append(blocks, block)
	}
	if len(blocks) != 6 {
		t.Fatalf("the page has %d examples", len(blocks))
	}
	explain := func(route string, args ...string) result {
		objects := strings.Join([]string{migrationEdge, route}, "---\n")
		return weir(objects, append([]string{"explain", "--target", "cluster", "-", "--", "http://shop.example/"}, args...)...)
	}
	explain(blocks[2]).want(t, 0, "80 %", "shop/shop-stable:80", "20 %", "shop/shop-canary:80")
	explain(blocks[4]).want(t, 0, "90 %", "shop/shop-primary:80", "10 %", "shop/shop-canary:80")
	explain(blocks[4], "-H", "Cookie: theme=dark; canary=x1y2").want(t, 0, "100 %", "shop/shop-canary:80", "!shop-primary")
	may := func(args ...string) result {
		return weir(blocks[5], append([]string{"explain", "--from", "shop/web", "-", "--"}, args...)...)
	}
	may("http://cart.shop/carts/7").want(t, 0, "allowed")
	may("-X", "DELETE", "http://cart.shop/carts/7").want(t, 3, "it allows GET, not DELETE")
}

// migrationCart is what the page's roles are about.
const migrationCart = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, namespace: shop}
spec:
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec: {containers: [{name: cart, image: cart, ports: [{containerPort: 8080}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {selector: {app: cart}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: shop}
---
`

// migrationEdge is the Gateway and the Services of the page's routes.
const migrationEdge = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec: {gatewayClassName: weir, listeners: [{name: http, port: 80, protocol: HTTP}]}
---
apiVersion: v1
kind: Service
metadata: {name: shop-stable, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: shop-primary, namespace: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: shop-canary, namespace: shop}
spec: {ports: [{port: 80}]}
`
