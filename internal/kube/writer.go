package kube

import (
	"context"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/split"
	"github.com/weirmesh/weir/internal/resource"
)

const (
	// writers bounds the requests at a time.
	writers = 16
	// writeTimeout bounds one request.
	writeTimeout = 10 * time.Second
	// conflicts is how often a write is tried at once against other writers.
	conflicts = 5
	// repairAfter is how long changes of a status by others stay: two controllers that disagree must not race.
	repairAfter = time.Second
	// retryLeast and retryLongest bound the time after which a failed write is tried again.
	retryLeast, retryLongest = 250 * time.Millisecond, 30 * time.Second
)

// StatusWriter writes statuses: only differences, and only our own entries. Conditions get the time of their last
// change and the generation they are about.
type StatusWriter struct {
	client     *Client
	source     *Source
	controller string
	log        *slog.Logger
	now        func() time.Time
	written    atomic.Uint64
	failed     atomic.Uint64

	mu      sync.Mutex
	desired map[resource.Key]resource.Status
	// known means that desired is set.
	known bool
	// released are the last statuses of Gateways and ListenerSets that are no longer ours.
	released map[resource.Key]resource.Status
	queue    workqueue.TypedRateLimitingInterface[resource.Key] // nil while not running
	// complained is when a failure was last logged, suppressed how many were not logged since.
	complained time.Time
	suppressed int
}

// NewStatusWriter returns a writer of statuses on the objects of a source that has not begun to run. The controller is
// the name by which entries are ours. A nil logger discards.
func NewStatusWriter(c *Client, source *Source, controller string, logger *slog.Logger) *StatusWriter {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	w := &StatusWriter{
		client: c, source: source, controller: controller, log: logger, now: time.Now,
		desired: make(map[resource.Key]resource.Status), released: make(map[resource.Key]resource.Status),
	}
	source.changed = w.changed
	return w
}

// Written is how many statuses were written so far.
func (w *StatusWriter) Written() uint64 { return w.written.Load() }

// Failed counts failed attempts to correct a status. Each is repeated. An attempt that lost to another writer only
// counts if several in a row did.
func (w *StatusWriter) Failed() uint64 { return w.failed.Load() }

// Set passes all wanted statuses. It returns at once; Run writes them. Other objects are not ours: our entries in their
// statuses are removed.
func (w *StatusWriter) Set(statuses []resource.Status) {
	desired := make(map[resource.Key]resource.Status, len(statuses))
	for _, s := range statuses {
		desired[statusKey(s)] = s
	}
	strays := w.strays(desired)
	w.mu.Lock()
	defer w.mu.Unlock()
	var due []resource.Key
	for k, s := range desired {
		delete(w.released, k)
		if last, ok := w.desired[k]; !ok || !reflect.DeepEqual(last, s) {
			due = append(due, k)
		}
	}
	for k, last := range w.desired {
		if _, ok := desired[k]; !ok && (k.Kind == "Gateway" || k.Kind == "ListenerSet") {
			w.released[k] = last
			due = append(due, k)
		}
	}
	w.desired, w.known = desired, true
	w.enqueue(append(due, strays...))
}

// Run writes statuses until ctx ends. It may be run again, as leadership comes and goes.
func (w *StatusWriter) Run(ctx context.Context) error {
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[resource.Key](retryLeast, retryLongest))
	w.mu.Lock()
	if w.queue != nil {
		w.mu.Unlock()
		return fmt.Errorf("the status writer is already running")
	}
	w.queue = queue
	desired, known := w.desired, w.known
	w.mu.Unlock()
	if known {
		strays := w.strays(desired)
		w.mu.Lock()
		w.enqueue(strays)
		for k := range w.desired {
			queue.Add(k)
		}
		w.mu.Unlock()
	}

	var wait sync.WaitGroup
	for range writers {
		wait.Go(func() { w.work(ctx, queue) })
	}
	<-ctx.Done()
	w.mu.Lock()
	w.queue = nil
	w.mu.Unlock()
	queue.ShutDown()
	wait.Wait()
	return nil
}

