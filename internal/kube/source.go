package kube

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weirmesh/weir/internal/resource"
)

// SourceOptions of a Source.
type SourceOptions struct {
	// Controller is the name by which GatewayClasses are ours: of other Gateways no Secret is read.
	Controller string
	// Scope is what is read. What it names is never read from elsewhere.
	Scope Scope
	// Look is how often the API server is asked for kinds that were installed or removed. Default 10 s.
	Look time.Duration
	// Logger is told of what could not be read. Discards if nil.
	Logger *slog.Logger
}

// Source is a resource.Source over a Kubernetes API server. The first Set comes when everything was read; while the API
// server is away the last one stays. Kinds whose definition is not installed are left out until it is. Of Secrets and
// ConfigMaps only those are read that something refers to.
type Source struct {
	client *Client
	SourceOptions

	// changed is told of every custom object that came, went or changed, its status alone included. It returns at once.
	changed func(resource.Key)
	// dirty holds one token when another Set is due.
	dirty chan struct{}

	mu         sync.Mutex
	collection *resource.Collection
	// objects are the custom ones as they are, with their statuses.
	objects  map[resource.Key]*resource.Object
	contents *contents
	watches  map[schema.GroupKind]*watch
	// fresh are the objects that a watch told of before it synced.
	fresh map[schema.GroupKind]map[resource.Key]bool
	// looked says that the kinds there are are known.
	looked bool
	// absent are the namespaces of the scope that do not exist.
	absent map[string]bool
}

var _ resource.Source = (*Source)(nil)

// NewSource returns a Source that has not begun.
func NewSource(c *Client, options SourceOptions) *Source {
	if options.Look <= 0 {
		options.Look = 10 * time.Second
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return &Source{
		client: c, SourceOptions: options, changed: func(resource.Key) {}, dirty: make(chan struct{}, 1),
		collection: resource.NewCollection(), objects: make(map[resource.Key]*resource.Object), contents: newContents(c, options.Logger),
		watches: make(map[schema.GroupKind]*watch), fresh: make(map[schema.GroupKind]map[resource.Key]bool),
	}
}

// Object returns a custom object as the watch last told of it, read-only, or nil. Its value is of the type it has in a Set.
func (s *Source) Object(k resource.Key) *resource.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.objects[k]
}

// Objects returns all custom objects.
func (s *Source) Objects() []*resource.Object {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*resource.Object, 0, len(s.objects))
	for _, o := range s.objects {
		all = append(all, o)
	}
	return all
}

// Version is the one in which a kind is read here; empty if the API server does not serve the kind.
func (s *Source) Version(group, kind string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.watches[schema.GroupKind{Group: group, Kind: kind}]; w != nil {
		return w.gvk.Version
	}
	return ""
}

// lookTimeout bounds the questions which kinds there are, and may be read.
const lookTimeout = 30 * time.Second

// holdoff is how long changes are gathered into one Set.
const holdoff = 10 * time.Millisecond

// Run implements resource.Source. A Source runs once.
func (s *Source) Run(ctx context.Context, emit func(*resource.Set)) error {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	wait.Go(func() { s.follow(ctx) })

	first := true
	var told resource.Key // what the log says is waited for
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.dirty:
			if !sleep(ctx, holdoff) {
				return nil
			}
			s.drain()
		case <-again.C:
			again.Reset(tick)
			if !s.overdue() {
				continue
			}
		}
		if !s.ready() {
			continue
		}
		set, awaited := s.set(ctx)
		if set == nil {
			if awaited != told {
				s.Logger.Warn("nothing changes until an object that is referred to can be read", "object", awaited.String())
				told = awaited
			}
			continue
		}
		told = resource.Key{}
		if first {
			s.Logger.Info("the objects of the cluster are known", "after", time.Since(began).Round(time.Millisecond))
			first = false
		}
		emit(set)
	}
}

// tick is how often it is seen whether something is due by time alone.
const tick = time.Second

func (s *Source) overdue() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.collection.Due() || s.contents.due(time.Now())
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}

// touch makes another Set due.
func (s *Source) touch() {
	select {
	case s.dirty <- struct{}{}:
	default:
	}
}

func (s *Source) drain() {
	select {
	case <-s.dirty:
	default:
	}
}

// ready says whether all that can be read has been. Without what is essential nothing can be said: it would look as if
// that had been deleted.
func (s *Source) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.looked {
		return false
	}
	for _, w := range s.watches {
		synced, refused := w.state()
		if !synced && w.waits(s.absent) && (refused == nil || w.essential()) {
			return false
		}
	}
	return true
}

// Lost returns the kinds without which there is no first Set and that the API server tells nothing of, though it had the time, if
// these are all that it waits for; otherwise none.
func (s *Source) Lost() (kinds []schema.GroupKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.looked {
		return nil
	}
	for _, w := range s.watches {
		synced, refused := w.state()
		if synced || !w.waits(s.absent) || refused != nil && !w.essential() {
			continue
		}
		if !w.isLost() {
			return nil
		}
		kinds = append(kinds, w.id())
	}
	return kinds
}

