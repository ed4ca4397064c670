package cli_test

import (
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/cli"
)

// web is a Deployment and who calls it, for tests of access.
const web = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {template: {metadata: {labels: {app: web}}, spec: {serviceAccountName: web}}}
---
apiVersion: access.smi-spec.io/v1alpha4
kind: IdentityBinding
metadata: {name: other, namespace: shop}
spec: {schemes: {spiffeIdentities: [mesh.example/ns/elsewhere/sa/a]}}
`

func TestAccessFlagsReachTheTranslation(t *testing.T) {
	weir(web, "dump", "-").want(t, 0, `"name": "web"`, "!deny")
	weir(web, "dump", "--access-deny", "governed", "-").want(t, 0, "!deny")
	weir(web, "dump", "--access-deny", "all", "-").want(t, 0, `"deny": "all"`)
	weir(web, "check", "-").want(t, 0, "!WR1030")
	weir(web, "check", "--trust-domain", "mesh.example", "-").want(t, 1, "WR1030", "is an identity of namespace elsewhere")
	weir(web, "dump", "--access-deny", "none", "-").want(t, 2, "stderr:want governed or all")
	weir(web, "dump", "--trust-domain", "Mesh", "-").want(t, 2, "stderr:the trust domain has 'M'")
}

func TestExplainFromWithoutAnyRule(t *testing.T) {
	const open = `apiVersion: v1
kind: Service
metadata: {name: web, namespace: shop}
spec: {selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {template: {metadata: {labels: {app: web}}, spec: {serviceAccountName: web}}}
`
	weir(open, "explain", "--from", "deployment/shop/web", "-", "--", "http://web/").want(t, 0, "Deployment shop/web  port 80  open", "no rule names it, and nothing is denied by default")
	weir(open, "explain", "--from", "deployment/shop/web", "--access-deny", "all", "-", "--", "http://web/").want(t, 3, "port 80  deny-all", "everything is denied by default, and no rule names it (unknown_source)")
}

func TestThePageOfCommandsHasThoseThatHaveOthers(t *testing.T) {
	pages, err := cli.Program{}.Docs("../../docs")
	if err != nil {
		t.Fatal(err)
	}
	for part, want := range map[string]bool{"\n## weir access\n": true, "\n## weir access generate\n": true, "\n## weir rollout plan\n": true, "\n## weir rollout\n": false} {
		if strings.Contains(pages["cli.md"], part) != want {
			t.Errorf("the page has %q: %v, want %v", part, !want, want)
		}
	}
}
