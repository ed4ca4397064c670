package kube

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// TestPolicyHoldsReleasesToWhatTheyNeed has what the controller changes of users' objects to carry Rollouts out, and what one
// who has taken it over would like to.
func TestPolicyHoldsReleasesToWhatTheyNeed(t *testing.T) {
	c := policedBy(t, "deploy/manifests/install-rollouts.yaml")
	ensureNamespace(t, "releases")
	ctx := t.Context()
	labels := map[string]string{"app": "shop"}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "shop:1"}}}}
	deployment := &appsv1.Deployment{ObjectMeta: named("releases", "shop"), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}}
	service := &corev1.Service{ObjectMeta: named("releases", "shop"), Spec: corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Port: 80}}}}
	for _, o := range []client.Object{deployment, service} {
		if err := admin.Create(ctx, o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = admin.Delete(t.Context(), o) })
	}
	yes := true
	of := func(kind, apiVersion string, o client.Object) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: o.GetName(), UID: o.GetUID(), Controller: &yes}}
	}
	set := func(owners []metav1.OwnerReference) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{
			ObjectMeta: metav1.ObjectMeta{Namespace: "releases", Name: "shop-abc", OwnerReferences: owners},
			Spec:       appsv1.ReplicaSetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template},
		}
	}
	canary := func(name string, edit func(*corev1.Service)) *corev1.Service {
		s := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "releases", Name: name, OwnerReferences: of("Rollout", "rollouts.kruise.io/v1beta1", deployment)},
			Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, Selector: map[string]string{"app": "shop", "pod-template-hash": "abc"}, Ports: []corev1.ServicePort{{Port: 80}}},
		}
		edit(s)
		return s
	}
	as := func(o client.Object, patch string) error {
		return c.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(patch)), client.DryRunAll)
	}
	put := func(o client.Object) error { return c.Create(ctx, o, client.DryRunAll) }
	// A Deployment is updated whole, which roles permit and a patch they do not: what a patch makes of it is sent as an update.
	update := func(o *appsv1.Deployment, edit func(*appsv1.Deployment)) error {
		d := o.DeepCopy()
		if err := admin.Get(ctx, client.ObjectKeyFromObject(o), d); err != nil {
			return err
		}
		edit(d)
		return c.Update(ctx, d, client.DryRunAll)
	}
	change := func(edit func(*corev1.Service)) error {
		s := service.DeepCopy()
		if err := admin.Get(ctx, client.ObjectKeyFromObject(service), s); err != nil {
			return err
		}
		edit(s)
		return c.Update(ctx, s, client.DryRunAll)
	}
	err := within(ctx, func() error {
		if err := update(deployment, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "evil" }); !denied(err) {
			return fmt.Errorf("the policy is not in force: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	made := set(of("Deployment", "apps/v1", deployment))
	if err := admin.Create(ctx, made); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = admin.Delete(t.Context(), made) })
	other := set(of("Deployment", "apps/v1", deployment))
	other.Name = "shop-abd"
	for what, err := range map[string]error{
		"a paused Deployment": update(deployment, func(d *appsv1.Deployment) {
			d.Spec.Paused, d.Spec.Strategy = true, appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
			d.Labels = map[string]string{"rollouts.weirmesh.github.io/held": "true"}
		}),
		"a ReplicaSet of the Deployment": put(other),
		"pods of a ReplicaSet":           as(made, `{"spec":{"replicas":3}}`),
		"a pinned Service": change(func(s *corev1.Service) {
			s.Spec.Selector = map[string]string{"app": "shop", "pod-template-hash": "abc"}
		}),
		"a canary's Service": put(canary("shop-canary", func(*corev1.Service) {})),
	} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, err := range map[string]error{
		"other pods":             update(deployment, func(d *appsv1.Deployment) { d.Spec.Template.Spec.HostNetwork = true }),
		"more pods":              update(deployment, func(d *appsv1.Deployment) { n := int32(9); d.Spec.Replicas = &n }),
		"a ReplicaSet by itself": put(set(nil)),
		"other pods of a set":    as(made, `{"spec":{"template":{"spec":{"hostNetwork":true}}}}`),
		"another owner":          as(made, `{"metadata":{"ownerReferences":null}}`),
		"another Service's pods": change(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"app": "bank"} }),
		"a wider Service":        change(func(s *corev1.Service) { s.Spec.Selector = map[string]string{"pod-template-hash": "abc"} }),
		"another port":           change(func(s *corev1.Service) { s.Spec.Ports[0].Port = 81 }),
		"external addresses":     change(func(s *corev1.Service) { s.Spec.ExternalIPs = []string{"192.0.2.1"} }),
		"a public Service":       put(canary("shop-canary", func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer })),
		"a Service of any name":  put(canary("kubernetes", func(*corev1.Service) {})),
		"a Service of all pods":  put(canary("shop-canary", func(s *corev1.Service) { s.Spec.Selector = labels })),
		"a Service of nobody":    put(canary("shop-canary", func(s *corev1.Service) { s.OwnerReferences = nil })),
		"a deleted Service":      c.Delete(ctx, service.DeepCopy(), client.DryRunAll),
		"a deleted Deployment":   c.Delete(ctx, deployment.DeepCopy(), client.DryRunAll),
	} {
		if !denied(err) {
			t.Errorf("%s: %v, want that a policy denies it", what, err)
		}
	}
}
