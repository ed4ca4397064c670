package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weirmesh/weir/internal/resource"
)

// maxWaiting bounds the unwritten events; further ones are dropped, and the log reports it.
const maxWaiting = 1000

// Recorder writes events.k8s.io Events. It writes each event once, whichever replica writes it.
type Recorder struct {
	source   *Source
	reporter Reporter
	log      *slog.Logger
	events   *Events

	mu sync.Mutex
	// current are the events of the newest report. An event that stays is not written again.
	current map[resource.Event]bool
	// dropped is how many of them found no room the last time.
	dropped int
}

// NewRecorder returns a Recorder. The controller, and the instance as a pod's name, are the reporter in Events.
func NewRecorder(c *Client, source *Source, controller, instance string, logger *slog.Logger) *Recorder {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Recorder{source: source, reporter: Reporter{controller, instance}, log: logger, events: NewEvents(c, maxWaiting, 1, logger)}
}

// Set passes the events that hold now. Run writes the new ones. It returns at once.
func (r *Recorder) Set(events []resource.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	current := make(map[resource.Event]bool, len(events))
	dropped := 0
	for _, e := range events {
		if current[e] {
			continue
		}
		current[e] = true
		if r.current[e] {
			continue
		}
		if event := r.event(e); r.permitted(event) && !r.events.Add(event) {
			delete(current, e) // the next report contains it again
			dropped++
		}
	}
	if dropped > 0 && r.dropped == 0 {
		r.log.Warn("too many events wait to be written; the rest is written later", "left", dropped)
	}
	r.current, r.dropped = current, dropped
}

// Run writes events until ctx ends. It may be called again.
func (r *Recorder) Run(ctx context.Context) error {
	r.events.Run(ctx)
	return nil
}

// permitted reports whether there is permission to write the event.
func (r *Recorder) permitted(event *eventsv1.Event) bool {
	scope := r.source.Scope
	return scope.All() || slices.Contains(scope.Namespaces, event.Namespace)
}

// event makes the Event. Its name follows from its content and its object, so it exists only once.
func (r *Recorder) event(e resource.Event) *eventsv1.Event {
	k := r.source.Kinds.Key(e.Ref)
	regarding := corev1.ObjectReference{
		APIVersion: schema.GroupVersion{Group: k.Group, Version: r.source.Version(k.Group, k.Kind)}.String(), Kind: k.Kind, Namespace: k.Namespace, Name: k.Name,
	}
	if o := r.source.Object(k); o != nil {
		regarding.UID, regarding.ResourceVersion = o.GetObjectMeta().GetUID(), o.GetObjectMeta().GetResourceVersion()
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{string(regarding.UID), k.String(), e.Type, e.Reason, e.Message}, "\x00")))
	return r.reporter.Event(regarding, hex.EncodeToString(sum[:8]), e.Type, e.Reason, "Translate", e.Message)
}
