package release

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weirmesh/weir/internal/kube"
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
	// again is how long one sentence about one object is not repeated.
	again = 10 * time.Minute
)

// events tells Events about Rollouts, and the log.
type events struct {
	log      *slog.Logger
	reporter kube.Reporter
	// add has an Event written, unless too many wait: the log has it.
	add func(*eventsv1.Event) bool

	mu   sync.Mutex
	told map[string]time.Time
}

func newEvents(c *Controller, add func(*eventsv1.Event) bool) *events {
	return &events{log: c.Logger, reporter: kube.Reporter{Controller: "weirmesh.github.io/rollouts", Instance: c.Instance}, add: add, told: map[string]time.Time{}}
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
	e.log.Log(context.Background(), level, "rollout", "object", about.GetNamespace()+"/"+about.GetName(), "event", event.Message)
	suffix := make([]byte, 8)
	_, _ = rand.Read(suffix) // it never fails
	regarding := corev1.ObjectReference{
		APIVersion: about.GetAPIVersion(), Kind: about.GetKind(), Namespace: about.GetNamespace(), Name: about.GetName(), UID: about.GetUID(), ResourceVersion: about.GetResourceVersion(),
	}
	_ = e.add(e.reporter.Event(regarding, hex.EncodeToString(suffix), kind, event.Reason, "Release", event.Message))
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
