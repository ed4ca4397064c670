package kube

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/access"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/kube/trust"
	"github.com/weirmesh/weir/internal/kube/webhook"
	"github.com/weirmesh/weir/test/weirtest"
)

// meshed is a controller of a mesh as the chart installs it: with its rights alone, held by its policies, asked by the API
// server about pods.
type meshed struct {
	t      *testing.T
	client client.Client // of a user, whose warnings are kept
	warnings
	log  lines
	stop func()
}

const sidecarsManifests = "deploy/release/manifests/testdata/sidecars.yaml"

// injecting starts one, and waits until pods of a namespace are injected.
func injecting(t *testing.T) *meshed {
	t.Helper()
	ensureNamespace(t, own)
	at := port(t)
	_, text, _ := net.SplitHostPort(at)
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	create(t, &corev1.Service{ObjectMeta: named(own, "weir-controller"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}})
	applyManifests(t, sidecarsManifests, func(u *unstructured.Unstructured) bool {
		for _, h := range slice(u.Object["webhooks"]) {
			set(t, &unstructured.Unstructured{Object: h.(map[string]any)}, number, "clientConfig", "service", "port")
		}
		group := u.GroupVersionKind().Group
		return group == rbacv1.GroupName || group == "admissionregistration.k8s.io"
	})
	m := &meshed{t: t}
	user, err := adminConfig()
	if err != nil {
		t.Fatal(err)
	}
	user.WarningHandler = &m.warnings
	if m.client, err = client.New(user, client.Options{Scheme: kube.Scheme()}); err != nil {
		t.Fatal(err)
	}
	run := weirtest.Command("controller", "--kubeconfig="+impersonated(t), "--namespace="+own, "--name=sidecars", "--proxy-image=weir-proxy:v1",
		"--feed-address="+port(t), "--conversion-address="+at, "--drain-delay=0s", "--admin=off", "--mesh")
	run.Stdout, run.Stderr = &m.log, &m.log
	if err := run.Start(); err != nil {
		t.Fatal(err)
	}
	stopped, started := false, ""
	m.stop = func() {
		if stopped {
			return
		}
		stopped = true
		_ = run.Process.Signal(syscall.SIGTERM)
		if err := run.Wait(); err != nil {
			t.Errorf("%v\n%s", err, m.log.String())
		}
		// Until it is asked about pods, policies of an earlier test may be in force.
		if text := m.log.String(); strings.Contains(text, "cannot ") && strings.Contains(text, "system:serviceaccount") || strings.Contains(text[len(started):], "denied") {
			t.Errorf("the controller may not do what it tries:\n%s", text)
		}
	}
	t.Cleanup(func() {
		m.stop()
		for _, name := range []string{replica.IdentityName, replica.AuthorityName} {
			_ = admin.Delete(context.Background(), &corev1.Secret{ObjectMeta: named(own, name)})
		}
	})
	ns := m.namespace("")
	err = within(t.Context(), func() error {
		pod := podOf(ns, "probe", "weirmesh.github.io/inject: enabled")
		if err := m.client.Create(t.Context(), pod, client.DryRunAll); err != nil {
			return err
		}
		return sidecarOf(pod)
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, m.log.String())
	}
	started = m.log.String()
	m.take()
	return m
}

func slice(v any) []any {
	all, _ := v.([]any)
	return all
}

// namespace makes one with a value of the label, if that is not empty, in which pods can be created.
func (m *meshed) namespace(label string) string {
	m.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "mesh-"}}
	if label != "" {
		ns.Labels = map[string]string{inject.Label: label}
	}
	if err := m.client.Create(m.t.Context(), ns); err != nil {
		m.t.Fatal(err)
	}
	m.t.Cleanup(func() { _ = admin.Delete(context.Background(), ns) })
	create(m.t, &corev1.ServiceAccount{ObjectMeta: named(ns.Name, "default")})
	return ns.Name
}

// podOf is a pod with metadata in YAML.
func podOf(ns, name string, labels string, annotations ...string) *corev1.Pod {
	text := fmt.Sprintf(`{metadata: {namespace: %s, name: %s, labels: {%s}, annotations: {%s}}, spec: {
		serviceAccountName: default, initContainers: [{name: seed, image: seed}],
		containers: [{name: web, image: web, ports: [{containerPort: 80}], livenessProbe: {httpGet: {path: /healthz, port: 80}}}]}}`, ns, name, labels, strings.Join(annotations, ", "))
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		panic(err)
	}
	return pod
}

