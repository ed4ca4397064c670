package kube

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/access"
)

// policed installs roles and admission policies as they are released, and returns a client that is the controller.
func policed(t *testing.T) client.Client { return policedBy(t, "deploy/manifests/install.yaml") }

func policedBy(t *testing.T, manifests string) client.Client {
	t.Helper()
	ensureNamespace(t, own)
	applyManifests(t, manifests, func(u *unstructured.Unstructured) bool {
		if u.GetKind() == "ValidatingAdmissionPolicy" && u.GetName() == "weir-controller-pods" {
			// Some golden cases have images that their class allows.
			variables, _, _ := unstructured.NestedSlice(u.Object, "spec", "variables")
			for i := range variables {
				if v := variables[i].(map[string]any); v["name"] == "images" {
					v["expression"] = `["example/*"]`
				}
			}
			if err := unstructured.SetNestedSlice(u.Object, variables, "spec", "variables"); err != nil {
				t.Fatal(err)
			}
		}
		group := u.GroupVersionKind().Group
		return group == rbacv1.GroupName || group == "admissionregistration.k8s.io"
	})
	c, err := kube.NewClient(asController(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	// A policy is in force a little after it was made: each is tried by what it alone denies.
	trial := tree(t, golden(t, "default"), "Deployment")
	service := tree(t, golden(t, "default"), "Service")
	if err := unstructured.SetNestedStringSlice(service.Object, []string{"192.0.2.1"}, "spec", "externalIPs"); err != nil {
		t.Fatal(err)
	}
	bare := tree(t, golden(t, "default"), "ConfigMap")
	bare.SetOwnerReferences(nil)
	set(t, trial, true, "spec", "template", "spec", "hostPID")
	class := class(t)
	for name, try := range map[string]func() error{
		"pods":     func() error { return put(t, c, trial, true) },
		"services": func() error { return put(t, c, service, true) },
		"objects":  func() error { return put(t, c, bare, true) },
		"own": func() error {
			return c.Create(t.Context(), &corev1.Secret{ObjectMeta: named(own, "x")}, client.DryRunAll)
		},
		"classes": func() error {
			return c.Patch(t.Context(), class, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)), client.DryRunAll)
		},
	} {
		err := within(t.Context(), func() error {
			if err := try(); !denied(err) {
				return fmt.Errorf("the policy %s is not in force: %v", name, err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// denied says that a policy has denied something, and not the roles or what objects have to be.
func denied(err error) bool {
	return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy 'weir-controller-")
}

// golden returns the objects that a golden case of infra has.
func golden(t *testing.T, name string) (all []*unstructured.Unstructured) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "internal/kube/infra/testdata", name+".golden"))
	if err != nil {
		t.Fatal(err)
	}
	_, objects, _ := strings.Cut(string(text), "\n-- objects --\n")
	objects, _, _ = strings.Cut(objects, "\n-- statuses --\n")
	for _, document := range strings.Split(objects, "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &u.Object); err != nil {
			t.Fatal(err)
		}
		if u.GetKind() != "" {
			all = append(all, u)
		}
	}
	return all
}

// tree is a copy of the object of a kind.
func tree(t *testing.T, all []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	t.Helper()
	for _, u := range all {
		if u.GetKind() == kind {
			return u.DeepCopy()
		}
	}
	t.Fatalf("there is no %s", kind)
	return nil
}

// put applies an object as the controller does.
func put(t *testing.T, c client.Client, u *unstructured.Unstructured, dry bool) error {
	options := []client.ApplyOption{client.FieldOwner("weir"), client.ForceOwnership}
	if dry {
		options = append(options, client.DryRunAll)
	}
	return c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u.DeepCopy()), options...)
}

func set(t *testing.T, u *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(u.Object, value, path...); err != nil {
		t.Fatal(err)
	}
}

