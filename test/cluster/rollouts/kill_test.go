package rollouts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/rollout/provider"
)

// errKilled is what a controller gets that was killed.
var errKilled = errors.New("the controller was killed")

// mortal is the way to the API server of a controller that is killed at one of its writes: before the API server has it,
// or after, so that it does not learn of the answer.
type mortal struct {
	to    http.RoundTripper
	die   context.CancelFunc
	after bool

	mu     sync.Mutex
	left   int // writes until then; negative for none
	writes int
	dead   bool
}

func (m *mortal) RoundTrip(r *http.Request) (*http.Response, error) {
	write := r.Method != http.MethodGet && !strings.Contains(r.URL.Path, "/apis/events.k8s.io/")
	m.mu.Lock()
	if m.dead {
		m.mu.Unlock()
		return nil, errKilled
	}
	if write {
		m.writes++
		m.left--
		m.dead = m.left == 0
	}
	last := m.dead
	m.mu.Unlock()
	if !last {
		return m.to.RoundTrip(r)
	}
	defer m.die()
	if m.after {
		// The request is whole and sent by itself: it does not end with the controller.
		resp, err := m.to.RoundTrip(r.WithContext(context.WithoutCancel(r.Context())))
		if err == nil {
			resp.Body.Close()
		}
	}
	return nil, errKilled
}

// controllers are one after the other in a world: each carries Rollouts out until it is killed.
type controllers struct {
	*world
	seed   uint64
	end    context.CancelFunc
	ended  sync.WaitGroup
	killed map[string]int // how often in which state
	writes int
}

// start has controllers run until stop. With kill, each is killed at its first, second or third write.
func (w *world) start(seed uint64, kill bool) *controllers {
	ctx, cancel := context.WithCancel(context.Background())
	c := &controllers{world: w, seed: seed, end: cancel, killed: map[string]int{}}
	random := rand.New(rand.NewPCG(seed, 1))
	c.ended.Go(func() {
		for ctx.Err() == nil {
			m := &mortal{left: -1}
			if kill {
				m.left, m.after = 1+random.IntN(3), random.IntN(3) > 0
			}
			c.run(ctx, m)
			if m.dead {
				c.note()
			}
		}
	})
	w.Cleanup(c.stop)
	return c
}

func (c *controllers) stop() {
	c.end()
	c.ended.Wait()
}

func (c *controllers) run(ctx context.Context, m *mortal) {
	ctx, m.die = context.WithCancel(ctx)
	defer m.die()
	of := config()
	of.Wrap(func(to http.RoundTripper) http.RoundTripper { m.to = to; return m })
	client, err := kube.NewClient(of)
	if err != nil {
		c.Error(err)
		return
	}
	defer client.Close()
	carrier := &release.Controller{Client: client, Namespaces: []string{c.namespace}, Providers: provider.All(), Workloads: released, Instance: "test", Logger: slog.New(slog.DiscardHandler)}
	if err := carrier.Run(ctx); err != nil && ctx.Err() == nil {
		c.Error(err)
	}
	c.writes += m.writes
}

// note counts in which state the Rollout is.
func (c *controllers) note() {
	s, _, err := c.status()
	if err != nil {
		c.killed["gone"]++
		return
	}
	state := string(s.Phase)
	if s.Phase == rollouts.PhaseProgressing {
		state = string(s.CurrentStepState)
		if r := s.Release(); r != nil && r.FinalisingStep != "" {
			state = string(r.FinalisingStep)
		}
	}
	c.killed[state]++
}

const route = "trafficRoutings: [{service: web, gateway: {httpRouteName: web}, gracePeriodSeconds: 1}]"

// TestAControllerThatIsKilledGoesOn releases, takes back, replaces and deletes midway, while each controller is killed at
// one of its first three writes: the next one goes on, and at the end everything is as its user wrote it.
func TestAControllerThatIsKilledGoesOn(t *testing.T) {
	t.Parallel()
	kinds := []struct{ name, kind, spec, strategy string }{
		{"a canary of a Deployment", "Deployment", "replicas: 4", "{canary: {enableExtraWorkloadForCanary: true, " + route + ", steps: [{traffic: 20%, replicas: 1}, {traffic: 50%, replicas: 50%}]}}"},
		{"a partition of a Deployment", "Deployment", "replicas: 4\n  strategy: {rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}", "{canary: {" + route + ", steps: [{traffic: 20%, replicas: 1}, {traffic: 50%, replicas: 50%}]}}"},
		{"blue-green", "Deployment", "replicas: 2", "{blueGreen: {" + route + ", steps: [{traffic: 0%, replicas: 100%}, {traffic: 100%, replicas: 100%}]}}"},
		{"a StatefulSet", "StatefulSet", "replicas: 3\n  serviceName: web\n  podManagementPolicy: Parallel", "{canary: {" + route + ", steps: [{traffic: 30%, replicas: 1}, {traffic: 60%, replicas: 2}]}}"},
	}
	if testing.Short() {
		kinds = kinds[1:2]
	}
	for i, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, k.kind, k.spec, k.strategy)
			w.settled("v1")
			before := w.written()
			c := w.start(uint64(i), true)
			waiting := int32(2)
			if k.name == "blue-green" { // whose last step has all pods, so that nothing is left to approve
				waiting = 1
			}
			w.passes(before, waiting)

			// OpenKruise has no other version follow midway in blue-green. In the short form a kind that is named shows it.
			if k.name != "blue-green" && !testing.Short() {
				w.release("v3")
				w.until(rollouts.PhaseProgressing, 1)
				w.approve()
				w.until(rollouts.PhaseProgressing, 2)
				w.release("v4")
				w.until(rollouts.PhaseProgressing, 1)
			} else {
				w.release("v4")
				w.until(rollouts.PhaseProgressing, 1)
			}
			w.remove(before, "v4")
			c.stop()

			var states []string
			kills := 0
			for _, s := range slices.Sorted(maps.Keys(c.killed)) {
				states = append(states, fmt.Sprintf("%s %d", s, c.killed[s]))
				kills += c.killed[s]
			}
			t.Logf("%d writes, %d kills: %s", c.writes, kills, strings.Join(states, ", "))
			if kills < 20 {
				t.Errorf("%d kills are too few to say anything", kills)
			}
		})
	}
}
