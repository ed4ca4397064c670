package infra

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/model"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// FieldOwner is the owner of the applied fields.
	FieldOwner = "weir"
	// appliers is how many Gateways are worked on at a time.
	appliers = 4
	// applyTimeout bounds one application for one Gateway.
	applyTimeout = 30 * time.Second
	// retryAfter and retryMost are the first and the longest wait after a failure.
	retryAfter, retryMost = 500 * time.Millisecond, time.Minute
)

// Applier makes the cluster match its plans and keeps it so. It repairs objects that others change or delete, and
// deletes objects that no plan names any more. It touches nothing that it did not create. One Applier may run in a
// cluster (the leader's).
type Applier struct {
	client   client.Client
	caches   map[string]cache.Cache // by namespace; that of all namespaces has no name
	log      *slog.Logger
	failures loglimit.Limiter
	onChange func(gateway model.Owner)
	queue    workqueue.TypedRateLimitingInterface[model.Owner]

	mu    sync.Mutex
	plans map[model.Owner]*planned
}

// planned is a plan and the result of its application.
type planned struct {
	Plan
	sum [sha256.Size]byte
	// left are the objects as the last application left them, by identity, to tell one's own changes from others'.
	left     map[identity]string
	problems []ObjectProblem
}

// ObjectProblem is why an object is not as planned.
type ObjectProblem struct {
	// Kind and Name, in the Gateway's namespace.
	Kind, Name string
	// Foreign means that an object of that name exists that Weir did not create for this Gateway.
	Foreign bool
	// Refused means that the API server refuses the object as it is: trying again is useless.
	Refused bool
	Message string
}

func (p ObjectProblem) String() string { return p.Kind + " " + p.Name + ": " + p.Message }

// NewApplier makes an Applier that reaches the API server by config, for Gateways of the given namespaces, or of all if
// there are none. onChange, which may be nil, is called with the "namespace/name" of a Gateway whenever its Found may
// have changed; it must not block.
func NewApplier(config *rest.Config, namespaces []string, log *slog.Logger, onChange func(gateway model.Owner)) (*Applier, error) {
	c, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return nil, fmt.Errorf("infrastructure: %w", err)
	}
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	caches := map[string]cache.Cache{}
	for _, n := range namespaces {
		options := cache.Options{
			Scheme: clientgoscheme.Scheme, Mapper: c.RESTMapper(),
			DefaultLabelSelector: labels.SelectorFromSet(labels.Set{labelManagedBy: ManagedBy}),
			DefaultTransform:     cache.TransformStripManagedFields(),
		}
		if n != "" {
			// The library uses the namespace that a selector of fields names.
			options.DefaultFieldSelector = fields.OneTermEqualSelector("metadata.namespace", n)
		}
		if caches[n], err = cache.New(config, options); err != nil {
			return nil, fmt.Errorf("infrastructure: %w", err)
		}
	}
	if onChange == nil {
		onChange = func(model.Owner) {}
	}
	return &Applier{
		client: c, caches: caches, log: log, onChange: onChange, plans: map[model.Owner]*planned{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[model.Owner](retryAfter, retryMost)),
	}, nil
}

// Set replaces the Applier's plans. It does not block, and costs little for unchanged plans. It may be called before
// Run.
func (a *Applier) Set(plans []Plan) {
	a.mu.Lock()
	defer a.mu.Unlock()
	named := make(map[model.Owner]bool, len(plans))
	for _, p := range plans {
		named[p.Gateway] = true
		sum := sumOf(p)
		old := a.plans[p.Gateway]
		if old != nil && old.sum == sum {
			continue
		}
		next := &planned{Plan: p, sum: sum}
		if old != nil {
			next.problems = old.problems
		}
		a.plans[p.Gateway] = next
		a.queue.Forget(p.Gateway)
		a.queue.Add(p.Gateway)
	}
	for gateway := range a.plans {
		if !named[gateway] {
			delete(a.plans, gateway)
			a.queue.Forget(gateway)
		}
	}
}

