package kube

import (
	"context"
	"encoding/json"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/resource"
)

const (
	// inUse is the finalizer that Gateway API has for classes that Gateways use.
	inUse = gatewayv1.GatewayClassFinalizerGatewaysExist
	// classesLook is how often classes are checked without a change: others may have removed the finalizer.
	classesLook = time.Minute
)

// Classes prevents the deletion of our GatewayClasses while Gateways use them: without its class, a Gateway's owner
// would be unknown. A class that is deleted nevertheless disappears with its last Gateway.
type Classes struct {
	client     *Client
	source     *Source
	controller string
	log        *slog.Logger
	woken      chan struct{}

	mu sync.Mutex
	// used reports for each of our classes whether a Gateway uses it; nil means not known yet.
	used map[string]bool
}

// NewClasses returns Classes for the classes of a source that name the controller. A nil logger discards the log.
func NewClasses(c *Client, source *Source, controller string, logger *slog.Logger) *Classes {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Classes{client: c, source: source, controller: controller, log: logger, woken: make(chan struct{}, 1)}
}

// Set passes the present state. It returns at once; Run writes.
func (c *Classes) Set(set *resource.Set) {
	used := make(map[string]bool)
	for _, class := range set.GatewayClasses {
		if resource.OwnsClass(c.controller, class) {
			used[class.Name] = false
		}
	}
	for _, g := range set.Gateways {
		if _, ours := used[string(g.Spec.GatewayClassName)]; ours {
			used[string(g.Spec.GatewayClassName)] = true
		}
	}
	c.mu.Lock()
	c.used = used
	c.mu.Unlock()
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

// Run adds and removes the finalizer until ctx ends. It may be called again, as leadership comes and goes.
func (c *Classes) Run(ctx context.Context) error {
	for pause := retryLeast; ; {
		wait, woken := classesLook, c.woken
		if c.keepAll(ctx) {
			pause = retryLeast
		} else { // limited, even for new states: writing may be impossible altogether
			wait, woken, pause = pause, nil, min(2*pause, retryLongest)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-woken:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// keepAll corrects all classes. It returns false if one must be tried again.
func (c *Classes) keepAll(ctx context.Context) bool {
	c.mu.Lock()
	used := c.used
	c.mu.Unlock()
	all := true
	for _, name := range slices.Sorted(maps.Keys(used)) {
		err := c.keep(ctx, name, used[name])
		if err == nil || ctx.Err() != nil {
			continue
		}
		all = false
		if !apierrors.IsConflict(err) { // after a conflict, the changed class arrives soon
			c.log.Warn("the finalizer of a GatewayClass could not be changed; trying again", "class", name, "used", used[name], "error", err)
		}
	}
	return all
}

// keep adds the finalizer to one class, or removes it.
func (c *Classes) keep(ctx context.Context, name string, used bool) error {
	k := resource.Key{Group: gatewayv1.GroupName, Kind: "GatewayClass", Name: name}
	o := c.source.Object(k)
	version := c.source.Version(k.Group, k.Kind)
	if o == nil || version == "" {
		return nil // it is gone
	}
	class := o.GetObjectMeta()
	finalizers := slices.Clone(class.GetFinalizers())
	switch has := slices.Contains(finalizers, inUse); {
	case has == used:
		return nil
	case has && !c.source.Scope.All() && class.GetDeletionTimestamp() == nil:
		return nil // Gateways of unwatched namespaces may use it, for another controller
	case has:
		finalizers = slices.DeleteFunc(finalizers, func(f string) bool { return f == inUse })
	case class.GetDeletionTimestamp() != nil:
		return nil // the API server accepts no finalizer any more
	default:
		finalizers = append(finalizers, inUse)
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	// The patch applies to this version only: others may have finalizers, too.
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": class.GetUID(), "resourceVersion": class.GetResourceVersion(), "finalizers": finalizers,
	}})
	if err != nil {
		return err
	}
	into := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
	into.SetGroupVersionKind(schema.GroupVersionKind{Group: k.Group, Version: version, Kind: k.Kind})
	err = gone(c.client.Patch(ctx, into, client.RawPatch(types.MergePatchType, patch)))
	if err == nil {
		c.log.Debug("finalizer of a GatewayClass changed", "class", name, "used", used)
	}
	return err
}