// enqueue makes keys due, those first that others wait for. The lock is held.
func (w *StatusWriter) enqueue(keys []resource.Key) {
	if w.queue == nil {
		return
	}
	slices.SortFunc(keys, func(a, b resource.Key) int {
		if c := rank(a.Kind) - rank(b.Kind); c != 0 {
			return c
		}
		return compare(a, b)
	})
	for _, k := range keys {
		w.queue.Add(k)
	}
}

func rank(kind string) int {
	switch kind {
	case "GatewayClass":
		return 0
	case "Gateway":
		return 1
	case "ListenerSet":
		return 2
	}
	return 3
}

// statusKey is the key of the object that a status is about: one of Gateway API, or a TrafficSplit.
func statusKey(s resource.Status) resource.Key {
	k := resource.Key{Group: gatewayv1.GroupName, Kind: s.Ref.Kind, Namespace: s.Ref.Namespace, Name: s.Ref.Name}
	if k.Kind == splitKind {
		k.Group = split.Group
	}
	return k
}

// strays are the objects that carry entries of ours and should not.
func (w *StatusWriter) strays(desired map[resource.Key]resource.Status) (keys []resource.Key) {
	for _, o := range w.source.Objects() {
		if _, wanted := desired[o.Key()]; wanted {
			continue
		}
		if w.named(o.Value()) {
			keys = append(keys, o.Key())
		}
	}
	return keys
}

// named reports whether an object's status has entries with our controller's name.
func (w *StatusWriter) named(object any) bool {
	switch o := object.(type) {
	case *gatewayv1.HTTPRoute:
		return w.ours(o.Status.Parents)
	case *gatewayv1.GRPCRoute:
		return w.ours(o.Status.Parents)
	case *gatewayv1.TCPRoute:
		return w.ours(o.Status.Parents)
	case *gatewayv1.BackendTLSPolicy:
		return slices.ContainsFunc(o.Status.Ancestors, func(a gatewayv1.PolicyAncestorStatus) bool { return string(a.ControllerName) == w.controller })
	}
	return false
}

func (w *StatusWriter) ours(parents []gatewayv1.RouteParentStatus) bool {
	return slices.ContainsFunc(parents, func(p gatewayv1.RouteParentStatus) bool { return string(p.ControllerName) == w.controller })
}

