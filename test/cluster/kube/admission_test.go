package kube

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/access"
	"github.com/weirmesh/weir/internal/kube/admission"
	"github.com/weirmesh/weir/internal/kube/conversion"
	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/kube/webhook"
	"github.com/weirmesh/weir/internal/rollout/provider"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

// warnings are those of an API server.
type warnings struct {
	mu  sync.Mutex
	all []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, text)
}

// take returns those since the last time.
func (w *warnings) take() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := w.all
	w.all = nil
	return all
}

// admitted is a controller as far as API servers call it, registered as the chart does it, for the time of a test.
type admitted struct {
	t           *testing.T
	certificate *identity.Server
	roots       atomicText
	changed     chan struct{}
	rollouts    *admission.Rollouts
	client      client.Client // of a user, whose warnings are kept
	warnings
	stop func()
}

type atomicText struct {
	mu   sync.Mutex
	text string
}

func (a *atomicText) set(text string) { a.mu.Lock(); a.text = text; a.mu.Unlock() }
func (a *atomicText) get() string     { a.mu.Lock(); defer a.mu.Unlock(); return a.text }

// hooked names a configuration of admission webhooks.
func hooked(kind, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetAPIVersion("admissionregistration.k8s.io/v1")
	u.SetKind(kind)
	u.SetName(name)
	return u
}

// admits serves what the API server asks before it stores objects. Before is done before it is registered.
func admits(t *testing.T, before func(client.Client)) *admitted {
	t.Helper()
	a := &admitted{t: t, changed: make(chan struct{}, 1)}
	ensureNamespace(t, own)
	authority, err := identity.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a.roots.set(string(authority.Bundle()))
	a.certificate = &identity.Server{Subject: identity.Subject{DNSNames: []string{"weir-controller." + own + ".svc"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}}}
	a.certificate.Use(authority)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	config, kinds := userWho(t, "admitting-controller", nil), allNamed(t)
	grant(t, "admitting-controller", slices.Concat(access.Admission(), access.Definitions(kinds), access.Releases(kinds, provider.All())))
	c, err := kube.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	list, err := admission.NewLister(config)
	if err != nil {
		t.Fatal(err)
	}
	a.rollouts = &admission.Rollouts{List: list.List, Find: list.Find, Kinds: kinds}
	conversions := &conversion.Handler{Kinds: rollouts.Kinds()}
	known := &admission.Known{Client: c, Look: 200 * time.Millisecond, Logger: logger(t), Obstacle: func(ctx context.Context) (string, error) {
		why, err := release.FindObstacle(ctx, c)
		return why.String(), err
	}}
	workloads := &admission.Workloads{Kinds: kinds, Unfit: (&release.Definitions{Client: c}).Unfit, Rollouts: known.Rollouts}
	reviews := &webhook.Reviews{Paths: map[string]webhook.Answer{
		conversion.Path: conversions.Answer, admission.RolloutsPath: a.rollouts.Answer, admission.WorkloadsPath: workloads.Answer,
	}}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- webhook.Serve(ctx, l, reviews, a.certificate.Certificate) }()
	a.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { a.stop() })

	url := "https://" + l.Addr().String() + conversion.Path
	define(t, rollouts.Group, "rollouts", func(d *apiextensionsv1.CustomResourceDefinition) {
		d.Spec.Conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{URL: &url, CABundle: authority.Bundle()}
	})
	background(t, known.Run)
	user, err := adminConfig()
	if err != nil {
		t.Fatal(err)
	}
	user.WarningHandler = &a.warnings
	if a.client, err = client.New(user, client.Options{Scheme: kube.Scheme()}); err != nil {
		t.Fatal(err)
	}
	if before != nil {
		before(a.client)
	}
	port := int64(l.Addr().(*net.TCPAddr).Port)
	create(t, &corev1.Service{ObjectMeta: named(own, "weir-controller"), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}})
	bundles := &webhook.Bundles{Client: c, Service: webhook.Service{Namespace: own, Name: "weir-controller"}, Bundle: a.roots.get, Logger: logger(t)}
	applyManifests(t, namedManifests, func(u *unstructured.Unstructured) bool {
		if !strings.HasSuffix(u.GetKind(), "WebhookConfiguration") {
			return false
		}
		hooks := u.Object["webhooks"].([]any)
		for _, h := range hooks {
			set(t, &unstructured.Unstructured{Object: h.(map[string]any)}, port, "clientConfig", "service", "port")
		}
		bundles.Configurations = append(bundles.Configurations, webhook.Configuration{Kind: u.GetKind(), Name: u.GetName()})
		return true
	})
	background(t, func(ctx context.Context) error { bundles.Run(ctx, a.changed); return nil })
	return a
}

