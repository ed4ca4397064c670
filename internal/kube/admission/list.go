package admission

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
)

const (
	// listPage is how many Rollouts an API server sends at a time, listMost how many of one namespace are read.
	listPage = 100
	listMost = 1000
)

// Lister returns Rollouts.List for an API server.
func Lister(config *rest.Config) (func(ctx context.Context, version, namespace string) ([]map[string]any, error), error) {
	var versions []schema.GroupVersion
	for _, v := range rollouts.Versions {
		versions = append(versions, schema.GroupVersion{Group: rollouts.Group, Version: v})
	}
	mapper := meta.NewDefaultRESTMapper(versions) // so that no discovery is needed
	for _, v := range versions {
		mapper.Add(v.WithKind("Rollout"), meta.RESTScopeNamespace)
	}
	c, err := client.New(config, client.Options{Mapper: mapper})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, version, namespace string) (all []map[string]any, err error) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: rollouts.Group, Version: version, Kind: "RolloutList"})
		for {
			if err := c.List(ctx, list, client.InNamespace(namespace), client.Limit(listPage), client.Continue(list.GetContinue())); err != nil {
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
	}, nil
}
