package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/dialect/goldentest"
)

const leastPlans = 6

// TestRolloutPlans runs the cases in testdata: files, and what "weir rollout plan" says of them.
func TestRolloutPlans(t *testing.T) {
	for path, g := range goldentest.All(t, leastPlans) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".golden"), func(t *testing.T) {
			var files []string
			for _, p := range g.Inputs() {
				files = append(files, p.Text)
			}
			r := weir(strings.Join(files, "---\n"), "rollout", "plan", "-")
			code := map[int]string{0: "0\n", 1: "1\n", 2: "2\n"}[r.code]
			g.Compare(t, path, []goldentest.Part{{Name: "exit", Text: code}, {Name: "stdout", Text: r.stdout}, {Name: "stderr", Text: r.err}})
		})
	}
}

const rollouts = `apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: shop, namespace: a}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: shop}
  strategy:
    canary:
      trafficRoutings: [{service: svc, gateway: {httpRouteName: route}, ingress: {name: web}}]
      steps: [{replicas: 1, traffic: 20%}, {replicas: 2, pause: {duration: 7}}]
---
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: shop, namespace: b}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: shop}
  strategy: {canary: {steps: [{replicas: 1}]}}
---
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: broken, namespace: b}
spec: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: broken}, strategy: {canary: {steps: []}}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: route, namespace: a}
spec: {rules: [{backendRefs: [{name: svc, port: 80}]}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web, namespace: a}
spec: {rules: [{http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: svc, port: {number: 80}}}}]}}]}
`

func TestRolloutPlanShowsOneRolloutOrOneStep(t *testing.T) {
	plan := func(args ...string) result {
		return weir(rollouts, append([]string{"rollout", "plan", "-"}, args...)...)
	}
	plan().want(t, 1, "Rollout a/shop", "Rollout b/shop", "Rollout b/broken", "spec.strategy.canary.steps")
	plan("--rollout", "a/shop").want(t, 0, "Rollout a/shop", "!Rollout b/shop", "!broken", "Step 1 of 2", "Step 2 of 2", "+      weight: 20")
	plan("--rollout", "a/shop", "--step", "2").want(t, 0, "!Step 1 of 2", "Step 2 of 2. The step routes nothing", "HTTPRoute a/route stays as it is written.", "!@@")
	plan("--rollout", "broken").want(t, 1, "Rollout b/broken", "!b/shop")
	plan("--rollout", "shop").want(t, 2, "stderr:--rollout shop: several namespaces have one of that name; write NAMESPACE/NAME")
	plan("--rollout", "shpo").want(t, 2, "stderr:no Rollout of that name; there is:\na/shop\nb/shop\n")
	plan("--step", "2").want(t, 2, "stderr:--step 2: Rollout b/shop has the steps 1 to 1")
	for _, n := range []string{"0", "-1", "3"} {
		plan("--rollout", "a/shop", "--step", n).want(t, 2, "stderr:--step "+n+": Rollout a/shop has the steps 1 to 2", "stderr:weir rollout plan --help")
	}
	plan("--step", "x").want(t, 2, "stderr:invalid argument")
	weir("", "rollout", "plan").want(t, 2, "stderr:which files or folders?")
	weir("", "rollout", "plan", "absent").want(t, 2, "stderr:absent")
	weir(gateway, "rollout", "plan", "-").want(t, 2, "stderr:the files have no Rollout (rollouts.kruise.io)")
	weir(gateway, "rollout", "plan", "--rollout", "x", "-").want(t, 2, "stderr:no Rollout that is valid")
	weir(gateway+"---\nkind: [\n", "rollout", "plan", "-").want(t, 1, "error")
	weir("", "rollout", "paln").want(t, 2, `stderr:unknown command "paln"; did you mean "plan"?`)
	weir("", "rollout").want(t, 0, "Commands:\n", "\n  plan ", "!Exit codes")
	weir("", "help", "rollout", "plan").want(t, 0, "weir rollout plan PATH... [flags]")
}

// TestRolloutPlanPrintsObjectsToBeApplied holds that -o yaml has the objects of a step, each once, and says what is to be
// deleted.
func TestRolloutPlanPrintsObjectsToBeApplied(t *testing.T) {
	r := weir(rollouts, "rollout", "plan", "--rollout", "a/shop", "-o", "yaml", "-")
	r.want(t, 0, "# Rollout a/shop, step 1 of 2. 20% of the requests go to svc-canary, 80% to svc.\n", "# Ingress a/web-canary of the step before is no longer there: delete it\n")
	var names []string
	for document := range strings.SplitSeq(r.stdout, "---\n") {
		var u map[string]any
		if err := yaml.Unmarshal([]byte(document), &u); err != nil {
			t.Fatal(err)
		}
		meta, _ := u["metadata"].(map[string]any)
		names = append(names, u["kind"].(string)+" "+meta["name"].(string))
	}
	if got, want := strings.Join(names, ", "), "Ingress web, Ingress web-canary, HTTPRoute route, Ingress web, HTTPRoute route"; got != want {
		t.Errorf("the documents are %s, want %s", got, want)
	}
}

// TestRolloutsPageShowsAPlan holds that docs/rollouts.md shows what the command prints.
func TestRolloutsPageShowsAPlan(t *testing.T) {
	page, err := os.ReadFile("../../docs/rollouts.md")
	if err != nil {
		t.Fatal(err)
	}
	r := weir("", "rollout", "plan", examples+"rollout")
	shown, _, found := strings.Cut(r.stdout, "\nStep 3 of 3.")
	if r.code != 0 || !found || !strings.Contains(string(page), "```\n$ weir rollout plan examples/rollout\n"+shown+"```\n") {
		t.Errorf("exit code %d; docs/rollouts.md does not show\n%s", r.code, shown)
	}
}

func TestRolloutPlanIsData(t *testing.T) {
	r := weir(rollouts, "rollout", "plan", "--rollout", "a/shop", "-o", "json", "-")
	var report struct {
		Rollouts []struct {
			Namespace, Name, Strategy, Workload string
			Of                                  int
			Steps                               []struct {
				Step          int
				Who, Replicas string
				PauseSeconds  *int
				Objects       []struct {
					Kind, Name, Provider string
					Changed              bool
					Before, After        map[string]any
					Owned                []map[string]any
				}
			}
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil || r.code != 0 || len(report.Rollouts) != 1 || len(report.Rollouts[0].Steps) != 2 {
		t.Fatalf("%v, exit code %d:\n%s", err, r.code, r.stdout)
	}
	one, two := report.Rollouts[0].Steps[0], report.Rollouts[0].Steps[1]
	if one.Step != 1 || one.Replicas != "1" || one.PauseSeconds != nil || two.PauseSeconds == nil || *two.PauseSeconds != 7 || len(one.Objects) != 2 || len(two.Objects) != 2 {
		t.Errorf("%+v", report)
	}
	if web, route := one.Objects[0], one.Objects[1]; web.Changed || len(web.Owned) != 1 || !route.Changed || route.Provider != "gateway" || route.Before == nil || route.After == nil {
		t.Errorf("%+v", one.Objects)
	}
	if web, route := two.Objects[0], two.Objects[1]; web.Changed || len(web.Owned) != 0 || route.Changed {
		t.Errorf("%+v", two.Objects)
	}
}
