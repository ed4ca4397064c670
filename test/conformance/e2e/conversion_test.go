package e2e

import (
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"

	"github.com/weirmesh/weir/test/conformance/install"
)

// raw sends a request to the path of a version, as a client does that knows it alone: kubectl create and replace --raw are POST and PUT.
func (w *world) raw(verb, version, plural, name, body string) string {
	w.Helper()
	text, err := w.tryRaw(verb, version, plural, name, body)
	if err != nil {
		w.Fatal(err)
	}
	return text
}

func (w *world) tryRaw(verb, version, plural, name, body string) (string, error) {
	group := "split.smi-spec.io"
	if plural != "trafficsplits" {
		group = "specs.smi-spec.io"
	}
	path := "/apis/" + group + "/" + version + "/namespaces/" + w.namespace + "/" + plural
	if name != "" {
		path += "/" + name
	}
	args := []string{verb, "--raw", path}
	if body != "" {
		args = append(args, "-f", "-")
	}
	return install.Kubectl(w.Context(), body, args...)
}

// spec compares that of an object with what it is to be.
func (w *world) spec(what, object, want string) {
	w.Helper()
	var got struct{ Spec, Matches any }
	var wanted any
	if err := json.Unmarshal([]byte(object), &got); err != nil {
		w.Fatalf("%s: %v: %s", what, err, object)
	}
	if err := json.Unmarshal([]byte(want), &wanted); err != nil {
		w.Fatal(err)
	}
	if got.Spec == nil {
		got.Spec = got.Matches
	}
	if !reflect.DeepEqual(got.Spec, wanted) {
		w.Errorf("%s is %v, want %v", what, got.Spec, wanted)
	}
}

// argoSplit is what Argo Rollouts creates with its default flags.
const argoSplit = `{"kind":"TrafficSplit","apiVersion":"split.smi-spec.io/v1alpha1","metadata":{"name":"shop","creationTimestamp":null},
"spec":{"service":"shop","backends":[{"service":"v2","weight":"%d"},{"service":"v1","weight":"%d"}]}}`

