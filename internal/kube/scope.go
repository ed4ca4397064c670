package kube

import (
	"context"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/weirmesh/weir/internal/resource"
)

// Scope is the part of a cluster that Weir reads. The zero value is the whole cluster.
type Scope struct {
	// Namespaces are the namespaces to read, sorted; none means all. Weir always reads GatewayClasses.
	Namespaces []string
	// Own is the controller's namespace. Its ConfigMaps are also read, for the parameters of classes.
	Own string
}

// All reports whether every namespace is read.
func (s Scope) All() bool { return len(s.Namespaces) == 0 }

// part is the part of a kind that one request can list: the objects of a namespace, the object of a name, or all
// objects.
type part struct {
	namespace, name string
}

// parts returns the parts of a kind.
func (s Scope) parts(k *resource.Kind) (all []part) {
	switch {
	case s.All():
		return []part{{}}
	case k.Group == "" && k.Name == "Namespace":
		for _, n := range s.Namespaces {
			all = append(all, part{name: n})
		}
	case k.Cluster:
		return []part{{}}
	default:
		for _, n := range s.Namespaces {
			all = append(all, part{namespace: n})
		}
		if k.Group == "" && k.Name == "ConfigMap" && s.Own != "" && !slices.Contains(s.Namespaces, s.Own) {
			all = append(all, part{namespace: s.Own})
		}
	}
	return all
}

// reads reports whether the object of a key is in scope.
func (s Scope) reads(k resource.Key) bool {
	return s.All() || slices.Contains(s.Namespaces, k.Namespace) || k.Kind == "ConfigMap" && k.Group == "" && k.Namespace == s.Own
}

// of returns the namespace of a part, empty for all.
func (p part) of() string { return p.namespace + p.name }

// fields selects the part; nil selects everything in its namespace.
func (p part) fields() fields.Selector {
	if p.name == "" {
		return nil
	}
	return fields.OneTermEqualSelector("metadata.name", p.name)
}

// selector restricts a cache to the part. The library uses the namespace that a field selector names.
func (p part) selector() fields.Selector {
	if p.namespace != "" {
		return fields.OneTermEqualSelector("metadata.namespace", p.namespace)
	}
	return p.fields()
}

// path returns the URL path that lists a part.
func (v served) path(p part) string {
	var b strings.Builder
	if v.gvk.Group == "" {
		b.WriteString("/api/" + v.gvk.Version)
	} else {
		b.WriteString("/apis/" + v.gvk.GroupVersion().String())
	}
	if p.namespace != "" {
		b.WriteString("/namespaces/" + p.namespace)
	}
	return b.String() + "/" + v.resource
}

// absent returns which of the scope's namespaces do not exist.
func (c *Client) absent(ctx context.Context, s Scope) (map[string]bool, error) {
	var none map[string]bool
	for _, n := range s.Namespaces {
		err := c.discovery.RESTClient().Get().AbsPath("/api/v1/namespaces/" + n).Do(ctx).Error()
		switch {
		case apierrors.IsNotFound(err):
			if none == nil {
				none = map[string]bool{}
			}
			none[n] = true
		case err != nil && !apierrors.IsForbidden(err):
			return nil, err
		}
	}
	return none, nil
}