// changed looks at an object again that someone wrote.
func (w *StatusWriter) changed(k resource.Key) {
	if k.Group != gatewayv1.GroupName && k.Kind != splitKind {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.queue != nil && w.known {
		w.queue.AddAfter(k, repairAfter)
	}
}

func (w *StatusWriter) work(ctx context.Context, queue workqueue.TypedRateLimitingInterface[resource.Key]) {
	for {
		k, over := queue.Get()
		if over {
			return
		}
		err := w.write(ctx, k)
		switch {
		case err == nil:
			queue.Forget(k)
		case ctx.Err() == nil:
			w.failed.Add(1)
			w.complain(k, err, queue.NumRequeues(k)+1)
			queue.AddRateLimited(k)
		}
		queue.Done(k)
		if ctx.Err() != nil {
			return
		}
	}
}

// complainEvery is the least time between two lines about statuses that could not be written: with the API server away
// it is all of them.
const complainEvery = 5 * time.Second

func (w *StatusWriter) complain(k resource.Key, err error, failures int) {
	w.mu.Lock()
	now := w.now()
	if since := now.Sub(w.complained); since >= 0 && since < complainEvery {
		w.suppressed++
		w.mu.Unlock()
		return
	}
	suppressed := w.suppressed
	w.complained, w.suppressed = now, 0
	w.mu.Unlock()
	w.log.Warn("a status could not be written; trying again", "object", k.String(), "error", err, "failures", failures, "suppressed", suppressed)
}

// write corrects the status of one object.
func (w *StatusWriter) write(ctx context.Context, k resource.Key) error {
	o := w.source.Object(k)
	version := w.source.Version(k.Group, k.Kind)
	if o == nil || version == "" {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.released, k)
		return nil // it is gone, or will be reported
	}
	gvk := schema.GroupVersionKind{Group: k.Group, Version: version, Kind: k.Kind}
	m := merger{w.controller, w.now()}
	if known := statusOf(o.Value()); known != nil {
		next, changes := w.next(m, k, known)
		if !changes {
			return nil
		}
		// A status without entries of others can be replaced as it is known here, if it is the newest.
		if _, others := m.names(known); !others && rank(k.Kind) == 3 {
			err := w.update(ctx, gvk, o.GetObjectMeta(), next)
			if !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	return w.rewrite(ctx, m, gvk, k)
}

// next is the status an object should have, and whether it has another.
func (w *StatusWriter) next(m merger, k resource.Key, old map[string]any) (status map[string]any, changes bool) {
	w.mu.Lock()
	want, wanted := w.desired[k]
	last, released := w.released[k]
	w.mu.Unlock()
	switch ours, _ := m.names(old); {
	case wanted:
		status = m.merge(k.Kind, old, &want)
	case released && sameTree(old, m.merge(k.Kind, old, &last)):
		status = m.release(k.Kind, old) // no other controller has taken it over
	case ours:
		status = m.release(k.Kind, old)
	default:
		return old, false
	}
	return status, !sameTree(old, status)
}

// rewrite reads the object from the API server and writes its status, again when someone else was faster.
func (w *StatusWriter) rewrite(ctx context.Context, m merger, gvk schema.GroupVersionKind, k resource.Key) error {
	var err error
	for range conflicts {
		u := &unstructured.Unstructured{}
		u.SetGroupVersionKind(gvk)
		if err = w.read(ctx, k, u); err != nil {
			return gone(err)
		}
		old, _ := u.Object["status"].(map[string]any)
		next, changes := w.next(m, k, old)
		if !changes {
			return nil
		}
		if err = w.update(ctx, gvk, u, next); !apierrors.IsConflict(err) {
			return err
		}
	}
	return err
}

func (w *StatusWriter) read(ctx context.Context, k resource.Key, into *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return w.client.Get(ctx, objectKey(k), into)
}

// update replaces the status of an object if it still has the known version. A deleted object is not an error.
func (w *StatusWriter) update(ctx context.Context, gvk schema.GroupVersionKind, meta metav1.Object, status map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	u := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(meta.GetNamespace())
	u.SetName(meta.GetName())
	u.SetUID(meta.GetUID())
	u.SetResourceVersion(meta.GetResourceVersion())
	err := w.client.Status().Update(ctx, u)
	if err == nil {
		w.written.Add(1)
	}
	return gone(err)
}

// gone ignores that an object does not exist, or that another has its name by now: that will be reported.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// statusOf is the status of a typed object as a tree, nil if it has none that is written.
func statusOf(object any) map[string]any {
	var status any
	switch o := object.(type) {
	case *gatewayv1.GatewayClass:
		status = &o.Status
	case *gatewayv1.Gateway:
		status = &o.Status
	case *gatewayv1.ListenerSet:
		status = &o.Status
	case *gatewayv1.HTTPRoute:
		status = &o.Status
	case *gatewayv1.GRPCRoute:
		status = &o.Status
	case *gatewayv1.TCPRoute:
		status = &o.Status
	case *gatewayv1.BackendTLSPolicy:
		status = &o.Status
	case *split.TrafficSplit:
		if o.Status == nil {
			return map[string]any{}
		}
		return o.Status
	default:
		return nil
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return nil
	}
	return tree
}

func objectKey(k resource.Key) client.ObjectKey {
	return client.ObjectKey{Namespace: k.Namespace, Name: k.Name}
}
