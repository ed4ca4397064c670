package release

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/edit"
	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

const (
	// workers is how many Rollouts are worked on at a time.
	workers = 8
	// retryLeast and retryMost bound the wait after a failure.
	retryLeast, retryMost = 100 * time.Millisecond, 30 * time.Second
	// Look is how often the API server is asked whether there are Rollouts, and whether OpenKruise carries them out, unless
	// something else is said: two small requests, and as long two controllers may write the same objects.
	Look = 5 * time.Second
	// idle is how long nothing of a Rollout that is being released goes unseen, though nobody told of a change.
	idle = 30 * time.Second
)

// Controller carries Rollouts out. The fields are set before Run.
type Controller struct {
	Client *kube.Client
	// Namespaces are those whose Rollouts are carried out; none means all.
	Namespaces []string
	Providers  rollout.Providers
	// Workloads are the kinds that may be released.
	Workloads workload.Kinds
	// Proxied reports whether proxies route by objects as they are, and otherwise what is awaited. If it is nil, the grace
	// period of a Rollout is all that proxies get.
	Proxied func(objects []*unstructured.Unstructured) (ok bool, awaited string)
	// Counted counts the requests of a step that is in force; it is nil, or returns nil, if nobody counts them. What its
	// error says stays in the log: it may have addresses that are nobody's business.
	Counted func(ctx context.Context, c Count) (*rollout.Shared, error)
	// Look is how often the API server is asked what may be in the way; the constant Look if it is zero.
	Look time.Duration
	// Instance is the name of this process in Events.
	Instance string
	Logger   *slog.Logger

	objects              cluster
	turns                *turns
	definitions          *Definitions
	gone                 chan struct{} // says that Rollouts have gone
	queue                workqueue.TypedRateLimitingInterface[types.NamespacedName]
	events               *events
	failures, unmeasured loglimit.Limiter

	mu    sync.Mutex
	stats stats
	// uses are the Rollouts that an object concerns, used the objects that concern a Rollout.
	uses map[object]map[types.NamespacedName]bool
	used map[types.NamespacedName][]object
	// waiting are the Rollouts that wait for proxies.
	waiting map[types.NamespacedName]bool
	// told is when a status was stored last, of those Rollouts that there are.
	told map[types.NamespacedName]time.Time
	// obstructions are what keeps Rollouts from being carried on, of those that are.
	obstructions map[types.NamespacedName]obstruction
	away         Obstacle // why nothing is carried out; empty if it is, and before that is known
}

// cluster has the objects of users; *edit.Objects is one.
type cluster interface {
	Get(ctx context.Context, k edit.Key) (*unstructured.Unstructured, error)
	List(ctx context.Context, exemplar client.Object, namespace string, into client.ObjectList, options ...client.ListOption) error
	Owned(ctx context.Context, exemplar client.Object, namespace, uid string, into client.ObjectList) error
	Newest(cached client.Object) client.Object

	Update(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error)
	UpdateStatus(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error)
	Create(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error)
	Delete(ctx context.Context, u *unstructured.Unstructured) error
	Scale(ctx context.Context, rs *appsv1.ReplicaSet, replicas int32, annotation string) error
	Evict(ctx context.Context, pod *corev1.Pod) error
}

// object names one, whatever the version of its kind.
type object struct {
	schema.GroupKind
	namespace, name string
}

var rolloutKind = edit.GVK(rollouts.Group, "v1beta1", "Rollout")

// Run carries Rollouts out until ctx ends. It waits for their definition, and stands back where OpenKruise's own
// controller is.
func (c *Controller) Run(ctx context.Context) error {
	written := kube.NewEvents(c.Client, maxWaiting, writers, c.Logger)
	c.events = newEvents(c, written.Add)
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer func() { c.mu.Lock(); c.away = ""; c.mu.Unlock() }() // another process may do it
	defer wait.Wait()
	defer cancel()
	wait.Go(func() { written.Run(ctx) })
	for {
		why, err := FindObstacle(ctx, c.Client)
		if err != nil && ctx.Err() == nil {
			c.Logger.Warn("it is not known whether there are Rollouts to carry out; trying again", "error", err)
		}
		if err == nil {
			if c.stand(why); why == "" {
				if why, err = c.carry(ctx); err != nil {
					return err
				}
				c.stand(why)
			}
		}
		if !c.pause(ctx) {
			return nil
		}
	}
}

// pause waits until it is time to look again; false if ctx ends.
func (c *Controller) pause(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(cmp.Or(c.Look, Look)):
		return true
	}
}

// stand notes why nothing is carried out; empty if it is.
func (c *Controller) stand(why Obstacle) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case why == c.away:
	case why != "":
		c.Logger.Warn("Rollouts are not carried out", "reason", why.String())
	default:
		c.Logger.Info("nothing is in the way any more of carrying Rollouts out")
	}
	c.away = why
}

