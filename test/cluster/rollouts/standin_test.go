package rollouts

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

// standIn is the own controller of the workload of a world, one of OpenKruise's or of a kind that is named, as far as a release
// meets it: it makes, replaces and counts pods, one thing at a time, as partitions say (for OpenKruise's
// pkg/controller/{cloneset,statefulset,daemonset} of openkruise/kruise).
type standIn struct {
	*world
	pods []*corev1.Pod
	u    *unstructured.Unstructured
}

// nodes is how many pods a DaemonSet has.
const nodes = 3

// releaseHeld changes the image as the webhook of workloads has it stored. Without that webhook these workloads could replace all pods
// before Weir's controller, which is killed again and again, has held them.
func (w *world) releaseHeld(image string) {
	w.Helper()
	kind, ok := released.For(rollouts.Ref{APIVersion: w.kind.GroupVersion().String(), Kind: w.kind.Kind, Name: "web"})
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
			k := &standIn{world: w}
			if err := k.step(ctx); err != nil && ctx.Err() == nil && !apierrors.IsConflict(err) && !apierrors.IsAlreadyExists(err) {
				fmt.Fprintln(os.Stderr, "stand-in:", err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(50 * time.Millisecond):
			}
		}
	})
	w.Cleanup(func() { cancel(); ended.Wait() })
}

func (k *standIn) step(ctx context.Context) error {
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
		replicas = nodes
	}
	if daemon || k.custom() {
		if err := k.revision(ctx, newest, template); err != nil {
			return err
		}
	}
	ready, older := true, 0
	for _, p := range k.pods {
		ready = ready && p.Status.Phase == corev1.PodRunning
		if k.of(p) != newest {
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
	if !k.custom() { // whose controller goes by no numbers
		slices.Reverse(k.pods)
	}
	for _, p := range k.pods {
		if k.of(p) != newest {
			return client.IgnoreNotFound(admin.Delete(ctx, p, client.Preconditions{UID: &p.UID}))
		}
	}
	return nil
}

// custom reports whether the kind is one that is named.
func (k *standIn) custom() bool { return k.kind.Group == gamesGroup }

// of is the revision of a pod.
func (k *standIn) of(p *corev1.Pod) string {
	if k.custom() {
		return p.Labels[gamesLabel]
	}
	return p.Labels["pod-template-hash"]
}

// partition is how many pods keep an older revision.
func (k *standIn) partition(replicas int) (n int, paused bool) {
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

func (k *standIn) owner() []metav1.OwnerReference {
	yes := true
	return []metav1.OwnerReference{{APIVersion: k.kind.GroupVersion().String(), Kind: k.kind.Kind, Name: "web", UID: k.u.GetUID(), Controller: &yes}}
}

// revision makes the ControllerRevision of a template, or makes it the newest one.
func (k *standIn) revision(ctx context.Context, newest string, template map[string]any) error {
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
		data, err := json.Marshal(map[string]any{"spec": map[string]any{"template": template}})
		if err != nil {
			return err
		}
		mine = &appsv1.ControllerRevision{ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: "web-" + newest, OwnerReferences: k.owner(), Labels: map[string]string{"app": "web", "controller-revision-hash": newest}}, Revision: last + 1, Data: runtime.RawExtension{Raw: data}}
		return admin.Create(ctx, mine)
	case mine.Revision < last:
		mine.Revision = last + 1
		return admin.Update(ctx, mine)
	}
	return nil
}

// create makes a pod of a revision, whose image tests tell by the revision of a pod that has it, or by the template.
func (k *standIn) create(ctx context.Context, revision string, n int) error {
	image, _, _ := unstructured.NestedSlice(k.u.Object, "spec", "template", "spec", "containers")
	name, _ := image[0].(map[string]any)["image"].(string)
	for _, p := range k.pods {
		if k.of(p) == revision {
			name = p.Spec.Containers[0].Image
		}
	}
	labels := map[string]string{"app": "web", "controller-revision-hash": "web-" + revision, "pod-template-hash": revision}
	pod := fmt.Sprint("web-", n)
	switch {
	case k.custom():
		labels = map[string]string{"app": "web", gamesLabel: revision}
		pod = fmt.Sprint("web-", string(rune('a'+n)))
	case k.kind.Kind == "DaemonSet":
		labels["controller-revision-hash"] = revision
	}
	grace := int64(1)
	return admin.Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.namespace, Name: pod, OwnerReferences: k.owner(), Labels: labels},
		Spec:       corev1.PodSpec{TerminationGracePeriodSeconds: &grace, Containers: []corev1.Container{{Name: "c", Image: name}}},
	})
}

// number is that of a pod among those of its workload.
func number(p *corev1.Pod) int {
	last := p.Name[strings.LastIndexByte(p.Name, '-')+1:]
	if n, err := strconv.Atoi(last); err == nil {
		return n
	}
	return int(last[0] - 'a')
}
