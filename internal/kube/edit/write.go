package edit

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner is the manager of the fields that are changed.
var fieldOwner = client.FieldOwner("weir-rollouts")

func keyOf(u *unstructured.Unstructured) Key {
	return Key{u.GroupVersionKind(), u.GetNamespace(), u.GetName()}
}

// Update writes an object at the version that it has, and returns what became of it. If somebody else was faster, the error
// is a conflict (IsConflict).
func (o *Objects) Update(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return o.write(u, func(out *unstructured.Unstructured) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return o.client.Update(ctx, out, fieldOwner)
	})
}

// UpdateStatus writes the status of an object at the version that it has.
func (o *Objects) UpdateStatus(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	return o.write(u, func(out *unstructured.Unstructured) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return o.client.Status().Update(ctx, out, fieldOwner)
	})
}

// Create makes an object. If there is one already, the error says so (IsAlreadyExists); no request is sent for one that was
// made here just now, and that the cache may not have yet.
func (o *Objects) Create(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
	if k := keyOf(u); o.made(k) {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Group: k.Group, Resource: k.Kind}, k.Name)
	}
	return o.write(u, func(out *unstructured.Unstructured) error {
		ctx, cancel := context.WithTimeout(ctx, timeout)
		defer cancel()
		return o.client.Create(ctx, out, fieldOwner)
	})
}

func (o *Objects) write(u *unstructured.Unstructured, do func(*unstructured.Unstructured) error) (*unstructured.Unstructured, error) {
	out := u.DeepCopy()
	if err := do(out); err != nil {
		return nil, err
	}
	out.SetManagedFields(nil)
	o.keep(keyOf(out), out, string(out.GetUID()))
	return out, nil
}

// Delete deletes this very object, and not one that has come into its place. That it is gone is no error.
func (o *Objects) Delete(ctx context.Context, u *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	uid := u.GetUID()
	err := o.client.Delete(ctx, u.DeepCopy(), client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	o.keep(keyOf(u), nil, string(uid))
	return nil
}

// Scale says how many pods a ReplicaSet is to have, and removes an annotation from it.
func (o *Objects) Scale(ctx context.Context, rs *appsv1.ReplicaSet, replicas int32, annotation string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	out := rs.DeepCopy()
	out.Spec.Replicas = &replicas
	delete(out.Annotations, annotation)
	patch := client.MergeFromWithOptions(rs, client.MergeFromWithOptimisticLock{})
	if err := o.client.Patch(ctx, out, patch, fieldOwner); err != nil {
		return err
	}
	out.SetManagedFields(nil)
	o.keep(Key{appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), rs.Namespace, rs.Name}, out, string(rs.UID))
	return nil
}

// Evict asks for a pod to be replaced. A PodDisruptionBudget may forbid it for now (IsTooManyRequests). That the pod is gone
// is no error.
func (o *Objects) Evict(ctx context.Context, pod *corev1.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	uid := pod.UID
	err := o.client.SubResource("eviction").Create(ctx, pod.DeepCopy(), &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}},
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	o.keep(Key{corev1.SchemeGroupVersion.WithKind("Pod"), pod.Namespace, pod.Name}, nil, string(uid))
	return nil
}

// GVK of an object that is named by group, version and kind.
func GVK(group, version, kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
}
