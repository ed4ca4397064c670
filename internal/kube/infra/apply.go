package infra

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/weirmesh/weir/internal/model"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// kind is one of the kinds that Weir makes.
type kind struct {
	kind   string
	object func() client.Object
	list   func() client.ObjectList
}

var (
	deployments = kind{"Deployment", func() client.Object { return &appsv1.Deployment{} }, func() client.ObjectList { return &appsv1.DeploymentList{} }}
	services    = kind{"Service", func() client.Object { return &corev1.Service{} }, func() client.ObjectList { return &corev1.ServiceList{} }}

	kinds = []kind{
		deployments, services,
		{"PodDisruptionBudget", func() client.Object { return &policyv1.PodDisruptionBudget{} }, func() client.ObjectList { return &policyv1.PodDisruptionBudgetList{} }},
		{"ConfigMap", func() client.Object { return &corev1.ConfigMap{} }, func() client.ObjectList { return &corev1.ConfigMapList{} }},
		{"ServiceAccount", func() client.Object { return &corev1.ServiceAccount{} }, func() client.ObjectList { return &corev1.ServiceAccountList{} }},
	}
)

func metadataOf(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(gvk)
	return m
}

// identity is a kind and a name in the Gateway's namespace.
type identity struct{ kind, name string }

// ownerOf returns the reference to the Gateway that an object was made for, or nil.
func ownerOf(o client.Object) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(o)
	if ref == nil || ref.Kind != "Gateway" {
		return nil
	}
	if gv, err := schema.ParseGroupVersion(ref.APIVersion); err != nil || gv.Group != gatewayv1.GroupName {
		return nil
	}
	return ref
}

// fingerprint changes when the fields that Weir writes change; a status does not count.
func fingerprint(o client.Object) string {
	written := struct {
		Meta metav1.ObjectMeta
		Spec any
	}{Meta: metav1.ObjectMeta{
		UID: o.GetUID(), Labels: o.GetLabels(), Annotations: o.GetAnnotations(), OwnerReferences: o.GetOwnerReferences(),
		DeletionTimestamp: o.GetDeletionTimestamp(), Generation: o.GetGeneration(),
	}}
	if service := asService(o); service != nil {
		written.Spec = service.Spec // it has no generation
	}
	if written.Spec == nil && o.GetGeneration() == 0 {
		written.Meta.ResourceVersion = o.GetResourceVersion() // it has no status either
	}
	text, err := json.Marshal(written)
	if err != nil {
		panic(err) // plain data always marshals
	}
	return string(text)
}

func asService(o client.Object) *corev1.Service {
	if s, ok := o.(*corev1.Service); ok {
		return s
	}
	u, ok := o.(*unstructured.Unstructured)
	if !ok || u.GetKind() != "Service" {
		return nil
	}
	s := &corev1.Service{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, s); err != nil {
		return nil // it will look changed, and be applied once more
	}
	return s
}

// run is one application of a plan.
type run struct {
	*Applier
	plan            Plan
	namespace, name string
	left            map[identity]string
	problems        []ObjectProblem
}

// run applies every object, even if others fail, then deletes objects that are no longer wanted.
func (r *run) run(ctx context.Context) error {
	var failed []error
	for _, o := range r.plan.Objects {
		if err := r.applyObject(ctx, o); err != nil {
			failed = append(failed, err)
		}
	}
	if err := r.prune(ctx); err != nil {
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}

func (r *run) applyObject(ctx context.Context, wanted *unstructured.Unstructured) error {
	existing := metadataOf(wanted.GroupVersionKind())
	err := r.client.Get(ctx, client.ObjectKeyFromObject(wanted), existing)
	o := wanted.DeepCopy()
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return r.failed(wanted, err)
	case !sameGateway(existing, wanted):
		return r.problem(wanted, ObjectProblem{Foreign: true, Message: "an object of that name exists and does not belong to this Gateway"})
	case ownerOf(existing).UID != ownerOf(wanted).UID:
		return r.problem(wanted, ObjectProblem{Message: "it belongs to an earlier Gateway of the same name and is not removed yet"})
	default:
		o.SetUID(existing.UID) // another one in its place is refused
	}
	err = r.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(o), client.FieldOwner(FieldOwner), client.ForceOwnership)
	if err != nil {
		return r.failed(wanted, err)
	}
	r.left[identity{wanted.GetKind(), wanted.GetName()}] = fingerprint(o)
	return nil
}