// TestOldVersionsOfSMIAreConverted writes as controllers of rollouts do, which know old versions alone, reads in all, and sends traffic.
func TestOldVersionsOfSMIAreConverted(t *testing.T) {
	if testing.Short() {
		t.Skip("conversions are shown with an API server, by test/cluster/kube")
	}
	w := newWorld(t)
	w.toys("v1", "v2", "shop")
	url := w.gateway("edge")
	w.apply(fmt.Sprintf(shop, "shop"))
	w.answers(url, http.StatusOK, "shop")

	// Argo Rollouts: a POST, then merge patches, in v1alpha1.
	w.raw("create", "v1alpha1", "trafficsplits", "", fmt.Sprintf(argoSplit, 0, 100))
	w.answers(url, http.StatusOK, "v1")
	w.kubectl("", "patch", "trafficsplits.v1alpha1.split.smi-spec.io", "shop", "--type=merge",
		`--patch={"spec":{"backends":[{"service":"v2","weight":"100"},{"service":"v1","weight":"0"}]}}`)
	w.answers(url, http.StatusOK, "v2")
	const whole, quantities = `{"service":"shop","backends":[{"service":"v2","weight":100},{"service":"v1","weight":0}]}`, `{"service":"shop","backends":[{"service":"v2","weight":"100"},{"service":"v1","weight":"0"}]}`
	w.spec("the split in v1alpha1", w.raw("get", "v1alpha1", "trafficsplits", "shop", ""), quantities)
	for _, version := range []string{"v1alpha2", "v1alpha3", "v1alpha4"} {
		w.spec("the split in "+version, w.raw("get", version, "trafficsplits", "shop", ""), whole)
	}
	w.spec("kubectl's split", w.kubectl("", "get", "trafficsplit", "shop", "--output=json"), whole)
	if table := w.kubectl("", "get", "trafficsplits.v1alpha1.split.smi-spec.io"); !strings.Contains(table, "shop") || !strings.Contains(table, "SERVICE") {
		t.Errorf("kubectl's table in v1alpha1 is\n%s", table)
	}

	// Flagger: a GET, then a PUT of what it read with other weights, in the version of its provider.
	for version, weights := range map[string][2]any{"v1alpha1": {"0", "100"}, "v1alpha2": {0, 100}} {
		w.eventually(func() error {
			var split map[string]any
			if err := json.Unmarshal([]byte(w.raw("get", version, "trafficsplits", "shop", "")), &split); err != nil {
				t.Fatal(err)
			}
			delete(split, "status")
			split["spec"].(map[string]any)["backends"] = []any{
				map[string]any{"service": "v2", "weight": weights[0]}, map[string]any{"service": "v1", "weight": weights[1]},
			}
			body, err := json.Marshal(split)
			if err != nil {
				t.Fatal(err)
			}
			_, err = w.tryRaw("replace", version, "trafficsplits", "shop", string(body))
			if err != nil && !strings.Contains(err.Error(), "(Conflict)") { // with the status of the change before
				t.Fatal(err)
			}
			return err
		})
		w.answers(url, http.StatusOK, "v1")
	}

	// kubectl applies quantities and reads them again; groups of routes are converted, too.
	w.apply(`
apiVersion: split.smi-spec.io/v1alpha1
kind: TrafficSplit
metadata: {name: thirds}
spec: {service: elsewhere, backends: [{service: v1, weight: 1}, {service: v2, weight: 500m}]}
---
apiVersion: specs.smi-spec.io/v1alpha1
kind: HTTPRouteGroup
metadata: {name: one}
matches: [{name: a, methods: [GET], pathRegex: /x}]
---
apiVersion: specs.smi-spec.io/v1alpha2
kind: HTTPRouteGroup
metadata: {name: two}
matches: [{name: a, headers: [{x: why}]}]
---
apiVersion: specs.smi-spec.io/v1alpha3
kind: TCPRoute
metadata: {name: db}
spec: {}
`)
	w.spec("quantities in v1alpha1", w.raw("get", "v1alpha1", "trafficsplits", "thirds", ""), `{"service":"elsewhere","backends":[{"service":"v1","weight":1},{"service":"v2","weight":"500m"}]}`)
	w.spec("quantities in v1alpha4", w.raw("get", "v1alpha4", "trafficsplits", "thirds", ""), `{"service":"elsewhere","backends":[{"service":"v1","weight":2},{"service":"v2","weight":1}]}`)
	w.spec("a group of v1alpha1", w.raw("get", "v1alpha4", "httproutegroups", "one", ""), `{"matches":[{"name":"a","methods":["GET"],"pathRegex":"/x"}]}`)
	w.spec("a group of v1alpha2", w.raw("get", "v1alpha4", "httproutegroups", "two", ""), `{"matches":[{"name":"a","headers":[{"x":"why"}]}]}`)
	w.spec("headers in v1alpha1", w.raw("get", "v1alpha1", "httproutegroups", "two", ""), `[{"name":"a"}]`)
	w.spec("a route of v1alpha3", w.raw("get", "v1alpha3", "tcproutes", "db", ""), `{}`)

	// A rolling update of the controller fails no request in an old version: a pod that ends converts on while API servers learn of it.
	l := make(chan struct{})
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for n := 0; ; n++ {
			select {
			case <-l:
				t.Logf("%d patches in v1alpha1", n)
				return
			default:
			}
			if _, err := install.Kubectl(t.Context(), "", "--namespace", w.namespace, "patch", "trafficsplits.v1alpha1.split.smi-spec.io", "thirds", "--type=merge",
				fmt.Sprintf(`--patch={"metadata":{"annotations":{"example.com/n":"%d"}}}`, n)); err != nil {
				failed <- err
				return
			}
		}
	}()
	w.kubectl("", "--namespace", install.Namespace, "rollout", "restart", "deployment/weir-controller")
	w.kubectl("", "--namespace", install.Namespace, "rollout", "status", "deployment/weir-controller", fmt.Sprintf("--timeout=%s", patience))
	close(l)
	for err := range failed {
		t.Error(err)
	}

	// Without a controller the version that is stored goes on to be served.
	back := w.withoutController()
	w.spec("the split in v1alpha4", w.raw("get", "v1alpha4", "trafficsplits", "thirds", ""), `{"service":"elsewhere","backends":[{"service":"v1","weight":2},{"service":"v2","weight":1}]}`)
	_, err := install.Kubectl(t.Context(), "", "--namespace", w.namespace, "patch", "trafficsplits.v1alpha1.split.smi-spec.io", "thirds", "--type=merge", `--patch={"metadata":{"labels":{"a":"b"}}}`)
	if err == nil || !strings.Contains(err.Error(), "conversion webhook") {
		t.Errorf("a patch in v1alpha1 without a controller: %v", err)
	}
	back()
	w.eventually(func() error {
		_, err := install.Kubectl(t.Context(), "", "--namespace", w.namespace, "patch", "trafficsplits.v1alpha1.split.smi-spec.io", "thirds", "--type=merge", `--patch={"metadata":{"labels":{"a":"b"}}}`)
		return err
	})
}
