package admission

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/edit"
)

// look is how often it is asked whether Rollouts are carried out, unless something else is said.
const look = 5 * time.Second

// Known are the Rollouts of a cluster as this process has read them.
type Known struct {
	Client *kube.Client
	// Namespaces are those that are read; none means all.
	Namespaces []string
	// Obstacle says why no Rollouts are carried out; empty if they are.
	Obstacle func(ctx context.Context) (why string, err error)
	// Look is how often it is asked; 5 s if it is zero.
	Look   time.Duration
	Logger *slog.Logger

	mu      sync.Mutex
	objects *edit.Objects // nil while none are carried out, or not known yet
	away    bool          // there is an obstacle
}

var exemplar = func() *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: rollouts.Group, Version: "v1beta1", Kind: "Rollout"})
	return u
}

// Run reads them until ctx ends.
func (k *Known) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		why, err := k.Obstacle(ctx)
		if err == nil {
			k.set(nil, why != "")
			if why == "" {
				err = k.follow(ctx)
				if k.set(nil, false); err == nil {
					continue // to see at once what has changed
				}
			}
		}
		if err != nil && ctx.Err() == nil {
			k.Logger.Warn("workloads are not held at admission, as Rollouts are not known; trying again", "error", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(cmp.Or(k.Look, look)):
		}
	}
	return nil
}

// follow reads them until ctx ends or there is an obstacle.
func (k *Known) follow(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	objects, err := edit.New(k.Client, k.Namespaces, func(edit.Key, client.Object) {})
	if err != nil {
		cancel()
		return err
	}
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	wait.Go(func() { _ = objects.Run(ctx) })
	if err := objects.Follow(ctx, exemplar(), ""); err != nil {
		return err
	}
	k.set(objects, false)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(cmp.Or(k.Look, look)):
		}
		if why, err := k.Obstacle(ctx); err == nil && why != "" {
			return nil
		}
	}
}

func (k *Known) set(objects *edit.Objects, away bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.objects, k.away = objects, away
}

// Rollouts implements Workloads.Rollouts. What it returns is shared and read-only.
func (k *Known) Rollouts(ctx context.Context, namespace string) (all []map[string]any, err error) {
	k.mu.Lock()
	objects, away := k.objects, k.away
	k.mu.Unlock()
	switch {
	case away:
		return nil, nil
	case objects == nil:
		return nil, errors.New("they are not read yet")
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(exemplar().GroupVersionKind())
	if err := objects.List(ctx, exemplar(), namespace, list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		all = append(all, list.Items[i].Object)
	}
	return all, nil
}
