package edit

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/weirmesh/weir/internal/kube"
)

const (
	// timeout bounds one request, and the wait for a cache to be filled.
	timeout = 10 * time.Second
	// late is how long an object that was made here may be missing from the cache before it counts as deleted.
	late = 10 * time.Second
)

// ErrNoKind means that the API server does not know a kind.
var ErrNoKind = errors.New("the API server does not know this kind")

// Key names an object.
type Key struct {
	schema.GroupVersionKind
	Namespace, Name string
}

func (k Key) String() string { return k.Kind + " " + k.Namespace + "/" + k.Name }

// Objects reads and changes objects. Use New; Run fills the caches. What it returns is shared and read-only.
type Objects struct {
	client  *kube.Client
	caches  map[string]cache.Cache // by namespace; that of all namespaces has no name
	changed func(Key, client.Object)

	mu sync.Mutex
	// following are the kinds that are read, by cache.
	following map[string]map[schema.GroupVersionKind]bool
	written   map[Key]written
	writes    uint64
}

// written is what was written last, which the cache may not have yet.
type written struct {
	object client.Object // nil if it was deleted
	uid    string
	at     time.Time
}

// ownedBy is the index of objects by the UID of what controls them.
const ownedBy = "controller"

// New makes Objects of some namespaces, of all if none are named. changed is called whenever an object of a kind that is
// read was added, changed or removed; it must not block.
func New(c *kube.Client, namespaces []string, changed func(Key, client.Object)) (*Objects, error) {
	o := &Objects{
		client: c, changed: changed, caches: map[string]cache.Cache{}, following: map[string]map[schema.GroupVersionKind]bool{}, written: map[Key]written{},
	}
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	shared := true
	for _, n := range namespaces {
		options := cache.Options{
			Scheme: c.Scheme(), Mapper: c.RESTMapper(), DefaultTransform: strip, DefaultUnsafeDisableDeepCopy: &shared,
		}
		if n != "" { // the library uses the namespace that a selector of fields names
			options.DefaultFieldSelector = fields.OneTermEqualSelector("metadata.namespace", n)
		}
		objects, err := cache.New(c.Config, options)
		if err != nil {
			return nil, err
		}
		for _, kind := range []client.Object{&appsv1.ReplicaSet{}, &appsv1.ControllerRevision{}, &corev1.Pod{}} {
			if err := objects.IndexField(context.Background(), kind, ownedBy, controllerOf); err != nil {
				return nil, err
			}
		}
		o.caches[n], o.following[n] = objects, map[schema.GroupVersionKind]bool{}
	}
	return o, nil
}

func controllerOf(o client.Object) []string {
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
		return []string{string(ref.UID)}
	}
	return nil
}

// strip drops what nobody here looks at.
func strip(o any) (any, error) {
	if m, ok := o.(client.Object); ok {
		m.SetManagedFields(nil)
	}
	switch o := o.(type) {
	case *appsv1.ControllerRevision:
		o.Data.Raw = nil
	case *corev1.Pod:
		o.Spec = corev1.PodSpec{NodeName: o.Spec.NodeName}
		o.Annotations = nil
		o.Status = corev1.PodStatus{Phase: o.Status.Phase, Conditions: o.Status.Conditions, PodIP: o.Status.PodIP}
	case *discoveryv1.EndpointSlice:
		o.Annotations = nil
	}
	return o, nil
}

// Run fills the caches until ctx ends. It may be called once.
func (o *Objects) Run(ctx context.Context) error {
	var wait sync.WaitGroup
	for _, c := range o.caches {
		wait.Go(func() { _ = c.Start(ctx) }) // it ends with ctx
	}
	wait.Wait()
	return nil
}

// Writes is how many changes were made.
func (o *Objects) Writes() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.writes
}

// of is the cache of a namespace.
func (o *Objects) of(namespace string) (name string, c cache.Cache, err error) {
	for _, name := range []string{"", namespace} {
		if c := o.caches[name]; c != nil {
			return name, c, nil
		}
	}
	return "", nil, fmt.Errorf("namespace %s is none of those that are read", namespace)
}

// Follow begins to read a kind, and waits until it is known. An empty namespace means all that are read.
func (o *Objects) Follow(ctx context.Context, exemplar client.Object, namespace string) error {
	if namespace != "" {
		name, c, err := o.of(namespace)
		if err != nil {
			return err
		}
		return o.follow(ctx, name, c, exemplar)
	}
	for name, c := range o.caches {
		if err := o.follow(ctx, name, c, exemplar); err != nil {
			return err
		}
	}
	return nil
}

