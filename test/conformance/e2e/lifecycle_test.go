package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirmesh/weir/test/conformance/install"
)

// kinds are those of what a Gateway gets, directly or by what it gets.
const kinds = "deployments,replicasets,pods,services,endpointslices,configmaps,serviceaccounts,poddisruptionbudgets"

func TestADeletedGatewayLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("test/cluster/kube shows it with an API server")
	}
	t.Parallel()
	w, _ := newShop(t, "v1")
	list := func() []string {
		return strings.Fields(w.kubectl("", "get", kinds, "--output=name", "--selector=gateway.networking.k8s.io/gateway-name=edge"))
	}
	if made := list(); len(made) < 7 {
		t.Errorf("the Gateway has %q only", made)
	}
	w.kubectl("", "delete", "gateway", "edge")
	w.eventually(func() error {
		if left := list(); len(left) > 0 {
			return fmt.Errorf("left: %q", left)
		}
		return nil
	})
	w.eventually(func() error {
		if parents := w.kubectl("", "get", "httproute", "shop", "--output=jsonpath={.status.parents}"); parents != "" && parents != "[]" {
			return fmt.Errorf("the route still has the parents %s", parents)
		}
		return nil
	})
	// A new one of the same name starts afresh.
	w.answers(w.gateway("edge"), http.StatusOK, "v1")
}

