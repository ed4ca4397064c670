package e2e

import (
	"context"
	"crypto/x509"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/conformance/install"
)

const sidecars = "initContainerStatuses[?(@.name==\"weir-sidecar\")]"

// names of a workload's pods that are not ending, the oldest first.
func (p *pressed) names(workload string) (names []string) {
	p.Helper()
	list := p.kubectl("", "get", "pods", "--selector=app="+workload, "--sort-by=.metadata.creationTimestamp",
		`--output=jsonpath={range .items[*]}{.metadata.name} {.metadata.deletionTimestamp}{"\n"}{end}`)
	for line := range strings.Lines(list) {
		if fields := strings.Fields(line); len(fields) == 1 {
			names = append(names, fields[0])
		}
	}
	return names
}

// container is the id of one of a pod's.
func (p *pressed) container(pod, which string) string {
	p.Helper()
	id := p.kubectl("", "get", "pod", pod, "--output=jsonpath={.status."+which+".containerID}")
	_, id, ok := strings.Cut(id, "://")
	if !ok {
		p.Fatalf("pod %s has no %s yet", pod, which)
	}
	return id
}

// killed ends a container of a pod at once, and waits until it has been started again and is ready.
func (p *pressed) killed(pod, which string) {
	p.Helper()
	before := p.container(pod, which)
	p.cluster("kill", before)
	p.eventually(func() error {
		if now := p.kubectl("", "get", "pod", pod, "--output=jsonpath={.status."+which+".containerID} {.status."+which+".ready}"); strings.Contains(now, before) || !strings.HasSuffix(now, " true") {
			return fmt.Errorf("%s: the container is %s", pod, now)
		}
		return nil
	})
}

// throughIt is what was under way through the application's own sidecar when that ended: one call of each kind. What it begins
// afterwards waits.
var throughIt = failing{`(kept connection|new connection|connect|^HTTP/2 .*: connection|^gRPC: connection|while it lasts): (EOF|connection reset by peer|broken pipe)$`, pressKinds, "its connection led to the application's own sidecar, which ended"}

// waited are calls that a sidecar turned away when it went on: they had waited for it longer than --max-queue-delay.
var waited = failing{`: (503|grpc-status 14|open: 503) overload$`, pressKinds, "it had waited for longer than --max-queue-delay: 503 with Retry-After"}

// TestChaosOnMeshedPods has the sidecars, applications and networks of pods fail under calls of all kinds.
func TestChaosOnMeshedPods(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	t.Parallel()
	p := newPressed(t, "e2e-chaos")
	servers := p.names("pay")
	client := p.names("web")[0]
	p.under("a server's sidecar is killed", func() { p.killed(servers[0], sidecars) }, lastingEnds, unknowable(4))
	p.under("the client's sidecar is killed", func() { p.killed(client, sidecars) }, throughIt)
	p.under("a server's application is killed", func() { p.killed(servers[1], "containerStatuses[0]") }, lastingEnds, unknowable(4))
	for _, c := range []struct{ who, pod string }{{"a server's", servers[2]}, {"the client's", client}} {
		p.under(c.who+" sidecar stops for 4 s (SIGSTOP)", func() { p.cluster("pause", "-for", "4s", p.container(c.pod, sidecars)) }, waited)
		p.under(c.who+" pod is cut from the network for 4 s", func() { p.cluster("cut", "-for", "4s", p.container(c.pod, sidecars)) })
	}
	p.under("the clock of the client's node is an hour ahead, that of the servers' an hour behind, and all certificates are renewed", func() {
		p.clocks("1h", client)
		p.clocks("-1h", servers...)
		p.renewed("web", func(*x509.Certificate) error { return nil })
		for _, pod := range append(servers, client) {
			p.eventually(func() error {
				if log := p.kubectl("", "logs", pod, "--container=weir-sidecar"); !strings.Contains(log, "the clock of this node was set") {
					return fmt.Errorf("%s has not noticed that its clock was set: %s", pod, log)
				}
				return nil
			})
		}
	})
	p.under("the clocks are put right", func() {
		p.clocks("0", append(servers, client)...)
		p.renewed("pay", func(*x509.Certificate) error { return nil })
	})
	p.under("servers are replaced", p.replaced, failing{lastingEnds.calls, 9, lastingEnds.why})
	for _, pod := range p.names("pay")[:2] {
		p.under("a server is killed with its pod", func() {
			p.kubectl("", "delete", "pod", pod, "--force", "--grace-period=0")
			p.rolledOut("pay")
		}, lastingEnds, unknowable(4))
	}
	p.kubectl("", "scale", "deployment/pay", "--replicas=1")
	p.eventually(func() error {
		if pods := p.kubectl("", "get", "pods", "--selector=app=pay", "--output=name"); strings.Count(pods, "pod/") != 1 {
			return fmt.Errorf("pods %s", pods)
		}
		return nil
	})
	p.under("the only server's sidecar is killed", func() { p.killed(p.names("pay")[0], sidecars) }, lastingEnds, unknowable(4))
}

// replaced replaces all servers, and waits for the end of those of before.
func (p *pressed) replaced() {
	p.Helper()
	before := p.names("pay")
	p.restart(p.namespace, "pay")
	p.kubectl("", append([]string{"wait", "--for=delete", fmt.Sprintf("--timeout=%s", patience), "pod"}, before...)...)
}

// clocks sets those of the sidecars of pods.
func (p *pressed) clocks(by string, pods ...string) {
	p.Helper()
	for _, pod := range pods {
		p.cluster("clock", "-by", by, p.container(pod, sidecars))
	}
}

