package kube

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/selection"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/resource"
)

// watch follows the objects of one kind. Each kind has its own cache, so that it starts, fails and ends by itself.
type watch struct {
	served
	log    *slog.Logger
	cancel context.CancelFunc
	ended  chan struct{}

	mu sync.Mutex
	// behind are the parts whose initial objects have not all been passed on yet.
	behind map[part]bool
	// refused is the API server's latest refusal to let us read the kind, nil if it permits it.
	refused error
	// refusals counts the refusals since the first.
	refusals     int
	firstRefused time.Time
	// begun is when the watch was started.
	begun time.Time
}

// receiver gets the objects. Its methods are called from one goroutine for each part of a kind.
type receiver interface {
	put(v served, before, object any)
	remove(v served, k resource.Key)
	// settled means that the watch has synced or was refused, or is no longer refused.
	settled(w *watch)
}

// patience is how long an API server may refuse a kind before Weir gives it up. Right after its start an API server may
// not have read all roles yet, and a kind that Weir gives up is not served.
const patience = 5 * time.Second

// start watches one of the kinds, as far as it is in scope, until ctx ends or stop is called.
func (c *Client) start(ctx context.Context, kinds resource.Kinds, v served, scope Scope, r receiver, log *slog.Logger) (*watch, error) {
	ctx, cancel := context.WithCancel(ctx)
	w := &watch{served: v, log: log.With("resource", v.String()), cancel: cancel, ended: make(chan struct{}), behind: map[part]bool{}, begun: time.Now()}
	var runs []func()
	for _, p := range scope.parts(v.Kind) {
		w.behind[p] = true
		run, err := c.watchPart(ctx, kinds, w, p, r)
		if err != nil {
			cancel()
			return nil, err
		}
		runs = append(runs, run)
	}
	go func() {
		defer close(w.ended)
		var wait sync.WaitGroup
		for _, run := range runs {
			wait.Go(run)
		}
		wait.Wait()
	}()
	return w, nil
}