// TestPolicyAdmitsWhatTheControllerMakes has every object of the golden cases, as the controller.
func TestPolicyAdmitsWhatTheControllerMakes(t *testing.T) {
	c := policed(t)
	files, err := filepath.Glob(filepath.Join(root, "internal/kube/infra/testdata/*.golden"))
	if err != nil {
		t.Fatal(err)
	}
	admitted, refused := 0, 0
	for _, file := range files {
		for _, u := range golden(t, strings.TrimSuffix(filepath.Base(file), ".golden")) {
			err := put(t, c, u, true)
			switch {
			case denied(err) || apierrors.IsForbidden(err):
				t.Errorf("%s: %s %s: %v", filepath.Base(file), u.GetKind(), u.GetName(), err)
			case err != nil:
				refused++ // such as an address of another family than the cluster's
				t.Logf("%s: %s %s: %v", filepath.Base(file), u.GetKind(), u.GetName(), err)
			default:
				admitted++
			}
		}
	}
	if admitted < 40 || refused > 5 {
		t.Errorf("%d objects are admitted, %d refused", admitted, refused)
	}
}

// TestPolicyAdmitsChangesOfWhatTheControllerMade has the life of a Gateway's objects.
func TestPolicyAdmitsChangesOfWhatTheControllerMade(t *testing.T) {
	c := policed(t)
	all := golden(t, "default")
	for _, u := range all {
		if err := put(t, c, u, false); err != nil {
			t.Fatalf("%s: %v", u.GetKind(), err)
		}
		if err := put(t, c, u, false); err != nil {
			t.Errorf("%s again: %v", u.GetKind(), err)
		}
		// Somebody takes the label and the owner's mark off.
		if err := admin.Patch(t.Context(), u.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"x"}}}`))); err != nil {
			t.Fatal(err)
		}
		if err := put(t, c, u, false); err != nil {
			t.Errorf("%s mended: %v", u.GetKind(), err)
		}
	}
	for _, u := range all {
		if err := c.Delete(t.Context(), u.DeepCopy()); err != nil {
			t.Errorf("%s deleted: %v", u.GetKind(), err)
		}
	}
}

// TestPolicyAdmitsTheControllersOwn has its Secret, lease, board and classes.
func TestPolicyAdmitsTheControllersOwn(t *testing.T) {
	c := policed(t)
	secret := &corev1.Secret{ObjectMeta: named(own, "weir-authority"), Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": {1}, "tls.key": {1}}}
	board := &corev1.ConfigMap{ObjectMeta: named(own, "weir-proxies-a"), Data: map[string]string{"a": "b"}}
	lease := &coordinationv1.Lease{ObjectMeta: named(own, "weir-controller")}
	for _, o := range []client.Object{secret, board, lease} {
		// Controllers of other tests may have left theirs.
		if err := client.IgnoreNotFound(admin.Delete(t.Context(), o.DeepCopyObject().(client.Object))); err != nil {
			t.Fatal(err)
		}
		if err := c.Create(t.Context(), o); err != nil {
			t.Errorf("%T: %v", o, err)
			continue
		}
		o.SetAnnotations(map[string]string{"a": "b"})
		if err := c.Update(t.Context(), o); err != nil {
			t.Errorf("%T: %v", o, err)
		}
	}
	if err := c.Delete(t.Context(), board); err != nil {
		t.Error(err)
	}
	for _, o := range []client.Object{secret, lease} {
		if err := admin.Delete(t.Context(), o); err != nil {
			t.Error(err)
		}
	}
	of := class(t)
	finalizer := `{"metadata":{"finalizers":["gateway-exists-finalizer.gateway.networking.k8s.io"]}}`
	if err := c.Patch(t.Context(), of, client.RawPatch(types.MergePatchType, []byte(finalizer))); err != nil {
		t.Error(err)
	}
	of.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted", LastTransitionTime: metav1.Now()}}
	if err := c.Status().Update(t.Context(), of); err != nil {
		t.Error(err)
	}
	if err := c.Patch(t.Context(), of, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`))); err != nil {
		t.Error(err)
	}
}

