package release

import (
	"context"
	"fmt"
	"reflect"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube/edit"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

// specs are how the specs of workloads begin, by their kind.
var specs = map[string]string{
	"Deployment":  "replicas: 4\n  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}",
	"StatefulSet": "replicas: 4\n  updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0}}",
	"DaemonSet":   "updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 2}}",
}

// nodes is how many pods a DaemonSet has.
const nodes = 4

// release gives the workload another image, and holds it, as the admission webhook does.
func (c *toy) release(image string) {
	c.Helper()
	kind, _ := workload.Fixed().For(rollouts.Ref{APIVersion: c.kind.GroupVersion().String(), Kind: c.kind.Kind})
	record, err := workload.ReadRecord(c.objects[c.key(rolloutKind)].GetAnnotations()[workload.RecordAnnotation])
	if err != nil {
		c.Fatal(err)
	}
	c.edit(c.kind, func(u *unstructured.Unstructured) {
		before := c.objects[c.key(c.kind)].DeepCopy()
		if setImage(u, image); kind.Admit(before.Object, u.Object, record) != nil {
			u.Object = kind.Admit(before.Object, u.Object, record)
		}
	})
}

// replacePods is what the own controller of a StatefulSet or a DaemonSet does until nothing is left to do: pods are ready at once.
func (c *toy) replacePods(u *unstructured.Unstructured) {
	newest := imageOf(u)
	status := map[string]any{"observedGeneration": u.GetGeneration()}
	spec, _, _ := unstructured.NestedMap(u.Object, "spec")
	partition, _, _ := unstructured.NestedInt64(spec, "updateStrategy", "rollingUpdate", "partition")
	how, _, _ := unstructured.NestedString(spec, "updateStrategy", "type")
	current, n := newest, int64(nodes)
	if c.kind.Kind == "StatefulSet" {
		if last, _, _ := unstructured.NestedString(u.Object, "status", "currentRevision"); last != "" {
			current = last
		}
		n, _, _ = unstructured.NestedInt64(spec, "replicas")
	} else {
		c.revise(u, newest)
		status["desiredNumberScheduled"], partition = n, 0
	}
	all := true
	for i := n - 1; i >= 0; i-- {
		key := edit.Key{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: "default", Name: fmt.Sprint("web-", i)}
		pod := c.objects[key]
		if pod == nil || how == "RollingUpdate" && i >= partition && pod.GetLabels()[appsv1.ControllerRevisionHashLabelKey] != newest {
			revision := newest
			if i < partition {
				revision = current
			}
			pod = c.pod(u, key, revision)
			c.put(pod)
		}
		all = all && pod.GetLabels()[appsv1.ControllerRevisionHashLabelKey] == newest
	}
	if all {
		current = newest
	}
	if c.kind.Kind == "StatefulSet" {
		status["updateRevision"], status["currentRevision"] = newest, current
	}
	if was, _, _ := unstructured.NestedMap(u.Object, "status"); !reflect.DeepEqual(was, status) {
		u = u.DeepCopy()
		u.Object["status"] = status
		c.put(u)
	}
}

// pod is one of a workload, of a revision.
func (c *toy) pod(of *unstructured.Unstructured, key edit.Key, revision string) *unstructured.Unstructured {
	p := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"conditions": []any{map[string]any{"type": "Ready", "status": "True"}}}}}
	p.SetGroupVersionKind(key.GroupVersionKind)
	p.SetNamespace(key.Namespace)
	p.SetName(key.Name)
	p.SetUID(types.UID(fmt.Sprint("p", c.version)))
	p.SetLabels(map[string]string{"app": "web", appsv1.ControllerRevisionHashLabelKey: revision})
	c.own(of, p)
	return p
}

func (c *toy) own(of, u *unstructured.Unstructured) {
	yes := true
	u.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "apps/v1", Kind: of.GetKind(), Name: "web", UID: of.GetUID(), Controller: &yes}})
}

// revise makes the ControllerRevision of an image the newest one.
func (c *toy) revise(of *unstructured.Unstructured, image string) {
	key := edit.Key{GroupVersionKind: appsv1.SchemeGroupVersion.WithKind("ControllerRevision"), Namespace: "default", Name: "web-" + image}
	newest := int64(0)
	for k, u := range c.objects {
		if k.Kind == key.Kind {
			n, _, _ := unstructured.NestedInt64(u.Object, "revision")
			newest = max(newest, n)
		}
	}
	if old := c.objects[key]; old != nil {
		if n, _, _ := unstructured.NestedInt64(old.Object, "revision"); n == newest {
			return
		}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"revision": newest + 1}}
	u.SetGroupVersionKind(key.GroupVersionKind)
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	u.SetLabels(map[string]string{appsv1.ControllerRevisionHashLabelKey: image})
	c.own(of, u)
	c.put(u)
}

// endpoints are those of the pods that a Service selects.
func (c *toy) endpoints(service *unstructured.Unstructured) discoveryv1.EndpointSlice {
	slice := discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Name: service.GetName(), Namespace: "default"}}
	selector, _, _ := unstructured.NestedStringMap(service.Object, "spec", "selector")
	for k, u := range c.objects {
		if k.Kind != "ReplicaSet" && k.Kind != "Pod" || !labels.SelectorFromSet(selector).Matches(labels.Set(u.GetLabels())) {
			continue
		}
		n := int64(1)
		if k.Kind == "ReplicaSet" {
			n, _, _ = unstructured.NestedInt64(u.Object, "status", "availableReplicas")
		}
		for i := range n {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprint(k.Name, "-", i, u.GetUID())}})
		}
	}
	return slice
}

func (c *toy) Owned(_ context.Context, exemplar client.Object, _, uid string, into client.ObjectList) error {
	kind := map[reflect.Type]string{
		reflect.TypeFor[*appsv1.ReplicaSet](): "ReplicaSet", reflect.TypeFor[*appsv1.ControllerRevision](): "ControllerRevision", reflect.TypeFor[*corev1.Pod](): "Pod",
	}[reflect.TypeOf(exemplar)]
	var items []any
	for k, u := range c.objects {
		if ref := metav1.GetControllerOfNoCopy(u); k.Kind == kind && ref != nil && string(ref.UID) == uid {
			items = append(items, u.Object)
		}
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"items": items}, into)
}

func (c *toy) Evict(_ context.Context, p *corev1.Pod) error {
	return c.write("evict", func() error {
		key := edit.Key{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"), Namespace: p.Namespace, Name: p.Name}
		if now := c.objects[key]; now == nil || now.GetUID() != p.UID {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, p.Name)
		}
		delete(c.objects, key)
		return nil
	})
}
