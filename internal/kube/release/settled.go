package release

import (
	"context"
	"fmt"
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/kube/edit"
	"github.com/weirmesh/weir/internal/rollout"
)

// settled reports whether requests go where objects say, and otherwise what is awaited: the endpoints of both Services
// have to be those of the pods that these select, and proxies have to route by all of it.
func (t *turn) settled(ctx context.Context, f *rollout.Traffic) (ok bool, awaited string, err error) {
	w := t.ways
	if w.stable == nil {
		return true, "", nil
	}
	var objects []*unstructured.Unstructured
	for _, u := range w.live {
		if u != nil {
			objects = append(objects, u)
		}
	}
	if f.Canary == "" && f.Pinned == "" && t.Proxied == nil {
		return true, "", nil
	}
	stable, parts, err := t.endpoints(ctx, w.stable.GetName())
	if err != nil {
		return false, "", err
	}
	objects = append(objects, parts...)
	if f.Canary != "" && w.canary != nil {
		canary, parts, err := t.endpoints(ctx, w.canary.GetName())
		if err != nil {
			return false, "", err
		}
		none := ""
		if !slices.Contains(slices.Collect(maps.Values(canary)), true) {
			none = fmt.Sprintf("Service %s has no ready endpoint yet", w.canary.GetName())
		}
		if slices.Contains(f.Carried, rollout.WantOriginal) { // nothing leads there yet
			if f.Unready = none; none == "" {
				_, f.Unready = t.proxied(parts)
			}
		} else {
			objects = append(objects, parts...)
			for address := range canary {
				if _, both := stable[address]; both && f.Pinned != "" {
					return false, fmt.Sprintf("endpoint %s of Service %s is still one of Service %s, too", address, w.canary.GetName(), w.stable.GetName()), nil
				}
			}
			if none != "" {
				return false, none, nil
			}
		}
	}
	ok, awaited = t.proxied(objects)
	return ok, awaited, nil
}

// proxied asks Proxied, and has the Rollout go on when that changes.
func (t *turn) proxied(objects []*unstructured.Unstructured) (ok bool, awaited string) {
	if t.Proxied == nil {
		return true, ""
	}
	if ok, awaited = t.Proxied(objects); !ok {
		t.wait(t.name)
		ok, awaited = t.Proxied(objects) // it may have changed in between
	}
	return ok, awaited
}

// slices are those of a Service.
func (t *turn) slices(ctx context.Context, service string) (list discoveryv1.EndpointSliceList, err error) {
	err = t.objects.List(ctx, &discoveryv1.EndpointSlice{}, t.name.Namespace, &list, client.MatchingLabels{discoveryv1.LabelServiceName: service})
	return list, err
}

// endpoints are the addresses of a Service, and whether each is ready, with the objects that have them.
func (t *turn) endpoints(ctx context.Context, service string) (all map[string]bool, objects []*unstructured.Unstructured, err error) {
	list, err := t.slices(ctx, service)
	if err != nil {
		return nil, nil, err
	}
	all = map[string]bool{}
	for i := range list.Items {
		slice := &list.Items[i]
		for _, e := range slice.Endpoints {
			for _, address := range e.Addresses {
				all[address] = all[address] || e.Conditions.Ready == nil || *e.Conditions.Ready
			}
		}
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&discoveryv1.EndpointSlice{ObjectMeta: slice.ObjectMeta})
		if err != nil {
			return nil, nil, err
		}
		object := &unstructured.Unstructured{Object: u}
		object.SetGroupVersionKind(edit.GVK(discoveryv1.GroupName, "v1", "EndpointSlice"))
		objects = append(objects, object)
	}
	return all, objects, nil
}