// bundled waits until the certificates that are to be trusted are registered.
func (a *admitted) bundled() {
	a.t.Helper()
	err := within(a.t.Context(), func() error {
		u := hooked("ValidatingWebhookConfiguration", access.RolloutsWebhook)
		if err := admin.Get(a.t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
			return err
		}
		var typed struct {
			Webhooks []struct{ ClientConfig struct{ CABundle []byte } }
		}
		text, err := yaml.Marshal(u.Object)
		if err == nil {
			err = yaml.Unmarshal(text, &typed)
		}
		if err != nil || string(typed.Webhooks[0].ClientConfig.CABundle) != a.roots.get() {
			return fmt.Errorf("the certificates are not registered, %v", err)
		}
		return nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
}

// inForce waits until the API server asks, and believes the answer.
func (a *admitted) inForce(ns string) {
	a.t.Helper()
	a.bundled()
	err := within(a.t.Context(), func() error {
		err := a.client.Create(a.t.Context(), rolloutOf(ns, "probe", "probe", "replicas: 0"), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "must be more than 0") {
			return fmt.Errorf("not in force: %w", errors.Join(err, errors.New("allowed")))
		}
		return nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
	a.take()
}

// rolloutOf is a canary of a Deployment whose second step is given.
func rolloutOf(ns, name, workload, step string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	text := fmt.Sprintf(`{apiVersion: rollouts.kruise.io/v1beta1, kind: Rollout, metadata: {namespace: %s, name: %s}, spec: {
		workloadRef: {apiVersion: apps/v1, kind: Deployment, name: %s},
		strategy: {canary: {trafficRoutings: [{service: %[3]s, gateway: {httpRouteName: %[3]s}}], steps: [{traffic: 10%%, replicas: 1}, {%[4]s}]}}}}`, ns, name, workload, step)
	if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
		panic(err)
	}
	return u
}

func merge(text string) client.Patch { return client.RawPatch(types.MergePatchType, []byte(text)) }

// refused holds that the API server refused an object with all of these words, as one that is not valid.
func refused(t *testing.T, what string, err error, words ...string) {
	t.Helper()
	if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), `admission webhook "rollouts.weirmesh.github.io" denied the request: Rollout`) {
		t.Errorf("%s: %v, want that it is not valid", what, err)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v, want %q in it", what, err, w)
		}
	}
}