// sidecarOf says why a pod is not injected.
func sidecarOf(pod *corev1.Pod) error {
	var names []string
	for _, c := range pod.Spec.InitContainers {
		names = append(names, c.Name)
	}
	if len(names) < 3 || names[0] != inject.RedirectName || names[1] != inject.SidecarName {
		return fmt.Errorf("init containers %q", names)
	}
	s := inject.NewSettings()
	if problems := s.Verify(pod.Namespace, map[string]string{inject.Label: inject.Enabled}, pod); len(problems) > 0 {
		return fmt.Errorf("%q", problems)
	}
	if p := pod.Spec.Containers[0].LivenessProbe.HTTPGet; !strings.HasPrefix(p.Path, "/web/liveness/") || p.Port.IntVal != inject.ProbePort {
		return fmt.Errorf("the kubelet asks %+v", p)
	}
	return nil
}

// refused holds that a pod was refused with all of these words.
func (m *meshed) refused(what string, err error, words ...string) {
	m.t.Helper()
	if !apierrors.IsForbidden(err) {
		m.t.Errorf("%s: %v, want that it is refused", what, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			m.t.Errorf("%s: %v, want %q in it", what, err, w)
		}
	}
}

// other is a mutating webhook of somebody else, asked after Weir's: it changes pods as edit does.
func (m *meshed) other(reinvocation string, edit func(spec *corev1.PodSpec)) (asked *atomic.Int64, remove func()) {
	m.t.Helper()
	authority, err := identity.New(time.Now())
	if err != nil {
		m.t.Fatal(err)
	}
	certificate := &identity.Server{Subject: identity.Subject{DNSNames: []string{"localhost"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}}
	certificate.Use(authority)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.t.Fatal(err)
	}
	asked = &atomic.Int64{}
	answer := func(_ context.Context, body []byte) ([]byte, error) {
		var review admissionv1.AdmissionReview
		pod := &corev1.Pod{}
		if err := errors.Join(json.Unmarshal(body, &review), json.Unmarshal(review.Request.Object.Raw, pod)); err != nil {
			return nil, err
		}
		asked.Add(1)
		edit(&pod.Spec)
		patch, err := json.Marshal([]map[string]any{{"op": "replace", "path": "/spec", "value": pod.Spec}})
		if err != nil {
			return nil, err
		}
		kind := admissionv1.PatchTypeJSONPatch
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: true, Patch: patch, PatchType: &kind}
		return json.Marshal(review)
	}
	background(m.t, func(ctx context.Context) error {
		return webhook.Serve(ctx, l, &webhook.Reviews{Paths: map[string]webhook.Answer{"/": answer}}, certificate.Certificate)
	})
	u := hooked("MutatingWebhookConfiguration", "zz-other")
	text := fmt.Sprintf(`{webhooks: [{name: other.example.com, admissionReviewVersions: [v1], sideEffects: None, failurePolicy: Fail, reinvocationPolicy: %s,
		clientConfig: {url: "https://%s/"}, rules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}],
		namespaceSelector: {matchLabels: {weirmesh.github.io/inject: enabled}}}]}`, reinvocation, l.Addr())
	var fields map[string]any
	if err := yaml.Unmarshal([]byte(text), &fields); err != nil {
		m.t.Fatal(err)
	}
	u.Object["webhooks"] = fields["webhooks"]
	set(m.t, &unstructured.Unstructured{Object: u.Object["webhooks"].([]any)[0].(map[string]any)}, base64.StdEncoding.EncodeToString(authority.Bundle()), "clientConfig", "caBundle")
	if err := admin.Create(m.t.Context(), u); err != nil {
		m.t.Fatal(err)
	}
	remove = func() { _ = client.IgnoreNotFound(admin.Delete(context.Background(), u)) }
	m.t.Cleanup(remove)
	return asked, remove
}

