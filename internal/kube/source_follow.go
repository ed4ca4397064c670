package kube

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/weirmesh/weir/internal/resource"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// follow starts and ends watches as kinds come and go. It returns when ctx has ended and all watches have ended.
func (s *Source) follow(ctx context.Context) {
	defer func() {
		for _, w := range s.watching() {
			w.stop()
		}
	}()
	var kinds map[schema.GroupKind]served
	wait := 100 * time.Millisecond
	for {
		now, err := s.look(ctx, kinds)
		switch {
		case err == nil:
			kinds = now
			s.arrange(ctx, kinds)
			wait = s.Look
		case ctx.Err() != nil:
			return
		default:
			s.Logger.Warn("asking the API server for its kinds failed; trying again", "error", err)
			wait = min(2*wait, s.Look)
		}
		if !s.await(ctx, wait, kinds) {
			return
		}
	}
}

// await waits, and meanwhile begins to watch what objects that come need. It returns false if ctx has ended.
func (s *Source) await(ctx context.Context, wait time.Duration, kinds map[schema.GroupKind]served) bool {
	next := time.NewTimer(wait)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-next.C:
			return true
		case <-s.wanting:
			s.arrange(ctx, kinds)
		}
	}
}

func (s *Source) look(ctx context.Context, before map[schema.GroupKind]served) (map[schema.GroupKind]served, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	absent, err := s.client.absent(ctx, s.Scope)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	if !maps.Equal(absent, s.absent) {
		if len(absent) > 0 {
			s.Logger.Warn("some of the namespaces to watch do not exist", "namespaces", slices.Sorted(maps.Keys(absent)))
		}
		s.touch()
	}
	s.absent = absent
	s.mu.Unlock()
	return s.client.kinds(ctx, s.Kinds, s.Scope, before)
}

func (s *Source) watching() []*watch {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []*watch
	for _, w := range s.watches {
		all = append(all, w)
	}
	return all
}

// arrange starts and stops watches to match the installed kinds, as far as they are needed.
func (s *Source) arrange(ctx context.Context, kinds map[schema.GroupKind]served) {
	s.mu.Lock()
	needed := s.needed()
	s.mu.Unlock()
	for _, w := range s.watching() {
		v, there := kinds[w.id()]
		_, refused := w.state()
		switch {
		case !there:
			w.stop()
			s.forget(w, "the API server no longer serves a kind")
		case !needed[w.id()]:
			w.stop()
			s.forget(w, "nothing needs a kind any longer")
		case v.gvk != w.gvk || v.resource != w.resource:
			w.stop()
			s.begin(ctx, v)
		case refused != nil && s.permitted(ctx, v):
			s.Logger.Info("the API server now lets Weir read this resource", "resource", v.String())
			if synced, _ := w.state(); synced {
				w.allowed()
				s.touch()
				continue
			}
			w.stop() // its next attempt may be far off
			s.begin(ctx, v)
		}
	}
	all := true
	for id, v := range kinds {
		s.mu.Lock()
		there := s.watches[id] != nil
		s.mu.Unlock()
		if !there && needed[id] {
			all = s.begin(ctx, v) && all
		}
	}
	s.mu.Lock()
	first := all && !s.looked
	s.looked = s.looked || all
	s.mu.Unlock()
	if first || !all {
		s.touch()
	}
}

// permitted reports whether the API server permits reading the kind now.
func (s *Source) permitted(ctx context.Context, v served) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return s.client.probe(ctx, v, s.Scope) == nil
}

// begin starts watching a kind. It reports whether that succeeded; if not, the next look tries again.
func (s *Source) begin(ctx context.Context, v served) bool {
	s.mu.Lock()
	s.fresh[v.id()] = make(map[resource.Key]bool)
	s.mu.Unlock()
	w, err := s.client.start(ctx, s.Kinds, v, s.Scope, s, s.Logger)
	if err != nil {
		s.Logger.Error("a resource cannot be watched; trying again", "resource", v.String(), "error", err)
		s.mu.Lock()
		delete(s.watches, v.id())
		s.mu.Unlock()
		return false
	}
	s.mu.Lock()
	s.watches[v.id()] = w
	s.mu.Unlock()
	s.settled(w) // the watch may have been faster
	return true
}

