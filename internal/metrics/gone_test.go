package metrics_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/telemetry"
)

const (
	webOwners = `
{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: foobar}, spec: {template: {metadata: {labels: {app: web}}}}}
---
{apiVersion: apps/v1, kind: ReplicaSet, metadata: {name: web-1, namespace: foobar, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: u, controller: true}]}, spec: {template: {metadata: {labels: {app: web}}}}}
---
{apiVersion: v1, kind: Service, metadata: {name: web, namespace: foobar}, spec: {selector: {app: web}, ports: [{port: 80}]}}
---
`
	webPod = "{apiVersion: v1, kind: Pod, metadata: {name: web-1-%s, namespace: foobar, labels: {app: web}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: u, controller: true}]}, spec: {nodeName: n1}, status: {podIP: 10.0.0.%d}}\n---\n"
)

// TestAPodThatIsGoneBelongsToWhatRanIt while its traffic is in a window, and is none that there is.
func TestAPodThatIsGoneBelongsToWhatRanIt(t *testing.T) {
	a, b := fmt.Sprintf(webPod, "a", 1), fmt.Sprintf(webPod, "b", 2)
	n := &metrics.Newest{}
	n.Know(load(t, draftPods+webOwners+a+b))
	n.Index()
	n.Know(load(t, draftPods+webOwners+b))
	x := n.Index()
	client := podSide(foo)
	traffic := func(at string) []metrics.Traffic {
		return []metrics.Traffic{
			{EdgeLabels: telemetry.EdgeLabels{At: podSide(at), Peer: client}, Success: 3},
			{EdgeLabels: telemetry.EdgeLabels{At: client, Out: true, Peer: podSide(at)}, Success: 3},
			{EdgeLabels: telemetry.EdgeLabels{At: podSide("web-1-b"), Peer: client}, Success: 1},
			{EdgeLabels: telemetry.EdgeLabels{At: client, Out: true, Peer: podSide("web-1-b")}, Success: 1},
		}
	}
	s := &store{rows: traffic("web-1-a")}
	for of, want := range map[string]uint64{"Deployment foobar/web": 4, "ReplicaSet foobar/web-1": 4, "Service foobar/web": 4, "Namespace /foobar": 4, "Node /n1": 4, "Pod foobar/web-1-b": 1} {
		kind, rest, _ := strings.Cut(of, " ")
		namespace, name, _ := strings.Cut(rest, "/")
		one, err := x.Get(ctx, s, resourceOf(t, kind), namespace, name, whole.Window)
		if err != nil {
			t.Fatal(err)
		}
		if m, _ := one.Measured(); m.Success != want {
			t.Errorf("%s received %d, want %d", of, m.Success, want)
		}
	}
	if _, err := x.Get(ctx, s, resourceOf(t, "Pod"), "foobar", "web-1-a", whole.Window); !errors.As(err, new(*metrics.Missing)) {
		t.Errorf("the pod that is gone: %v", err)
	}
	list, err := x.List(ctx, s, resourceOf(t, "Pod"), "foobar", whole)
	if err != nil {
		t.Fatal(err)
	}
	for _, item := range list.Items {
		if item.Resource.Name == "web-1-a" {
			t.Error("the pod that is gone is listed")
		}
	}
	edges := func(x *metrics.Index, kind, name string, want ...string) {
		t.Helper()
		list, err := x.Edges(ctx, s, resourceOf(t, kind), "foobar", name, whole)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, item := range list.Items {
			m, _ := item.Measured()
			got = append(got, fmt.Sprintf("%s %s %d", item.Edge.Direction, id(*item.Edge.Resource), m.Success))
		}
		if strings.Join(got, ", ") != strings.Join(want, ", ") {
			t.Errorf("edges of %s %s: %q, want %q", kind, name, got, want)
		}
	}
	edges(x, "Pod", foo, "to Pod foobar/web-1-a 3", "to Pod foobar/web-1-b 1")
	edges(x, "Deployment", "web", "from Pod foobar/"+foo+" 4")

	// One of its name is another pod, of which the same holds; what ran it may go with it.
	n.Know(load(t, draftPods+webOwners+a+b))
	edges(n.Index(), "Pod", foo, "to Pod foobar/web-1-a 3", "to Pod foobar/web-1-b 1")
	n.Know(load(t, draftPods))
	edges(n.Index(), "Pod", foo, "to Pod foobar/web-1-a 3", "to Pod foobar/web-1-b 1")
	if _, err := n.Index().Get(ctx, s, resourceOf(t, "Deployment"), "foobar", "web", whole.Window); !errors.As(err, new(*metrics.Missing)) {
		t.Errorf("what ran the pods is gone: %v", err)
	}
}