// begins returns what fails for a certificate that does not begin so long before or after now.
func begins(in time.Duration) func(*x509.Certificate) error {
	return func(c *x509.Certificate) error {
		if off := time.Until(c.NotBefore) - in; off.Abs() > 10*time.Minute {
			return fmt.Errorf("it begins at %s, %s beside what was expected", c.NotBefore, off)
		}
		return nil
	}
}

// controllers are the containers of the controller; it waits until all of them run.
func (p *pressed) controllers() (ids []string) {
	p.Helper()
	p.eventually(func() error {
		ids = nil
		list := p.kubectl("", "--namespace", install.Namespace, "get", "pods", `--output=jsonpath={range .items[*]}{.status.containerStatuses[0].ready} {.status.containerStatuses[0].containerID}{"\n"}{end}`)
		for line := range strings.Lines(list) {
			ready, id, _ := strings.Cut(strings.TrimSpace(line), " ")
			_, id, ok := strings.Cut(id, "://")
			if ready != "true" || !ok {
				return fmt.Errorf("the controllers are %s", list)
			}
			ids = append(ids, id)
		}
		if len(ids) == 0 {
			return fmt.Errorf("there is no controller")
		}
		return nil
	})
	return ids
}

// killControllers kills all of them, and waits until the API server knows.
func (p *pressed) killControllers() {
	p.Helper()
	before := p.controllers()
	p.cluster("kill", before...)
	p.eventually(func() error {
		list := p.kubectl("", "--namespace", install.Namespace, "get", "pods", "--output=jsonpath={.items[*].status.containerStatuses[0].containerID} {.items[*].status.containerStatuses[0].ready}")
		for _, id := range before {
			if strings.Contains(list, id) && !strings.Contains(list, "false") {
				return fmt.Errorf("container %s was killed, and the API server does not know: %s", id, list)
			}
		}
		return nil
	})
}

// TestChaosOnMeshedPodsWithoutController has the controller, which is the authority, too, fail, and what it needs itself, under calls of
// all kinds.
func TestChaosOnMeshedPodsWithoutController(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten minutes")
	}
	p := newPressed(t, "e2e-chaos-alone")
	available := func() {
		t.Helper()
		p.kubectl("", "--namespace", install.Namespace, "rollout", "status", "deployment/weir-controller", fmt.Sprintf("--timeout=%s", patience))
	}
	p.under("all controllers are killed", func() { p.killControllers(); available() })
	p.under("all controllers are deleted", func() {
		p.kubectl("", "--namespace", install.Namespace, "delete", "pods", "--all", "--force", "--grace-period=0")
		available()
	})
	p.under("there is no controller for a minute", func() {
		back := p.withoutController()
		time.Sleep(time.Minute)
		back()
		available()
	})
	p.under("the packets of the feed and the authority are dropped for a minute", func() {
		p.cluster("cut", append([]string{"-for", "1m", "-port", "18000"}, p.controllers()...)...)
	})
	p.under("the controllers answer slowly while servers are replaced", func() {
		ctx, stop := context.WithCancel(t.Context())
		var wait sync.WaitGroup
		ids := p.controllers()
		wait.Go(func() {
			for ctx.Err() == nil {
				if err := p.tryCluster("pause", append([]string{"-for", "900ms"}, ids...)...); err != nil {
					t.Error(err)
					return
				}
			}
		})
		p.replaced()
		stop()
		wait.Wait()
		available()
	}, failing{lastingEnds.calls, 9, lastingEnds.why})
	p.under("the API server is away for a minute", func() { p.cluster("restart", "-away", "1m") })
	p.under("DNS is away for 20 s, and all controllers are killed", func() {
		dns := []string{"--namespace=kube-system", "scale", "deployment/coredns"}
		p.kubectl("", append(dns, "--replicas=0")...)
		p.killControllers()
		time.Sleep(20 * time.Second)
		p.kubectl("", append(dns, "--replicas=1")...)
		available()
	})
	p.under("the clock of the controllers' node is an hour ahead, and all certificates are renewed", func() {
		p.cluster("clock", append([]string{"-by", "1h"}, p.controllers()...)...)
		p.renewed("web", begins(-time.Hour)) // two hours before it is signed
	})
	p.under("it is an hour behind", func() {
		p.cluster("clock", append([]string{"-by", "-1h"}, p.controllers()...)...)
		p.renewed("pay", begins(-3*time.Hour))
	})
	p.under("a server's sidecar is killed while there is no controller for 20 s", func() {
		back := p.withoutController()
		pod := p.names("pay")[0]
		p.cluster("kill", p.container(pod, sidecars))
		time.Sleep(20 * time.Second)
		back()
		available()
		p.kubectl("", "wait", "--for=condition=Ready", "pod/"+pod, fmt.Sprintf("--timeout=%s", patience))
	}, lastingEnds, unknowable(4))
}

// TestChaosOnMeshedPodsOverADrainedNode has pods evicted under calls of all kinds.
func TestChaosOnMeshedPodsOverADrainedNode(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a minute")
	}
	p := newPressed(t, "e2e-chaos-drained")
	p.under("the node is drained of servers, as far as their budget permits", func() {
		p.apply(`
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: pay}
spec: {minAvailable: 2, selector: {matchLabels: {app: pay}}}
`)
		node := p.kubectl("", "get", "nodes", "--output=jsonpath={.items[0].metadata.name}")
		_, err := install.Kubectl(t.Context(), "", "drain", node, "--namespace", p.namespace, "--pod-selector=app=pay", "--timeout=20s", "--delete-emptydir-data")
		if err == nil || !strings.Contains(err.Error(), "disruption budget") {
			t.Errorf("drained: %v, want the budget to forbid it", err)
		}
		p.kubectl("", "uncordon", node)
		p.rolledOut("pay")
	}, lastingEnds)
}
