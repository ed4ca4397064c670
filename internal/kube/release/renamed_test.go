package release

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/api/rollouts"
)

// TestAVersionThatIsReplacedUnderAnotherNameIsReleased: the release begins before the Deployment's controller has made a
// ReplicaSet, after which the revision is named from then on. It makes one, and goes on while the Deployment is being held.
func TestAVersionThatIsReplacedUnderAnotherNameIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newToy(t, "{traffic: 20%, replicas: 1}")
		c.run(c.healthy)
		c.slow = time.Millisecond
		d := c.objects[c.key(c.kind)]
		next := d.DeepCopy()
		setImage(next, "v2")
		c.replace(d, next)
		c.observed(c.objects[c.key(c.kind)])
		c.refuse = func(string) error { // before the first write
			c.refuse = nil
			c.roll(c.objects[c.key(c.kind)])
			return nil
		}
		if _, err := c.reconcile(c.Context(), name); err != nil {
			t.Fatal(err)
		}
		if s := c.status(); s.Phase != rollouts.PhaseProgressing || s.Revision() == "v2" {
			t.Fatalf("%+v, %v", s, c.writes)
		}
		time.Sleep(time.Second)
		c.tend() // all pods are of v2
		c.run(c.waits(1))
		if s := c.status(); s.Revision() != "v2" || s.Release().StableRevision != "v1" {
			t.Errorf("%+v", s)
		}
		c.approve()
		c.run(c.healthy)
		if slices.Contains(c.told, "TakenBack") || !slices.Contains(c.told, "Released") {
			t.Errorf("told %v", c.told)
		}
	})
}
