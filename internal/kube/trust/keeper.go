package trust

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/infra"
)

const (
	// retry is the pause after a write that failed, and between two looks at all in any case.
	retry = 10 * time.Second
	// timeout bounds one write.
	timeout = 10 * time.Second
	// linger is how long a ConfigMap stays that nobody needs: until the next run of a CronJob, say.
	linger = 10 * time.Minute
	// owner is the field manager.
	owner = "weir"
)

// Keeper makes the ConfigMap where namespaces ask for sidecars and where pods have one, corrects it, and deletes it when
// nobody has needed it for a while. Of a ConfigMap of that name without its label it says that it is in the way.
type Keeper struct {
	Client *kube.Client
	// Namespaces are those that are watched; none is all.
	Namespaces []string
	// Asking returns the namespaces that ask for sidecars.
	Asking func() []string
	// Bundle returns the certificates to trust, as PEM; empty if they are not known yet.
	Bundle func() string
	Logger *slog.Logger
	// Linger replaces the time that an unneeded ConfigMap stays, if it is not zero.
	Linger time.Duration

	caches []cache.Cache
	wake   chan struct{}
	unused map[string]time.Time // since when ConfigMaps are not needed, by namespace
	told   map[string]string    // what was last logged about a namespace
}

// Run keeps them until ctx ends. woken has a value when what Asking or Bundle return may have changed.
func (k *Keeper) Run(ctx context.Context, woken <-chan struct{}) error {
	k.wake, k.unused, k.told, k.caches = make(chan struct{}, 1), map[string]time.Time{}, map[string]string{}, nil
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	namespaces := k.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{""}
	}
	for _, n := range namespaces {
		c, err := k.open(ctx, n)
		if err != nil {
			return err
		}
		k.caches = append(k.caches, c)
		wait.Go(func() { _ = c.Start(ctx) }) // it ends with ctx
	}
	first, known := context.WithTimeout(ctx, timeout)
	defer known()
	for _, c := range k.caches {
		switch ok := c.WaitForCacheSync(first); {
		case ctx.Err() != nil:
			return nil
		case !ok:
			return errors.New("the ConfigMaps " + inject.CAName + " and the pods cannot be read: grant list and watch, or see whether the API server answers")
		}
	}
	for {
		if err := k.look(ctx); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-k.wake:
		case <-woken:
		case <-time.After(retry):
		}
	}
}

// open makes a cache of the ConfigMaps, and of where there are pods with sidecars, of a namespace or of all.
func (k *Keeper) open(ctx context.Context, namespace string) (cache.Cache, error) {
	of, here := fields.OneTermEqualSelector("metadata.name", inject.CAName), fields.Everything()
	if namespace != "" { // the library uses the namespace that a selector of fields names
		here = fields.OneTermEqualSelector("metadata.namespace", namespace)
		of = fields.AndSelectors(here, of)
	}
	c, err := cache.New(k.Client.Config, cache.Options{
		Scheme: k.Client.Scheme(), Mapper: k.Client.RESTMapper(), DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Field: of},
			&corev1.Pod{}:       {Field: here, Label: labels.SelectorFromSet(labels.Set{inject.Label: inject.Enabled}), Transform: bare},
		},
	})
	if err != nil {
		return nil, err
	}
	changed := func() {
		select {
		case k.wake <- struct{}{}:
		default:
		}
	}
	// What changes in a pod that stays is not looked at.
	pods := toolscache.ResourceEventHandlerFuncs{AddFunc: func(any) { changed() }, DeleteFunc: func(any) { changed() }}
	maps := pods
	maps.UpdateFunc = func(any, any) { changed() }
	for object, handler := range map[client.Object]toolscache.ResourceEventHandlerFuncs{&corev1.ConfigMap{}: maps, &corev1.Pod{}: pods} {
		informer, err := c.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, err
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// bare leaves of a pod what says where it is. Watches of metadata alone, of the library, can leave a goroutine behind.
func bare(o any) (any, error) {
	if p, ok := o.(*corev1.Pod); ok {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion}}, nil
	}
	return o, nil
}