// TestPolicyDeniesPodsThatAreNoProxies has Deployments as one who has taken the controller over would like them.
func TestPolicyDeniesPodsThatAreNoProxies(t *testing.T) {
	c := policed(t)
	pod := func(value any, path ...string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			set(t, u, value, append([]string{"spec", "template", "spec"}, path...)...)
		}
	}
	container := func(value any, path ...string) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			all, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
			if err := unstructured.SetNestedField(all[0].(map[string]any), value, path...); err != nil {
				t.Fatal(err)
			}
			pod(all, "containers")(u)
		}
	}
	volume := func(v map[string]any) func(*unstructured.Unstructured) {
		return func(u *unstructured.Unstructured) {
			all, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "volumes")
			v["name"] = "more"
			pod(append(all, v), "volumes")(u)
		}
	}
	evil := map[string]any{"name": "evil", "image": "weir:dev"}
	token := func(source map[string]any) map[string]any {
		return map[string]any{"projected": map[string]any{"sources": []any{source}}}
	}
	for name, edit := range map[string]func(*unstructured.Unstructured){
		"image":                 container("evil:1", "image"),
		"image that begins so":  container("weirdo:1", "image"),
		"image of a registry":   container("weir:5000/evil", "image"),
		"image of proxies, too": container("weir-proxyist:1", "image"),
		"image in a folder":     container("weir/evil:1", "image"),
		"image of another host": container("evil.example/weir:dev", "image"),
		"command":               container([]any{"/bin/sh"}, "command"),
		"other arguments":       container([]any{"controller"}, "args"),
		"no arguments":          container([]any{}, "args"),
		"two containers": func(u *unstructured.Unstructured) {
			all, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
			pod(append(all, evil), "containers")(u)
		},
		"init container": pod([]any{evil}, "initContainers"),
		"another name":   container("evil", "name"),
		"privileged": func(u *unstructured.Unstructured) {
			container(true, "securityContext", "allowPrivilegeEscalation")(u)
			container(true, "securityContext", "privileged")(u)
		},
		"escalation":            container(true, "securityContext", "allowPrivilegeEscalation"),
		"capabilities":          container([]any{"SYS_ADMIN"}, "securityContext", "capabilities", "add"),
		"no drop":               container([]any{"CHOWN"}, "securityContext", "capabilities", "drop"),
		"writable root":         container(false, "securityContext", "readOnlyRootFilesystem"),
		"root in the container": container(int64(0), "securityContext", "runAsUser"),
		"unconfined container":  container(map[string]any{"type": "Unconfined"}, "securityContext", "seccompProfile"),
		"apparmor":              container(map[string]any{"type": "Unconfined"}, "securityContext", "appArmorProfile"),
		"no context":            container(map[string]any{}, "securityContext"),
		"root":                  pod(int64(0), "securityContext", "runAsUser"),
		"perhaps root":          pod(false, "securityContext", "runAsNonRoot"),
		"unconfined":            pod("Unconfined", "securityContext", "seccompProfile", "type"),
		"group of the node":     pod([]any{int64(0)}, "securityContext", "supplementalGroups"),
		"sysctl":                pod([]any{map[string]any{"name": "kernel.msgmax", "value": "1"}}, "securityContext", "sysctls"),
		"host network": func(u *unstructured.Unstructured) {
			unstructured.RemoveNestedField(u.Object, "spec", "template", "spec", "securityContext", "sysctls")
			pod(true, "hostNetwork")(u)
		},
		"host pid":              pod(true, "hostPID"),
		"host ipc":              pod(true, "hostIPC"),
		"shared processes":      pod(true, "shareProcessNamespace"),
		"a node":                pod("master", "nodeName"),
		"host aliases":          pod([]any{map[string]any{"ip": "192.0.2.1", "hostnames": []any{"weir-controller.weir-system.svc"}}}, "hostAliases"),
		"runtime class":         pod("legacy", "runtimeClassName"),
		"host port":             container([]any{map[string]any{"containerPort": int64(80), "hostPort": int64(80)}}, "ports"),
		"service account":       pod("default", "serviceAccountName"),
		"token of the API":      pod(true, "automountServiceAccountToken"),
		"environment of node":   container([]any{map[string]any{"name": "A", "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "status.hostIP"}}}}, "env"),
		"environment of labels": container([]any{map[string]any{"name": "A", "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": "metadata.labels['app']"}}}}, "env"),
		"environment of Secret": container([]any{map[string]any{"name": "A", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "a", "key": "b"}}}}, "env"),
		"all of a Secret":       container([]any{map[string]any{"secretRef": map[string]any{"name": "a"}}}, "envFrom"),
		"hook":                  container(map[string]any{"postStart": map[string]any{"exec": map[string]any{"command": []any{"sh"}}}}, "lifecycle"),
		"probe that runs":       container(map[string]any{"exec": map[string]any{"command": []any{"sh"}}}, "livenessProbe"),
		"probe of others":       container("169.254.169.254", "readinessProbe", "httpGet", "host"),
		"start probe":           container(map[string]any{"exec": map[string]any{"command": []any{"sh"}}}, "startupProbe"),
		"folder of the node":    volume(map[string]any{"hostPath": map[string]any{"path": "/"}}),
		"Secret":                volume(map[string]any{"secret": map[string]any{"secretName": "a"}}),
		"other ConfigMap":       volume(map[string]any{"configMap": map[string]any{"name": "a"}}),
		"claim":                 volume(map[string]any{"persistentVolumeClaim": map[string]any{"claimName": "a"}}),
		"nfs":                   volume(map[string]any{"nfs": map[string]any{"server": "a", "path": "/"}}),
		"csi":                   volume(map[string]any{"csi": map[string]any{"driver": "a"}}),
		"projected Secret":      volume(token(map[string]any{"secret": map[string]any{"name": "a"}})),
		"projected token":       volume(token(map[string]any{"serviceAccountToken": map[string]any{"path": "token"}})),
		"token for others":      volume(token(map[string]any{"serviceAccountToken": map[string]any{"path": "token", "audience": "vault"}})),
	} {
		u := tree(t, golden(t, "default"), "Deployment")
		edit(u)
		if err := put(t, c, u, true); !denied(err) {
			t.Errorf("%s: %v, want that the policy denies it", name, err)
		}
	}
	u := tree(t, golden(t, "default"), "Deployment")
	for _, image := range []string{"weir-proxy@sha256:0123456789012345678901234567890123456789012345678901234567890123", "weir:v1"} {
		container(image, "image")(u)
		if err := put(t, c, u, true); err != nil {
			t.Errorf("image %s: %v", image, err)
		}
	}
	for _, kind := range []string{"StatefulSet", "DaemonSet", "ReplicaSet"} {
		u := tree(t, golden(t, "default"), "Deployment")
		u.SetKind(kind)
		if err := put(t, c, u, true); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want that it is forbidden", kind, err)
		}
	}
}

