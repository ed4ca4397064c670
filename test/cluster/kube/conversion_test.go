package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/test/weirtest"
)

// convertible installs the definitions whose versions are converted.
func convertible(t *testing.T) (names []string) {
	t.Helper()
	for _, d := range [][2]string{{"split.smi-spec.io", "trafficsplits"}, {"specs.smi-spec.io", "httproutegroups"}, {"specs.smi-spec.io", "tcproutes"}} {
		names = append(names, define(t, d[0], d[1], nil).Name)
	}
	return names
}

// clientConfig is where the API server finds the webhook of a definition.
func clientConfig(t *testing.T, definition string) *apiextensionsv1.WebhookClientConfig {
	t.Helper()
	d := &apiextensionsv1.CustomResourceDefinition{}
	if err := admin.Get(t.Context(), client.ObjectKey{Name: definition}, d); err != nil {
		t.Fatal(err)
	}
	return d.Spec.Conversion.Webhook.ClientConfig
}

// controllerProcess is a replica of the controller outside the cluster, with its conversion webhook at a port of its own.
type controllerProcess struct {
	*exec.Cmd
	t     *testing.T
	url   string
	admin string
	log   lines
	ended chan error
}

func port(t *testing.T) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(weirtest.FreePort(t)))
}

func startController(t *testing.T, name string, args ...string) *controllerProcess {
	t.Helper()
	at := port(t)
	p := &controllerProcess{t: t, url: "https://" + at + "/convert", admin: port(t), ended: make(chan error, 1)}
	p.Cmd = weirtest.Command(append([]string{"controller", "--kubeconfig=" + server.Kubeconfig, "--namespace=" + own, "--name=" + name, "--proxy-image=weir:dev",
		"--feed-address=127.0.0.1:0", "--admin=" + p.admin, "--conversion-address=" + at, "--conversion-url=" + p.url, "--drain-delay=0s"}, args...)...)
	p.Stdout, p.Stderr = &p.log, &p.log
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { p.ended <- p.Wait() }()
	t.Cleanup(func() {
		p.stop()
		if t.Failed() {
			t.Logf("%s:\n%s", name, p.log.String())
		}
	})
	return p
}

func (p *controllerProcess) stop() {
	if p.ended == nil {
		return
	}
	_ = p.Process.Signal(syscall.SIGTERM)
	if err := <-p.ended; err != nil {
		p.t.Errorf("%v", err)
	}
	p.ended = nil
}

// converts waits until the API server asks this replica for conversions of all kinds.
func (p *controllerProcess) converts(definitions []string) {
	p.t.Helper()
	err := within(p.t.Context(), func() error {
		for _, d := range definitions {
			if c := clientConfig(p.t, d); c.URL == nil || *c.URL != p.url {
				return fmt.Errorf("%s is converted at %+v", d, c)
			}
		}
		return nil
	})
	if err != nil {
		p.t.Fatalf("%v\n%s", err, p.log.String())
	}
}

// raw asks the API server as a client does that knows one version.
func raw(t *testing.T) rest.Interface {
	t.Helper()
	config, err := adminConfig()
	if err != nil {
		t.Fatal(err)
	}
	c, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c.Discovery().RESTClient()
}

func pathOf(version, ns, plural, name string) string {
	group := "split.smi-spec.io"
	if plural != "trafficsplits" {
		group = "specs.smi-spec.io"
	}
	path := "/apis/" + group + "/" + version + "/namespaces/" + ns + "/" + plural
	if name != "" {
		path += "/" + name
	}
	return path
}

// is compares some fields of an answer with what they are to be, written as YAML.
func is(t *testing.T, what string, r rest.Result, want string) map[string]any {
	t.Helper()
	body, err := r.Raw()
	if err != nil {
		t.Errorf("%s: %v: %s", what, err, body)
		return nil
	}
	var got, wanted map[string]any
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal([]byte(want), &wanted); err != nil {
		t.Fatal(err)
	}
	for field, value := range wanted {
		have := got[field]
		if field == "annotations" {
			have = map[string]any{}
			if all, _ := got["metadata"].(map[string]any)["annotations"].(map[string]any); all != nil {
				have = all
			}
		}
		if !reflect.DeepEqual(have, value) {
			t.Errorf("%s: %s is %v, want %v", what, field, have, value)
		}
	}
	return got
}