// look brings all ConfigMaps to what they are to be.
func (k *Keeper) look(ctx context.Context) error {
	bundle := k.Bundle()
	if bundle == "" {
		return nil
	}
	needed := map[string]bool{}
	for _, n := range k.Asking() {
		if len(k.Namespaces) == 0 || slices.Contains(k.Namespaces, n) {
			needed[n] = true
		}
	}
	have := map[string]*corev1.ConfigMap{}
	for _, c := range k.caches {
		pods, maps := &corev1.PodList{}, &corev1.ConfigMapList{}
		for _, list := range []client.ObjectList{pods, maps} {
			if err := c.List(ctx, list); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return fmt.Errorf("%T: %w", list, err)
			}
		}
		for i := range pods.Items {
			needed[pods.Items[i].Namespace] = true
		}
		for i := range maps.Items {
			have[maps.Items[i].Namespace] = &maps.Items[i]
		}
	}
	for _, n := range slices.Sorted(maps.Keys(needed)) {
		delete(k.unused, n)
		k.tell(n, k.keep(ctx, n, have[n], bundle))
	}
	for n, is := range have {
		if !needed[n] && ours(is) {
			k.tell(n, k.drop(ctx, n, is))
		}
	}
	for n := range k.unused {
		if have[n] == nil {
			delete(k.unused, n)
		}
	}
	for n := range k.told {
		if !needed[n] && have[n] == nil {
			delete(k.told, n)
		}
	}
	return nil
}

// ours reports whether a ConfigMap is one that a Keeper made.
func ours(c *corev1.ConfigMap) bool { return c.Labels[ManagedBy] == infra.ManagedBy }

// ManagedBy is the label of what a Keeper made; its value is infra's.
const ManagedBy = "app.kubernetes.io/managed-by"

// keep makes the ConfigMap of a namespace what it is to be.
func (k *Keeper) keep(ctx context.Context, namespace string, is *corev1.ConfigMap, bundle string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	want := map[string]string{inject.CAKey: bundle}
	switch {
	case is == nil:
		err := k.Client.Create(ctx, &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: inject.CAName, Labels: map[string]string{ManagedBy: infra.ManagedBy, "app.kubernetes.io/part-of": "weir"}}, Data: want,
		}, client.FieldOwner(owner))
		if apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			return nil // it comes by the watch, or the namespace goes
		}
		return err
	case !ours(is):
		return fmt.Errorf("there is one already without the label %s=%s: rename it, since sidecars of the namespace cannot know the controller by it", ManagedBy, infra.ManagedBy)
	case maps.Equal(is.Data, want) && len(is.BinaryData) == 0:
		return nil
	}
	data := map[string]any{}
	for key := range is.Data {
		data[key] = nil
	}
	data[inject.CAKey] = bundle
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": is.ResourceVersion}, "data": data, "binaryData": nil})
	if err != nil {
		return err
	}
	err = k.Client.Patch(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: inject.CAName}}, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(owner))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // what is there now comes by the watch
	}
	return err
}

// drop deletes one that nobody has needed for a while.
func (k *Keeper) drop(ctx context.Context, namespace string, is *corev1.ConfigMap) error {
	wait := k.Linger
	if wait == 0 {
		wait = linger
	}
	since, known := k.unused[namespace]
	if !known {
		since = time.Now()
		k.unused[namespace] = since
	}
	if time.Since(since) < wait {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := k.Client.Delete(ctx, is.DeepCopy(), client.Preconditions{UID: &is.UID, ResourceVersion: &is.ResourceVersion})
	if apierrors.IsConflict(err) {
		return nil
	}
	return client.IgnoreNotFound(err)
}

// tell logs why a namespace's is not what it is to be, when that changes.
func (k *Keeper) tell(namespace string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != k.told[namespace] {
		k.Logger.Error("sidecars of a namespace cannot get the controller's certificates; trying again", "configMap", namespace+"/"+inject.CAName, "error", err)
	}
	if k.told[namespace] = text; text == "" {
		delete(k.told, namespace)
	}
}
