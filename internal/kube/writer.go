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

	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/resource"
)

const (
	// writers bounds the concurrent requests.
	writers = 16
	// writeTimeout bounds one request.
	writeTimeout = 10 * time.Second
	// conflicts is how often a write is repeated at once if other writers interfere.
	conflicts = 5
	// repairAfter delays the repair of a status that others changed: two controllers that disagree must not race.
	repairAfter = time.Second
	// retryLeast and retryLongest bound the delay before a failed write is repeated.
	retryLeast, retryLongest = 250 * time.Millisecond, 30 * time.Second
)

// StatusWriter writes statuses. It writes only differences, and only our own entries. Conditions get the time of their
// last change and the generation they refer to.
type StatusWriter struct {
	client     *Client
	source     *Source
	controller string
	forms      map[schema.GroupKind]*resource.StatusForm // of the kinds that have a status
	log        *slog.Logger
	now        func() time.Time
	written    atomic.Uint64
	failed     atomic.Uint64

	mu      sync.Mutex
	desired map[resource.Key]resource.Status
	// known means that desired is set.
	known bool
	// released are the last statuses of objects that are no longer ours: Gateways, ListenerSets and other kinds with a
	// pending status.
	released map[resource.Key]resource.Status
	queue    workqueue.TypedRateLimitingInterface[resource.Key] // nil while not running
	// failures limits the log lines about failed writes: if the API server is away, every write fails.
	failures loglimit.Limiter
}

// NewStatusWriter returns a writer of statuses on the objects of a source that has not begun to run. Entries with the
// controller's name are ours. A nil logger discards the log.
func NewStatusWriter(c *Client, source *Source, controller string, logger *slog.Logger) *StatusWriter {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	w := &StatusWriter{
		client: c, source: source, controller: controller, log: logger, now: time.Now, forms: make(map[schema.GroupKind]*resource.StatusForm),
		desired: make(map[resource.Key]resource.Status), released: make(map[resource.Key]resource.Status),
	}
	for _, k := range source.Kinds {
		if k.Status != nil {
			w.forms[schema.GroupKind{Group: k.Group, Kind: k.Name}] = k.Status
		}
	}
	source.changed = w.changed
	return w
}

// Written returns how many statuses were written so far.
func (w *StatusWriter) Written() uint64 { return w.written.Load() }

// Failed counts failed attempts to correct a status. Each is repeated. An attempt that lost to another writer only
// counts if several in a row did.
func (w *StatusWriter) Failed() uint64 { return w.failed.Load() }

// Set passes all wanted statuses. It returns at once; Run writes them. Other objects are not ours: our entries in their
// statuses are removed.
func (w *StatusWriter) Set(statuses []resource.Status) {
	desired := make(map[resource.Key]resource.Status, len(statuses))
	for _, s := range statuses {
		desired[w.source.Kinds.Key(s.Ref)] = s
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
		if _, ok := desired[k]; !ok && w.form(k) != nil && w.form(k).Pending {
			w.released[k] = last
			due = append(due, k)
		}
	}
	w.desired, w.known = desired, true
	w.enqueue(append(due, strays...))
}

// Run writes statuses until ctx ends. It may be called again, as leadership comes and goes.
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
	var wait sync.WaitGroup
	defer func() {
		w.mu.Lock()
		w.queue = nil
		w.mu.Unlock()
		queue.ShutDown()
		wait.Wait()
	}()
	if known {
		strays := w.strays(desired)
		w.mu.Lock()
		w.enqueue(strays)
		for k := range w.desired {
			queue.Add(k)
		}
		w.mu.Unlock()
	}

	for range writers {
		wait.Go(func() { w.work(ctx, queue) })
	}
	<-ctx.Done()
	return nil
}

// enqueue makes keys due, the most urgent first. The caller holds the lock.
func (w *StatusWriter) enqueue(keys []resource.Key) {
	if w.queue == nil {
		return
	}
	slices.SortFunc(keys, func(a, b resource.Key) int {
		if c := w.urgency(b) - w.urgency(a); c != 0 {
			return c
		}
		return compare(a, b)
	})
	for _, k := range keys {
		w.queue.Add(k)
	}
}

// form returns the form of the status of a kind's objects; nil if none is written.
func (w *StatusWriter) form(k resource.Key) *resource.StatusForm {
	return w.forms[schema.GroupKind{Group: k.Group, Kind: k.Kind}]
}