// eventually sends a request until it succeeds: an API server takes a moment to begin with a webhook.
func eventually(t *testing.T, send func() rest.Result) {
	t.Helper()
	if err := within(t.Context(), func() error { return send().Error() }); err != nil {
		t.Fatal(err)
	}
}

// argoSplit is what Argo Rollouts 1.x creates with its default flags: the canary first, weights as quantities, owned by the Rollout.
const argoSplit = `{"kind":"TrafficSplit","apiVersion":"split.smi-spec.io/v1alpha1","metadata":{"name":"shop","creationTimestamp":null,
"ownerReferences":[{"apiVersion":"argoproj.io/v1alpha1","kind":"Rollout","name":"shop","uid":"8b1e4a3e-9f0c-4d57-9d5d-0a9c6f1d2b3c","controller":true,"blockOwnerDeletion":true}]},
"spec":{"service":"shop-stable","backends":[{"service":"shop-canary","weight":"5"},{"service":"shop-stable","weight":"95"}]}}`

// TestRolloutControllersWriteOldVersions sends what Argo Rollouts and Flagger send, and reads it in all versions.
func TestRolloutControllersWriteOldVersions(t *testing.T) {
	ns := namespace(t)
	ensureNamespace(t, own)
	definitions := convertible(t)
	ctx, c := t.Context(), raw(t)
	get := func(version, plural, name string) rest.Result {
		return c.Get().AbsPath(pathOf(version, ns, plural, name)).Do(ctx)
	}
	send := func(r *rest.Request, version, plural, name, body string) rest.Result {
		return r.AbsPath(pathOf(version, ns, plural, name)).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(ctx)
	}

	// Without a controller the version that is stored is served, and others are errors that say why.
	create(t, splitOf(ns, "early", []any{map[string]any{"service": "v1", "weight": int64(1)}}))
	if err := send(c.Post(), "v1alpha1", "trafficsplits", "", argoSplit).Error(); err == nil || !strings.Contains(err.Error(), "conversion webhook") {
		t.Errorf("without a controller: %v", err)
	}

	p := startController(t, "a")
	p.converts(definitions)
	eventually(t, func() rest.Result { return get("v1alpha1", "trafficsplits", "early") })
	is(t, "what was there before", get("v1alpha1", "trafficsplits", "early"), `{spec: {service: web, backends: [{service: v1, weight: "1"}]}}`)

	// Argo Rollouts: get, create, get and merge patches of the backends, all in v1alpha1.
	if err := get("v1alpha1", "trafficsplits", "shop").Error(); !apierrors.IsNotFound(err) {
		t.Errorf("before it is created: %v", err)
	}
	is(t, "Argo creates", send(c.Post(), "v1alpha1", "trafficsplits", "", argoSplit),
		`{apiVersion: split.smi-spec.io/v1alpha1, annotations: {}, spec: {service: shop-stable, backends: [{service: shop-canary, weight: "5"}, {service: shop-stable, weight: "95"}]}}`)
	for _, version := range []string{"v1alpha2", "v1alpha3", "v1alpha4"} {
		is(t, "Argo's split in "+version, get(version, "trafficsplits", "shop"),
			`{annotations: {}, spec: {service: shop-stable, backends: [{service: shop-canary, weight: 5}, {service: shop-stable, weight: 95}]}}`)
	}
	patch := c.Patch(types.MergePatchType).AbsPath(pathOf("v1alpha1", ns, "trafficsplits", "shop")).
		Body([]byte(`{"spec":{"backends":[{"service":"shop-canary","weight":"20"},{"service":"shop-stable","weight":"80"}]}}`)).Do(ctx)
	patched := is(t, "Argo patches", patch, `{annotations: {}, spec: {service: shop-stable, backends: [{service: shop-canary, weight: "20"}, {service: shop-stable, weight: "80"}]}}`)
	if owners, _ := patched["metadata"].(map[string]any)["ownerReferences"].([]any); len(owners) != 1 {
		t.Errorf("its owners are %v", owners)
	}
	// Others give it matches, in a version that has them; Argo's next patch keeps them.
	more := c.Patch(types.MergePatchType).AbsPath(pathOf("v1alpha4", ns, "trafficsplits", "shop")).
		Body([]byte(`{"spec":{"matches":[{"kind":"HTTPRouteGroup","name":"canaries"}]}}`)).Do(ctx)
	is(t, "matches are added", more, `{annotations: {}}`)
	is(t, "matches in v1alpha1", get("v1alpha1", "trafficsplits", "shop"), `{annotations: {split.smi-spec.io/matches: '[{"kind":"HTTPRouteGroup","name":"canaries"}]'}}`)
	patch = c.Patch(types.MergePatchType).AbsPath(pathOf("v1alpha1", ns, "trafficsplits", "shop")).
		Body([]byte(`{"spec":{"backends":[{"service":"shop-canary","weight":"40"},{"service":"shop-stable","weight":"60"}]}}`)).Do(ctx)
	is(t, "Argo patches again", patch, `{spec: {service: shop-stable, backends: [{service: shop-canary, weight: "40"}, {service: shop-stable, weight: "60"}]}}`)
	is(t, "with matches", get("v1alpha4", "trafficsplits", "shop"), `{annotations: {}, spec: {service: shop-stable,
		backends: [{service: shop-canary, weight: 40}, {service: shop-stable, weight: 60}], matches: [{kind: HTTPRouteGroup, name: canaries}]}}`)

	// Flagger: get, create, then get and put, in the version of its mesh provider.
	for version, weight := range map[string]string{"v1alpha1": `"%d"`, "v1alpha2": "%d", "v1alpha3": "%d"} {
		name := "podinfo-" + version
		weights := func(canary, primary int) string {
			return fmt.Sprintf(`"backends":[{"service":"podinfo-canary","weight":`+weight+`},{"service":"podinfo-primary","weight":`+weight+`}]`, canary, primary)
		}
		is(t, "Flagger creates", send(c.Post(), version, "trafficsplits", "", `{"kind":"TrafficSplit","apiVersion":"split.smi-spec.io/`+version+`","metadata":{"name":"`+name+
			`","creationTimestamp":null},"spec":{"service":"podinfo",`+weights(0, 100)+`}}`), `{annotations: {}}`)
		err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the status may be written meanwhile
			read := is(t, "Flagger reads", get(version, "trafficsplits", name), `{spec: {service: podinfo, `+strings.ReplaceAll(weights(0, 100), `"backends":`, "backends: ")+`}}`)
			delete(read, "status") // its types have none
			read["spec"] = json.RawMessage(`{"service":"podinfo",` + weights(10, 90) + `}`)
			body, err := json.Marshal(read)
			if err != nil {
				return err
			}
			put := send(c.Put(), version, "trafficsplits", name, string(body))
			if err := put.Error(); err != nil {
				return err
			}
			is(t, "Flagger puts", put, `{annotations: {}}`)
			return nil
		})
		if err != nil {
			t.Fatalf("Flagger puts in %s: %v", version, err)
		}
		is(t, "Flagger's split", get("v1alpha4", "trafficsplits", name), `{spec: {service: podinfo, backends: [{service: podinfo-canary, weight: 10}, {service: podinfo-primary, weight: 90}]}}`)
	}

	// Quantities and other spellings come back as they were written.
	is(t, "quantities", send(c.Post(), "v1alpha1", "trafficsplits", "", `{"kind":"TrafficSplit","apiVersion":"split.smi-spec.io/v1alpha1","metadata":{"name":"thirds","annotations":{"example.com/a":"b"}},
		"spec":{"service":"web","backends":[{"service":"v1","weight":1},{"service":"v2","weight":"500m"}]}}`), `{annotations: {example.com/a: b}}`)
	is(t, "quantities in v1alpha1", get("v1alpha1", "trafficsplits", "thirds"), `{annotations: {example.com/a: b}, spec: {service: web, backends: [{service: v1, weight: 1}, {service: v2, weight: 500m}]}}`)
	is(t, "quantities in v1alpha4", get("v1alpha4", "trafficsplits", "thirds"), `{spec: {service: web, backends: [{service: v1, weight: 2}, {service: v2, weight: 1}]}}`)
	if err := send(c.Post(), "v1alpha1", "trafficsplits", "", `{"kind":"TrafficSplit","apiVersion":"split.smi-spec.io/v1alpha1","metadata":{"name":"fine"},
		"spec":{"service":"web","backends":[{"service":"v1","weight":"1u"}]}}`).Error(); err == nil || !strings.Contains(err.Error(), ns+"/fine") || !strings.Contains(err.Error(), "spec.backends[0].weight") {
		t.Errorf("a weight that cannot be: %v", err)
	}

	// Groups of routes.
	const rest1, rest2 = `[{"name":"a","methods":["GET"],"pathRegex":"/x"}]`, `[{"name":"a","methods":["GET"],"pathRegex":"/x","headers":[{"x":"y"}]}]`
	is(t, "a group in v1alpha1", send(c.Post(), "v1alpha1", "httproutegroups", "", `{"kind":"HTTPRouteGroup","apiVersion":"specs.smi-spec.io/v1alpha1","metadata":{"name":"one"},"matches":`+rest1+`}`), `{matches: `+rest1+`}`)
	is(t, "a group in v1alpha2", send(c.Post(), "v1alpha2", "httproutegroups", "", `{"kind":"HTTPRouteGroup","apiVersion":"specs.smi-spec.io/v1alpha2","metadata":{"name":"two"},"matches":`+rest2+`}`), `{matches: `+rest2+`}`)
	for _, version := range []string{"v1alpha3", "v1alpha4"} {
		is(t, "a group of v1alpha1 in "+version, get(version, "httproutegroups", "one"), `{annotations: {}, spec: {matches: `+rest1+`}}`)
		is(t, "a group of v1alpha2 in "+version, get(version, "httproutegroups", "two"), `{annotations: {}, spec: {matches: `+rest2+`}}`)
	}
	is(t, "headers in v1alpha1", get("v1alpha1", "httproutegroups", "two"), `{matches: `+rest1+`}`)
	is(t, "ports", send(c.Post(), "v1alpha4", "tcproutes", "", `{"kind":"TCPRoute","apiVersion":"specs.smi-spec.io/v1alpha4","metadata":{"name":"db"},"spec":{"matches":{"ports":[5432]}}}`), `{annotations: {}}`)
	old := is(t, "a route in v1alpha1", get("v1alpha1", "tcproutes", "db"), `{annotations: {specs.smi-spec.io/matches: '{"matches":{"ports":[5432]}}'}}`)
	body, err := json.Marshal(old)
	if err != nil {
		t.Fatal(err)
	}
	is(t, "it is put as it was", send(c.Put(), "v1alpha1", "tcproutes", "db", string(body)), `{}`)
	is(t, "and has its ports", get("v1alpha4", "tcproutes", "db"), `{annotations: {}, spec: {matches: {ports: [5432]}}}`)
	for _, version := range []string{"v1alpha1", "v1alpha2", "v1alpha3", "v1alpha4"} {
		for plural, n := range map[string]int{"trafficsplits": 6, "httproutegroups": 2, "tcproutes": 1} {
			list := is(t, "all", get(version, plural, ""), `{}`)
			if items, _ := list["items"].([]any); len(items) != n {
				t.Errorf("%d %s in %s, want %d", len(items), plural, version, n)
			}
		}
	}

	// What the controller did is seen in all versions, and none of it was an error.
	for line := range strings.Lines(p.log.String()) {
		if strings.Contains(line, "level=ERROR") && !strings.Contains(line, "msg=finding") { // there are no Services
			t.Error(line)
		}
	}
}