// set reads the Secrets and ConfigMaps that are referred to and not yet known, and makes a Set. It is nil, with the object
// that is waited for, where that may be read soon.
func (s *Source) set(ctx context.Context) (set *resource.Set, awaited resource.Key) {
	set, missing := s.assemble()
	if len(missing) == 0 {
		return s.held(set)
	}
	read := s.contents.read(ctx, missing)
	s.mu.Lock()
	for _, r := range read {
		s.contents.take(r, s.collection)
	}
	if s.contents.due(time.Now()) {
		s.touch() // it changed while it was read
	}
	s.mu.Unlock()
	set, _ = s.assemble()
	return s.held(set)
}

// held returns the Set, or nil and the object that it waits for.
func (s *Source) held(set *resource.Set) (*resource.Set, resource.Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if k, wait := s.contents.awaited(); wait {
		return nil, k
	}
	return set, resource.Key{}
}

// assemble makes a Set of what is known. It returns what it refers to and has to be read first.
func (s *Source) assemble() (set *resource.Set, missing []reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var findings []resource.Finding
	for _, w := range s.watches {
		if _, refused := w.state(); refused != nil && (len(s.absent) == 0 || w.waits(s.absent)) {
			findings = append(findings, refusal(w.served, refused))
		}
	}
	set = s.collection.Set(slices.Concat(findings, s.contents.findings())...)
	missing, left := s.contents.want(references(set, s.Controller, s.Scope), s.collection, time.Now())
	if left {
		set = s.collection.Set(slices.Concat(findings, s.contents.findings())...)
	}
	set.Watched = s.Scope.Namespaces
	return set, missing
}

// follow starts and ends watches as kinds come and go, until ctx ends and all watches have.
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
			s.Logger.Warn("the API server does not say which kinds it has; asking again", "error", err)
			wait = min(2*wait, s.Look)
		}
		if !sleep(ctx, wait) {
			return
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
			s.Logger.Warn("of the namespaces that are to be watched some do not exist", "namespaces", slices.Sorted(maps.Keys(absent)))
		}
		s.touch()
	}
	s.absent = absent
	s.mu.Unlock()
	return s.client.kinds(ctx, s.Scope, before)
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

// arrange makes the watches those of the kinds there are.
func (s *Source) arrange(ctx context.Context, kinds map[schema.GroupKind]served) {
	for _, w := range s.watching() {
		v, there := kinds[w.id()]
		_, refused := w.state()
		switch {
		case !there:
			w.stop()
			s.forget(w)
		case v.gvk != w.gvk || v.resource != w.resource:
			w.stop()
			s.begin(ctx, v)
		case refused != nil && s.permitted(ctx, v):
			s.Logger.Info("the API server lets Weir read this resource now", "resource", v.String())
			if synced, _ := w.state(); synced {
				w.allowed()
				s.touch()
				continue
			}
			w.stop() // its next try may be far off
			s.begin(ctx, v)
		}
	}
	all := true
	for id, v := range kinds {
		s.mu.Lock()
		there := s.watches[id] != nil
		s.mu.Unlock()
		if !there {
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

// permitted says whether the API server lets the kind be read now.
func (s *Source) permitted(ctx context.Context, v served) bool {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	return s.client.probe(ctx, v, s.Scope) == nil
}

// begin watches a kind. It reports whether that could be begun; if not, the next look tries again.
func (s *Source) begin(ctx context.Context, v served) bool {
	s.mu.Lock()
	s.fresh[v.id()] = make(map[resource.Key]bool)
	s.mu.Unlock()
	w, err := s.client.start(ctx, v, s.Scope, s, s.Logger)
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
	s.settled(w) // it may have been faster
	return true
}

// forget drops a kind that the API server has no more.
func (s *Source) forget(w *watch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.Logger.Info("a kind is gone", "resource", w.String())
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

// sweep removes what went away between two watches of a kind.
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
	if v.Custom {
		s.objects[k] = object
	}
	s.collection.Put(object)
	s.mu.Unlock()
	if last, ok := before.(*resource.Object); !ok || !sameMeaning(last, object) {
		s.touch()
	}
	if v.Custom {
		s.changed(k)
	}
}

// remove implements receiver.
func (s *Source) remove(v served, k resource.Key) {
	s.mu.Lock()
	cared := true
	if onReference(v.Kind) {
		cared = s.contents.stale(k, "")
	} else {
		s.drop(k)
	}
	s.mu.Unlock()
	if cared {
		s.touch()
	}
	if v.Custom {
		s.changed(k)
	}
}

func (s *Source) drop(k resource.Key) {
	delete(s.objects, k)
	s.collection.Remove(k)
}

// sameMeaning says that two versions of an object differ in nothing but what a status or a writer left. The generation
// of a custom object counts changes of everything else.
func sameMeaning(a, b *resource.Object) bool {
	before, after := a.GetObjectMeta(), b.GetObjectMeta()
	switch now := b.Value().(type) {
	case *corev1.Service:
		last, ok := a.Value().(*corev1.Service)
		if !ok || !equality.Semantic.DeepEqual(last.Spec, now.Spec) {
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

// refusal is the finding about a kind that may not be read.
func refusal(v served, err error) resource.Finding {
	return resource.Refused(v.String(), []string{"get", "list", "watch"}, err)
}