// trusts waits for what a namespace's ConfigMap is to be; an error of f says why it is not.
func trusts(t *testing.T, ns string, f func(*corev1.ConfigMap) error) {
	t.Helper()
	err := within(t.Context(), func() error {
		c := &corev1.ConfigMap{}
		if err := admin.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: inject.CAName}, c); err != nil {
			if !apierrors.IsNotFound(err) {
				return err
			}
			c = nil
		}
		return f(c)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestPodsGetTheirSidecars has users of a cluster whose namespaces ask for sidecars, and one whose pods ask.
func TestPodsGetTheirSidecars(t *testing.T) {
	m := injecting(t)
	ctx := t.Context()
	ns, plain := m.namespace(inject.Enabled), m.namespace("")
	pod := podOf(ns, "web", "")
	if err := m.client.Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	if err := sidecarOf(pod); err != nil {
		t.Error(err)
	}
	if image := pod.Spec.InitContainers[1].Image; image != "weir-proxy:v1" {
		t.Errorf("the sidecar runs %s", image)
	}
	if w := m.take(); len(w) > 0 {
		t.Errorf("warnings %q", w)
	}
	for what, c := range map[string]struct {
		pod      *corev1.Pod
		injected bool
	}{
		"asks itself": {podOf(plain, "asks", "weirmesh.github.io/inject: enabled"), true}, "asks for none": {podOf(ns, "none", "weirmesh.github.io/inject: disabled"), false},
		"does not ask": {podOf(plain, "plain", ""), false},
	} {
		if err := m.client.Create(ctx, c.pod); err != nil {
			t.Errorf("%s: %v", what, err)
		} else if err := sidecarOf(c.pod); (err == nil) != c.injected {
			t.Errorf("%s: %v", what, err)
		}
	}
	// Those that cannot have one.
	m.refused("a wrong annotation", m.client.Create(ctx, podOf(ns, "wrong", "", "weirmesh.github.io/skip-inbound-ports: http")),
		`admission webhook "namespaces.sidecars.weirmesh.github.io" denied the request: Pod `+ns+"/wrong cannot have the sidecar", `annotation weirmesh.github.io/skip-inbound-ports "http": this is no port`)
	m.refused("a wrong label", m.client.Create(ctx, podOf(plain, "wrong", "weirmesh.github.io/inject: 'yes'")), `label weirmesh.github.io/inject "yes"`)
	user := podOf(ns, "user", "")
	fifteen := int64(15000)
	user.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: &fifteen}
	m.refused("the sidecar's user", m.client.Create(ctx, user), "would run as user 15000")
	m.take()
	var warned []string
	err := within(ctx, func() error { // until the policy is in force
		node := podOf(ns, "node", "")
		node.Spec.HostNetwork, node.Spec.Containers[0].Ports = true, nil
		if err := m.client.Create(ctx, node, client.DryRunAll); err != nil || len(node.Spec.InitContainers) != 1 {
			return fmt.Errorf("one of the node's network: %w", err)
		}
		if warned = m.take(); len(warned) != 1 || !strings.Contains(warned[0], "spec.hostNetwork: pods with their node's network get no Weir sidecar") {
			return fmt.Errorf("warnings %q", warned)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	asks := podOf(ns, "node-asks", "weirmesh.github.io/inject: enabled")
	asks.Spec.HostNetwork, asks.Spec.Containers[0].Ports = true, nil
	m.refused("one of the node's network that asks", m.client.Create(ctx, asks), "spec.hostNetwork")

	// The namespace has what its sidecars trust; a user's ConfigMap stays.
	bundle := ""
	trusts(t, ns, func(c *corev1.ConfigMap) error {
		if s := ownSecret(t, replica.AuthorityName); c == nil || s == nil || c.Data[inject.CAKey] != string(s.Data["ca.crt"]) || c.Labels[trust.ManagedBy] != "weir" {
			return fmt.Errorf("%+v", c)
		}
		bundle = c.Data[inject.CAKey]
		return nil
	})
	trusts(t, plain, func(c *corev1.ConfigMap) error {
		if c == nil || c.Data[inject.CAKey] != bundle {
			return fmt.Errorf("of a pod that asks: %+v", c)
		}
		return nil
	})
	if err := admin.Patch(ctx, &corev1.ConfigMap{ObjectMeta: named(ns, inject.CAName)}, merge(`{"data":{"ca.crt":"x","y":"z"}}`)); err != nil {
		t.Fatal(err)
	}
	trusts(t, ns, func(c *corev1.ConfigMap) error {
		if c == nil || len(c.Data) != 1 || c.Data[inject.CAKey] != bundle {
			return fmt.Errorf("not corrected: %+v", c)
		}
		return nil
	})
	foreign := m.namespace("")
	create(t, &corev1.ConfigMap{ObjectMeta: named(foreign, inject.CAName), Data: map[string]string{"mine": "yes"}})
	if err := admin.Patch(ctx, &corev1.Namespace{ObjectMeta: named("", foreign)}, merge(`{"metadata":{"labels":{"weirmesh.github.io/inject":"enabled"}}}`)); err != nil {
		t.Fatal(err)
	}
	err = within(ctx, func() error {
		if !strings.Contains(m.log.String(), "configMap="+foreign+"/weir-ca error=\"there is one already without the label") {
			return errors.New("the log does not tell of the user's ConfigMap")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	trusts(t, foreign, func(c *corev1.ConfigMap) error {
		if c == nil || c.Data["mine"] != "yes" || len(c.Data) != 1 {
			t.Errorf("the user's is %+v", c)
		}
		return nil
	})
	m.take()
	err = within(ctx, func() error {
		typo := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "wrong-label", Labels: map[string]string{inject.Label: "true"}}}
		if err := m.client.Create(ctx, typo, client.DryRunAll); err != nil {
			return err
		}
		if w := m.take(); len(w) != 1 || !strings.Contains(w[0], "there is no such value, so no pod gets a Weir sidecar") {
			return fmt.Errorf("warnings %q", w)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestOtherWebhooksThatChangePodsAreSurvivedOrCaught has one that comes after Weir's and adds to pods, and ones that strip them.
func TestOtherWebhooksThatChangePodsAreSurvivedOrCaught(t *testing.T) {
	m := injecting(t)
	ctx := t.Context()
	ns := m.namespace(inject.Enabled)
	try := func(asked *atomic.Int64) (pod *corev1.Pod, err error) {
		t.Helper()
		waited := within(ctx, func() error {
			pod = podOf(ns, "web", "")
			if err = m.client.Create(ctx, pod, client.DryRunAll); asked.Load() == 0 {
				return errors.New("the other webhook is not asked")
			}
			return nil
		})
		if waited != nil {
			t.Fatal(waited)
		}
		return pod, err
	}
	// It adds a container with a probe, one that begins before all others, and a variable to each.
	asked, remove := m.other("Never", func(spec *corev1.PodSpec) {
		added := corev1.Container{Name: "agent", Image: "agent", Ports: []corev1.ContainerPort{{ContainerPort: 90}}, ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(90)}}}}
		spec.Containers = append(spec.Containers, added)
		spec.InitContainers = slices.Insert(spec.InitContainers, 0, corev1.Container{Name: "agent-init", Image: "agent"})
		for i := range spec.InitContainers {
			spec.InitContainers[i].Env = append(spec.InitContainers[i].Env, corev1.EnvVar{Name: "AGENT", Value: "yes"})
		}
	})
	pod, err := try(asked)
	if err != nil {
		t.Fatal(err)
	}
	if err := sidecarOf(pod); err != nil {
		t.Error(err)
	}
	if env := pod.Spec.InitContainers[1].Env; env[len(env)-1].Name != "AGENT" {
		t.Errorf("what the other added is lost: %+v", env)
	}
	if get := pod.Spec.Containers[1].ReadinessProbe.HTTPGet; len(pod.Spec.InitContainers) != 4 || get == nil || !strings.HasPrefix(get.Path, "/agent/readiness/") {
		t.Errorf("the other's containers: %+v", pod.Spec)
	}
	remove()
	strip := func(spec *corev1.PodSpec) {
		spec.InitContainers = slices.DeleteFunc(spec.InitContainers, func(c corev1.Container) bool { return c.Name == inject.SidecarName })
	}
	// Weir's is asked again after the other, and mends it; if the other is asked again, too, the pod is refused.
	asked, remove = m.other("Never", strip)
	if pod, err = try(asked); err != nil {
		t.Error(err)
	} else if err := sidecarOf(pod); err != nil {
		t.Error(err)
	}
	remove()
	asked, _ = m.other("IfNeeded", strip)
	_, err = try(asked)
	m.refused("a pod that is stripped", err, "Pod "+ns+"/web must not start without its sidecar", "spec.initContainers[weir-sidecar]: it was injected and is not there any more")
}

// TestWithoutItsControllerAMeshStopsNoNode has the controller away: pods that ask for a sidecar cannot be created, and all
// that a cluster needs to run can.
func TestWithoutItsControllerAMeshStopsNoNode(t *testing.T) {
	m := injecting(t)
	ctx := t.Context()
	ns, plain := m.namespace(inject.Enabled), m.namespace("")
	create(t, &corev1.ServiceAccount{ObjectMeta: named("kube-system", "default")}, &corev1.ServiceAccount{ObjectMeta: named(own, "default")})
	for _, n := range []string{"kube-system", own} {
		err := within(ctx, func() error { // until the policy is in force
			if err := m.client.Patch(ctx, &corev1.Namespace{ObjectMeta: named("", n)}, merge(`{"metadata":{"labels":{"weirmesh.github.io/inject":"enabled"}}}`)); err != nil {
				return err
			}
			if w := m.take(); len(w) != 1 || !strings.Contains(w[0], "get no Weir sidecar") {
				return fmt.Errorf("%s: warnings %q", n, w)
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		t.Cleanup(func() {
			_ = admin.Patch(context.Background(), &corev1.Namespace{ObjectMeta: named("", n)}, merge(`{"metadata":{"labels":{"weirmesh.github.io/inject":null}}}`))
		})
	}
	m.stop()
	err := m.client.Create(ctx, podOf(ns, "web", ""), client.DryRunAll)
	if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
		t.Errorf("a pod that asks: %v", err)
	}
	node := podOf(ns, "network-plugin", "")
	node.Spec.HostNetwork, node.Spec.Containers[0].Ports = true, nil
	file := podOf(ns, "of-a-file", "", "kubernetes.io/config.mirror: abc")
	file.Spec.NodeName = "node"
	for what, pod := range map[string]*corev1.Pod{
		"of kube-system": podOf("kube-system", "dns", ""), "of kube-system that asks": podOf("kube-system", "dns", "weirmesh.github.io/inject: enabled"),
		"of the controller's namespace":    podOf(own, "controller", "weirmesh.github.io/inject: enabled"),
		"of a namespace that does not ask": podOf(plain, "web", ""), "that opts out": podOf(ns, "web", "weirmesh.github.io/inject: disabled"),
		"of the node's network": node, "of a file": file,
	} {
		if err := m.client.Create(ctx, pod, client.DryRunAll); err != nil && !strings.Contains(err.Error(), "a mirror pod may not reference service accounts") {
			t.Errorf("a pod %s: %v", what, err)
		}
	}
}

// TestCheckTellsWhatKeepsPodsFromTheirSidecars has a namespace with all that can, and one without any of it.
func TestCheckTellsWhatKeepsPodsFromTheirSidecars(t *testing.T) {
	m := injecting(t)
	ctx := t.Context()
	labels := map[string]string{"app.kubernetes.io/name": "weir", "app.kubernetes.io/component": "controller"}
	create(t, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: own, Name: "weir-controller", Labels: labels}, Spec: appsv1.DeploymentSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
			ServiceAccountName: "weir-controller", Containers: []corev1.Container{{Name: "controller", Image: "weir:v1", Args: []string{"controller", "--mesh", "--sidecar-limits=cpu=none"}}},
		}},
	}})
	good, bad := m.namespace(inject.Enabled), m.namespace("")
	before := podOf(bad, "before", "")
	if err := m.client.Create(ctx, before); err != nil {
		t.Fatal(err)
	}
	if err := m.client.Create(ctx, podOf(good, "web", "")); err != nil {
		t.Fatal(err)
	}
	create(t, &corev1.ResourceQuota{ObjectMeta: named(bad, "demands"), Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"limits.cpu": resource.MustParse("10")}}},
		&corev1.ConfigMap{ObjectMeta: named(bad, inject.CAName)})
	if err := m.client.Patch(ctx, &corev1.Namespace{ObjectMeta: named("", bad)}, merge(`{"metadata":{"labels":{"weirmesh.github.io/inject":"enabled","pod-security.kubernetes.io/enforce":"baseline"},"annotations":{"linkerd.io/inject":"enabled"}}}`)); err != nil {
		t.Fatal(err)
	}
	trusts(t, good, func(c *corev1.ConfigMap) error {
		if c == nil {
			return errors.New("there is no ConfigMap")
		}
		return nil
	})
	check := weirtest.Command("check", "--kubeconfig="+server.Kubeconfig, "-o", "json", "--fail-on", "never")
	var complaints lines
	check.Stderr = &complaints
	text, err := check.Output()
	if err != nil {
		t.Fatalf("%v %s", err, complaints.String())
	}
	var report struct {
		Findings []struct {
			Code, Severity string
			Ref            struct{ Kind, Namespace, Name string }
			Message        string
		}
	}
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range report.Findings {
		if slices.Contains([]string{"WR721", "WR722", "WR723"}, f.Code) {
			got = append(got, fmt.Sprintf("%s %s %s %s", f.Code, f.Ref.Kind, f.Ref.Namespace, f.Ref.Name))
		}
		if f.Code == "WR705" {
			t.Errorf("a right is missing: %+v", f)
		}
	}
	slices.Sort(got)
	want := []string{"WR721 ConfigMap " + bad + " weir-ca", "WR722 Namespace  " + bad, "WR722 Namespace  " + bad, "WR722 ResourceQuota " + bad + " demands", "WR723 Namespace  " + bad}
	if !slices.Equal(got, want) {
		t.Errorf("%q, want %q\n%s", got, want, text)
	}
}

