package release

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/rollout"
)

const (
	// maxWaiting bounds the Events that wait to be written, of about 1 KB each; further ones are dropped. A thousand Rollouts
	// may begin at once.
	maxWaiting = 10_000
	// writers is how many Events are written at a time.
	writers = 4
	// maxTold bounds the warnings that are remembered.
	maxTold = 1000
	// eventTimeout bounds one write.
	eventTimeout = 10 * time.Second
	// again is how long one sentence about one object is not repeated.
	again = 10 * time.Minute
)

// events writes Events about Rollouts, and the log.
type events struct {
	*Controller
	waiting chan *eventsv1.Event
	limit   loglimit.Limiter

	mu   sync.Mutex
	told map[string]time.Time
}

func newEvents(c *Controller) *events {
	return &events{Controller: c, waiting: make(chan *eventsv1.Event, maxWaiting), told: map[string]time.Time{}}
}

// tell tells one event. What was told of an object a short while ago is not repeated if it is a warning that lasts.
func (e *events) tell(about *unstructured.Unstructured, event rollout.Event) {
	if event.Warning && e.repeated(string(about.GetUID())+event.Message) {
		return
	}
	level, kind := slog.LevelInfo, corev1.EventTypeNormal
	if event.Warning {
		level, kind = slog.LevelWarn, corev1.EventTypeWarning
	}
	e.Logger.Log(context.Background(), level, "rollout", "object", about.GetNamespace()+"/"+about.GetName(), "event", event.Message)
	suffix := make([]byte, 8)
	_, _ = rand.Read(suffix) // it never fails
	name := about.GetName()
	if most := 253 - 17; len(name) > most {
		name = strings.TrimRight(name[:most], "-.")
	}
	v := &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: about.GetNamespace(), Name: name + "." + hex.EncodeToString(suffix)},
		EventTime:           metav1.NewMicroTime(time.Now()),
		ReportingController: "weirmesh.github.io/rollouts", ReportingInstance: kube.Cut(e.Instance, 128),
		Type: kind, Reason: event.Reason, Action: "Release", Note: kube.Cut(event.Message, 1024),
		Regarding: corev1.ObjectReference{
			APIVersion: about.GetAPIVersion(), Kind: about.GetKind(), Namespace: about.GetNamespace(), Name: about.GetName(), UID: about.GetUID(), ResourceVersion: about.GetResourceVersion(),
		},
	}
	select {
	case e.waiting <- v:
	default: // the log has it
	}
}

func (e *events) repeated(what string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	now := time.Now()
	for k, at := range e.told {
		if now.Sub(at) > again {
			delete(e.told, k)
		}
	}
	if _, told := e.told[what]; told || len(e.told) >= maxTold {
		return told
	}
	e.told[what] = now
	return false
}

// run writes Events until ctx ends.
func (e *events) run(ctx context.Context) {
	var wait sync.WaitGroup
	for range writers {
		wait.Go(func() { e.write(ctx) })
	}
	wait.Wait()
}

func (e *events) write(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case v := <-e.waiting:
			write, cancel := context.WithTimeout(ctx, eventTimeout)
			err := e.Client.Create(write, v)
			cancel()
			if err != nil && ctx.Err() == nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				e.limit.Log(e.Logger, slog.LevelWarn, "", "an event could not be written", "object", v.Regarding.Name, "reason", v.Reason, "error", err)
			}
		}
	}
}