func (r *run) failed(o *unstructured.Unstructured, err error) error {
	refused := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err)
	return r.problem(o, ObjectProblem{Refused: refused, Message: err.Error()})
}

func (r *run) problem(o *unstructured.Unstructured, p ObjectProblem) error {
	p.Kind, p.Name = o.GetKind(), o.GetName()
	r.problems = append(r.problems, p)
	return errors.New(p.String())
}

// sameGateway reports whether Weir created an existing object for a Gateway of the wanted object's name. The label may
// have been removed, but not Weir's ownership of fields.
func sameGateway(existing, wanted client.Object) bool {
	a, b := ownerOf(existing), ownerOf(wanted)
	return a != nil && b != nil && a.Name == b.Name && (existing.GetLabels()[labelManagedBy] == ManagedBy ||
		slices.ContainsFunc(existing.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool {
			return f.Manager == FieldOwner && f.Operation == metav1.ManagedFieldsOperationApply
		}))
}

// prune deletes objects that were created for this Gateway and are not wanted.
func (r *run) prune(ctx context.Context) error {
	wanted := map[identity]bool{}
	for _, o := range r.plan.Objects {
		wanted[identity{o.GetKind(), o.GetName()}] = true
	}
	var failed []error
	for _, k := range kinds {
		made, err := r.madeFor(ctx, k, r.namespace, r.name)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		for _, m := range made {
			if wanted[identity{k.kind, m.GetName()}] || m.GetDeletionTimestamp() != nil {
				continue
			}
			uid := m.GetUID()
			err := r.client.Delete(ctx, m, client.Preconditions{UID: &uid}, client.PropagationPolicy(metav1.DeletePropagationBackground))
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				failed = append(failed, fmt.Errorf("%s %s: %w", k.kind, m.GetName(), err))
			}
		}
	}
	return errors.Join(failed...)
}

// madeFor returns the cached objects of a kind that were created for a Gateway of that name.
func (a *Applier) madeFor(ctx context.Context, k kind, namespace, name string) ([]client.Object, error) {
	own := a.caches[""]
	if own == nil {
		own = a.caches[namespace]
	}
	if own == nil {
		return nil, fmt.Errorf("listing %s: namespace %s is not watched", k.kind, namespace)
	}
	list := k.list()
	err := own.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{gatewayv1.GatewayNameLabelKey: labelValue(name)})
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", k.kind, err)
	}
	var found []client.Object
	err = meta.EachListItem(list, func(item runtime.Object) error {
		o, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("listing %s: %T is not an object", k.kind, item)
		}
		if owner := ownerOf(o); owner != nil && owner.Name == name {
			found = append(found, o)
		}
		return nil
	})
	return found, err
}

// Found is what exists of a Gateway's objects.
type Found struct {
	// Services by name, nil if they are not known, and the Deployment, nil if there is none.
	Services   map[string]*corev1.Service
	Deployment *appsv1.Deployment
	// Problems of the last application.
	Problems []ObjectProblem
}

// Found returns what exists for the Gateway "namespace/name". The caller must not change it.
func (a *Applier) Found(ctx context.Context, gateway model.Owner) (Found, error) {
	var f Found
	namespace, name := gateway.Namespace(), gateway.Name()
	deployments, err := a.madeFor(ctx, deployments, namespace, name)
	if err != nil {
		return f, err
	}
	services, err := a.madeFor(ctx, services, namespace, name)
	if err != nil {
		return f, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	wanted := map[identity]bool{}
	if p := a.plans[gateway]; p != nil {
		f.Problems = slices.Clone(p.problems)
		for _, o := range p.Objects {
			wanted[identity{o.GetKind(), o.GetName()}] = true
		}
	}
	f.Services = make(map[string]*corev1.Service, len(services))
	for _, o := range services {
		f.Services[o.GetName()] = o.(*corev1.Service)
	}
	for _, o := range deployments {
		if f.Deployment == nil || wanted[identity{"Deployment", o.GetName()}] {
			f.Deployment = o.(*appsv1.Deployment)
		}
	}
	return f, nil
}
