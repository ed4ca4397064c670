package operate

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// again is how long to wait before a watch is opened again that ended or was refused.
const again = 5 * time.Second

// Follow wakes whoever receives from the channel when a Rollout of a namespace has changed, or if name is not empty, when
// this one has, or a pod of its workload. Who may not watch is never woken. stop ends it, and waits for its end.
func (c *Cluster) Follow(ctx context.Context, namespace, name string) (wake <-chan struct{}, stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	changed := make(chan struct{}, 1)
	var all sync.WaitGroup
	all.Go(func() {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(rolloutKind.GroupVersion().WithKind("RolloutList"))
		options := []client.ListOption{client.InNamespace(namespace)}
		if name != "" {
			options = append(options, client.MatchingFields{"metadata.name": name})
		}
		c.follow(ctx, changed, list, options)
	})
	if name != "" {
		all.Go(func() {
			if selector := c.selector(ctx, namespace, name); selector != nil {
				c.follow(ctx, changed, &corev1.PodList{}, []client.ListOption{client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}})
			}
		})
	}
	return changed, func() { cancel(); all.Wait() }
}

// follow wakes for each change of the objects of a list, until ctx ends.
func (c *Cluster) follow(ctx context.Context, changed chan<- struct{}, list client.ObjectList, options []client.ListOption) {
	for {
		if events, err := c.follows.Watch(ctx, list, options...); err == nil {
			for event := range events.ResultChan() {
				if event.Type == watch.Error {
					break
				}
				select {
				case changed <- struct{}{}:
				default: // it is awake already
				}
			}
			events.Stop()
		}
		if !sleep(ctx, again) {
			return
		}
	}
}

// selector is that of the pods of a Rollout's workload, once there is one; nil if ctx ends before.
func (c *Cluster) selector(ctx context.Context, namespace, name string) labels.Selector {
	for {
		if s, err := c.rollout(ctx, namespace, name); err == nil {
			if err := c.object(ctx, s); err == nil && s.selector != nil {
				return s.selector
			}
		}
		if !sleep(ctx, again) {
			return nil
		}
	}
}

// sleep reports whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
