package kube

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

// theirs is a kind of OpenKruise, or one that the chart's value rollouts.workloads names.
type theirs struct {
	schema.GroupVersionKind
	plural string
	// strategy is its updateStrategy as a user has it, held as the controller lays it, and admitted as the webhook does, with
	// the value of the label.
	strategy, held, admitted, label string
	// own are further fields of its spec, which decide about pods.
	own string
	// partition is the path of what holds it, and idle what keeps pods as they are.
	partition []string
	idle      map[string]any
}

var allTheirs = []theirs{
	{schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1alpha1", Kind: "CloneSet"}, "clonesets", `{type: InPlaceIfPossible, maxUnavailable: 1}`,
		`{type: InPlaceIfPossible, maxUnavailable: 1, partition: 1}`, "100%", "partition-none", `scaleStrategy: {podsToDelete: [shop-a]}`, []string{"partition"}, map[string]any{"paused": true}},
	{schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1beta1", Kind: "StatefulSet"}, "statefulsets", `{type: RollingUpdate, rollingUpdate: {partition: 0}}`,
		`{type: RollingUpdate, rollingUpdate: {partition: 1}}`, "2147483647", "partition-0", `reserveOrdinals: [0]`, []string{"rollingUpdate", "partition"}, map[string]any{"rollingUpdate": map[string]any{"partition": int64(0), "paused": true}}},
	{schema.GroupVersionKind{Group: "apps.kruise.io", Version: "v1alpha1", Kind: "DaemonSet"}, "daemonsets", `{type: RollingUpdate}`,
		`{type: RollingUpdate, rollingUpdate: {partition: 1}}`, "2147483647", "partition-none", `lifecycle: {preDelete: {labelsHandler: {a: b}}}`, []string{"rollingUpdate", "partition"}, map[string]any{"rollingUpdate": map[string]any{"paused": true}}},
	{schema.GroupVersionKind{Group: "apps.example.com", Version: "v1", Kind: "GameStatefulSet"}, "gamestatefulsets", `{type: InplaceUpdate, rollingUpdate: {maxUnavailable: 1}}`,
		`{type: InplaceUpdate, rollingUpdate: {maxUnavailable: 1, partition: 1}}`, "2147483647", "partition-none", `scaleStrategy: {paused: true}`, []string{"rollingUpdate", "partition"}, map[string]any{"type": "OnDelete"}},
}