func (o *Objects) follow(ctx context.Context, name string, c cache.Cache, exemplar client.Object) error {
	gvk, err := apiutil.GVKForObject(exemplar, o.client.Scheme())
	if err != nil {
		return err
	}
	if _, err := o.client.RESTMapper().RESTMapping(gvk.GroupKind(), gvk.Version); meta.IsNoMatchError(err) {
		return fmt.Errorf("%w: %s", ErrNoKind, gvk)
	} else if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	informer, err := c.GetInformer(ctx, exemplar, cache.BlockUntilSynced(false))
	if err != nil {
		return err
	}
	o.mu.Lock()
	first := !o.following[name][gvk]
	o.following[name][gvk] = true
	o.mu.Unlock()
	if first {
		tell := func(v any) { o.tell(gvk, v) }
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: tell, UpdateFunc: func(_, v any) { tell(v) }, DeleteFunc: tell,
		}); err != nil {
			return err
		}
	}
	if !informer.HasSynced() && !toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("%s objects cannot be read: grant get, list and watch, or see whether the API server answers", gvk.Kind)
	}
	return nil
}

func (o *Objects) tell(gvk schema.GroupVersionKind, v any) {
	if lost, ok := v.(toolscache.DeletedFinalStateUnknown); ok {
		v = lost.Obj
	}
	if object, ok := v.(client.Object); ok {
		o.changed(Key{gvk, object.GetNamespace(), object.GetName()}, object)
	}
}

// Get returns an object; nil if it does not exist.
func (o *Objects) Get(ctx context.Context, k Key) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(k.GroupVersionKind)
	name, c, err := o.of(k.Namespace)
	if err != nil {
		return nil, err
	}
	if err := o.follow(ctx, name, c, u); err != nil {
		return nil, err
	}
	var found client.Object
	switch err := c.Get(ctx, client.ObjectKey{Namespace: k.Namespace, Name: k.Name}, u); {
	case err == nil: // its kind is not set: the map is the cache's, which others read, and has it
		found = u
	case !apierrors.IsNotFound(err):
		return nil, err
	}
	u, _ = o.newest(k, found).(*unstructured.Unstructured)
	return u, nil
}

// Owned lists objects of a namespace that an object controls, into a list such as an *appsv1.ReplicaSetList.
func (o *Objects) Owned(ctx context.Context, exemplar client.Object, namespace, uid string, into client.ObjectList) error {
	name, c, err := o.of(namespace)
	if err != nil {
		return err
	}
	if err := o.follow(ctx, name, c, exemplar); err != nil {
		return err
	}
	return c.List(ctx, into, client.InNamespace(namespace), client.MatchingFields{ownedBy: uid})
}

// List lists objects of a namespace.
func (o *Objects) List(ctx context.Context, exemplar client.Object, namespace string, into client.ObjectList, options ...client.ListOption) error {
	name, c, err := o.of(namespace)
	if err != nil {
		return err
	}
	if err := o.follow(ctx, name, c, exemplar); err != nil {
		return err
	}
	return c.List(ctx, into, append(options, client.InNamespace(namespace))...)
}

// Newest is an object as it was written last, if the cache, from which it comes, does not have that yet; nil if it was
// deleted.
func (o *Objects) Newest(cached client.Object) client.Object {
	gvk, err := apiutil.GVKForObject(cached, o.client.Scheme())
	if err != nil {
		return cached
	}
	return o.newest(Key{gvk, cached.GetNamespace(), cached.GetName()}, cached)
}

func (o *Objects) newest(k Key, cached client.Object) client.Object {
	o.mu.Lock()
	defer o.mu.Unlock()
	w, there := o.written[k]
	switch {
	case !there:
		return cached
	case cached == nil:
		if time.Since(w.at) < late && w.object != nil {
			return w.object
		}
	case w.object == nil:
		if string(cached.GetUID()) == w.uid {
			return nil
		}
	case before(cached, w.object):
		return w.object
	}
	delete(o.written, k)
	return cached
}

// made reports whether an object was written just now, and not deleted since, as far as is known here.
func (o *Objects) made(k Key) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	w, there := o.written[k]
	return there && w.object != nil && time.Since(w.at) < late
}

// before reports whether an object is older than another version of it. Versions that do not compare are taken as newer.
func before(a, b client.Object) bool {
	if a.GetUID() != b.GetUID() {
		return false
	}
	x, errX := strconv.ParseUint(a.GetResourceVersion(), 10, 64)
	y, errY := strconv.ParseUint(b.GetResourceVersion(), 10, 64)
	return errX == nil && errY == nil && x < y
}

// keep remembers what was written. What nobody reads again is forgotten in time.
func (o *Objects) keep(k Key, object client.Object, uid string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.writes++
	now := time.Now()
	if len(o.written) >= 1024 {
		for k, w := range o.written {
			if now.Sub(w.at) > late {
				delete(o.written, k)
			}
		}
	}
	o.written[k] = written{object, uid, now}
}
