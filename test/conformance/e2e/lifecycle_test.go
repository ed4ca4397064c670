package e2e

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/weirmesh/weir/test/conformance/install"
)

// kinds are those of what a Gateway gets, directly or by what it gets.
const kinds = "deployments,replicasets,pods,services,endpointslices,configmaps,serviceaccounts,poddisruptionbudgets"

func TestADeletedGatewayLeavesNothing(t *testing.T) {
	w := newWorld(t)
	w.toys("v1")
	url := w.gateway("edge")
	w.apply(fmt.Sprintf(shop, "v1"))
	w.answers(url, http.StatusOK, "v1")
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

func TestTheControllersRestartFailsNoRequest(t *testing.T) {
	w := newWorld(t)
	w.toys("v1", "v2")
	url := w.gateway("edge")
	w.apply(fmt.Sprintf(shop, "v1"))
	w.answers(url, http.StatusOK, "v1")
	l := startLoad(t, url)
	l.more(50)
	controller := []string{"--namespace", install.Namespace}
	replicas := w.kubectl("", append(controller, "get", "deployment", "weir-controller", "--output=jsonpath={.spec.replicas}")...)
	w.kubectl("", append(controller, "scale", "deployment", "weir-controller", "--replicas=0")...)
	w.kubectl("", append(controller, "wait", "--for=delete", "pods", "--all", fmt.Sprintf("--timeout=%s", patience))...)
	// Changed while nobody looks.
	w.apply(fmt.Sprintf(shop, "v2"))
	l.more(50)
	if a, err := get(t.Context(), url); err != nil || a.Service != "v1" {
		t.Errorf("without the controller: %+v, %v; want v1", a, err)
	}
	w.kubectl("", append(controller, "scale", "deployment", "weir-controller", "--replicas="+replicas)...)
	w.answers(url, http.StatusOK, "v2")
	l.more(50)
	w.kubectl("", append(controller, "delete", "pods", "--all", "--force", "--grace-period=0")...)
	w.apply(fmt.Sprintf(shop, "v1"))
	w.answers(url, http.StatusOK, "v1")
	l.end(t)
}

func TestTheAPIServersRestartFailsNoRequest(t *testing.T) {
	w := newWorld(t)
	w.toys("v1", "v2")
	url := w.gateway("edge")
	w.apply(fmt.Sprintf(shop, "v1"))
	w.answers(url, http.StatusOK, "v1")
	l := startLoad(t, url)
	l.more(50)
	cmd := exec.CommandContext(t.Context(), os.Getenv("WEIR_CLUSTER_PROGRAM"), "restart", "-name", os.Getenv("WEIR_CLUSTER_NAME"))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("restart of the API server: %v: %s", err, out)
	}
	w.apply(fmt.Sprintf(shop, "v2"))
	w.answers(url, http.StatusOK, "v2")
	w.condition("httproute/shop", ".status.parents[*]", "Accepted", "True")
	l.more(50)
	l.end(t)
}

func TestARollingUpdateOfTheProxiesFailsNoRequest(t *testing.T) {
	w := newWorld(t)
	w.toys("v1")
	url := w.gateway("edge")
	w.apply(fmt.Sprintf(shop, "v1"))
	w.answers(url, http.StatusOK, "v1")
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
