package admission

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/api/tlsconfig"
)

const (
	// listPage is how many objects an API server sends at a time, listMost how many of one namespace are read.
	listPage = 100
	listMost = 1000
)

// Lister asks an API server by lists, which is all that the controller's role permits it.
type Lister struct{ client client.Client }

// found are the kinds of Find.
var found = map[string]schema.GroupVersionKind{
	"Deployment": appsv1.SchemeGroupVersion.WithKind("Deployment"), "Service": corev1.SchemeGroupVersion.WithKind("Service"),
}

// configs is the kind of TLSConfigs.
var configs = schema.GroupVersionKind{Group: tlsconfig.Group, Version: tlsconfig.Draft, Kind: "TLSConfig"}

// NewLister returns one for an API server.
func NewLister(config *rest.Config) (*Lister, error) {
	var versions []schema.GroupVersion
	for _, v := range rollouts.Versions {
		versions = append(versions, schema.GroupVersion{Group: rollouts.Group, Version: v})
	}
	mapper := meta.NewDefaultRESTMapper(versions) // so that no discovery is needed
	for _, v := range versions {
		mapper.Add(v.WithKind("Rollout"), meta.RESTScopeNamespace)
	}
	mapper.Add(configs, meta.RESTScopeNamespace)
	for _, kind := range found {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	c, err := client.New(config, client.Options{Mapper: mapper})
	if err != nil {
		return nil, err
	}
	return &Lister{c}, nil
}

// List implements Rollouts.List.
func (l *Lister) List(ctx context.Context, version, namespace string) (all []map[string]any, err error) {
	return l.list(ctx, schema.GroupVersionKind{Group: rollouts.Group, Version: version, Kind: "Rollout"}, namespace)
}

// TLSConfigs returns those of a namespace, none where there is no such kind.
func (l *Lister) TLSConfigs(ctx context.Context, namespace string) (all []map[string]any, err error) {
	all, err = l.list(ctx, configs, namespace)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return all, err
}

func (l *Lister) list(ctx context.Context, kind schema.GroupVersionKind, namespace string) (all []map[string]any, err error) {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	for {
		if err := l.client.List(ctx, list, client.InNamespace(namespace), client.Limit(listPage), client.Continue(list.GetContinue())); err != nil {
			return nil, err
		}
		for i := range list.Items {
			all = append(all, list.Items[i].Object)
		}
		if list.GetContinue() == "" {
			return all, nil
		}
		if len(all) >= listMost {
			return nil, fmt.Errorf("the namespace has more than %d", listMost)
		}
	}
}

// Find implements Rollouts.Find.
func (l *Lister) Find(ctx context.Context, kind, namespace, name string) (map[string]any, error) {
	of := found[kind]
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(of.GroupVersion().WithKind(kind + "List"))
	if err := l.client.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{metav1.ObjectNameField: name}); err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, nil
	}
	return list.Items[0].Object, nil
}
