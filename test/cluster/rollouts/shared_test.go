package rollouts

import (
	"context"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/kube/edit"
)

// TestWorkersShareWhatTheyRead has several read one Rollout at once, each by its name and in a list, as workers do that carry
// Rollouts of one namespace out. Go ends a process in which one of them writes to what another one reads.
func TestWorkersShareWhatTheyRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "Deployment", "replicas: 1", "{canary: {steps: [{replicas: 100%}]}}")
	objects, err := edit.New(admin, []string{w.namespace}, func(edit.Key, client.Object) {})
	if err != nil {
		t.Fatal(err)
	}
	ctx, end := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer running.Wait()
	defer end()
	running.Go(func() { _ = objects.Run(ctx) })
	key := edit.Key{GroupVersionKind: rolloutKind, Namespace: w.namespace, Name: "web"}
	var workers sync.WaitGroup
	for range 4 {
		workers.Go(func() {
			for range 2000 {
				one, err := objects.Get(ctx, key)
				list := &unstructured.UnstructuredList{}
				list.SetGroupVersionKind(rolloutKind.GroupVersion().WithKind("RolloutList"))
				exemplar := &unstructured.Unstructured{}
				exemplar.SetGroupVersionKind(rolloutKind)
				if err == nil {
					err = objects.List(ctx, exemplar, w.namespace, list)
				}
				if err != nil || one.GroupVersionKind() != rolloutKind || len(list.Items) != 1 || list.Items[0].GetName() != "web" {
					t.Errorf("%v, %v of %d: %v", one, rolloutKind, len(list.Items), err)
					return
				}
			}
		})
	}
	workers.Wait()
}
