package kube

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/weirmesh/weir/internal/resource"
)

// pageSize is how many objects are asked for at a time.
const pageSize = 500

// Load reads once what a Source of that scope would watch. Kinds that are not installed are left out; a kind that may
// not be read is a finding of the Set. The error is for an API server that does not answer.
func Load(ctx context.Context, c *Client, controller string, scope Scope) (*resource.Set, error) {
	kinds, err := c.kinds(ctx, scope, nil)
	if err != nil {
		return nil, err
	}
	collection := resource.NewCollection()
	var findings []resource.Finding
	for _, v := range kinds {
		if onReference(v.Kind) {
			continue
		}
		for _, p := range scope.parts(v.Kind) {
			err := c.list(ctx, v, p, collection)
			if apierrors.IsForbidden(err) {
				findings = append(findings, refusal(v, err))
				break
			} else if err != nil {
				return nil, fmt.Errorf("%s: %w", v, err)
			}
		}
	}
	contents := newContents(c, slog.New(slog.DiscardHandler))
	wanted, _ := contents.want(references(collection.Set(), controller, scope), collection, time.Now())
	for _, r := range contents.read(ctx, wanted) {
		contents.take(r, collection)
	}
	set := collection.Set(append(findings, contents.findings()...)...)
	set.Watched = scope.Namespaces
	return set, nil
}

// list puts the objects of a part of a kind into the collection.
func (c *Client) list(ctx context.Context, v served, p part, into *resource.Collection) error {
	options := &client.ListOptions{Limit: pageSize, LabelSelector: selector(v), Namespace: p.namespace, FieldSelector: p.fields()}
	for {
		list := listOf(v)
		if err := c.List(ctx, list, options); err != nil {
			return err
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			object, err := transform(o)
			if err != nil {
				return err
			}
			into.Put(object.(*resource.Object))
			return nil
		})
		if err != nil {
			return err
		}
		if options.Continue = list.(metav1.ListInterface).GetContinue(); options.Continue == "" {
			return nil
		}
	}
}

func listOf(v served) client.ObjectList {
	switch {
	case v.Custom:
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(v.gvk.GroupVersion().WithKind(v.gvk.Kind + "List"))
		return list
	case v.Name == "Service":
		return &corev1.ServiceList{}
	case v.Name == "Namespace":
		return &corev1.NamespaceList{}
	}
	return &discoveryv1.EndpointSliceList{}
}