// TestPolicyDeniesWhatIsNotTheControllers has objects of others, and ones that look like its own.
func TestPolicyDeniesWhatIsNotTheControllers(t *testing.T) {
	c := policed(t)
	ctx := t.Context()
	expect := func(what string, err error) {
		t.Helper()
		if !denied(err) {
			t.Errorf("%s: %v, want that the policy denies it", what, err)
		}
	}
	all := golden(t, "default")
	looks := map[string]func(*unstructured.Unstructured){
		"no owner":            func(u *unstructured.Unstructured) { u.SetOwnerReferences(nil) },
		"owner of no control": func(u *unstructured.Unstructured) { edit(u, func(o *metav1.OwnerReference) { o.Controller = nil }) },
		"owner of a kind":     func(u *unstructured.Unstructured) { edit(u, func(o *metav1.OwnerReference) { o.Kind = "ConfigMap" }) },
		"owner of a group": func(u *unstructured.Unstructured) {
			edit(u, func(o *metav1.OwnerReference) { o.APIVersion = "example.com/v1" })
		},
		"no labels": func(u *unstructured.Unstructured) { u.SetLabels(nil) },
		"managed by others": func(u *unstructured.Unstructured) {
			l := u.GetLabels()
			l["app.kubernetes.io/managed-by"] = "istio"
			u.SetLabels(l)
		},
		"any name": func(u *unstructured.Unstructured) { u.SetName("kube-root-ca.crt") },
	}
	for _, u := range all {
		for what, look := range looks {
			u := u.DeepCopy()
			look(u)
			if u.GetKind() == "Service" && what == "any name" {
				u.SetName("database")
			}
			expect(u.GetKind()+" with "+what, put(t, c, u, true))
		}
	}

	// Of others, with and without an owner that is a Gateway, and with one of the right name.
	ns := namespace(t)
	for _, o := range all {
		for _, variant := range []string{"plain", "of another controller", "of the name"} {
			victim := o.DeepCopy()
			victim.SetNamespace(ns)
			victim.SetLabels(map[string]string{"app": "shop"})
			switch variant {
			case "plain":
				victim.SetOwnerReferences(nil)
				victim.SetName("shop")
			case "of another controller":
				victim.SetName("shop-istio")
			}
			if err := admin.Create(ctx, victim); err != nil {
				t.Fatalf("%s %s: %v", o.GetKind(), variant, err)
			}
			takeover := o.DeepCopy()
			takeover.SetNamespace(ns)
			takeover.SetName(victim.GetName())
			expect(o.GetKind()+" "+variant+" applied over", put(t, c, takeover, false))
			patch := `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"weir","gateway.networking.k8s.io/gateway-name":"edge","gateway.networking.k8s.io/gateway-class-name":"weir"}}}`
			expect(o.GetKind()+" "+variant+" patched", c.Patch(ctx, victim.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))))
			expect(o.GetKind()+" "+variant+" deleted", c.Delete(ctx, victim.DeepCopy()))
			if err := admin.Delete(ctx, victim); err != nil {
				t.Fatal(err)
			}
		}
	}

	service := func(what string, change func(*unstructured.Unstructured)) {
		u := tree(t, all, "Service")
		change(u)
		expect("Service with "+what, put(t, c, u, true))
	}
	service("external addresses", func(u *unstructured.Unstructured) { set(t, u, []any{"192.0.2.1"}, "spec", "externalIPs") })
	service("an external name", func(u *unstructured.Unstructured) {
		u.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "example.com"}
	})
	service("others' pods", func(u *unstructured.Unstructured) { set(t, u, map[string]any{"app": "shop"}, "spec", "selector") })
	service("one more label", func(u *unstructured.Unstructured) { set(t, u, "x", "spec", "selector", "app") })
	service("another Gateway's pods", func(u *unstructured.Unstructured) {
		set(t, u, "other", "spec", "selector", gatewayv1.GatewayNameLabelKey)
	})
	service("no selector", func(u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, "spec", "selector") })

	// In its own namespace.
	parameters := &corev1.ConfigMap{ObjectMeta: named(own, "weir-proxies"), Data: map[string]string{"parameters.yaml": "replicas: 1"}}
	create(t, parameters)
	changed := parameters.DeepCopy()
	changed.Data["parameters.yaml"] = "image: example/evil"
	expect("parameters of the class", c.Update(ctx, changed))
	expect("parameters of the class deleted", c.Delete(ctx, parameters.DeepCopy()))
	expect("another Secret", c.Create(ctx, &corev1.Secret{ObjectMeta: named(own, "token")}))
	expect("another Lease", c.Create(ctx, &coordinationv1.Lease{ObjectMeta: named(own, "other")}))

	// Classes.
	ours, theirs := class(t), &gatewayv1.GatewayClass{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "theirs-", Finalizers: []string{"example.com/keep"}}, Spec: gatewayv1.GatewayClassSpec{ControllerName: "example.com/other"},
	}
	create(t, theirs)
	t.Cleanup(func() {
		_ = admin.Patch(context.Background(), theirs, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
	})
	for what, patch := range map[string]string{
		"parameters": `{"spec":{"parametersRef":{"group":"","kind":"ConfigMap","name":"evil","namespace":"default"}}}`,
		"labels":     `{"metadata":{"labels":{"a":"b"}}}`, "annotations": `{"metadata":{"annotations":{"a":"b"}}}`,
		"finalizers": `{"metadata":{"finalizers":["example.com/other"]}}`,
	} {
		expect(what+" of a class", c.Patch(ctx, ours.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))))
		if what == "finalizers" {
			patch = `{"metadata":{"finalizers":null}}`
		}
		expect(what+" of another's class", c.Patch(ctx, theirs.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))))
	}
	status := theirs.DeepCopy()
	status.Status.Conditions = []metav1.Condition{{Type: "Accepted", Status: "False", Reason: "No", LastTransitionTime: metav1.Now()}}
	expect("status of another's class", c.Status().Update(ctx, status))

	// Nobody else is held by the policies.
	if err := admin.Create(ctx, &corev1.ConfigMap{ObjectMeta: named(ns, "mine")}); err != nil {
		t.Error(err)
	}
	// What no role allows is forbidden without them.
	for what, err := range map[string]error{
		"pods":              c.Create(ctx, &corev1.Pod{ObjectMeta: named(ns, "x")}),
		"Secrets elsewhere": c.Create(ctx, &corev1.Secret{ObjectMeta: named(ns, "x")}),
		"roles":             c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "x"}}),
		"tokens": c.SubResource("token").Create(ctx, &corev1.ServiceAccount{ObjectMeta: named(ns, "default")},
			&authenticationv1.TokenRequest{}),
	} {
		if !apierrors.IsForbidden(err) || denied(err) {
			t.Errorf("%s: %v, want that it is forbidden", what, err)
		}
	}
}