// carry carries Rollouts out until ctx ends or an obstacle comes, which it returns.
func (c *Controller) carry(ctx context.Context) (Obstacle, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c.forget()
	defer c.stop()
	c.gone = make(chan struct{}, 1)
	turns := &turns{asked: map[types.NamespacedName]bool{}}
	c.turns, c.queue = turns, newQueue(turns)
	objects, err := edit.New(c.Client, c.Namespaces, c.changed)
	if err != nil {
		return "", err
	}
	c.objects, c.definitions = named{objects}, &Definitions{Client: c.Client}
	var wait sync.WaitGroup
	defer wait.Wait()
	defer c.queue.ShutDown()
	defer cancel()
	wait.Go(func() { _ = objects.Run(ctx) })
	exemplar := &unstructured.Unstructured{}
	exemplar.SetGroupVersionKind(rolloutKind)
	if err := objects.Follow(ctx, exemplar, ""); err != nil {
		if ctx.Err() == nil {
			c.Logger.Warn("Rollouts cannot be read; trying again", "error", err)
		}
		return "", nil // their definition may have gone
	}
	for range workers {
		wait.Go(func() { c.work(ctx) })
	}
	wait.Go(func() { c.sweeping(ctx) })
	for c.pause(ctx) {
		if why, err := FindObstacle(ctx, c.Client); err == nil && why != "" {
			return why, nil
		}
	}
	return "", nil
}

// forget begins with nothing known.
func (c *Controller) forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.uses, c.used, c.waiting = map[object]map[types.NamespacedName]bool{}, map[types.NamespacedName][]object{}, map[types.NamespacedName]bool{}
	c.told, c.obstructions = map[types.NamespacedName]time.Time{}, map[types.NamespacedName]obstruction{}
	c.stats.begin()
}

// changed puts the Rollouts that an object concerns into the queue.
func (c *Controller) changed(k edit.Key, o client.Object) {
	asked := asks(o)
	add := func(r types.NamespacedName) {
		if asked {
			c.turns.ask(r)
		}
		c.queue.Add(r)
	}
	if k.GroupVersionKind == rolloutKind {
		add(types.NamespacedName{Namespace: k.Namespace, Name: k.Name})
	}
	names := []object{{k.GroupKind(), k.Namespace, k.Name}}
	if ref := metav1.GetControllerOfNoCopy(o); ref != nil {
		group, _ := rollout.SplitVersion(ref.APIVersion)
		names = append(names, object{schema.GroupKind{Group: group, Kind: ref.Kind}, k.Namespace, ref.Name})
		if ref.Kind == "ReplicaSet" && k.Kind == "Pod" {
			names = names[:1]
		}
	}
	if service := o.GetLabels()[discoveryv1.LabelServiceName]; service != "" && k.Kind == "EndpointSlice" {
		names = append(names, object{schema.GroupKind{Kind: "Service"}, k.Namespace, service})
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, name := range names {
		for r := range c.uses[name] {
			add(r)
		}
	}
}

// Wake has those Rollouts go on that wait for proxies. It does not block.
func (c *Controller) Wake() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for r := range c.waiting {
		c.queue.Add(r)
	}
	clear(c.waiting)
}

// wait notes that a Rollout waits for proxies.
func (c *Controller) wait(r types.NamespacedName) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting[r] = true
}

// concern says which objects a Rollout is about.
func (c *Controller) concern(r types.NamespacedName, objects []object) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.used[r] {
		if delete(c.uses[o], r); len(c.uses[o]) == 0 {
			delete(c.uses, o)
		}
	}
	if delete(c.used, r); len(objects) == 0 {
		delete(c.told, r)
		delete(c.obstructions, r)
		c.stats.gone(r)
		return
	}
	c.used[r] = objects
	for _, o := range objects {
		if c.uses[o] == nil {
			c.uses[o] = map[types.NamespacedName]bool{}
		}
		c.uses[o][r] = true
	}
}

func (c *Controller) work(ctx context.Context) {
	for {
		name, end := c.queue.Get()
		if end {
			return
		}
		again, err := c.reconcile(ctx, name)
		switch {
		case ctx.Err() != nil:
		case apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err): // somebody else was faster: what he wrote is on its way
			c.queue.AddAfter(name, retryLeast)
		case err != nil:
			c.failed()
			c.failures.Log(c.Logger, slog.LevelWarn, "", "a Rollout could not be carried on; trying again", "rollout", name.String(), "error", err)
			c.queue.AddRateLimited(name)
		default:
			c.queue.Forget(name)
			if again > 0 {
				c.queue.AddAfter(name, again)
			}
		}
		c.queue.Done(name)
	}
}

// errBusy means that a release went on for long without a pause: others come first.
var errBusy = errors.New("the release makes no progress: this is a defect of Weir")

// replicaSets is the kind of Deployments' revisions.
var replicaSets = &appsv1.ReplicaSet{}