func (w *StatusWriter) urgency(k resource.Key) int {
	if form := w.form(k); form != nil {
		return form.Urgency
	}
	return 0
}

// strays returns the objects that carry entries of ours and should not.
func (w *StatusWriter) strays(desired map[resource.Key]resource.Status) (keys []resource.Key) {
	for _, o := range w.source.Objects() {
		if _, wanted := desired[o.Key()]; wanted {
			continue
		}
		if w.named(o.Key(), o.Value()) {
			keys = append(keys, o.Key())
		}
	}
	return keys
}

// named reports whether an object carries entries with our controller's name.
func (w *StatusWriter) named(k resource.Key, object any) bool {
	form := w.form(k)
	if form == nil || !form.Parents && !form.Ancestors {
		return false
	}
	status := statusField(object)
	if !status.IsValid() || status.Kind() != reflect.Struct {
		return false
	}
	if form.Parents {
		parents, _ := status.FieldByName("Parents").Interface().([]gatewayv1.RouteParentStatus)
		return slices.ContainsFunc(parents, func(p gatewayv1.RouteParentStatus) bool { return string(p.ControllerName) == w.controller })
	}
	ancestors, _ := status.FieldByName("Ancestors").Interface().([]gatewayv1.PolicyAncestorStatus)
	return slices.ContainsFunc(ancestors, func(a gatewayv1.PolicyAncestorStatus) bool { return string(a.ControllerName) == w.controller })
}

// changed checks an object again after someone wrote it.
func (w *StatusWriter) changed(k resource.Key) {
	if w.form(k) == nil {
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
			w.failures.Log(w.log, slog.LevelWarn, "", "a status could not be written; trying again", "object", k.String(), "error", err,
				"failures", queue.NumRequeues(k)+1)
			queue.AddRateLimited(k)
		}
		queue.Done(k)
		if ctx.Err() != nil {
			return
		}
	}
}

// write updates the status of one object.
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
	form := w.form(k)
	if form == nil {
		return nil // a dialect reports on a kind without status
	}
	m := merger{w.controller, form, w.now()}
	if known := statusOf(o.Value()); known != nil {
		next, changes := w.next(m, k, known)
		if !changes {
			return nil
		}
		// An object without entries of others can be replaced by our own copy if that is the newest.
		if _, others := m.names(known); !others && form.Urgency == 0 {
			err := w.update(ctx, gvk, o.GetObjectMeta(), next)
			if !apierrors.IsConflict(err) {
				return err
			}
		}
	}
	return w.rewrite(ctx, m, gvk, k)
}

// next returns the intended status of an object, and whether it differs from the old one.
func (w *StatusWriter) next(m merger, k resource.Key, old map[string]any) (status map[string]any, changes bool) {
	w.mu.Lock()
	want, wanted := w.desired[k]
	last, released := w.released[k]
	w.mu.Unlock()
	switch ours, _ := m.names(old); {
	case wanted:
		status = m.merge(old, &want)
	case released && sameTree(old, m.merge(old, &last)):
		status = m.release(old) // no one else has taken it over
	case ours:
		status = m.release(old)
	default:
		return old, false
	}
	return status, !sameTree(old, status)
}

// rewrite reads the object from the API server and writes its status. It repeats that if another writer was faster.
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

// gone ignores that an object does not exist, or that another object now has its name: the watch will report that.
func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// statusField returns the field Status of a typed object; the zero Value if there is none.
func statusField(object any) reflect.Value {
	v := reflect.ValueOf(object)
	if v.Kind() != reflect.Pointer || v.IsNil() || v.Elem().Kind() != reflect.Struct {
		return reflect.Value{}
	}
	return v.Elem().FieldByName("Status")
}

// statusOf returns the status of a typed object as a tree, nil if the object has none. The status is in the field
// Status, as a struct or already as a tree.
func statusOf(object any) map[string]any {
	field := statusField(object)
	if !field.IsValid() {
		return nil
	}
	if tree, ok := field.Interface().(map[string]any); ok {
		if tree == nil {
			return map[string]any{}
		}
		return tree
	}
	tree, err := runtime.DefaultUnstructuredConverter.ToUnstructured(field.Addr().Interface())
	if err != nil {
		return nil
	}
	return tree
}

func objectKey(k resource.Key) client.ObjectKey {
	return client.ObjectKey{Namespace: k.Namespace, Name: k.Name}
}
