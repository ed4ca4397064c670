package replica

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/identity/workload"
)

// attestTimeout bounds an attestation: a review, and three objects.
const attestTimeout = 8 * time.Second

// Pods attests the pods of tokens by what the API server says at that moment. All fields are required.
type Pods struct {
	// Client reads from the API server itself, never from a cache. It only lists: that is what its role has to permit.
	Client interface {
		client.Reader
		client.Writer
	}
	// Audience is the audience that tokens must have.
	Audience string
	// Namespaces are those whose pods are attested; none is all.
	Namespaces []string
}

// Attest implements workload.Issuer. The pod must exist with the UID for which the token was made, run as the token's
// ServiceAccount, and not have ended. An owner is named only if it exists with the UID by which the pod names it, and
// selects the pod: everyone who may make a pod may write anything into its ownerReferences.
func (p *Pods) Attest(ctx context.Context, token string) (*workload.Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, attestTimeout)
	defer cancel()
	if token == "" || len(token) > maxToken {
		return nil, fmt.Errorf("%w: a token of %d bytes", workload.ErrRefused, len(token))
	}
	r, err := reviewed(ctx, p.Client, p.Audience, token)
	switch {
	case errors.Is(err, ErrToken):
		return nil, fmt.Errorf("%w: %w", workload.ErrRefused, err)
	case err != nil:
		return nil, err
	}
	pod, err := p.running(ctx, r)
	if err != nil {
		return nil, err
	}
	owners, err := p.owners(ctx, pod)
	if err != nil {
		return nil, err
	}
	return &workload.Pod{Namespace: r.namespace, Name: r.pod, UID: r.uid, Account: r.serviceAccount, Owners: owners, Labels: pod.Labels}, nil
}

// running returns the pod of a token that was reviewed just now. An error that wraps workload.ErrRefused is about the token
// or the pod.
func (p *Pods) running(ctx context.Context, r review) (*corev1.Pod, error) {
	refused := func(format string, args ...any) (*corev1.Pod, error) {
		return nil, fmt.Errorf("%w: the pod %s/%s %s", workload.ErrRefused, r.namespace, r.pod, fmt.Sprintf(format, args...))
	}
	if len(p.Namespaces) > 0 && !slices.Contains(p.Namespaces, r.namespace) {
		return refused("is in no namespace that is watched")
	}
	var pods corev1.PodList
	if err := p.named(ctx, &pods, r.namespace, r.pod); err != nil {
		return nil, err
	}
	if len(pods.Items) != 1 {
		return refused("does not exist")
	}
	switch pod := &pods.Items[0]; {
	case r.uid == "" || string(pod.UID) != r.uid:
		return refused("is another one than the token was made for")
	case pod.Spec.ServiceAccountName != r.serviceAccount:
		return refused("runs as the ServiceAccount %s, and the token is of %s", pod.Spec.ServiceAccountName, r.serviceAccount)
	case pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed:
		return refused("has ended")
	default:
		return pod, nil
	}
}

// named lists the object of a name.
func (p *Pods) named(ctx context.Context, list client.ObjectList, namespace, name string) error {
	return p.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{metav1.ObjectNameField: name}, client.Limit(1))
}

// runners are the kinds that can be owners. Other kinds of these names are not.
var runners = []schema.GroupVersionKind{
	appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), appsv1.SchemeGroupVersion.WithKind("Deployment"), appsv1.SchemeGroupVersion.WithKind("StatefulSet"),
	appsv1.SchemeGroupVersion.WithKind("DaemonSet"), batchv1.SchemeGroupVersion.WithKind("Job"), corev1.SchemeGroupVersion.WithKind("ReplicationController"),
}

// maxOwners bounds how far up owners are looked for: objects may name each other in a circle.
const maxOwners = 2

// owners are what runs a pod, the nearest first.
func (p *Pods) owners(ctx context.Context, pod *corev1.Pod) (all []claim.Owner, err error) {
	for below := metav1.Object(pod); len(all) < maxOwners; {
		owner, err := p.owner(ctx, below)
		if err != nil || owner == nil {
			return all, err
		}
		all = append(all, claim.Owner{Kind: owner.GetKind(), Name: owner.GetName()})
		below = owner
	}
	return all, nil
}

// owner returns the controller of an object; nil if there is none that is what the object says.
func (p *Pods) owner(ctx context.Context, of metav1.Object) (*unstructured.Unstructured, error) {
	ref := metav1.GetControllerOf(of)
	if ref == nil {
		return nil, nil
	}
	kind := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind)
	if !slices.Contains(runners, kind) {
		return nil, nil
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := p.named(ctx, list, of.GetNamespace(), ref.Name); err != nil {
		return nil, err
	}
	if len(list.Items) != 1 || list.Items[0].GetUID() != ref.UID || !selects(&list.Items[0], of.GetLabels()) {
		return nil, nil
	}
	return &list.Items[0], nil
}

// selects reports whether an object that runs pods selects what has these labels.
func selects(u *unstructured.Unstructured, has map[string]string) bool {
	selector := &metav1.LabelSelector{}
	written, _, err := unstructured.NestedMap(u.Object, "spec", "selector")
	if err != nil {
		return false
	}
	if u.GetKind() == "ReplicationController" { // its selector has labels alone
		written = map[string]any{"matchLabels": written}
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(written, selector); err != nil {
		return false
	}
	s, err := metav1.LabelSelectorAsSelector(selector)
	return err == nil && !s.Empty() && s.Matches(labels.Set(has))
}
