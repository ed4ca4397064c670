package kube

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weirmesh/weir/internal/resource"
)

// SourceOptions of a Source.
type SourceOptions struct {
	// Kinds are the kinds to read.
	Kinds resource.Kinds
	// Controller is the name that makes GatewayClasses ours. Secrets of other Gateways are not read.
	Controller string
	// Scope is the part of the cluster to read. Objects of the kinds it names are never read from elsewhere.
	Scope Scope
	// Pods has the kinds read that others need (resource.Kind.Needs), which are those that run pods, whether or not there are
	// such others.
	Pods bool
	// Look is how often the API server is asked for kinds that were installed or removed. Default 10 s.
	Look time.Duration
	// Settle is how long changes are gathered into one Set. Default 10 ms.
	Settle time.Duration
	// Logger logs what could not be read. Nil discards the log.
	Logger *slog.Logger
}

// Source is a resource.Source over a Kubernetes API server. The first Set comes when everything was read. While the API
// server is away, the last Set stays. Kinds without an installed definition are left out until it is installed. Secrets
// and ConfigMaps are only read if an object refers to them.
type Source struct {
	client *Client
	SourceOptions

	// changed is called for every custom object that was added, removed or changed, even if only its status changed. It
	// returns at once.
	changed func(resource.Key)
	// dirty holds one token when another Set is due, wanting one when an object came that needs kinds which are not watched.
	dirty, wanting chan struct{}

	mu         sync.Mutex
	collection *resource.Collection
	// objects are the present custom objects, with their statuses.
	objects  map[resource.Key]*resource.Object
	contents *contents
	watches  map[schema.GroupKind]*watch
	// fresh are the objects that a watch reported before it synced.
	fresh map[schema.GroupKind]map[resource.Key]bool
	// looked means that the installed kinds are known.
	looked bool
	// absent are the namespaces of the scope that do not exist.
	absent map[string]bool
}

var _ resource.Source = (*Source)(nil)

// NewSource returns a Source that is not running yet.
func NewSource(c *Client, options SourceOptions) *Source {
	if options.Look <= 0 {
		options.Look = 10 * time.Second
	}
	if options.Settle <= 0 {
		options.Settle = 10 * time.Millisecond
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return &Source{
		client: c, SourceOptions: options, changed: func(resource.Key) {}, dirty: make(chan struct{}, 1), wanting: make(chan struct{}, 1),
		collection: resource.NewCollection(options.Kinds), objects: make(map[resource.Key]*resource.Object), contents: newContents(c, options.Kinds, options.Logger),
		watches: make(map[schema.GroupKind]*watch), fresh: make(map[schema.GroupKind]map[resource.Key]bool),
	}
}

// Object returns a custom object as the watch last reported it, read-only, or nil. Its value has the type that it has
// in a Set.
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

// Version returns the version in which a kind is read; empty if the API server does not serve the kind.
func (s *Source) Version(group, kind string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.watches[schema.GroupKind{Group: group, Kind: kind}]; w != nil {
		return w.gvk.Version
	}
	return ""
}

// lookTimeout bounds the requests that find the installed and readable kinds.
const lookTimeout = 30 * time.Second

// Run implements resource.Source. A Source runs once.
func (s *Source) Run(ctx context.Context, emit func(*resource.Set)) error {
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	wait.Go(func() { s.follow(ctx) })

	first := true
	var told resource.Key // the awaited object that the log named last
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-s.dirty:
			if !sleep(ctx, s.Settle) {
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
				s.Logger.Warn("the configuration stays as it is until a referenced object can be read", "object", awaited.String())
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

// tick is how often the Source checks for work that is due by time alone.
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
func (s *Source) touch() { notify(s.dirty) }

func (s *Source) drain() {
	select {
	case <-s.dirty:
	default:
	}
}

// notify leaves a token, unless there is one.
func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// needed returns the kinds that are to be watched, if the API server has them. The mutex is held.
func (s *Source) needed() map[schema.GroupKind]bool {
	all := map[schema.GroupKind]bool{}
	for _, k := range s.Kinds.Needed(func(k *resource.Kind) bool { return s.Pods || s.collection.Has(k) }) {
		all[schema.GroupKind{Group: k.Group, Kind: k.Name}] = true
	}
	return all
}

// wants reports whether a kind that some objects need is not watched yet. The mutex is held.
func (s *Source) wants() bool {
	needed := s.needed()
	return slices.ContainsFunc(s.Kinds, func(k *resource.Kind) bool {
		id := schema.GroupKind{Group: k.Group, Kind: k.Name}
		return k.Excerpt() && needed[id] && s.watches[id] == nil
	})
}

// ready reports whether everything readable was read. Without essential kinds no Set is made: it would look as if they
// had been deleted.
func (s *Source) ready() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.looked || s.wants() {
		return false
	}
	for _, w := range s.watches {
		synced, refused := w.state()
		if !synced && w.waits(s.absent) && (refused == nil || w.Essential) {
			return false
		}
	}
	return true
}

// Lost returns the kinds that the API server has not reported in time and that the first Set needs. It returns none if
// the Source also waits for something else.
func (s *Source) Lost() (kinds []schema.GroupKind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.looked {
		return nil
	}
	for _, w := range s.watches {
		synced, refused := w.state()
		if synced || !w.waits(s.absent) || refused != nil && !w.Essential {
			continue
		}
		if !w.isLost() {
			return nil
		}
		kinds = append(kinds, w.id())
	}
	return kinds
}

// set reads the referenced Secrets and ConfigMaps that are not known yet, and makes a Set. If an object may become
// readable soon, the Set is nil, and the object is returned.
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

// assemble makes a Set of everything known. It returns the references that must be read first.
func (s *Source) assemble() (set *resource.Set, missing []reading) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var findings []resource.Finding
	var unread resource.Kinds
	for _, w := range s.watches {
		if _, refused := w.state(); refused != nil && (len(s.absent) == 0 || w.waits(s.absent)) {
			findings, unread = append(findings, refusal(w.served, refused)), append(unread, w.Kind)
		}
	}
	set = s.collection.Set(slices.Concat(findings, s.contents.findings())...)
	missing, left := s.contents.want(references(set, s.Controller, s.Scope), s.collection, time.Now())
	if left {
		set = s.collection.Set(slices.Concat(findings, s.contents.findings())...)
	}
	set.Watched, set.Unread = s.Scope.Namespaces, unread
	return set, missing
}