// allNamed are the kinds of deploy/release/manifests' golden file of rollouts.workloads, all that may be released with them.
func allNamed(t *testing.T) workload.Kinds {
	t.Helper()
	all, err := workload.Named([]string{"GameStatefulSet:gamestatefulsets.apps.example.com", "Fleet:fleets.games.example.com:games.example.com/revision"})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// namedManifests are the chart's with these kinds.
const namedManifests = "deploy/release/manifests/testdata/workloads.yaml"

// defineTheirs installs the definition of a kind, which takes any fields, for the time of a test.
func defineTheirs(t *testing.T, k theirs) {
	t.Helper()
	open := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr(true)}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: k.plural + "." + k.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: k.Group, Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: k.Kind, Plural: k.plural, ListKind: k.Kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: k.Version, Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": open, "status": open}}},
				Subresources: &apiextensionsv1.CustomResourceSubresources{
					Status: &apiextensionsv1.CustomResourceSubresourceStatus{}, Scale: &apiextensionsv1.CustomResourceSubresourceScale{SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas"},
				},
			}},
		},
	}
	create(t, crd)
	t.Cleanup(func() {
		if err := within(context.Background(), func() error {
			if err := admin.Get(context.Background(), client.ObjectKeyFromObject(crd), crd); !apierrors.IsNotFound(err) {
				return fmt.Errorf("the definition of %s is still there: %v", k.plural, err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { _ = admin.Delete(context.Background(), crd) })
	err := within(t.Context(), func() error {
		_, err := admin.RESTMapper().RESTMappings(k.GroupKind(), k.Version)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// object is one of the kind with two pods.
func (k theirs) object(t *testing.T, ns, name string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	text := fmt.Sprintf(`{apiVersion: %s, kind: %s, metadata: {namespace: %s, name: %s, labels: {team: shop}, annotations: {note: a}},
		spec: {replicas: 2, selector: {matchLabels: {a: b}}, updateStrategy: %s, template: {metadata: {labels: {a: b, v: '1'}}, spec: {containers: [{name: a, image: a}]}}}}`, k.GroupVersion(), k.Kind, ns, name, k.strategy)
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestPolicyHoldsReleasesOfOtherWorkloads: of a CloneSet, an Advanced StatefulSet, an Advanced DaemonSet and a kind that is named
// the controller changes the updateStrategy and one label, and who has taken it over changes nothing else.
func TestPolicyHoldsReleasesOfOtherWorkloads(t *testing.T) {
	for _, k := range allTheirs {
		defineTheirs(t, k)
	}
	c := policedBy(t, namedManifests)
	ns, ctx := namespace(t), t.Context()
	for _, k := range allTheirs {
		u := k.object(t, ns, "shop")
		create(t, u)
		// It is updated whole, which roles permit: what a patch makes of it is sent as an update.
		update := func(patch string) error {
			out := u.DeepCopy()
			if err := admin.Patch(ctx, out, merge(asJSON(t, patch)), client.DryRunAll); err != nil {
				t.Fatalf("%s: %s: %v", k.Kind, patch, err)
			}
			out.SetResourceVersion(u.GetResourceVersion())
			return c.Update(ctx, out, client.DryRunAll)
		}
		if err := within(ctx, func() error {
			if err := update(`{spec: {template: {spec: {hostNetwork: true}}}}`); !denied(err) {
				return fmt.Errorf("the policy is not in force: %v", err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for what, patch := range map[string]string{
			"held":    `{metadata: {labels: {` + workload.HeldLabel + `: 'true'}}, spec: {updateStrategy: ` + k.held + `}}`,
			"stepped": `{spec: {updateStrategy: ` + k.held + `}}`,
			"let go":  `{metadata: {labels: {` + workload.HeldLabel + `: null}}, spec: {updateStrategy: ` + k.strategy + `}}`,
		} {
			if err := update(patch); err != nil {
				t.Errorf("%s %s: %v", k.Kind, what, err)
			}
		}
		for what, patch := range map[string]string{
			"another image":      `{spec: {template: {spec: {containers: [{name: a, image: evil}]}}}}`,
			"other labels":       `{spec: {template: {metadata: {labels: {v: '2'}}}}}`,
			"more pods":          `{spec: {replicas: 9}}`,
			"no number of pods":  `{spec: {replicas: null}}`,
			"other pods":         `{spec: {selector: {matchLabels: {a: c}}}}`,
			"claims":             `{spec: {volumeClaimTemplates: [{metadata: {name: data}}]}}`,
			"a field of its own": `{spec: {` + k.own + `}}`,
			"another label":      `{metadata: {labels: {team: bank}}}`,
			"a label less":       `{metadata: {labels: {team: null}}}`,
			"a label more":       `{metadata: {labels: {x: z}}}`,
			"another annotation": `{metadata: {annotations: {note: b}}}`,
			"no annotation":      `{metadata: {annotations: null}}`,
			"an owner":           `{metadata: {ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: gone, uid: gone}]}}`,
			"a finalizer":        `{metadata: {finalizers: [weirmesh.github.io/x]}}`,
		} {
			if err := update(patch); !denied(err) {
				t.Errorf("%s with %s: %v, want that a policy denies it", k.Kind, what, err)
			}
		}
		// Roles let it neither make nor delete any, nor patch one, nor write its status or its number of pods.
		for what, err := range map[string]error{
			"made":    c.Create(ctx, k.object(t, ns, "other"), client.DryRunAll),
			"deleted": c.Delete(ctx, u.DeepCopy(), client.DryRunAll),
			"patched": c.Patch(ctx, u.DeepCopy(), merge(asJSON(t, `{spec: {updateStrategy: `+k.held+`}}`)), client.DryRunAll),
		} {
			if !apierrors.IsForbidden(err) || denied(err) {
				t.Errorf("%s %s: %v, want that no role permits it", k.Kind, what, err)
			}
		}
	}
}

func asJSON(t *testing.T, text string) string {
	t.Helper()
	out, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// TestOtherWorkloadsAreHeldAsTheyAreStored: the webhook holds a CloneSet, an Advanced StatefulSet, an Advanced DaemonSet and a kind
// that is named by their partition, in the moment in which their template changes.
func TestOtherWorkloadsAreHeldAsTheyAreStored(t *testing.T) {
	for _, k := range allTheirs {
		defineTheirs(t, k)
	}
	ns, ctx := namespace(t), t.Context()
	a := admits(t, nil)
	a.inForce(ns)
	const next = `{"spec":{"template":{"metadata":{"labels":{"v":"2"}}}}}`
	for _, k := range allTheirs {
		name := strings.ToLower(k.Kind)
		u, free, idle := k.object(t, ns, name), k.object(t, ns, name+"-free"), k.object(t, ns, name+"-idle")
		set(t, idle, k.idle, "spec", "updateStrategy")
		create(t, u, free, idle)
		for _, name := range []string{u.GetName(), idle.GetName()} {
			r := rolloutOf(ns, name, name, "replicas: 2")
			set(t, r, k.GroupVersion().String(), "spec", "workloadRef", "apiVersion")
			set(t, r, k.Kind, "spec", "workloadRef", "kind")
			if err := a.client.Create(ctx, r); err != nil {
				t.Fatal(err)
			}
		}
		partition := func(u *unstructured.Unstructured) string {
			v, found, _ := unstructured.NestedFieldNoCopy(u.Object, append([]string{"spec", "updateStrategy"}, k.partition...)...)
			if !found {
				return ""
			}
			return fmt.Sprint(v)
		}
		user := partition(u)
		if err := within(ctx, func() error { // the Rollout is known, and the webhook in force
			u := u.DeepCopy()
			if err := a.client.Patch(ctx, u, merge(next), client.DryRunAll); err != nil || partition(u) == user {
				return fmt.Errorf("not held: %v", err)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		patch := func(u *unstructured.Unstructured, text string) {
			t.Helper()
			if err := a.client.Patch(ctx, u, merge(text)); err != nil {
				t.Fatalf("%s: %s: %v", k.Kind, text, err)
			}
		}
		if patch(u, `{"spec":{"replicas":3}}`); partition(u) != user {
			t.Errorf("%s, another field: partition %q", k.Kind, partition(u))
		}
		if patch(free, next); partition(free) != user {
			t.Errorf("%s that no Rollout names: partition %q", k.Kind, partition(free))
		}
		if patch(idle, next); partition(idle) != user || idle.GetLabels()[workload.HeldLabel] != "" {
			t.Errorf("%s whose pods nobody replaces: partition %q, labels %v", k.Kind, partition(idle), idle.GetLabels())
		}
		// The generation says that the template was never stored without the hold.
		before := u.GetGeneration()
		if patch(u, next); partition(u) != k.admitted || u.GetLabels()[workload.HeldLabel] != k.label || u.GetGeneration() != before+1 {
			t.Errorf("%s with a new template: partition %q, labels %v, generation %d after %d", k.Kind, partition(u), u.GetLabels(), u.GetGeneration(), before)
		}
		a.take()
		if patch(u, asJSON(t, `{metadata: {labels: {`+workload.HeldLabel+`: null}}, spec: {updateStrategy: `+strings.Replace(k.held, "partition: 1", "partition: 0", 1)+`}}`)); partition(u) != k.admitted || u.GetLabels()[workload.HeldLabel] != k.label {
			t.Errorf("%s, resumed midway: partition %q, labels %v", k.Kind, partition(u), u.GetLabels())
		}
		if w := a.take(); len(w) != 1 || !strings.Contains(w[0], k.Kind+" "+ns+"/"+u.GetName()+" stays held while Rollout "+ns+"/"+u.GetName()+" releases it") {
			t.Errorf("%s: warnings %q", k.Kind, w)
		}
	}
	// What the controller itself writes is its own business, even where nobody can be asked.
	ours, err := client.New(asController(t), client.Options{Scheme: kube.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	applyManifests(t, namedManifests, func(u *unstructured.Unstructured) bool {
		return u.GroupVersionKind().Group == "rbac.authorization.k8s.io"
	})
	for _, k := range allTheirs {
		u := k.object(t, ns, strings.ToLower(k.Kind))
		if err := admin.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
			t.Fatal(err)
		}
		var strategy map[string]any
		if err := yaml.Unmarshal([]byte(k.held), &strategy); err != nil {
			t.Fatal(err)
		}
		want := strategy["rollingUpdate"]
		if set(t, u, strategy, "spec", "updateStrategy"); want == nil {
			want = strategy["partition"]
		}
		u.SetLabels(map[string]string{workload.HeldLabel: workload.ByController})
		if err := ours.Update(ctx, u); err != nil {
			t.Errorf("%s: %v", k.Kind, err)
		}
		if v, _, _ := unstructured.NestedFieldNoCopy(u.Object, append([]string{"spec", "updateStrategy"}, k.partition...)...); fmt.Sprint(v) != "1" {
			t.Errorf("%s as the controller wrote it has partition %v of %v", k.Kind, v, want)
		}
	}
}