// TestConversionsGoOnWhenLeadersAndRootsChange ends the leader, and has the authority rotated to a next root and to that as its signer.
func TestConversionsGoOnWhenLeadersAndRootsChange(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	ns := namespace(t)
	ensureNamespace(t, own)
	definitions := convertible(t)
	t.Cleanup(func() {
		for _, o := range []client.Object{&corev1.Secret{ObjectMeta: named(own, replica.AuthorityName)}, &coordinationv1.Lease{ObjectMeta: named(own, "weir-controller")}} {
			_ = admin.Delete(context.Background(), o)
		}
	})
	// A root so old that the next one is due: the first replica makes it.
	now := time.Now()
	old, err := identity.New(now.Add(-identity.RootRotation - 2*identity.Overlap))
	if err != nil {
		t.Fatal(err)
	}
	keep := func(a *identity.Authority) {
		t.Helper()
		data, err := a.Secret()
		if err != nil {
			t.Fatal(err)
		}
		secret := &corev1.Secret{ObjectMeta: named(own, replica.AuthorityName), Type: corev1.SecretTypeTLS}
		if err := admin.Delete(t.Context(), secret.DeepCopy()); client.IgnoreNotFound(err) != nil {
			t.Fatal(err)
		}
		secret.Data = data
		if err := admin.Create(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
	}
	c, n := raw(t), 0
	works := func() {
		t.Helper()
		n++
		name := fmt.Sprintf("split-%d", n)
		body := strings.ReplaceAll(argoSplit, `"name":"shop","creation`, `"name":"`+name+`","creation`)
		eventually(t, func() rest.Result {
			r := c.Post().AbsPath(pathOf("v1alpha1", ns, "trafficsplits", "")).SetHeader("Content-Type", "application/json").Body([]byte(body)).Do(t.Context())
			if apierrors.IsAlreadyExists(r.Error()) {
				return rest.Result{}
			}
			return r
		})
		is(t, name, c.Get().AbsPath(pathOf("v1alpha4", ns, "trafficsplits", name)).Do(t.Context()),
			`{spec: {service: shop-stable, backends: [{service: shop-canary, weight: 5}, {service: shop-stable, weight: 95}]}}`)
	}
	bundles := func(roots []byte) {
		t.Helper()
		holds := strings.SplitAfter(strings.TrimSpace(string(roots)), "END CERTIFICATE-----\n")
		err := within(t.Context(), func() error {
			for _, d := range definitions {
				bundle := string(clientConfig(t, d).CABundle)
				if strings.Count(bundle, "BEGIN CERTIFICATE") != 2 || slices.ContainsFunc(holds, func(c string) bool { return !strings.Contains(bundle, c) }) {
					return fmt.Errorf("%s trusts\n%s, want also\n%s", d, bundle, holds)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}

	keep(old)
	first := startController(t, "first")
	first.converts(definitions)
	bundles(old.Bundle()) // and the next one
	works()
	second := startController(t, "second")
	works()
	first.stop()
	second.converts(definitions)
	works()

	// The next root has been trusted for long enough: it signs, and the former is still trusted, by which the second replica is known.
	next, err := old.Rotate(now.Add(-identity.Overlap - time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	keep(next)
	third := startController(t, "third")
	second.stop()
	third.converts(definitions)
	bundles(next.Bundle())
	works()

	// Somebody installs a definition anew: its bundle is back soon.
	change := func(edit func(*apiextensionsv1.WebhookConversion)) {
		t.Helper()
		err := within(t.Context(), func() error { // a controller may change it meanwhile
			d := &apiextensionsv1.CustomResourceDefinition{}
			if err := admin.Get(t.Context(), client.ObjectKey{Name: definitions[0]}, d); err != nil {
				return err
			}
			edit(d.Spec.Conversion.Webhook)
			return admin.Update(t.Context(), d)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	change(func(c *apiextensionsv1.WebhookConversion) { c.ClientConfig.CABundle = nil })
	third.converts(definitions)
	bundles(next.Bundle())
	works()

	// Another's webhook is left alone.
	other := "https://127.0.0.1:1/convert"
	stranger, err := identity.New(now)
	if err != nil {
		t.Fatal(err)
	}
	change(func(c *apiextensionsv1.WebhookConversion) {
		c.ClientConfig = &apiextensionsv1.WebhookClientConfig{URL: &other, CABundle: stranger.Bundle()}
	})
	err = within(t.Context(), func() error {
		if !strings.Contains(third.log.String(), "another webhook's") {
			return fmt.Errorf("nothing is said of it")
		}
		return nil
	})
	if got := clientConfig(t, definitions[0]); err != nil || got.URL == nil || *got.URL != other {
		t.Errorf("%v, at %v", err, got.URL)
	}
}

// TestReplicaIsReadyThatWaitsForItsOwnWebhook has a split that was stored in v1alpha1, before Weir's definition: without a webhook it cannot be read
// in any other version, and a replica that is not ready gets no requests from the API server.
func TestReplicaIsReadyThatWaitsForItsOwnWebhook(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	ns := namespace(t)
	ensureNamespace(t, own)
	definition := defineSplits(t, func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Conversion = nil
		for i := range d.Spec.Versions {
			d.Spec.Versions[i].Storage = d.Spec.Versions[i].Name == "v1alpha1"
		}
	})
	old := splitOf(ns, "old", []any{map[string]any{"service": "v1", "weight": "500m"}, map[string]any{"service": "v2", "weight": "1"}})
	old.SetAPIVersion("split.smi-spec.io/v1alpha1")
	create(t, old)

	// Now Weir's definition, whose webhook is elsewhere for the time being.
	elsewhere := "https://127.0.0.1:1/convert"
	stranger, err := identity.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	set := func(c *apiextensionsv1.WebhookClientConfig) {
		t.Helper()
		err := within(t.Context(), func() error {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(definition), definition); err != nil {
				return err
			}
			definition.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
				Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{ConversionReviewVersions: []string{"v1"}, ClientConfig: c},
			}
			for i := range definition.Spec.Versions {
				definition.Spec.Versions[i].Storage = definition.Spec.Versions[i].Name == "v1alpha4"
			}
			return admin.Update(t.Context(), definition)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	set(&apiextensionsv1.WebhookClientConfig{URL: &elsewhere, CABundle: stranger.Bundle()})
	c := raw(t)
	if err := within(t.Context(), func() error {
		if err := c.Get().AbsPath(pathOf("v1alpha4", ns, "trafficsplits", "")).Do(t.Context()).Error(); err == nil {
			return fmt.Errorf("it is still read without the webhook")
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	p := startController(t, "a")
	readiness := func(want string) {
		t.Helper()
		err := within(t.Context(), func() error {
			response, err := http.Get("http://" + p.admin + "/readyz")
			if err != nil {
				return err
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err == nil && (response.StatusCode != http.StatusOK || !strings.HasPrefix(string(text), want)) {
				err = fmt.Errorf("/readyz: %s %s", response.Status, text)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	readiness("ready for conversions; [TrafficSplit.split.smi-spec.io] cannot be read yet")
	set(&apiextensionsv1.WebhookClientConfig{URL: &elsewhere}) // nobody's: the leader makes it its own
	readiness("ready\n")
	is(t, "what was stored", c.Get().AbsPath(pathOf("v1alpha4", ns, "trafficsplits", "old")).Do(t.Context()),
		`{spec: {service: web, backends: [{service: v1, weight: 1}, {service: v2, weight: 2}]}}`)
	if err := admin.Delete(t.Context(), old); err != nil { // as long as somebody converts it
		t.Error(err)
	}
}

// TestCheckTellsWhyVersionsAreNotConverted has a controller's Deployment that nobody runs, and goes through what can be wrong.
func TestCheckTellsWhyVersionsAreNotConverted(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	ns, _ := shop(t)
	definition := defineSplits(t, nil)
	create(t, splitOf(ns, "canary", []any{map[string]any{"service": "v1", "weight": int64(1)}}))
	authority, err := identity.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	nowhere := "https://127.0.0.1:1/convert"
	at := func(namespace string) *apiextensionsv1.WebhookClientConfig {
		path, port := "/convert", int32(443)
		return &apiextensionsv1.WebhookClientConfig{
			CABundle: authority.Bundle(), Service: &apiextensionsv1.ServiceReference{Namespace: namespace, Name: "weir-controller", Path: &path, Port: &port},
		}
	}
	service := &corev1.Service{ObjectMeta: named(ns, "weir-controller"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 443}}}}
	for _, step := range []struct {
		what   string
		config *apiextensionsv1.WebhookClientConfig
		said   []string
	}{
		{"as installed", nil, []string{"WR714", "clientConfig.caBundle", "is empty", "!WR715"}},
		{"by another", at("elsewhere"), []string{"WR714", "Service elsewhere/weir-controller converts v1alpha1"}},
		{"without a Service", at(ns), []string{"WR715", "Service " + ns + "/weir-controller does not exist", "!WR714"}},
		{"without endpoints", at(ns), []string{"WR715", "has no ready endpoints"}},
		{"out of reach", &apiextensionsv1.WebhookClientConfig{URL: &nowhere, CABundle: authority.Bundle()}, []string{"WR716", "objects cannot be read in v1alpha1", "!WR715", "!WR714"}},
	} {
		if step.config != nil {
			err := within(t.Context(), func() error {
				if err := admin.Get(t.Context(), client.ObjectKeyFromObject(definition), definition); err != nil {
					return err
				}
				definition.Spec.Conversion.Webhook.ClientConfig = step.config
				return admin.Update(t.Context(), definition)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if step.what == "without endpoints" {
			create(t, service)
		}
		t.Run(step.what, func(t *testing.T) {
			said, _ := weir(t, server.Kubeconfig, "check", "-n", ns)
			holds(t, said, step.said...)
		})
	}
}
