package kube

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/resource"
)

const (
	// maxNote and maxWord are the longest note, and reason or action, of an Event.
	maxNote, maxWord = 1024, 128
	// maxWaiting bounds the unwritten events; further ones are dropped, and the log reports it.
	maxWaiting = 1000
)

// Recorder writes events.k8s.io Events. It writes each event once, whichever replica writes it.
type Recorder struct {
	client               *Client
	source               *Source
	controller, instance string
	log                  *slog.Logger
	failures             loglimit.Limiter

	mu sync.Mutex
	// current are the events of the newest report. An event that stays is not written again.
	current map[resource.Event]bool
	// dropped is how many of them found no room the last time.
	dropped int
	waiting chan resource.Event
}

// NewRecorder returns a Recorder. The controller, and the instance as a pod's name, are the reporter in Events.
func NewRecorder(c *Client, source *Source, controller, instance string, logger *slog.Logger) *Recorder {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Recorder{client: c, source: source, controller: controller, instance: instance, log: logger, waiting: make(chan resource.Event, maxWaiting)}
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
		select {
		case r.waiting <- e:
		default:
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
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-r.waiting:
			if err := r.write(ctx, e); err != nil && ctx.Err() == nil {
				r.failures.Log(r.log, slog.LevelWarn, "", "an event could not be written", "object", e.Ref.String(), "reason", e.Reason, "error", err)
			}
		}
	}
}

// write writes one event.
func (r *Recorder) write(ctx context.Context, e resource.Event) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	event := r.event(e)
	if scope := r.source.Scope; !scope.All() && !slices.Contains(scope.Namespaces, event.GetNamespace()) {
		return nil // no permission to write it
	}
	err := r.client.Create(ctx, event)
	if apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}

// event makes the Event. Its name follows from its content and its object, so it exists only once.
func (r *Recorder) event(e resource.Event) client.Object {
	k := r.source.Kinds.Key(e.Ref)
	regarding := corev1.ObjectReference{
		APIVersion: schema.GroupVersion{Group: k.Group, Version: r.source.Version(k.Group, k.Kind)}.String(), Kind: k.Kind, Namespace: k.Namespace, Name: k.Name,
	}
	if o := r.source.Object(k); o != nil {
		regarding.UID, regarding.ResourceVersion = o.GetObjectMeta().GetUID(), o.GetObjectMeta().GetResourceVersion()
	}
	namespace := k.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	sum := sha256.Sum256([]byte(strings.Join([]string{string(regarding.UID), k.String(), e.Type, e.Reason, e.Message}, "\x00")))
	name := k.Name
	if most := 253 - 17; len(name) > most {
		name = strings.TrimRight(name[:most], "-.")
	}
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: name + "." + hex.EncodeToString(sum[:8])},
		EventTime:           metav1.NewMicroTime(time.Now()),
		ReportingController: r.controller, ReportingInstance: Cut(r.instance, maxWord),
		Type: e.Type, Reason: Cut(e.Reason, maxWord), Action: "Translate", Note: Cut(e.Message, maxNote),
		Regarding: regarding,
	}
}
