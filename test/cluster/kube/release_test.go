package kube

import (
	"context"
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/access"
	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/rollout/provider"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

// releasing carries Rollouts out for the time of a test, with the rights that the chart gives.
func releasing(t *testing.T) {
	t.Helper()
	define(t, rollouts.Group, "rollouts", func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	})
	config := userWho(t, "releasing-controller", nil)
	grant(t, "releasing-controller", append(access.Releases(workload.Fixed(), provider.All()), access.Verb{Group: "events.k8s.io", Resource: "events", Verb: "create"}))
	c, err := kube.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	carrier := &release.Controller{Client: c, Providers: provider.All(), Workloads: workload.Fixed(), Instance: "test", Logger: logger(t)}
	background(t, func(ctx context.Context) error { return carrier.Run(ctx) })
	t.Cleanup(func() { // it frees those that the test has deleted, before it ends
		if err := within(context.Background(), func() error {
			all := &unstructured.UnstructuredList{Object: map[string]any{"apiVersion": rollouts.Group + "/v1beta1", "kind": "RolloutList"}}
			if err := admin.List(context.Background(), all); err != nil {
				return err
			}
			if len(all.Items) > 0 {
				return fmt.Errorf("%d Rollouts are left", len(all.Items))
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	})
}

func object(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	u := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestRolloutsThatCannotBeCarriedOutSayWhy has Rollouts of nothing, of a workload that another one has, and one that has
// become invalid, which may be deleted all the same, and then has what it changed put back.
func TestRolloutsThatCannotBeCarriedOutSayWhy(t *testing.T) {
	releasing(t)
	ensureNamespace(t, "carried")
	ctx := t.Context()
	for _, name := range []string{"shop", "blog"} {
		create(t, object(t, fmt.Sprintf(`
apiVersion: apps/v1
kind: Deployment
metadata: {namespace: carried, name: %[1]s}
spec: {replicas: 1, selector: {matchLabels: {app: %[1]s}}, template: {metadata: {labels: {app: %[1]s}}, spec: {containers: [{name: c, image: a}]}}}
`, name)))
	}
	rolloutFor := func(name, apiVersion, workload string) *unstructured.Unstructured {
		return object(t, fmt.Sprintf(`
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {namespace: carried, name: %s}
spec: {workloadRef: {apiVersion: %s, kind: Deployment, name: %s}, strategy: {canary: {steps: [{replicas: 1}]}}}
`, name, apiVersion, workload))
	}
	says := func(name, want string) {
		t.Helper()
		err := within(ctx, func() error {
			u := rolloutFor(name, "", "")
			if err := admin.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
				return err
			}
			if got, _, _ := unstructured.NestedString(u.Object, "status", "message"); !strings.Contains(got, want) {
				return fmt.Errorf("Rollout %s says %q, want %q", name, got, want)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	create(t, rolloutFor("nothing", "apps/v1", "nothing"))
	create(t, rolloutFor("version", "apps/v7", "shop"))
	says("nothing", "There is no Deployment nothing.")

	first := rolloutFor("first", "apps/v1", "blog")
	create(t, first)
	settle := func(name string) { // as a Deployment's own controller does
		t.Helper()
		d := object(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: carried, name: "+name+"}}")
		if err := admin.Get(ctx, client.ObjectKeyFromObject(d), d); err != nil {
			t.Fatal(err)
		}
		if err := admin.Status().Patch(ctx, d, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"observedGeneration":%d}}`, d.GetGeneration()))); err != nil {
			t.Fatal(err)
		}
	}
	settle("blog")
	says("first", "There is nothing to release.")
	second := rolloutFor("second", "apps/v1", "blog")
	create(t, second)
	says("second", "Rollout first has the Deployment blog already")
	if err := admin.Delete(ctx, first); err != nil {
		t.Fatal(err)
	}
	says("second", "There is nothing to release.")

	// One that holds its workload becomes invalid, and is deleted.
	create(t, rolloutFor("third", "apps/v1", "shop"))
	if err := admin.Delete(ctx, rolloutFor("version", "", "")); err != nil {
		t.Fatal(err)
	}
	third := rolloutFor("third", "", "")
	shop := object(t, "{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: carried, name: shop}}")
	if err := admin.Get(ctx, client.ObjectKeyFromObject(shop), shop); err != nil {
		t.Fatal(err)
	}
	record := fmt.Sprintf(`{"uid":"%s","stable":"x","pods":0,"was":{"paused":null,"strategy.type":"RollingUpdate","strategy.rollingUpdate":{"maxSurge":1,"maxUnavailable":0}}}`, shop.GetUID())
	for what, patch := range map[*unstructured.Unstructured]string{
		shop:  `{"metadata":{"labels":{"rollouts.weirmesh.github.io/held":"true"}},"spec":{"paused":true,"strategy":{"type":"Recreate","rollingUpdate":null}}}`,
		third: fmt.Sprintf(`{"metadata":{"finalizers":["rollouts.kruise.io/rollout"],"annotations":{"rollouts.weirmesh.github.io/workload":%q}},"spec":{"strategy":{"canary":{"steps":[{"replicas":1,"traffic":"900%%"}]}}}}`, record),
	} {
		if err := admin.Patch(ctx, what, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	status := `{"status":{"phase":"Progressing","currentStepIndex":1,"currentStepState":"StepUpgrade","canaryStatus":{"canaryRevision":"y","podTemplateHash":"","stableRevision":"x","currentStepIndex":1,"nextStepIndex":-1,"finalisingStep":"","currentStepState":"StepUpgrade","canaryReplicas":0,"canaryReadyReplicas":0},"conditions":[{"type":"Progressing","status":"True","reason":"InRolling","message":"x"}]}}`
	if err := admin.Status().Patch(ctx, third, client.RawPatch(types.MergePatchType, []byte(status))); err != nil {
		t.Fatal(err)
	}
	if err := admin.Delete(ctx, third); err != nil {
		t.Fatal(err)
	}
	settle("shop")
	err := within(ctx, func() error {
		if err := admin.Get(ctx, client.ObjectKeyFromObject(third), third); !apierrors.IsNotFound(err) {
			message, _, _ := unstructured.NestedString(third.Object, "status", "message")
			return fmt.Errorf("it is still there: %s, %v", message, err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := admin.Get(ctx, client.ObjectKeyFromObject(shop), shop); err != nil {
		t.Fatal(err)
	}
	paused, _, _ := unstructured.NestedBool(shop.Object, "spec", "paused")
	surge, _, _ := unstructured.NestedFieldNoCopy(shop.Object, "spec", "strategy", "rollingUpdate", "maxSurge")
	if _, held := shop.GetLabels()["rollouts.weirmesh.github.io/held"]; held || paused || fmt.Sprint(surge) != "1" {
		t.Errorf("it is not put back: labels %v, spec %v", shop.GetLabels(), shop.Object["spec"])
	}
}