func sumOf(p Plan) [sha256.Size]byte {
	text, err := json.Marshal(struct {
		Keep    bool
		Objects any
	}{p.Keep, p.Objects})
	if err != nil {
		panic(err) // plain data always marshals
	}
	return sha256.Sum256(text)
}

// Run blocks until ctx ends, which is no error, or until own objects cannot be watched. It may be called once.
func (a *Applier) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, own := range a.caches {
		group.Go(func() error { return own.Start(ctx) })
	}
	group.Go(func() error {
		<-ctx.Done()
		a.queue.ShutDown()
		return nil
	})
	group.Go(func() error {
		for _, own := range a.caches {
			if err := a.watch(ctx, own); err != nil {
				return err
			}
		}
		// A named namespace that does not exist delays no other: reading one only waits for its own cache.
		if own := a.caches[""]; own != nil && !own.WaitForCacheSync(ctx) {
			return nil // it ends
		}
		for range appliers {
			group.Go(func() error { a.work(ctx); return nil })
		}
		return nil
	})
	return group.Wait()
}

// watch puts a Gateway into the queue when an object that was made for it is no longer as it was left.
func (a *Applier) watch(ctx context.Context, own cache.Cache) error {
	for _, k := range kinds {
		informer, err := own.GetInformer(ctx, k.object(), cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("infrastructure: watching %s: %w", k.kind, err)
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { a.seen(k, o, false) },
			UpdateFunc: func(_, o any) { a.seen(k, o, false) },
			DeleteFunc: func(o any) {
				if tombstone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
					o = tombstone.Obj
				}
				a.seen(k, o, true)
			},
		})
		if err != nil {
			return fmt.Errorf("infrastructure: watching %s: %w", k.kind, err)
		}
	}
	return nil
}

func (a *Applier) seen(k kind, o any, deleted bool) {
	object, ok := o.(client.Object)
	if !ok {
		return
	}
	owner := ownerOf(object)
	if owner == nil {
		return
	}
	gateway := model.GatewayOwner(object.GetNamespace(), owner.Name)
	a.mu.Lock()
	p := a.plans[gateway]
	same := p != nil && !deleted && p.left[identity{k.kind, object.GetName()}] == fingerprint(object)
	a.mu.Unlock()
	if p == nil {
		return
	}
	if !same {
		a.queue.Add(gateway)
	}
	switch object.(type) {
	case *appsv1.Deployment, *corev1.Service: // their statuses are Found
		a.onChange(gateway)
	}
}

func (a *Applier) work(ctx context.Context) {
	for {
		gateway, end := a.queue.Get()
		if end {
			return
		}
		if a.apply(ctx, gateway) {
			a.queue.Forget(gateway)
		} else {
			a.queue.AddRateLimited(gateway)
		}
		a.queue.Done(gateway)
	}
}

// apply reports whether the Gateway has everything it should have.
func (a *Applier) apply(ctx context.Context, gateway model.Owner) bool {
	a.mu.Lock()
	p := a.plans[gateway]
	a.mu.Unlock()
	if p == nil || p.Keep {
		return true
	}
	ended := ctx.Err
	ctx, cancel := context.WithTimeout(ctx, applyTimeout)
	defer cancel()
	r := &run{Applier: a, plan: p.Plan, left: map[identity]string{}}
	r.namespace, r.name = gateway.Namespace(), gateway.Name()
	err := r.run(ctx)
	if ended() != nil {
		return true // an ended context is not a problem of the Gateway
	}
	if err != nil {
		a.failures.Log(a.log, slog.LevelError, "", "applying the Gateway's objects failed, trying again", "gateway", gateway, "error", err)
	}
	a.mu.Lock()
	changed := !slices.Equal(p.problems, r.problems)
	p.left, p.problems = r.left, r.problems
	a.mu.Unlock()
	if changed {
		a.onChange(gateway)
	}
	return err == nil
}