// TestPolicyKeepsTheControllerToItsOwnTrust has a controller that somebody has taken over.
func TestPolicyKeepsTheControllerToItsOwnTrust(t *testing.T) {
	ensureNamespace(t, own)
	applyManifests(t, sidecarsManifests, func(u *unstructured.Unstructured) bool {
		return u.GroupVersionKind().Group == rbacv1.GroupName || strings.HasPrefix(u.GetKind(), "ValidatingAdmissionPolicy") || strings.HasSuffix(u.GetKind(), "WebhookConfiguration")
	})
	c, err := kube.NewClient(asController(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	ns, users := namespace(t), namespace(t)
	create(t, &corev1.ConfigMap{ObjectMeta: named(users, inject.CAName), Data: map[string]string{"mine": "yes"}})
	of := func(name string, labels map[string]string, data map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}, Data: data}
	}
	ours, bundle := map[string]string{trust.ManagedBy: "weir"}, map[string]string{inject.CAKey: "x"}
	err = within(t.Context(), func() error { // until the policy is in force
		if err := c.Create(t.Context(), of("other", ours, bundle), client.DryRunAll); !denied(err) {
			return fmt.Errorf("a ConfigMap of another name: %w", errors.Join(err, errors.New("not denied")))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	err = within(t.Context(), func() error {
		if err := c.Patch(t.Context(), hooked("MutatingWebhookConfiguration", access.SidecarsWebhook), merge(`{"webhooks":null}`), client.DryRunAll); !denied(err) {
			return fmt.Errorf("the webhook is moved: %w", errors.Join(err, errors.New("not denied")))
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	for what, err := range map[string]error{
		"without its label": c.Create(t.Context(), of(inject.CAName, nil, bundle)), "with more": c.Create(t.Context(), of(inject.CAName, ours, map[string]string{inject.CAKey: "x", "y": "z"})),
		"a user's changed": c.Patch(t.Context(), &corev1.ConfigMap{ObjectMeta: named(users, inject.CAName)}, merge(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"weir"}},"data":{"ca.crt":"x","mine":null}}`)),
		"a user's deleted": c.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: named(users, inject.CAName)}),
	} {
		if !denied(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := c.Create(t.Context(), of(inject.CAName, ours, bundle)); err != nil {
		t.Error(err)
	}
	if err := c.Patch(t.Context(), of(inject.CAName, nil, nil), merge(`{"data":{"ca.crt":"y"}}`)); err != nil {
		t.Error(err)
	}
	if err := c.Delete(t.Context(), of(inject.CAName, nil, nil)); err != nil {
		t.Error(err)
	}
}

// TestTheConfigMapGoesWithTheLastSidecar has a Keeper that waits for no while.
func TestTheConfigMapGoesWithTheLastSidecar(t *testing.T) {
	ns := namespace(t)
	create(t, &corev1.ServiceAccount{ObjectMeta: named(ns, "default")})
	var asking atomic.Bool
	woken := make(chan struct{}, 1)
	k := &trust.Keeper{
		Client: admin, Namespaces: []string{ns}, Logger: logger(t), Linger: time.Nanosecond, Bundle: func() string { return "bundle" },
		Asking: func() []string {
			if asking.Load() {
				return []string{ns, "elsewhere"}
			}
			return nil
		},
	}
	background(t, func(ctx context.Context) error { return k.Run(ctx, woken) })
	is := func(want bool) {
		t.Helper()
		trusts(t, ns, func(c *corev1.ConfigMap) error {
			if (c != nil) != want {
				return fmt.Errorf("there is one: %v, want %v", c != nil, want)
			}
			return nil
		})
	}
	asking.Store(true)
	woken <- struct{}{}
	is(true)
	pod := podOf(ns, "web", "weirmesh.github.io/inject: enabled")
	create(t, pod)
	asking.Store(false)
	woken <- struct{}{}
	// The pod keeps it, also when somebody deletes it; this one does for a moment, if it has not heard of the pod yet.
	if err := admin.Delete(t.Context(), &corev1.ConfigMap{ObjectMeta: named(ns, inject.CAName)}); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	is(true)
	if err := admin.Delete(t.Context(), pod, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	is(false)
}
