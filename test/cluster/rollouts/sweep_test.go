package rollouts

import (
	"fmt"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
)

// TestARolloutThatReleasesNothingMayGo at once, without a controller. If its workload was held in that moment, the next controller
// lets it go; one that is there does so, too.
func TestARolloutThatReleasesNothingMayGo(t *testing.T) {
	t.Parallel()
	const canary = "{canary: {" + route + ", steps: [{replicas: 1, pause: {}}]}}"
	for _, kind := range []string{"Deployment", "StatefulSet"} {
		t.Run(kind, func(t *testing.T) {
			if testing.Short() && kind != "Deployment" {
				t.Skip("for the full size")
			}
			t.Parallel()
			w := newWorld(t, kind, "replicas: 2", canary)
			w.settled("v1")
			before := w.written()
			finalizers := func(want int) {
				t.Helper()
				err := within(t.Context(), func() error {
					u, err := w.get(rolloutKind)
					if err == nil && len(u.GetFinalizers()) != want {
						err = fmt.Errorf("the Rollout has the finalizers %v", u.GetFinalizers())
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			c := w.start(0, false)
			w.until(rollouts.PhaseHealthy, 0)
			finalizers(0)
			w.releaseHeld("v2")
			w.until(rollouts.PhaseProgressing, 1)
			finalizers(1)
			w.releaseHeld("v1")
			w.until(rollouts.PhaseHealthy, 0)
			w.same(before, "v1")
			finalizers(0)
			c.stop()

			u, err := w.get(rolloutKind)
			if err != nil {
				t.Fatal(err)
			}
			w.releaseHeld("v2")
			if err := admin.Delete(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			if _, err := w.get(rolloutKind); !apierrors.IsNotFound(err) {
				t.Fatalf("the Rollout is not gone: %v", err)
			}
			w.start(0, false)
			w.same(before, "v2")
			err = within(t.Context(), func() error {
				var events eventsv1.EventList
				if err := admin.List(t.Context(), &events, client.InNamespace(w.namespace)); err != nil {
					return err
				}
				for _, e := range events.Items {
					if e.Reason == "LetGo" && e.Regarding.Kind == kind && e.Regarding.Name == "web" {
						return nil
					}
				}
				return fmt.Errorf("no Event tells of it")
			})
			if err != nil {
				t.Error(err)
			}

			u.SetResourceVersion("")
			u.SetUID("")
			delete(u.Object, "status")
			u.SetManagedFields(nil)
			if err := admin.Create(t.Context(), u); err != nil {
				t.Fatal(err)
			}
			w.until(rollouts.PhaseHealthy, 0)
			finalizers(0)
			w.releaseHeld("v3")
			w.remove(before, "v3")
		})
	}
}