func edit(u *unstructured.Unstructured, change func(*metav1.OwnerReference)) {
	all := u.GetOwnerReferences()
	change(&all[0])
	u.SetOwnerReferences(all)
}

// TestPolicyHoldsTheControllerToConversions has definitions, of which the controller may say where their webhook is.
func TestPolicyHoldsTheControllerToConversions(t *testing.T) {
	definitions := convertible(t)
	c := policed(t)
	ctx := t.Context()
	patch := func(name, text string, options ...client.PatchOption) error {
		d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name}}
		return c.Patch(ctx, d, client.RawPatch(types.MergePatchType, []byte(text)), options...)
	}
	err := within(ctx, func() error {
		if err := patch(definitions[0], `{"metadata":{"labels":{"a":"b"}}}`, client.DryRunAll); !denied(err) {
			return fmt.Errorf("the policy is not in force: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	bundle := "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==" // the API server wants certificates, and says so after the policy
	at := func(client string) string {
		return `{"spec":{"conversion":{"webhook":{"clientConfig":` + client + `}}}}`
	}
	for _, name := range definitions {
		if err := patch(name, at(`{"service":{"namespace":"`+own+`","name":"weir-controller","path":"/convert","port":443}}`)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := patch(name, at(`{"caBundle":"`+bundle+`"}`)); err == nil || denied(err) {
			t.Errorf("%s: %v, want that the policy lets certificates pass", name, err)
		}
	}
	for what, text := range map[string]string{
		"another Service":     at(`{"service":{"namespace":"default","name":"weir-controller"}}`),
		"another name":        at(`{"service":{"namespace":"` + own + `","name":"other"}}`),
		"a URL":               at(`{"service":null,"url":"https://evil.example/convert"}`),
		"no webhook":          `{"spec":{"conversion":{"strategy":"None","webhook":null}}}`,
		"labels":              `{"metadata":{"labels":{"a":"b"}}}`,
		"annotations":         `{"metadata":{"annotations":{"a":"b"}}}`,
		"finalizers":          `{"metadata":{"finalizers":["example.com/keep"]}}`,
		"names":               `{"spec":{"names":{"categories":["all"]}}}`,
		"versions not served": `{"spec":{"versions":[{"name":"v1alpha4","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`,
	} {
		if err := patch(definitions[0], text); !denied(err) {
			t.Errorf("%s: %v, want that the policy denies it", what, err)
		}
	}
	if err := patch("gateways.gateway.networking.k8s.io", `{"metadata":{"labels":{"a":"b"}}}`); !apierrors.IsForbidden(err) {
		t.Errorf("another definition: %v", err)
	}
	for what, err := range map[string]error{
		"deleted": c.Delete(ctx, &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: definitions[0]}}),
		"listed":  c.List(ctx, &apiextensionsv1.CustomResourceDefinitionList{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want that it is forbidden", what, err)
		}
	}
}

// TestPolicyHoldsTheControllerToItsAPIs has the APIServices of Traffic Metrics, of which the controller may say by which
// certificates it is known.
func TestPolicyHoldsTheControllerToItsAPIs(t *testing.T) {
	c := policed(t)
	ctx := t.Context()
	apiServices(t, "deploy/manifests/install.yaml")
	patch := func(name, text string, options ...client.PatchOption) error {
		return c.Patch(ctx, apiService(name), client.RawPatch(types.MergePatchType, []byte(text)), options...)
	}
	all := metrics.APIServices()
	err := within(ctx, func() error {
		if err := patch(all[0], `{"metadata":{"labels":{"a":"b"}}}`, client.DryRunAll); !denied(err) {
			return fmt.Errorf("the policy is not in force: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range all {
		if err := patch(name, `{"spec":{"caBundle":"LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="}}`); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for what, text := range map[string]string{
		"another Service":   `{"spec":{"service":{"name":"other"}}}`,
		"another namespace": `{"spec":{"service":{"namespace":"default"}}}`,
		"another port":      `{"spec":{"service":{"port":444}}}`,
		"anybody's word":    `{"spec":{"caBundle":null,"insecureSkipTLSVerify":true}}`,
		"a higher priority": `{"spec":{"groupPriorityMinimum":19000}}`,
		"the API server's":  `{"spec":{"service":null,"caBundle":null}}`,
		"labels":            `{"metadata":{"labels":{"a":"b"}}}`,
		"annotations":       `{"metadata":{"annotations":{"a":"b"}}}`,
		"finalizers":        `{"metadata":{"finalizers":["example.com/keep"]}}`,
	} {
		if err := patch(all[0], text); !denied(err) {
			t.Errorf("%s: %v, want that the policy denies it", what, err)
		}
	}
	for what, err := range map[string]error{
		"another":  patch("v1.apps", `{"metadata":{"labels":{"a":"b"}}}`),
		"deleted":  c.Delete(ctx, apiService(all[0])),
		"a status": c.Status().Patch(ctx, apiService(all[0]), client.RawPatch(types.MergePatchType, []byte(`{"status":{"conditions":[]}}`))),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v, want that it is forbidden", what, err)
		}
	}
	// Of one that leads elsewhere it may not even change the certificates.
	if err := admin.Patch(ctx, apiService(all[0]), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"service":{"name":"other"}}}`))); err != nil {
		t.Fatal(err)
	}
	if err := patch(all[0], `{"spec":{"caBundle":null}}`); !denied(err) {
		t.Errorf("of another's: %v, want that the policy denies it", err)
	}
}

// TestPolicyHoldsTheControllerToItsAdmissionWebhooks has the configurations by which the API server asks the controller,
// which may say by which certificates it is known.
func TestPolicyHoldsTheControllerToItsAdmissionWebhooks(t *testing.T) {
	c := policedBy(t, "deploy/manifests/install-rollouts.yaml")
	ctx := t.Context()
	for _, of := range []*unstructured.Unstructured{hooked("ValidatingWebhookConfiguration", access.RolloutsWebhook), hooked("MutatingWebhookConfiguration", access.WorkloadsWebhook)} {
		// edit changes the first webhook and writes all.
		edit := func(change func(hook map[string]any), options ...client.PatchOption) error {
			u := of.DeepCopy()
			if err := admin.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
				t.Fatal(err)
			}
			hooks, _, err := unstructured.NestedSlice(u.Object, "webhooks")
			if err != nil {
				t.Fatal(err)
			}
			hook := hooks[0].(map[string]any)
			change(hook)
			if hook["name"] == "" {
				hooks = hooks[1:]
			}
			if again := hook["again"]; again != nil {
				delete(hook, "again")
				more := runtime.DeepCopyJSON(hook)
				more["name"] = again
				hooks = append(hooks, more)
			}
			return c.Patch(ctx, u, merge(marshalled(t, map[string]any{"webhooks": hooks})), options...)
		}
		field := func(value any, path ...string) func(map[string]any) {
			return func(hook map[string]any) { set(t, &unstructured.Unstructured{Object: hook}, value, path...) }
		}
		err := within(ctx, func() error {
			// What is there already is no change, and permitted: so it must not be written while the policy is not in force.
			if err := edit(field(int64(1), "timeoutSeconds"), client.DryRunAll); !denied(err) {
				return fmt.Errorf("the policy is not in force: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		authority, err := identity.New(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		bundle := base64.StdEncoding.EncodeToString(authority.Bundle())
		everything := []any{map[string]any{"apiGroups": []any{"*"}, "apiVersions": []any{"*"}, "operations": []any{"*"}, "resources": []any{"*/*"}}}
		if err := edit(field(bundle, "clientConfig", "caBundle")); err != nil {
			t.Errorf("certificates: %v", err)
		}
		for what, change := range map[string]func(map[string]any){
			"everything":        field(everything, "rules"),
			"no conditions":     func(hook map[string]any) { delete(hook, "matchConditions") },
			"other conditions":  field([]any{map[string]any{"name": "spec", "expression": "true"}}, "matchConditions"),
			"all namespaces":    field(map[string]any{"matchLabels": map[string]any{"a": "b"}}, "namespaceSelector"),
			"some objects":      field(map[string]any{"matchLabels": map[string]any{"a": "b"}}, "objectSelector"),
			"another policy":    field("Exact", "matchPolicy"),
			"another Service":   field("other", "clientConfig", "service", "name"),
			"another namespace": field("default", "clientConfig", "service", "namespace"),
			"another path":      field("/convert", "clientConfig", "service", "path"),
			"another port":      field(int64(444), "clientConfig", "service", "port"),
			"a URL": func(hook map[string]any) {
				hook["clientConfig"] = map[string]any{"url": "https://evil.example/", "caBundle": bundle}
			},
			"another name": field("evil.example.com", "name"),
			"one more":     field("evil.example.com", "again"),
			"none":         field("", "name"),
			"certificates and more": func(hook map[string]any) {
				field(bundle, "clientConfig", "caBundle")(hook)
				field(everything, "rules")(hook)
			},
		} {
			if err := edit(change); !denied(err) {
				t.Errorf("%s: %v, want that the policy denies it", what, err)
			}
		}
		for what, text := range map[string]string{
			"labels": `{"metadata":{"labels":{"a":"b"}}}`, "annotations": `{"metadata":{"annotations":{"a":"b"}}}`, "finalizers": `{"metadata":{"finalizers":["example.com/keep"]}}`,
		} {
			if err := c.Patch(ctx, of.DeepCopy(), merge(text)); !denied(err) {
				t.Errorf("%s: %v, want that the policy denies it", what, err)
			}
		}
		more := hooked(of.GetKind(), "evil")
		for what, err := range map[string]error{
			"deleted": c.Delete(ctx, of.DeepCopy()), "created": c.Create(ctx, more), "another": c.Patch(ctx, hooked(of.GetKind(), "other"), merge(`{"webhooks":null}`)),
		} {
			if !apierrors.IsForbidden(err) {
				t.Errorf("%s: %v, want that it is forbidden", what, err)
			}
		}
		// Of one that leads elsewhere it may not even change the certificates.
		u := of.DeepCopy()
		if err := admin.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
			t.Fatal(err)
		}
		hooks, _, _ := unstructured.NestedSlice(u.Object, "webhooks")
		field("other", "clientConfig", "service", "name")(hooks[0].(map[string]any))
		u.Object["webhooks"] = hooks
		if err := admin.Update(ctx, u); err != nil {
			t.Fatal(err)
		}
		if err := edit(field(nil, "clientConfig", "caBundle")); !denied(err) {
			t.Errorf("of another's: %v, want that the policy denies it", err)
		}
	}
}

func marshalled(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func apiService(name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("apiregistration.k8s.io/v1")
	u.SetKind("APIService")
	u.SetName(name)
	return u
}

// apiServices installs those of a file until the test ends.
func apiServices(t *testing.T, file string) {
	t.Helper()
	applyManifests(t, file, func(u *unstructured.Unstructured) bool { return u.GetKind() == "APIService" })
}