// TestRolloutsAreJudgedBeforeTheyAreStored has a user who writes Rollouts, one of which was there before the rules.
func TestRolloutsAreJudgedBeforeTheyAreStored(t *testing.T) {
	ns, ctx := namespace(t), t.Context()
	old := rolloutOf(ns, "old", "old", "replicas: 0, traffic: 20%")
	old.SetFinalizers([]string{"example.com/keep"})
	a := admits(t, func(c client.Client) {
		if err := c.Create(ctx, old); err != nil {
			t.Fatal(err)
		}
	})
	a.inForce(ns)
	ok := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	web := rolloutOf(ns, "web", "web", "traffic: 50%, replicas: 2")
	ok("a valid one", a.client.Create(ctx, web))
	if w := a.take(); len(w) > 0 {
		t.Errorf("warnings %q", w)
	}
	refused(t, "one that is not valid", a.client.Create(ctx, rolloutOf(ns, "bad", "bad", "traffic: 500%, replicas: -1, pause: {duration: -1}")),
		"Rollout "+ns+"/bad", "steps[1].traffic", "steps[1].replicas", "steps[1].pause.duration", "must be a percentage from 1% to 100%")
	refused(t, "a second one of the workload", a.client.Create(ctx, rolloutOf(ns, "second", "web", "replicas: 1")), "Rollout "+ns+"/web releases Deployment web already")
	elsewhere := rolloutOf(namespace(t), "web", "web", "replicas: 1")
	ok("one of another namespace", a.client.Create(ctx, elsewhere))
	kind := rolloutOf(ns, "kind", "kind", "replicas: 1")
	set(t, kind, "ReplicaSet", "spec", "workloadRef", "kind")
	refused(t, "a kind", a.client.Create(ctx, kind), "ReplicaSet.apps", "CloneSet.apps.kruise.io")
	set(t, kind, "apps.example.com/v1", "spec", "workloadRef", "apiVersion")
	set(t, kind, "GameSet", "spec", "workloadRef", "kind")
	refused(t, "a kind that is not named", a.client.Create(ctx, kind), "spec.workloadRef.kind: Forbidden: Weir's controller may not release objects of the kind GameSet.apps.example.com", "rollouts.workloads")
	set(t, kind, "GameStatefulSet", "spec", "workloadRef", "kind")
	ok("a kind that is named", a.client.Create(ctx, kind))
	ok("one with a warning", a.client.Patch(ctx, web, merge(`{"spec":{"strategy":{"canary":{"steps":[{"traffic":"10%","replicas":1},{"traffic":"5%","replicas":2}]}}}}`)))
	if w := a.take(); len(w) != 1 || !strings.Contains(w[0], "WR909") {
		t.Errorf("warnings %q", w)
	}
	refused(t, "an edit", a.client.Patch(ctx, web, merge(`{"spec":{"workloadRef":{"kind":"Pod"}}}`)), "Pod.apps")

	// Labels of extra pods, by what selects them now.
	extra := rolloutOf(ns, "extra", "extra", "replicas: 1")
	label := func(key string) *unstructured.Unstructured {
		r := extra.DeepCopy()
		set(t, r, true, "spec", "strategy", "canary", "enableExtraWorkloadForCanary")
		set(t, r, "canary", "spec", "strategy", "canary", "patchPodTemplateMetadata", "labels", key)
		return r
	}
	ok("a label that nothing selects by yet", a.client.Create(ctx, label("app"), client.DryRunAll))
	by := map[string]string{"app": "extra"}
	create(t, &appsv1.Deployment{ObjectMeta: named(ns, "extra"), Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: by}, Template: corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "extra", "track": "stable"}}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
	}}})
	create(t, &corev1.Service{ObjectMeta: named(ns, "extra"), Spec: corev1.ServiceSpec{Selector: map[string]string{"track": "stable"}, Ports: []corev1.ServicePort{{Port: 80}}}})
	refused(t, "a label that the Deployment selects by", a.client.Create(ctx, label("app")), "patchPodTemplateMetadata.labels[app]: Forbidden: Deployment extra selects pods by app=extra, so those with app=canary would not be its own: use another label")
	refused(t, "a label that the Service selects by", a.client.Create(ctx, label("track")), "patchPodTemplateMetadata.labels[track]: Forbidden: Service extra selects pods by track=stable, so neither it nor the canary's Service would have those with track=canary", "remove this one from the selector")
	refused(t, "the label of revisions", a.client.Create(ctx, label("pod-template-hash")), "labels[pod-template-hash]: Forbidden: tells the versions of the workload apart")
	ok("another label", a.client.Create(ctx, label("version")))
	if w := a.take(); len(w) > 0 {
		t.Errorf("warnings %q", w)
	}
	unused := label("app")
	set(t, unused, false, "spec", "strategy", "canary", "enableExtraWorkloadForCanary")
	unused.SetName("unused")
	set(t, unused, "unused", "spec", "workloadRef", "name")
	ok("labels without extra pods", a.client.Create(ctx, unused, client.DryRunAll))
	if w := a.take(); len(w) != 1 || !strings.Contains(w[0], "has no effect") || !strings.Contains(w[0], "(WR915)") {
		t.Errorf("warnings %q", w)
	}

	// A release is under way.
	ok("a status", a.client.Status().Patch(ctx, web, merge(`{"status":{"phase":"Progressing","currentStepIndex":1,"currentStepState":"StepUpgrade"}}`)))
	refused(t, "while progressing", a.client.Patch(ctx, web, merge(`{"spec":{"workloadRef":{"name":"other"},"strategy":{"canary":{"enableExtraWorkloadForCanary":true,"steps":[{"replicas":1}]}}}}`)),
		"spec.workloadRef: Forbidden", "enableExtraWorkloadForCanary: Forbidden", "the number of steps (2) must not change while the Rollout is Progressing")
	ok("a pause while progressing", a.client.Patch(ctx, web, merge(`{"spec":{"strategy":{"paused":true}}}`)))
	a.take()

	// In the old version, whose style is an annotation, fields have its names.
	alpha := &unstructured.Unstructured{}
	alpha.SetAPIVersion("rollouts.kruise.io/v1alpha1")
	alpha.SetKind("Rollout")
	alpha.SetNamespace(ns)
	alpha.SetName("web")
	ok("reading the old version", a.client.Get(ctx, client.ObjectKeyFromObject(alpha), alpha))
	refused(t, "the style in the old version", a.client.Patch(ctx, alpha, merge(`{"metadata":{"annotations":{"rollouts.kruise.io/rolling-style":"canary"}}}`)), "metadata.annotations[rollouts.kruise.io/rolling-style]")
	ok("a label in the old version", a.client.Patch(ctx, alpha, merge(`{"metadata":{"labels":{"a":"b"}}}`)))
	refused(t, "a weight in the old version", a.client.Patch(ctx, alpha, merge(`{"spec":{"strategy":{"canary":{"steps":[{"weight":10,"replicas":1},{"weight":500,"replicas":2}]}}}}`)), "steps[1].weight")

	// What was there before and is not valid.
	refused(t, "an edit of the old one", a.client.Patch(ctx, old, merge(`{"spec":{"strategy":{"paused":true}}}`)), "must be more than 0")
	ok("a label of the old one", a.client.Patch(ctx, old, merge(`{"metadata":{"labels":{"a":"b"}}}`)))
	ok("its status", a.client.Status().Patch(ctx, old, merge(`{"status":{"phase":"Healthy","currentStepIndex":0,"currentStepState":""}}`)))
	ok("its deletion", a.client.Delete(ctx, old))
	ok("its finalizer", a.client.Patch(ctx, old, merge(`{"metadata":{"finalizers":null}}`)))
	if err := a.client.Get(ctx, client.ObjectKeyFromObject(old), old); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
	if s := a.rollouts.Stats(); s.Answered < 10 || s.Denied < 6 {
		t.Errorf("counted %+v", s)
	}

	// Nobody knows of others: the Rollout is stored, and its user warned.
	grant(t, "admitting-controller", access.Admission())
	err := within(ctx, func() error {
		err := a.client.Create(ctx, rolloutOf(ns, "third", "web", "replicas: 1"), client.DryRunAll)
		if w := a.take(); err != nil || len(w) != 1 || !strings.Contains(w[0], "it is not known whether another Rollout releases Deployment web") {
			return fmt.Errorf("%v, warnings %q", err, w)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// TestWithoutItsWebhookOnlySpecsOfRolloutsAreRefused takes the controller away.
func TestWithoutItsWebhookOnlySpecsOfRolloutsAreRefused(t *testing.T) {
	ns, ctx := namespace(t), t.Context()
	a := admits(t, nil)
	a.inForce(ns)
	web := rolloutOf(ns, "web", "web", "replicas: 1")
	web.SetFinalizers([]string{"example.com/keep"})
	if err := a.client.Create(ctx, web); err != nil {
		t.Fatal(err)
	}
	a.stop()
	for what, err := range map[string]error{
		"created": a.client.Create(ctx, rolloutOf(ns, "other", "other", "replicas: 1")),
		"edited":  a.client.Patch(ctx, web.DeepCopy(), merge(`{"spec":{"strategy":{"paused":true}}}`)),
	} {
		if err == nil || !strings.Contains(err.Error(), "failed calling webhook") {
			t.Errorf("%s: %v", what, err)
		}
	}
	deployment := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte("{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: "+ns+", name: web}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: a, image: a}]}}}}"), &deployment.Object); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"a label", func() error { return a.client.Patch(ctx, web, merge(`{"metadata":{"labels":{"a":"b"}}}`)) }},
		{"a status", func() error {
			return a.client.Status().Patch(ctx, web, merge(`{"status":{"phase":"Progressing","currentStepIndex":1,"currentStepState":"StepPaused"}}`))
		}},
		{"a deletion", func() error { return a.client.Delete(ctx, web) }},
		{"a finalizer", func() error { return a.client.Patch(ctx, web, merge(`{"metadata":{"finalizers":null}}`)) }},
		{"a ConfigMap", func() error { return a.client.Create(ctx, &corev1.ConfigMap{ObjectMeta: named(ns, "a")}) }},
		{"a Deployment", func() error { return a.client.Create(ctx, deployment) }},
		{"its template", func() error {
			return a.client.Patch(ctx, deployment, merge(`{"spec":{"template":{"metadata":{"labels":{"c":"d"}}}}}`))
		}},
	} {
		if err := step.do(); err != nil {
			t.Errorf("%s: %v", step.what, err)
		}
	}
	if err := a.client.Get(ctx, client.ObjectKeyFromObject(web), web); !apierrors.IsNotFound(err) {
		t.Errorf("it is still there: %v", err)
	}
}

