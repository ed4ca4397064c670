package rollouts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"strconv"
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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/rollout/provider"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

// kruise is OpenKruise's controller of the workload of a world, as far as a release meets it: it makes, replaces and counts
// pods, one thing at a time, as partitions say (pkg/controller/{cloneset,statefulset,daemonset} of openkruise/kruise).
type kruise struct {
	*world
	pods []*corev1.Pod
	u    *unstructured.Unstructured
}

// nodes is how many pods a DaemonSet has.
const nodes = 3

const kruiseGroup = "apps.kruise.io"

// releaseHeld changes the image as the webhook of workloads has it stored. Without that webhook these workloads could replace all pods
// before Weir's controller, which is killed again and again, has held them.
func (w *world) releaseHeld(image string) {
	w.Helper()
	kind, ok := workload.For(rollouts.Ref{APIVersion: w.kind.GroupVersion().String(), Kind: w.kind.Kind, Name: "web"})
	if !ok {
		w.Fatalf("%v is not released", w.kind)
	}
	err := within(w.Context(), func() error {
		u, err := w.get(w.kind)
		if err != nil {
			return err
		}
		r, err := w.get(rolloutKind)
		if err != nil {
			return err
		}
		record, _ := workload.ReadRecord(r.GetAnnotations()[workload.RecordAnnotation])
		before := u.DeepCopy()
		containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
		containers[0].(map[string]any)["image"] = image
		if err := unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", "containers"); err != nil {
			return err
		}
		if held := kind.Admit(before.Object, u.Object, record); held != nil {
			u.Object = held
		}
		return admin.Update(w.Context(), u)
	})
	if err != nil {
		w.Fatal(err)
	}
}

// runs has it run for the time of a test.
func (w *world) runs() {
	ctx, cancel := context.WithCancel(context.Background())
	var ended sync.WaitGroup
	ended.Go(func() {
		for ctx.Err() == nil {
			k := &kruise{world: w}
			if err := k.step(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
				fmt.Fprintln(os.Stderr, "kruise:", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	w.Cleanup(func() { cancel(); ended.Wait() })
}

func (k *kruise) step(ctx context.Context) error {
	k.u = &unstructured.Unstructured{}
	k.u.SetGroupVersionKind(k.kind)
	if err := admin.Get(ctx, client.ObjectKey{Namespace: k.namespace, Name: "web"}, k.u); err != nil {
		return client.IgnoreNotFound(err)
	}
	var list corev1.PodList
	if err := admin.List(ctx, &list, client.InNamespace(k.namespace)); err != nil {
		return err
	}
	taken := map[int]bool{}
	for i := range list.Items {
		taken[number(&list.Items[i])] = true
		if p := &list.Items[i]; p.DeletionTimestamp == nil {
			k.pods = append(k.pods, p)
		}
	}
	slices.SortFunc(k.pods, func(a, b *corev1.Pod) int { return number(a) - number(b) })
	template, _, _ := unstructured.NestedMap(k.u.Object, "spec", "template")
	text, err := json.Marshal(template)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	newest := hex.EncodeToString(sum[:5])
	daemon := k.kind.Kind == "DaemonSet"
	current, _, _ := unstructured.NestedString(k.u.Object, "status", "currentRevision")
	if current = strings.TrimPrefix(current, "web-"); current == "" {
		current = newest
	}
	replicas, _, _ := unstructured.NestedInt64(k.u.Object, "spec", "replicas")
	if daemon {
		if replicas, err = nodes, k.revision(ctx, newest); err != nil {
			return err
		}
	}
	ready, older := true, 0
	for _, p := range k.pods {
		ready = ready && p.Status.Phase == corev1.PodRunning
		if p.Labels["pod-template-hash"] != newest {
			older++
		}
	}
	if ready && older == 0 && len(k.pods) == int(replicas) {
		current = newest
	}
	status := map[string]any{"observedGeneration": k.u.GetGeneration(), "updateRevision": "web-" + newest, "currentRevision": "web-" + current}
	if daemon {
		status = map[string]any{"observedGeneration": k.u.GetGeneration(), "desiredNumberScheduled": replicas}
	}
	if text, now := fmt.Sprint(status), fmt.Sprint(k.u.Object["status"]); text != now {
		k.u.Object["status"] = status
		return admin.Status().Update(ctx, k.u)
	}
	partition, paused := k.partition(int(replicas))
	if len(k.pods) < int(replicas) {
		revision, n := newest, 0
		if !daemon && older < partition {
			revision = current
		}
		for taken[n] {
			n++
		}
		return k.create(ctx, revision, n)
	}
	if paused || !ready || older <= partition {
		return nil
	}
	for _, p := range slices.Backward(k.pods) {
		if p.Labels["pod-template-hash"] != newest {
			return client.IgnoreNotFound(admin.Delete(ctx, p, client.Preconditions{UID: &p.UID}))
		}
	}
	return nil
}

// partition is how many pods keep an older revision.
func (k *kruise) partition(replicas int) (n int, paused bool) {
	of := []string{"spec", "updateStrategy"}
	if k.kind.Kind != "CloneSet" {
		of = append(of, "rollingUpdate")
	}
	v, _, _ := unstructured.NestedFieldNoCopy(k.u.Object, append(slices.Clone(of), "partition")...)
	paused, _, _ = unstructured.NestedBool(k.u.Object, append(of, "paused")...)
	switch v := v.(type) {
	case int64:
		n = int(v)
	case string:
		share, _ := strconv.Atoi(strings.TrimSuffix(v, "%"))
		n = (replicas*share + 99) / 100
	}
	return n, paused
}

func (k *kruise) owner() []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: k.kind.GroupVersion().String(), Kind: k.kind.Kind, Name: "web", UID: k.u.GetUID(), Controller: &yes}}
}

// revision makes the ControllerRevision of a DaemonSet's template, or makes it the newest one.
func (k *kruise) revision(ctx context.Context, newest string) error {
	var list appsv1.ControllerRevisionList
	if err := admin.List(ctx, &list, client.InNamespace(k.namespace)); err != nil {
		return err
	}
	var mine *appsv1.ControllerRevision
	last := int64(0)
	for i := range list.Items {
		last = max(last, list.Items[i].Revision)
		if list.Items[i].Name == "web-"+newest {
			mine = &list.Items[i]
		}
	}
	switch {
	case mine == nil:
		mine = &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: "web-" + newest, OwnerReferences: k.owner(), Labels: map[string]string{"controller-revision-hash": newest}}, Revision: last + 1, Data: runtime.RawExtension{Raw: []byte(`{}`)}}
		return admin.Create(ctx, mine)
	case mine.Revision < last:
		mine.Revision = last + 1
		return admin.Update(ctx, mine)
	}
	return nil
}

