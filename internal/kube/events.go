package kube

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/loglimit"
)

const (
	// maxNote and maxWord are the longest note, and reason or action, of an Event.
	maxNote, maxWord = 1024, 128
)

// Events writes events.k8s.io Events in the background. Whoever makes them decides which are worth it.
type Events struct {
	client   client.Writer
	log      *slog.Logger
	writers  int
	waiting  chan *eventsv1.Event
	failures loglimit.Limiter
}

// NewEvents returns Events of which at most room, of about 1 KB each, wait to be written, and as many as there are writers
// are written at a time.
func NewEvents(c client.Writer, room, writers int, logger *slog.Logger) *Events {
	return &Events{client: c, log: logger, writers: writers, waiting: make(chan *eventsv1.Event, room)}
}

// Add has an Event written. It returns false at once if there is no room.
func (e *Events) Add(event *eventsv1.Event) bool {
	select {
	case e.waiting <- event:
		return true
	default:
		return false
	}
}

// Run writes Events until ctx ends. It may be called again.
func (e *Events) Run(ctx context.Context) {
	var wait sync.WaitGroup
	for range e.writers {
		wait.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case event := <-e.waiting:
					e.write(ctx, event)
				}
			}
		})
	}
	wait.Wait()
}

// write writes one Event. That it exists is no error.
func (e *Events) write(ctx context.Context, event *eventsv1.Event) {
	within, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	err := e.client.Create(within, event)
	if err == nil || ctx.Err() != nil || apierrors.IsAlreadyExists(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return
	}
	r := event.Regarding
	e.failures.Log(e.log, slog.LevelWarn, "", "an event could not be written", "object", r.Kind+" "+r.Namespace+"/"+r.Name, "reason", event.Reason, "error", err)
}

// Reporter is who reports Events: a controller, and its instance as a pod's name.
type Reporter struct{ Controller, Instance string }

// Event makes an Event of a type such as Warning, about an object. Its name is that of the object with a suffix of at most
// 16 characters.
func (r Reporter) Event(about corev1.ObjectReference, suffix, kind, reason, action, note string) *eventsv1.Event {
	namespace := about.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	name := about.Name
	if most := 253 - 17; len(name) > most {
		name = strings.TrimRight(name[:most], "-.")
	}
	return &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: namespace, Name: name + "." + suffix},
		EventTime:           metav1.NewMicroTime(time.Now()),
		ReportingController: r.Controller, ReportingInstance: Cut(r.Instance, maxWord),
		Type: kind, Reason: Cut(reason, maxWord), Action: action, Note: Cut(note, maxNote),
		Regarding: about,
	}
}
