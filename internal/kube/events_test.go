package kube

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// written takes Events; those with a name in fails are answered with that error.
type written struct {
	client.Writer
	mu    sync.Mutex
	names []string
	fails map[string]error
}

func (w *written) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.names = append(w.names, o.GetName())
	return w.fails[o.GetName()]
}

// TestEventsAreWrittenWithinTheRoom adds more than there is room for, of which some cannot be written.
func TestEventsAreWrittenWithinTheRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := &written{fails: map[string]error{"a.0": apierrors.NewAlreadyExists(schema.GroupResource{}, "a.0"), "b.0": errors.New("no right")}}
		e := NewEvents(w, 3, 1, slog.New(slog.NewTextHandler(&log, nil)))
		r := Reporter{Controller: "c", Instance: strings.Repeat("i", 200)}
		for i, name := range []string{"a", "b", strings.Repeat("x", 300), "d"} {
			event := r.Event(corev1.ObjectReference{Kind: "Rollout", Name: name}, "0", "Normal", strings.Repeat("r", 200), "Release", strings.Repeat("n", 2000))
			if event.Namespace != "default" || len(event.Name) > 253 || len(event.Note) > maxNote || len(event.Reason) > maxWord || len(event.ReportingInstance) > maxWord {
				t.Errorf("an API server would not take %+v", event)
			}
			if room := e.Add(event); room != (i < 3) {
				t.Errorf("%s: room %t", name, room)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); e.Run(ctx) }()
		synctest.Wait()
		cancel()
		<-done
		if len(w.names) != 3 {
			t.Errorf("written are %q", w.names)
		}
		if text := log.String(); strings.Count(text, "an event could not be written") != 1 || !strings.Contains(text, "no right") {
			t.Errorf("the log says %s", text)
		}
	})
}