// TestNoRolloutIsRefusedWhileCertificatesRotate writes all the time, as the authority goes over to another root.
func TestNoRolloutIsRefusedWhileCertificatesRotate(t *testing.T) {
	ns, ctx := namespace(t), t.Context()
	a := admits(t, nil)
	a.inForce(ns)
	writing, stop := context.WithCancel(ctx)
	var n atomic.Int64
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for ; writing.Err() == nil; n.Add(1) {
			if err := a.client.Create(ctx, rolloutOf(ns, "web", "web", "replicas: 1"), client.DryRunAll); err != nil {
				failed <- fmt.Errorf("write %d: %w", n.Load(), err)
				return
			}
		}
	}()
	written := func() {
		t.Helper()
		before := n.Load()
		if err := within(ctx, func() error {
			if n.Load() < before+2 && len(failed) == 0 {
				return errors.New("nothing is written")
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	next, err := identity.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	former := a.roots.get()
	// Both roots are trusted, then the next one signs, then the former one is forgotten. The API server makes a connection of
	// its own for each bundle.
	written()
	a.trust(former + string(next.Bundle()))
	written()
	a.certificate.Use(next)
	a.trust(string(next.Bundle()) + former)
	written()
	a.trust(string(next.Bundle()))
	written()
	stop()
	if err := <-failed; err != nil {
		t.Error(err)
	}
	// The test sees a failure: a certificate of a root that is not trusted.
	stranger, err := identity.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	a.trust(string(stranger.Bundle()))
	err = within(ctx, func() error {
		err := a.client.Create(ctx, rolloutOf(ns, "last", "web", "replicas: 1"), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "certificate signed by unknown authority") {
			return fmt.Errorf("with the wrong root: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// trust has the API server trust a bundle, and waits until it does: it takes changes of configurations in their order, so
// that one is in force when a later one is, by which it would warn of a ConfigMap.
func (a *admitted) trust(bundle string) {
	a.t.Helper()
	a.roots.set(bundle)
	a.changed <- struct{}{}
	a.bundled()
	a.mark()
}

// mark waits until the API server knows all configurations that are written.
func (a *admitted) mark() {
	a.t.Helper()
	u := hooked("ValidatingWebhookConfiguration", fmt.Sprintf("mark-%d", time.Now().UnixNano()))
	u.Object["webhooks"] = []any{map[string]any{
		"name": "mark.weirmesh.github.io", "admissionReviewVersions": []any{"v1"}, "sideEffects": "None", "failurePolicy": "Fail", "timeoutSeconds": int64(1),
		"clientConfig":      map[string]any{"url": "https://127.0.0.1:1/" + u.GetName()},
		"namespaceSelector": map[string]any{"matchLabels": map[string]any{"kubernetes.io/metadata.name": own}},
		"rules":             []any{map[string]any{"apiGroups": []any{""}, "apiVersions": []any{"v1"}, "operations": []any{"CREATE"}, "resources": []any{"configmaps"}}},
	}}
	if err := admin.Create(a.t.Context(), u); err != nil {
		a.t.Fatal(err)
	}
	defer func() {
		if err := admin.Delete(context.Background(), u); err != nil {
			a.t.Error(err)
		}
	}()
	err := within(a.t.Context(), func() error {
		err := admin.Create(a.t.Context(), &corev1.ConfigMap{ObjectMeta: named(own, "mark")}, client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), u.GetName()) {
			return fmt.Errorf("the mark is not in force: %v", err)
		}
		return nil
	})
	if err != nil {
		a.t.Fatal(err)
	}
}

// besideOpenKruise holds that something becomes so when OpenKruise's own controller of Rollouts comes, and when it is gone.
func besideOpenKruise(t *testing.T, becomes func(there bool) error) {
	t.Helper()
	yes := true
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: named("", "batchreleases."+rollouts.Group), Spec: apiextensionsv1.CustomResourceDefinitionSpec{
		Group: rollouts.Group, Scope: apiextensionsv1.NamespaceScoped,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "BatchRelease", ListKind: "BatchReleaseList", Plural: "batchreleases", Singular: "batchrelease"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1beta1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
			OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes},
		}}},
	}}
	create(t, crd)
	if err := within(t.Context(), func() error { return becomes(true) }); err != nil {
		t.Error(err)
	}
	if err := admin.Delete(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	if err := within(t.Context(), func() error { return becomes(false) }); err != nil {
		t.Fatal(err)
	}
}

// TestWorkloadsAreHeldAsTheyAreStored has a user who applies Deployments that Rollouts release; then the controller goes away.
func TestWorkloadsAreHeldAsTheyAreStored(t *testing.T) {
	ns, ctx := namespace(t), t.Context()
	a := admits(t, nil)
	a.inForce(ns)
	deployment := func(name string) *unstructured.Unstructured {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte("{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: "+ns+", name: "+name+"}, spec: {replicas: 2, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b, v: '1'}}, spec: {containers: [{name: a, image: a}]}}}}"), &u.Object); err != nil {
			t.Fatal(err)
		}
		return u
	}
	web, free := deployment("web"), deployment("free")
	create(t, web, free)
	if err := a.client.Create(ctx, rolloutOf(ns, "web", "web", "replicas: 2")); err != nil {
		t.Fatal(err)
	}
	paused := func(u *unstructured.Unstructured) bool {
		p, _, _ := unstructured.NestedBool(u.Object, "spec", "paused")
		return p
	}
	label := workload.HeldLabel
	const next = `{"spec":{"template":{"metadata":{"labels":{"v":"2"}}}}}`
	err := within(ctx, func() error { // the Rollout is known, and the webhook in force
		u := web.DeepCopy()
		if err := a.client.Patch(ctx, u, merge(next), client.DryRunAll); err != nil || !paused(u) {
			return fmt.Errorf("not held: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	besideOpenKruise(t, func(there bool) error {
		u := web.DeepCopy()
		if err := a.client.Patch(ctx, u, merge(next), client.DryRunAll); err != nil || paused(u) == there {
			return fmt.Errorf("held: %t, though OpenKruise is there: %t, %v", paused(u), there, err)
		}
		return nil
	})
	patch := func(c client.Client, u *unstructured.Unstructured, text string) error {
		return c.Patch(ctx, u, merge(text))
	}
	if err := patch(a.client, web, `{"spec":{"replicas":3}}`); err != nil || paused(web) {
		t.Errorf("another field: paused %t, %v", paused(web), err)
	}
	if err := patch(a.client, free, next); err != nil || paused(free) {
		t.Errorf("one that no Rollout names: paused %t, %v", paused(free), err)
	}
	// The generation says that the template was never stored without the hold.
	before := web.GetGeneration()
	if err := patch(a.client, web, next); err != nil || !paused(web) || web.GetLabels()[label] != "unpaused" || web.GetGeneration() != before+1 {
		t.Errorf("a new template: paused %t, labels %v, generation %d after %d, %v", paused(web), web.GetLabels(), web.GetGeneration(), before, err)
	}
	a.take()
	if err := patch(a.client, web, `{"metadata":{"labels":{"`+label+`":null}},"spec":{"paused":false}}`); err != nil || !paused(web) || web.GetLabels()[label] != "unpaused" {
		t.Errorf("resumed midway: paused %t, labels %v, %v", paused(web), web.GetLabels(), err)
	}
	if w := a.take(); len(w) != 1 || !strings.Contains(w[0], "Deployment "+ns+"/web stays held while Rollout "+ns+"/web releases it") {
		t.Errorf("warnings %q", w)
	}
	// As the controller leaves it once it has taken the Deployment over.
	const over = `{"metadata":{"labels":{"rollouts.weirmesh.github.io/held":"true"}},"spec":{"paused":true,"strategy":{"type":"Recreate","rollingUpdate":null}}}`
	ours, err := client.New(asController(t), client.Options{Scheme: kube.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	applyManifests(t, "deploy/manifests/install-rollouts.yaml", func(u *unstructured.Unstructured) bool {
		return strings.HasPrefix(u.GetKind(), "ValidatingAdmissionPolicy") && u.GetName() == "weir-controller-held" || u.GroupVersionKind().Group == "rbac.authorization.k8s.io"
	})
	if err := patch(ours, web, over); err != nil {
		t.Fatal(err)
	}

	// The controller is away: what is held stays so, and all else is stored.
	a.stop()
	err = within(ctx, func() error {
		err := a.client.Patch(ctx, web.DeepCopy(), merge(`{"spec":{"paused":false}}`), client.DryRunAll)
		if !denied(err) || !strings.Contains(err.Error(), "spec.paused: a Rollout holds this Deployment") {
			return fmt.Errorf("resumed while held: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"resumed by removing the field": `{"spec":{"paused":null}}`, "resumed with the label off": `{"metadata":{"labels":{"` + label + `":null}},"spec":{"paused":false}}`,
	} {
		if err := patch(a.client, web.DeepCopy(), text); !denied(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := patch(a.client, web, `{"spec":{"template":{"metadata":{"labels":{"v":"3"}}}}}`); err != nil || !paused(web) {
		t.Errorf("another template while held: %v", err)
	}
	if err := patch(a.client, free, `{"spec":{"template":{"metadata":{"labels":{"v":"3"}}}}}`); err != nil {
		t.Errorf("another Deployment: %v", err)
	}
	if err := a.client.Patch(ctx, web.DeepCopy(), merge(`{"spec":{"paused":false,"strategy":{"type":"RollingUpdate"}}}`), client.DryRunAll); err != nil {
		t.Errorf("resumed with a strategy of its own: %v", err)
	}
	// The controller lets go, of a user's Recreate, too.
	if err := patch(ours, web, `{"metadata":{"labels":{"`+label+`":null}},"spec":{"paused":null}}`); err != nil || paused(web) {
		t.Errorf("let go by the controller: %v", err)
	}
}