// forget drops a kind, and logs why.
func (s *Source) forget(w *watch, why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Logger.Info(why, "resource", w.String())
	delete(s.watches, w.id())
	delete(s.fresh, w.id())
	s.collection.Clear(w.Group, w.Name)
	for k := range s.objects {
		if k.Group == w.Group && k.Kind == w.Name {
			delete(s.objects, k)
		}
	}
	s.touch()
}

// settled implements receiver.
func (s *Source) settled(w *watch) {
	if synced, _ := w.state(); synced {
		s.sweep(w)
	}
	s.touch()
}

// sweep removes objects that were deleted between two watches of a kind.
func (s *Source) sweep(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fresh, ok := s.fresh[w.id()]
	if !ok || s.watches[w.id()] != w {
		return
	}
	delete(s.fresh, w.id())
	for k := range s.objects {
		if k.Group == w.Group && k.Kind == w.Name && !fresh[k] {
			s.drop(k)
		}
	}
}

// put implements receiver.
func (s *Source) put(v served, before, o any) {
	if m, ok := o.(*metav1.PartialObjectMetadata); ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.contents.stale(resource.Key{Group: v.Group, Kind: v.Name, Namespace: m.Namespace, Name: m.Name}, m.ResourceVersion) {
			s.touch()
		}
		return
	}
	object, ok := o.(*resource.Object)
	if !ok {
		return
	}
	k := object.Key()
	s.mu.Lock()
	if fresh := s.fresh[v.id()]; fresh != nil {
		fresh[k] = true
	}
	if v.Custom() {
		s.objects[k] = object
	}
	s.collection.Put(object)
	if len(v.Needs) > 0 && s.wants() {
		notify(s.wanting)
	}
	s.mu.Unlock()
	if last, ok := before.(*resource.Object); !ok || !v.same(last, object) {
		s.touch()
	}
	if v.Custom() {
		s.changed(k)
	}
}

// remove implements receiver.
func (s *Source) remove(v served, k resource.Key) {
	s.mu.Lock()
	cared := true
	if v.OnReference {
		cared = s.contents.stale(k, "")
	} else {
		s.drop(k)
	}
	s.mu.Unlock()
	if cared {
		s.touch()
	}
	if v.Custom() {
		s.changed(k)
	}
}

func (s *Source) drop(k resource.Key) {
	delete(s.objects, k)
	s.collection.Remove(k)
}

// same reports whether two versions of an object of the kind mean the same.
func (v served) same(a, b *resource.Object) bool {
	if v.Excerpt() {
		return resource.SameExcerpt(a, b)
	}
	return sameMeaning(a, b)
}

// sameMeaning reports whether two versions of an object only differ in a status or in a writer's metadata. The
// generation of a custom object counts changes of everything else.
func sameMeaning(a, b *resource.Object) bool {
	before, after := a.GetObjectMeta(), b.GetObjectMeta()
	switch now := b.Value().(type) {
	case *corev1.Service:
		last, ok := a.Value().(*corev1.Service)
		if !ok || !equality.Semantic.DeepEqual(last.Spec, now.Spec) || !equality.Semantic.DeepEqual(last.Status, now.Status) {
			return false
		}
	case *corev1.Namespace:
	default:
		if before.GetGeneration() != after.GetGeneration() || after.GetGeneration() == 0 {
			return false
		}
	}
	return before.GetUID() == after.GetUID() &&
		equality.Semantic.DeepEqual(before.GetLabels(), after.GetLabels()) &&
		equality.Semantic.DeepEqual(before.GetAnnotations(), after.GetAnnotations()) &&
		(before.GetDeletionTimestamp() == nil) == (after.GetDeletionTimestamp() == nil)
}

// refusal returns the finding about a kind that Weir has no permission to read.
func refusal(v served, err error) resource.Finding {
	return resource.Refused(v.String(), []string{"get", "list", "watch"}, err)
}
