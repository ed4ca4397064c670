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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/resource"
)

// pageSize is how many objects one request lists.
const pageSize = 500

// Load reads once what a Source of these kinds and that scope would watch; with every also the kinds that nothing needs
// (resource.Kind.Needs). Kinds that are not installed are left out. A missing permission is a finding of the Set. The
// error means that the API server does not answer.
func Load(ctx context.Context, c *Client, of resource.Kinds, controller string, scope Scope, every bool) (*resource.Set, error) {
	kinds, err := c.kinds(ctx, of, scope, nil)
	if err != nil {
		return nil, err
	}
	collection := resource.NewCollection(of)
	var findings []resource.Finding
	var unread resource.Kinds
	done := map[*resource.Kind]bool{}
	read := func(all resource.Kinds) error {
		for _, k := range all {
			v, there := kinds[schema.GroupKind{Group: k.Group, Kind: k.Name}]
			if !there || k.OnReference || done[k] {
				continue
			}
			done[k] = true
			for _, p := range scope.parts(k) {
				err := c.list(ctx, of, v, p, collection)
				if apierrors.IsForbidden(err) {
					findings, unread = append(findings, refusal(v, err)), append(unread, k)
					break
				} else if err != nil {
					return fmt.Errorf("%s: %w", v, err)
				}
			}
		}
		return nil
	}
	if err := read(of.Needed(func(*resource.Kind) bool { return false })); err != nil {
		return nil, err
	}
	if err := read(of.Needed(func(k *resource.Kind) bool { return every || collection.Has(k) })); err != nil {
		return nil, err
	}
	contents := newContents(c, of, slog.New(slog.DiscardHandler))
	wanted, _ := contents.want(references(collection.Set(), controller, scope), collection, time.Now())
	for _, r := range contents.read(ctx, wanted) {
		contents.take(r, collection)
	}
	set := collection.Set(append(findings, contents.findings()...)...)
	set.Watched, set.Unread = scope.Namespaces, unread
	return set, nil
}

// list adds the objects of a part of a kind to the collection.
func (c *Client) list(ctx context.Context, of resource.Kinds, v served, p part, into *resource.Collection) error {
	options := &client.ListOptions{Limit: pageSize, LabelSelector: selector(v), Namespace: p.namespace, FieldSelector: p.fields()}
	for {
		list, err := c.listOf(v)
		if err != nil {
			return err
		}
		if err := c.List(ctx, list, options); err != nil {
			return err
		}
		err = meta.EachListItem(list, func(o runtime.Object) error {
			object, err := transform(of, o)
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

// listOf returns an empty list of a kind: of maps or of Go objects.
func (c *Client) listOf(v served) (client.ObjectList, error) {
	of := v.gvk.GroupVersion().WithKind(v.gvk.Kind + "List")
	if v.maps() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(of)
		return list, nil
	}
	list, err := c.Scheme().New(of)
	if err != nil {
		return nil, err
	}
	return list.(client.ObjectList), nil
}
