package kube

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weirmesh/weir/internal/resource"
)

// served is a kind as this API server serves it.
type served struct {
	*resource.Kind
	gvk      schema.GroupVersionKind
	resource string // plural, as in paths
}

// String is "httproutes.gateway.networking.k8s.io".
func (v served) String() string {
	return v.gvk.GroupVersion().WithResource(v.resource).GroupResource().String()
}

// maps reports whether the objects are read as maps, not as the Go types of Kubernetes.
func (v served) maps() bool { return v.Custom() || v.Excerpt() }

func (v served) id() schema.GroupKind { return v.gvk.GroupKind() }

// in returns the kind in one of its versions.
func in(k *resource.Kind, version string) served {
	gvk := schema.GroupVersionKind{Group: k.Group, Version: version, Kind: k.Name}
	return served{k, gvk, k.Plural}
}

// kinds asks which of the kinds the API server has, and in which version to read each. A kind that disappeared from its
// list is gone only if its objects are also not found, because a starting API server may briefly report less than it
// has. before is nil at first.
func (c *Client) kinds(ctx context.Context, of resource.Kinds, scope Scope, before map[schema.GroupKind]served) (map[schema.GroupKind]served, error) {
	now := make(map[schema.GroupKind]served)
	groups := make(map[string][]string)
	resources := make(map[schema.GroupVersion][]metav1.APIResource)
	for _, k := range of.InCluster() {
		v := in(k, k.Versions[0])
		if !k.Custom() {
			now[v.id()] = v
			continue
		}
		found, ok, err := c.find(ctx, k, groups, resources)
		if err != nil {
			return nil, err
		}
		last, had := before[v.id()]
		switch {
		case ok:
			now[v.id()] = found
		case before == nil || had:
			if had {
				v = last
			}
			there, err := c.there(ctx, v, scope, had)
			if err != nil {
				return nil, err
			}
			if there {
				now[v.id()] = v
			}
		}
	}
	return now, nil
}

// find looks a kind up in the API server's discovery. It caches the answers in groups and resources.
func (c *Client) find(ctx context.Context, k *resource.Kind, groups map[string][]string, resources map[schema.GroupVersion][]metav1.APIResource) (served, bool, error) {
	versions, asked := groups[k.Group]
	if !asked {
		var group metav1.APIGroup
		err := c.discovery.RESTClient().Get().AbsPath("/apis/" + k.Group).Do(ctx).Into(&group)
		if err != nil && !apierrors.IsNotFound(err) {
			return served{}, false, fmt.Errorf("the versions of %s: %w", k.Group, err)
		}
		for _, v := range group.Versions {
			versions = append(versions, v.Version)
		}
		groups[k.Group] = versions
	}
	for _, version := range k.Versions {
		if !slices.Contains(versions, version) {
			continue
		}
		gv := schema.GroupVersion{Group: k.Group, Version: version}
		list, asked := resources[gv]
		if !asked {
			var all metav1.APIResourceList
			err := c.discovery.RESTClient().Get().AbsPath("/apis/" + gv.String()).Do(ctx).Into(&all)
			if err != nil && !apierrors.IsNotFound(err) {
				return served{}, false, fmt.Errorf("the resources of %s: %w", gv, err)
			}
			list = all.APIResources
			resources[gv] = list
		}
		for _, r := range list {
			if r.Kind == k.Name && r.Name != "" && !slices.Contains([]byte(r.Name), '/') {
				return served{k, gv.WithKind(k.Name), r.Name}, true, nil
			}
		}
	}
	return served{}, false, nil
}

// there lists the kind's objects themselves. A kind without permission to read counts as missing, unless it was there
// before: a removed permission deletes nothing.
func (c *Client) there(ctx context.Context, v served, scope Scope, before bool) (bool, error) {
	err := c.probe(ctx, v, scope)
	switch {
	case err == nil:
		return true, nil
	case apierrors.IsForbidden(err):
		return before, nil
	case apierrors.IsNotFound(err):
		return false, nil
	}
	return false, fmt.Errorf("%s: %w", v, err)
}

// probe lists at most one object of each part.
func (c *Client) probe(ctx context.Context, v served, scope Scope) error {
	for _, p := range scope.parts(v.Kind) {
		request := c.discovery.RESTClient().Get().AbsPath(v.path(p)).Param("limit", "1")
		if f := p.fields(); f != nil {
			request.Param("fieldSelector", f.String())
		}
		if err := request.Do(ctx).Error(); err != nil {
			return err
		}
	}
	return nil
}

// Installed is a kind with a custom resource definition in an API server.
type Installed struct {
	*resource.Kind
	// Definition is the name of the custom resource definition, "httproutes.gateway.networking.k8s.io".
	Definition string
	// Version is the version to read; empty if the API server serves no readable one.
	Version string
}

// Installed returns the kinds with a definition that the API server has, in their order.
func (c *Client) Installed(ctx context.Context, kinds resource.Kinds) ([]Installed, error) {
	there, err := c.kinds(ctx, kinds, Scope{}, nil)
	if err != nil {
		return nil, err
	}
	var all []Installed
	for _, k := range kinds.InCluster() {
		if !k.Custom() {
			continue
		}
		v := in(k, k.Versions[0])
		i := Installed{Kind: k, Definition: v.String()}
		if found, ok := there[v.id()]; ok {
			i.Definition, i.Version = found.String(), found.gvk.Version
		}
		all = append(all, i)
	}
	return all, nil
}

// Serves returns the kinds of a group that the API server has, in any version.
func (c *Client) Serves(ctx context.Context, group string) (map[string]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var versions metav1.APIGroup
	if err := c.discovery.RESTClient().Get().AbsPath("/apis/" + group).Do(ctx).Into(&versions); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("the versions of %s: %w", group, err)
	}
	kinds := map[string]bool{}
	for _, v := range versions.Versions {
		var all metav1.APIResourceList
		if err := c.discovery.RESTClient().Get().AbsPath("/apis/" + v.GroupVersion).Do(ctx).Into(&all); err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("the resources of %s: %w", v.GroupVersion, err)
		}
		for _, r := range all.APIResources {
			kinds[r.Kind] = true
		}
	}
	return kinds, nil
}

// Lists reports whether the API server can list objects of a resource, whatever it says that it has: one that starts may say less
// for a moment. It is false where the user may not list them.
func (c *Client) Lists(ctx context.Context, of schema.GroupVersionResource) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	err := c.discovery.RESTClient().Get().AbsPath("/apis/"+of.GroupVersion().String(), of.Resource).Param("limit", "1").Do(ctx).Error()
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return false, nil
	}
	return err == nil, err
}