// watchPart makes the cache of a part of a kind. The returned function runs the cache until ctx ends.
func (c *Client) watchPart(ctx context.Context, kinds resource.Kinds, w *watch, p part, r receiver) (run func(), err error) {
	v := w.served
	objects, err := cache.New(c.Config, cache.Options{
		HTTPClient: c.http, Scheme: c.Scheme(), Mapper: mapper(v.gvk, v.resource, v.Cluster),
		DefaultTransform:     func(o any) (any, error) { return transform(kinds, o) },
		DefaultLabelSelector: selector(v),
		DefaultFieldSelector: p.selector(),
		NewInformer:          newInformer,
		DefaultWatchErrorHandler: func(_ context.Context, _ *toolscache.Reflector, err error) {
			if w.failed(err) {
				r.settled(w)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	exemplar, err := c.exemplar(v)
	if err != nil {
		return nil, err
	}
	informer, err := objects.GetInformer(ctx, exemplar, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(o any, _ bool) { r.put(v, nil, o) },
		UpdateFunc: func(before, o any) {
			if !sameVersion(before, o) {
				r.put(v, before, o)
			}
		},
		DeleteFunc: func(o any) {
			if k, ok := keyOf(v, o); ok {
				r.remove(v, k)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	return func() {
		var wait sync.WaitGroup
		wait.Go(func() {
			if toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
				w.sync(p)
				r.settled(w)
			}
		})
		_ = objects.Start(ctx) // it ends with ctx
		wait.Wait()
	}, nil
}

// newInformer makes an informer whose watches end when they are stopped. Metadata watches would otherwise wait forever
// for a receiver of their last event.
func newInformer(lw toolscache.ListerWatcher, exemplar runtime.Object, resync time.Duration, indexers toolscache.Indexers) toolscache.SharedIndexInformer {
	inner := toolscache.ToListerWatcherWithContext(lw)
	return toolscache.NewSharedIndexInformer(&toolscache.ListWatch{
		ListWithContextFunc: inner.ListWithContext,
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (apiwatch.Interface, error) {
			w, err := inner.WatchWithContext(ctx, options)
			if err != nil {
				return nil, err
			}
			return &drained{Interface: w}, nil
		},
	}, exemplar, resync, indexers)
}

// drained takes the remaining events when it is stopped.
type drained struct {
	apiwatch.Interface
	once sync.Once
}

// Stop implements watch.Interface.
func (d *drained) Stop() {
	d.Interface.Stop()
	d.once.Do(func() {
		go func() {
			for range d.ResultChan() { // it is closed, as the watch was stopped
			}
		}()
	})
}

// stop ends the watch and waits until all its events were passed on.
func (w *watch) stop() {
	w.cancel()
	<-w.ended
}

// sync records that a part is known.
func (w *watch) sync(p part) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if delete(w.behind, p); len(w.behind) == 0 {
		w.refused, w.refusals = nil, 0
	}
}

// waits reports whether a part is not known yet, except in namespaces that do not exist.
func (w *watch) waits(absent map[string]bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for p := range w.behind {
		if !absent[p.of()] {
			return true
		}
	}
	return false
}

// failed records an error of the watch, which continues by itself. It reports whether the kind is now refused.
func (w *watch) failed(err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case apierrors.IsForbidden(err):
		if w.refusals++; w.refusals == 1 {
			w.firstRefused = time.Now()
		}
		known := w.refused != nil
		if w.refused == nil && (w.refusals < 2 || time.Since(w.firstRefused) < patience) {
			return false
		}
		w.refused = err
		if !known {
			w.log.Error("the API server does not let Weir read this resource: grant get, list and watch", "error", err)
		}
		return !known
	case apierrors.IsResourceExpired(err), apierrors.IsGone(err), errors.Is(err, io.EOF):
		w.log.Debug("restarting the watch", "reason", err)
	default:
		w.log.Warn("watch lost, trying again; the last known objects stay in use", "error", err)
	}
	return false
}

// state reports whether all parts are read, and the API server's refusal if there is one.
func (w *watch) state() (synced bool, refused error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.behind) == 0, w.refused
}

// isLost means that the watch should have reported something by now. An API server that cannot convert its stored
// objects is silent for a minute, then fails.
func (w *watch) isLost() bool { return time.Since(w.begun) > lostAfter }

const lostAfter = 10 * time.Second

// allowed forgets the refusal.
func (w *watch) allowed() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refused, w.refusals = nil, 0
}

// newObject makes an empty object for reading a kind. Objects of custom kinds are decoded one by one, so a broken one
// does not affect others.
func (c *Client) newObject(v served) (client.Object, error) {
	if v.maps() {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(v.gvk)
		return u, nil
	}
	o, err := c.Scheme().New(v.gvk)
	if err != nil {
		return nil, err
	}
	return o.(client.Object), nil
}

// exemplar returns the type for watching a kind's objects: only their metadata if they are read on reference.
func (c *Client) exemplar(v served) (client.Object, error) {
	if !v.OnReference {
		return c.newObject(v)
	}
	m := &metav1.PartialObjectMetadata{}
	m.SetGroupVersionKind(v.gvk)
	return m, nil
}

// selector leaves out the objects that lack their kind's label.
func selector(v served) labels.Selector {
	if v.Label == "" {
		return nil
	}
	r, err := labels.NewRequirement(v.Label, selection.Exists, nil)
	if err != nil {
		panic(err) // the label is a constant
	}
	return labels.NewSelector().Add(*r)
}

// transform decodes an object and keeps the needed parts.
func transform(kinds resource.Kinds, o any) (any, error) {
	switch o := o.(type) {
	case *resource.Object:
		return o, nil // once is enough
	case toolscache.DeletedFinalStateUnknown:
		return o, nil
	case *metav1.PartialObjectMetadata:
		o.ObjectMeta = metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion}
		return o, nil
	case *unstructured.Unstructured:
		strip(o)
		return resource.Decode(kinds, o)
	case client.Object:
		strip(o)
		return resource.Adopt(kinds, o.(metav1.ObjectMetaAccessor)), nil
	}
	return o, nil
}

// strip drops large unused parts.
func strip(o client.Object) {
	o.SetManagedFields(nil)
	if _, ok := o.(*discoveryv1.EndpointSlice); ok {
		o.SetAnnotations(nil) // one annotation is the time of the last change
		o.SetOwnerReferences(nil)
		return
	}
	if a := o.GetAnnotations(); a[corev1.LastAppliedConfigAnnotation] != "" {
		delete(a, corev1.LastAppliedConfigAnnotation)
		o.SetAnnotations(a)
	}
	if s, ok := o.(*corev1.Service); ok {
		load := s.Status.LoadBalancer
		s.Status = corev1.ServiceStatus{}
		if s.Labels[gatewayv1.GatewayNameLabelKey] != "" { // of the Gateways' own Services it says where they are reached
			s.Status.LoadBalancer = load
		}
	}
}

func metaOf(o any) (metav1.Object, bool) {
	switch o := o.(type) {
	case *resource.Object:
		return o.GetObjectMeta(), true
	case metav1.Object:
		return o, true
	}
	return nil, false
}

func sameVersion(a, b any) bool {
	before, ok := metaOf(a)
	after, alsoOK := metaOf(b)
	return ok && alsoOK && before.GetResourceVersion() == after.GetResourceVersion() && before.GetUID() == after.GetUID()
}

// keyOf returns the key of an object that was deleted, even if the deletion was not watched.
func keyOf(v served, o any) (resource.Key, bool) {
	k := resource.Key{Group: v.Group, Kind: v.Name}
	if lost, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		namespace, name, err := toolscache.SplitMetaNamespaceKey(lost.Key)
		k.Namespace, k.Name = namespace, name
		return k, err == nil
	}
	m, ok := metaOf(o)
	if ok {
		k.Namespace, k.Name = m.GetNamespace(), m.GetName()
	}
	return k, ok
}