// create makes a pod of a revision, whose image tests tell by the revision of a pod that has it, or by the template.
func (k *kruise) create(ctx context.Context, revision string, n int) error {
	image, _, _ := unstructured.NestedSlice(k.u.Object, "spec", "template", "spec", "containers")
	name, _ := image[0].(map[string]any)["image"].(string)
	for _, p := range k.pods {
		if p.Labels["pod-template-hash"] == revision {
			name = p.Spec.Containers[0].Image
		}
	}
	hash := revision
	if k.kind.Kind != "DaemonSet" {
		hash = "web-" + revision
	}
	grace := int64(1)
	return admin.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: fmt.Sprint("web-", n), OwnerReferences: k.owner(), Labels: map[string]string{"app": "web", "controller-revision-hash": hash, "pod-template-hash": revision}},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "c", Image: name}}},
	})
}

func number(p *corev1.Pod) int {
	n, _ := strconv.Atoi(p.Name[strings.LastIndexByte(p.Name, '-')+1:])
	return n
}

// define installs a definition of a kind of OpenKruise, which takes any fields, and waits until it is served.
func define(t *testing.T, kind schema.GroupVersionKind, plural string) {
	t.Helper()
	yes := true
	any := apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &yes}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + kind.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: kind.Group, Scope: apiextensionsv1.NamespaceScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: kind.Kind, Plural: plural, ListKind: kind.Kind + "List"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: kind.Version, Served: true, Storage: true, Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": any, "status": any}}},
			}},
		},
	}
	if err := admin.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	err := within(t.Context(), func() error {
		kinds, err := admin.Serves(t.Context(), kind.Group)
		if err == nil && !kinds[kind.Kind] {
			err = errors.New("it is not served yet")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// asked counts the requests of a controller.
type asked struct {
	to       http.RoundTripper
	requests atomic.Int64
}

func (a *asked) RoundTrip(r *http.Request) (*http.Response, error) {
	a.requests.Add(1)
	return a.to.RoundTrip(r)
}

// TestWorkloadsOfOpenKruiseAreReleased: a cluster without their definitions works as before, definitions that come later are
// found, and releases go on where a controller was killed.
func TestWorkloadsOfOpenKruiseAreReleased(t *testing.T) {
	t.Parallel()
	kinds := []struct{ kind, plural, spec string }{
		{"CloneSet.v1alpha1.apps.kruise.io", "clonesets", "replicas: 3\n  updateStrategy: {type: InPlaceIfPossible, maxUnavailable: 1}"},
		{"StatefulSet.v1beta1.apps.kruise.io", "statefulsets", "replicas: 3\n  updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}"},
		{"DaemonSet.v1alpha1.apps.kruise.io", "daemonsets", "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1}}"},
	}
	const steps = "{canary: {" + route + ", steps: [{traffic: 30%, replicas: 1}, {traffic: 60%, replicas: 2}]}}"

	defined := func() {
		for _, k := range kinds {
			kind, _ := schema.ParseKindArg(k.kind)
			define(t, *kind, k.plural)
		}
	}
	if testing.Short() {
		kinds = kinds[:1]
		defined()
	} else {
		areFoundLater(t, defined)
	}
	for i, k := range kinds {
		t.Run(k.kind, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, k.kind, k.spec, steps)
			w.runs()
			w.settled("v1")
			before := w.written()
			c := w.start(uint64(i), true)
			defer func() {
				c.stop()
				kills := 0
				for _, n := range c.killed {
					kills += n
				}
				if t.Logf("%d writes, killed: %v", c.writes, c.killed); kills < 5 {
					t.Errorf("%d kills are too few to say anything", kills)
				}
			}()
			w.passes(before, 2)
			if testing.Short() {
				return
			}

			w.release("v3")
			w.until(rollouts.PhaseProgressing, 1)
			w.release("v4")
			w.until(rollouts.PhaseProgressing, 1)
			w.remove(before, "v4")
		})
	}
}

// areFoundLater has a cluster without definitions work as before, and a Rollout that names a kind of theirs go on once they are there.
func areFoundLater(t *testing.T, defined func()) {
	t.Helper()
	w := newWorld(t, "Deployment", "replicas: 1", "{canary: {steps: [{replicas: 100%}]}}")
	w.settled("v1")
	early := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "rollouts.kruise.io/v1beta1", "kind": "Rollout", "metadata": map[string]any{"namespace": w.namespace, "name": "early"},
		"spec": map[string]any{
			"workloadRef": map[string]any{"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "early"},
			"strategy":    map[string]any{"canary": map[string]any{"steps": []any{map[string]any{"replicas": int64(1)}}}},
		},
	}}
	if err := admin.Create(t.Context(), early); err != nil {
		t.Fatal(err)
	}
	says := func(want string) {
		t.Helper()
		err := within(t.Context(), func() error {
			if err := admin.Get(t.Context(), client.ObjectKeyFromObject(early), early); err != nil {
				return err
			}
			if got, _, _ := unstructured.NestedString(early.Object, "status", "message"); got != want {
				return fmt.Errorf("the Rollout says %q, want %q", got, want)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	count := &asked{}
	carry := w.carry(count)
	says("There is no CloneSet early.")
	before := count.requests.Load()
	w.until(rollouts.PhaseHealthy, 0)
	w.release("v2")
	w.until(rollouts.PhaseHealthy, 0)
	w.settled("v2")
	if n := count.requests.Load() - before; n > 150 { // a release takes some 40
		t.Errorf("%d requests for one release of a Deployment beside a kind that is not there", n)
	}
	defined()
	set := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "metadata": map[string]any{"namespace": w.namespace, "name": "early"},
		"spec": map[string]any{"replicas": int64(0), "template": map[string]any{}, "updateStrategy": map[string]any{}},
	}}
	if err := admin.Create(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	set.Object["status"] = map[string]any{"observedGeneration": int64(1), "updateRevision": "early-a", "currentRevision": "early-a"}
	if err := admin.Status().Update(t.Context(), set); err != nil {
		t.Fatal(err)
	}
	says("There is nothing to release.")
	carry()
}

// carry has one controller carry Rollouts out until the function that it returns is called.
func (w *world) carry(through *asked) (end func()) {
	ctx, cancel := context.WithCancel(context.Background())
	of := config()
	of.Wrap(func(to http.RoundTripper) http.RoundTripper { through.to = to; return through })
	c, err := kube.NewClient(of)
	if err != nil {
		w.Fatal(err)
	}
	var ended sync.WaitGroup
	carrier := &release.Controller{Client: c, Namespaces: []string{w.namespace}, Providers: provider.All(), Instance: "test", Logger: slog.New(slog.DiscardHandler)}
	ended.Go(func() {
		if err := carrier.Run(ctx); err != nil {
			w.Error(err)
		}
	})
	end = sync.OnceFunc(func() { cancel(); ended.Wait(); c.Close() })
	w.Cleanup(end)
	return end
}
