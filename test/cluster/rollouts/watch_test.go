package rollouts

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/test/weirtest"
)

// watching is a command of "kubectl weir rollout" that goes on, as a process of its own, whose output is no terminal.
type watching struct {
	w     *world
	cmd   *exec.Cmd
	ended chan error
	mu    sync.Mutex
	said  bytes.Buffer
}

func (c *watching) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said.Write(p)
}

func (c *watching) text() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.said.String()
}

// watch starts one in the world's namespace.
func (w *world) watch(args ...string) *watching {
	w.Helper()
	c := &watching{w: w, ended: make(chan error, 1)}
	c.cmd = weirtest.Command(append(append([]string{"kubectl-weir", "rollout"}, args...), "--kubeconfig", server.Kubeconfig, "-n", w.namespace)...)
	c.cmd.Stdout, c.cmd.Stderr = c, c
	if err := c.cmd.Start(); err != nil {
		w.Fatal(err)
	}
	go func() { c.ended <- c.cmd.Wait() }()
	w.Cleanup(func() { _ = c.cmd.Process.Kill() })
	return c
}

// shows waits until all texts were shown, one after the other, whatever came between them.
func (c *watching) shows(texts ...string) {
	c.w.Helper()
	began := time.Now()
	err := within(c.w.Context(), func() error {
		said := c.text()
		for _, text := range texts {
			_, after, found := strings.Cut(said, text)
			if !found {
				return fmt.Errorf("%s does not show %q in its place, but\n%s", c.cmd.Args, text, c.text())
			}
			said = after
		}
		return nil
	})
	if err != nil {
		c.w.Fatal(err)
	}
	c.w.Logf("%q is shown after %v", texts[len(texts)-1], time.Since(began).Round(time.Millisecond))
}

// ends waits until it ends by itself, and returns its exit code.
func (c *watching) ends() int {
	c.w.Helper()
	select {
	case err := <-c.ended:
		if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
			c.w.Fatal(err)
		}
		return c.cmd.ProcessState.ExitCode()
	case <-time.After(enough):
		c.w.Fatalf("%s goes on:\n%s", c.cmd.Args, c.text())
	}
	return 0
}

// TestWhoWatchesAReleaseSeesEachChange watches a release to its end: by "get -w" and "list -w", which are interrupted then, or end with
// the Rollout, and by "status", which ends with the release.
func TestWhoWatchesAReleaseSeesEachChange(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "Deployment", "replicas: 2", "{canary: {"+route+", steps: [{traffic: 20%, replicas: 1}, {traffic: 50%, replicas: 1}]}}")
	w.settled("v1")
	c := w.start(3, false)
	defer c.stop()
	w.until(rollouts.PhaseHealthy, 0)
	one, list, gone := w.watch("get", "web", "-w"), w.watch("list", "-w"), w.watch("get", "web", "-w")
	one.shows("Status:    ✔ Healthy")
	list.shows("✔ Healthy")

	w.release("v2")
	w.until(rollouts.PhaseProgressing, 1)
	first := []string{"Status:    ✔ Healthy", "Status:    ‖ Paused", "Step:      1/2", "Requests:  20% of the requests go to web-canary", "1 of 1 pod ready, v2"}
	one.shows(first...)
	list.shows("✔ Healthy", "‖ Paused", "1/2")
	status := w.watch("status", "web", "--timeout", "5m")
	status.shows("Paused: Step 1 of 2 waits until somebody approves it.")
	w.approve()
	w.until(rollouts.PhaseProgressing, 2)
	second := append(first, "Step:      2/2", "Requests:  50% of the requests go to web-canary")
	one.shows(second...)
	status.shows("Paused: Step 2 of 2 waits until somebody approves it.")
	w.patch(rolloutKind, `{"spec":{"strategy":{"paused":true}}}`)
	second = append(second, "The Rollout is paused.")
	one.shows(second...)
	w.patch(rolloutKind, `{"spec":{"strategy":{"paused":false}}}`)
	w.approve()
	w.until(rollouts.PhaseHealthy, 0)
	last := append(second, "Status:    ✔ Healthy")
	one.shows(last...)
	list.shows("‖ Paused", "2/2", "✔ Healthy")
	if code := status.ends(); code != 0 || !strings.Contains(status.text(), "Healthy: ") {
		t.Errorf("status ends with code %d:\n%s", code, status.text())
	}

	for _, c := range []*watching{one, list} {
		if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		if code := c.ends(); code != 0 {
			t.Errorf("%s, interrupted, ends with code %d:\n%s", c.cmd.Args, code, c.text())
		}
	}
	u, err := w.get(rolloutKind)
	if err == nil {
		err = admin.Delete(t.Context(), u)
	}
	if err != nil {
		t.Fatal(err)
	}
	if code := gone.ends(); code != 1 || !strings.Contains(gone.text(), "there is no Rollout "+w.namespace+"/web") {
		t.Errorf("who watches a Rollout that is deleted ends with code %d:\n%s", code, gone.text())
	}
}
