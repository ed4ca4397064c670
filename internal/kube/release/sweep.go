package release

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

const (
	// sweepEvery is how often workloads are looked for that are held for no Rollout, sweepAfter how long after one has gone.
	sweepEvery, sweepAfter = time.Minute, time.Second
	// sweepTimeout bounds looking through one kind of a namespace, or of all.
	sweepTimeout = 30 * time.Second
	// sweepPage is how many workloads one request is answered with at most.
	sweepPage = 500
)

// sweepSoon says that a Rollout has gone, which may have left a workload held. It does not block.
func (c *Controller) sweepSoon() {
	select {
	case c.gone <- struct{}{}:
	default: // that was said already, or nobody sweeps
	}
}

// sweeping lets workloads go that are held for no Rollout, until ctx ends. One that releases nothing is gone as soon as it is
// deleted, and a webhook may hold its workload in that moment; of another one somebody may remove the finalizer.
func (c *Controller) sweeping(ctx context.Context) {
	namespaces := c.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	next, soon := time.NewTimer(0), true
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.gone:
			if !soon {
				soon = next.Reset(sweepAfter)
			}
			continue
		case <-next.C:
		}
		for _, kind := range c.Workloads {
			for _, namespace := range namespaces {
				if err := c.sweep(ctx, kind, namespace); err != nil && ctx.Err() == nil {
					c.failures.Log(c.Logger, slog.LevelWarn, "", "a workload that may be held for no Rollout could not be let go; trying again", "kind", kind.Name, "error", err)
				}
			}
		}
		next.Reset(sweepEvery)
		soon = false
	}
}

// sweep lets workloads of one kind go that are held for no Rollout.
func (c *Controller) sweep(ctx context.Context, kind *workload.Kind, namespace string) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	of, err := c.Client.RESTMapper().RESTMapping(schema.GroupKind{Group: kind.Group, Kind: kind.Name})
	if meta.IsNoMatchError(err) {
		return nil
	}
	if err != nil {
		return err
	}
	held := &metav1.PartialObjectMetadataList{}
	held.SetGroupVersionKind(of.GroupVersionKind)
	options := &client.ListOptions{Namespace: namespace, Limit: sweepPage}
	client.HasLabels{workload.HeldLabel}.ApplyToList(options)
	var failed error
	for {
		if err := c.Client.List(ctx, held, options); err != nil {
			return err
		}
		for i := range held.Items {
			if err := c.letGo(ctx, kind, of.GroupVersionKind, &held.Items[i]); err != nil { // others are let go all the same
				failed = cmp.Or(failed, fmt.Errorf("%s %s/%s: %w", kind.Name, held.Items[i].Namespace, held.Items[i].Name, err))
			}
		}
		if options.Continue = held.Continue; options.Continue == "" {
			return failed
		}
	}
}

// letGo lets a workload go that is held, unless there is a Rollout of it.
func (c *Controller) letGo(ctx context.Context, kind *workload.Kind, gvk schema.GroupVersionKind, held *metav1.PartialObjectMetadata) error {
	c.mu.Lock()
	used := len(c.uses[object{gvk.GroupKind(), held.Namespace, held.Name}]) > 0
	c.mu.Unlock()
	if used {
		return nil
	}
	// A webhook that held it may know of a Rollout of which this process does not know yet.
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(rolloutKind.GroupVersion().WithKind("RolloutList"))
	if err := c.Client.List(ctx, all, client.InNamespace(held.Namespace)); err != nil {
		return err
	}
	for i := range all.Items {
		if releases(&all.Items[i], gvk.Group, gvk.Kind, held.Name) {
			return nil
		}
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	err := c.Client.Get(ctx, client.ObjectKeyFromObject(held), u)
	if apierrors.IsNotFound(err) || err == nil && (u.GetResourceVersion() != held.ResourceVersion || u.GetDeletionTimestamp() != nil) {
		return nil // the next look is at what has become of it
	}
	if err != nil {
		return err
	}
	u.SetManagedFields(nil)
	for _, change := range kind.Do(&workload.Seen{Object: u.Object}, nil, rollout.Action{Do: rollout.Release}) {
		if change.Update == nil { // there is no Rollout that could remember anything
			continue
		}
		if _, err := c.objects.Update(ctx, &unstructured.Unstructured{Object: change.Update}); err != nil {
			if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
				return nil
			}
			return err
		}
		c.events.tell(u, rollout.Event{Reason: "LetGo", Warning: true, Message: fmt.Sprintf("The Rollout for which the %s was held is gone: its pods are replaced at once.", kind.Name)})
	}
	return nil
}