func TestADeletedClassGoesWithItsLastGateway(t *testing.T) {
	if testing.Short() {
		t.Skip("test/cluster/kube shows it with an API server")
	}
	t.Parallel()
	w := newWorld(t)
	w.toys("v1", "v2")
	w.apply(fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: e2e-passing}
spec: {controllerName: %s}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: e2e-passing
  listeners:
  - {name: http, port: 80, protocol: HTTP}
---%s`, w.kubectl("", "get", "gatewayclass", install.Class, "--output=jsonpath={.spec.controllerName}"), fmt.Sprintf(shop, "v1")))
	url := w.programmed("edge")
	w.answers(url, http.StatusOK, "v1")
	l := startLoad(t, url)
	l.more(50)
	w.kubectl("", "delete", "gatewayclass", "e2e-passing", "--wait=false")
	// It is being deleted, and its Gateway is served as before, changes included.
	w.apply(fmt.Sprintf(shop, "v2"))
	w.answers(url, http.StatusOK, "v2")
	l.more(50)
	l.end(t)
	if left := w.kubectl("", "get", "gatewayclass", "e2e-passing", "--output=jsonpath={.metadata.deletionTimestamp}"); left == "" {
		t.Error("the class is not being deleted")
	}
	w.kubectl("", "delete", "gateway", "edge")
	w.kubectl("", "wait", "--for=delete", "gatewayclass/e2e-passing", fmt.Sprintf("--timeout=%s", patience))
}

func TestTheControllersRestartFailsNoRequest(t *testing.T) {
	w, url := newShop(t, "v1", "v2")
	l := startLoad(t, url)
	l.more(50)
	if !testing.Short() {
		back := w.withoutController()
		// Changed while nobody looks.
		w.apply(fmt.Sprintf(shop, "v2"))
		l.more(50)
		if a, err := get(t.Context(), url); err != nil || a.Service != "v1" {
			t.Errorf("without the controller: %+v, %v; want v1", a, err)
		}
		back()
		w.answers(url, http.StatusOK, "v2")
		l.more(50)
		w.apply(fmt.Sprintf(shop, "v1"))
		w.answers(url, http.StatusOK, "v1")
	}
	w.kubectl("", "--namespace", install.Namespace, "delete", "pods", "--all", "--force", "--grace-period=0")
	w.apply(fmt.Sprintf(shop, "v2"))
	w.answers(url, http.StatusOK, "v2")
	l.end(t)
	// Nothing waits for what those that were killed have said.
	w.eventually(func() error {
		pods := strings.Fields(w.kubectl("", "--namespace", install.Namespace, "get", "pods", "--selector=app.kubernetes.io/component=controller", "--output=jsonpath={.items[*].metadata.name}"))
		words := strings.Fields(w.kubectl("", "--namespace", install.Namespace, "get", "configmaps", "--selector=weir.weirmesh.github.io/board", "--output=jsonpath={.items[*].metadata.name}"))
		for _, word := range words {
			if !slices.Contains(pods, strings.TrimPrefix(word, "weir-proxies-")) {
				return fmt.Errorf("%s is left, and the pods are %v", word, pods)
			}
		}
		if len(words) == 0 {
			return errors.New("no replica has said anything")
		}
		return nil
	})
	// The tests after this one need its webhooks, which the API server may still look for where they were.
	w.kubectl("", "--namespace", install.Namespace, "rollout", "status", "deployment/weir-controller", fmt.Sprintf("--timeout=%s", patience))
	w.eventually(func() error {
		_, err := install.Kubectl(t.Context(), fmt.Sprintf(judged, w.namespace), "create", "--dry-run=server", "--filename=-")
		return err
	})
}

// judged is a Rollout, and a pod that wants a sidecar: a webhook has its say in each.
const judged = `
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: judged, namespace: %[1]s}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: v1}
  strategy: {canary: {steps: [{replicas: 1}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: judged, namespace: %[1]s, labels: {weirmesh.github.io/inject: enabled}}
spec: {containers: [{name: caller, image: "caller:dev"}]}
`

// withoutController ends all replicas of the controller, until what it returns is called or the test has ended.
func (w *world) withoutController() (back func()) {
	w.Helper()
	scale := func(replicas string) {
		w.Helper()
		// The test's own context has ended when it is cleaned up.
		_, err := install.Kubectl(context.WithoutCancel(w.Context()), "", "--namespace", install.Namespace,
			"scale", "deployment", "weir-controller", "--replicas="+replicas)
		if err != nil {
			w.Fatal(err)
		}
	}
	replicas := w.kubectl("", "--namespace", install.Namespace, "get", "deployment", "weir-controller", "--output=jsonpath={.spec.replicas}")
	scale("0")
	back = sync.OnceFunc(func() { scale(replicas) })
	w.Cleanup(back)
	w.kubectl("", "--namespace", install.Namespace, "wait", "--for=delete", "pods", "--all", fmt.Sprintf("--timeout=%s", patience))
	return back
}

func TestARestartedProxyServesItsLastConfigurationWithoutController(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size, as it waits")
	}
	w, url := newShop(t, "v1", "v2")
	back := w.withoutController()
	// Changed while nobody looks.
	w.apply(fmt.Sprintf(shop, "v2"))

	status := func(field string) string {
		return w.kubectl("", "get", "pods", "--selector=gateway.networking.k8s.io/gateway-name=edge",
			"--output=jsonpath={.items[*].status.containerStatuses[*]."+field+"}")
	}
	// Killed, it can keep nothing that it had not kept already. The pod stays what it is: only its container is another.
	pod := w.kubectl("", "get", "pods", "--selector=gateway.networking.k8s.io/gateway-name=edge", "--output=name")
	for restart := range 2 {
		_, container, _ := strings.Cut(status("containerID"), "://")
		w.cluster("kill", container)
		w.eventually(func() error {
			if count, ready := status("restartCount"), status("ready"); count != fmt.Sprint(restart+1) || ready != "true" {
				return fmt.Errorf("the proxy was started again %s times, ready: %s; want %d, true", count, ready, restart+1)
			}
			return nil
		})
		w.answers(url, http.StatusOK, "v1")
	}
	if now := w.kubectl("", "get", "pods", "--selector=gateway.networking.k8s.io/gateway-name=edge", "--output=name"); now != pod {
		t.Errorf("the pods are %q, were %q", now, pod)
	}
	if left := w.kubectl("", "--namespace", install.Namespace, "get", "pods", "--output=name"); left != "" {
		t.Errorf("a controller was there: %s", left)
	}
	back()
	w.answers(url, http.StatusOK, "v2")
}

func TestTheAPIServersRestartFailsNoRequest(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	w, url := newShop(t, "v1", "v2")
	l := startLoad(t, url)
	l.more(50)
	w.cluster("restart")
	w.apply(fmt.Sprintf(shop, "v2"))
	w.answers(url, http.StatusOK, "v2")
	w.condition("httproute/shop", ".status.parents[*]", "Accepted", "True")
	l.more(50)
	l.end(t)
}

func TestARollingUpdateOfTheProxiesFailsNoRequest(t *testing.T) {
	t.Parallel()
	w, url := newShop(t, "v1")
	pods := func() string {
		return w.kubectl("", "get", "pods", "--output=name", "--selector=gateway.networking.k8s.io/gateway-name=edge")
	}
	before := pods()
	l := startLoad(t, url)
	l.more(50)
	w.kubectl("", "rollout", "restart", "deployment/edge-weir")
	w.kubectl("", "rollout", "status", "deployment/edge-weir", fmt.Sprintf("--timeout=%s", patience))
	w.eventually(func() error {
		for line := range strings.Lines(before) {
			if strings.Contains(pods(), line) {
				return fmt.Errorf("%s is still there", strings.TrimSpace(line))
			}
		}
		return nil
	})
	l.more(50)
	l.end(t)
}
