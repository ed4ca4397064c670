package control_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// mesh is a cluster with pods of two namespaces, a Gateway with a key, and policies about each pod.
const mesh = `
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: cart-1, labels: {app: cart}}
spec: {serviceAccountName: cart, containers: [{name: c, ports: [{containerPort: 8080}]}]}
status: {podIP: 10.0.0.7}
---
apiVersion: v1
kind: Pod
metadata: {namespace: shop, name: pay-1, labels: {app: pay}, annotations: {weirmesh.github.io/plain-text: refused}}
spec: {serviceAccountName: pay, containers: [{name: c, ports: [{containerPort: 8080}]}]}
status: {podIP: 10.0.0.8}
---
apiVersion: v1
kind: Pod
metadata: {namespace: blog, name: cart-1, labels: {app: cart}, annotations: {weirmesh.github.io/plain-text: often}}
spec: {containers: [{name: c, ports: [{containerPort: 9090}]}]}
status: {podIP: 10.0.0.9}
---
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: pay}
spec: {selector: {app: pay}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {namespace: shop, name: cart}
spec:
  destination: {kind: ServiceAccount, name: cart, namespace: shop}
  sources: [{kind: ServiceAccount, name: web, namespace: shop}]
  rules: [{kind: TCPRoute, name: all}]
---
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {namespace: shop, name: pay}
spec:
  destination: {kind: ServiceAccount, name: pay, namespace: shop}
  sources: [{kind: ServiceAccount, name: secret-client, namespace: shop}]
  rules: [{kind: TCPRoute, name: all}]
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: TCPRoute
metadata: {namespace: shop, name: all}
spec: {matches: {}}
---
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: weir}
spec: {controllerName: weirmesh.github.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {namespace: shop, name: edge}
spec:
  gatewayClassName: weir
  listeners: [{name: http, port: 80, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {namespace: shop, name: pay}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: pay, port: 80}]}]
`

func sidecarsOf(t *testing.T, manifests string, edit func(*control.Options)) control.Result {
	t.Helper()
	o := control.InCluster()
	o.Mesh = true
	if edit != nil {
		edit(&o)
	}
	set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(manifests))
	if err != nil {
		t.Fatal(err)
	}
	r, err := o.Translate(set)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestASidecarGetsWhatIsItsPodsAlone looks for what is of others in what a pod gets.
func TestASidecarGetsWhatIsItsPodsAlone(t *testing.T) {
	of := sidecarsOf(t, mesh, nil).Sidecars
	for pod, want := range map[string]struct {
		plain    bool
		policies int
		foreign  []string
	}{
		"shop/cart-1": {true, 1, []string{"secret-client", "pay-1", "edge", "blog", "10.0.0.8", "10.0.0.9"}},
		"shop/pay-1":  {false, 1, []string{"cart", "web", "edge", "blog", "10.0.0.7", "10.0.0.9"}},
		"blog/cart-1": {false, 0, []string{"shop", "secret-client", "10.0.0.7", "10.0.0.8"}},
	} {
		namespace, name, _ := strings.Cut(pod, "/")
		c, left := of.Inbound(namespace, name)
		if c == nil || len(left) != 0 {
			t.Fatalf("%s: %v, %v", pod, c, left)
		}
		owner := model.WorkloadOwner(namespace, name)
		if !slices.Equal(c.Owners(), []model.Owner{owner}) || len(c.Workloads) != 1 || c.Workloads[0].Name() != namespace+"/Pod/"+name || len(c.Policies) != want.policies || len(c.Certificates) != 0 {
			t.Errorf("%s: %+v", pod, c)
		}
		plain := false
		for _, l := range c.Listeners {
			in := l.Redirect == model.RedirectInbound
			if !in || l.Owner != owner || l.Workload != c.Workloads[0].Name() || l.TLS.Identity() != model.WorkloadIdentity {
				t.Errorf("%s: listener %+v", pod, l)
			}
			plain = plain || in && l.TLS.Plain
		}
		if plain != want.plain {
			t.Errorf("%s serves clients without identities: %t", pod, plain)
		}
		text, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		for _, word := range want.foreign {
			if strings.Contains(string(text), word) {
				t.Errorf("%s gets %q of others: %s", pod, word, text)
			}
		}
	}
	if c, _ := of.Inbound("shop", "gone"); c != nil {
		t.Errorf("a pod that is not there gets %+v", c)
	}
	if c, _ := of.Inbound("shop", "pay"); c != nil {
		t.Errorf("a pod of a Service's name gets %+v", c)
	}
}

// TestWhatSidecarsHaveInCommonIsNobodys has no listener, workload or policy of a pod, and no key.
func TestWhatSidecarsHaveInCommonIsNobodys(t *testing.T) {
	c, left := sidecarsOf(t, mesh+"---\n"+called, nil).Sidecars.Outbound("shop")
	if len(left) != 0 || len(c.Workloads)+len(c.Policies)+len(c.Certificates) != 0 {
		t.Errorf("%+v, %v", c, left)
	}
	services := map[string]bool{}
	for _, l := range c.Listeners {
		if l.Owner != "" || l.Workload != "" || l.Redirect != model.RedirectOutbound || l.TLS != nil {
			t.Errorf("listener %+v", l)
		}
	}
	for i := range c.Services {
		services[c.Services[i].Name] = true
	}
	if len(c.Listeners) < 2 || !services["shop/web:80"] {
		t.Errorf("listeners %+v, services %v", c.Listeners, services)
	}
}

// called is a Service with an address.
const called = `
apiVersion: v1
kind: Service
metadata: {namespace: shop, name: web}
spec: {clusterIP: 10.2.0.1, ports: [{port: 80}]}
`

// TestSidecarsHaveTheSettingsOfAll has paths and trust domain set for all.
func TestSidecarsHaveTheSettingsOfAll(t *testing.T) {
	c, _ := sidecarsOf(t, mesh, func(o *control.Options) { o.PathPolicy = model.PathStrict }).Sidecars.Inbound("shop", "cart-1")
	requests := 0
	for _, l := range c.Listeners {
		if l.Protocol.Requests() {
			requests++
			if l.PathPolicy != model.PathStrict {
				t.Errorf("%+v", l)
			}
		}
	}
	if requests == 0 {
		t.Error("no listener takes requests")
	}
	if r := sidecarsOf(t, mesh, func(o *control.Options) { o.Mesh = false }); r.Sidecars != nil {
		t.Error("there are sidecars without a mesh")
	}
}

// TestGatewaysAreTheSameInAMesh compares what their proxies get.
func TestGatewaysAreTheSameInAMesh(t *testing.T) {
	in, out := sidecarsOf(t, mesh, nil).Config.ByOwner(), sidecarsOf(t, mesh, func(o *control.Options) { o.Mesh = false }).Config.ByOwner()
	if len(in) != 1 || len(out) != 1 || len(out["shop/edge"].Routes) != 1 || !in["shop/edge"].Equal(out["shop/edge"]) {
		t.Errorf("%+v\nwithout a mesh %+v", in, out)
	}
}

// TestSidecarsAreMadeAtTheSameTime is for the race detector.
func TestSidecarsAreMadeAtTheSameTime(t *testing.T) {
	r := sidecarsOf(t, mesh, nil)
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if c, _ := r.Sidecars.Inbound("shop", "cart-1"); c == nil {
				t.Error("nothing is made")
			}
		})
	}
	before := r.Config.ByOwner()["shop/edge"]
	all.Wait()
	if !before.Equal(r.Config.ByOwner()["shop/edge"]) {
		t.Error("what Gateways have has changed")
	}
}

// BenchmarkSidecars is what a change costs for each connected sidecar, among 1,000 pods behind 500 Services.
func BenchmarkSidecars(b *testing.B) {
	var text strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&text, "apiVersion: v1\nkind: Pod\nmetadata: {namespace: shop, name: p%d, labels: {app: a%d}}\nspec: {serviceAccountName: a%d, initContainers: [{name: weir-sidecar, restartPolicy: Always}], containers: [{name: c, ports: [{containerPort: 8080}]}]}\nstatus: {podIP: 10.1.%d.%d}\n---\n", i, i/2, i/2, i/250, i%250)
	}
	for i := range 500 {
		fmt.Fprintf(&text, "apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: a%d}\nspec: {selector: {app: a%d}, ports: [{port: 80, targetPort: 8080}], clusterIP: 10.2.%d.%d}\n---\n", i, i, i/250, i%250)
	}
	set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(text.String()))
	if err != nil {
		b.Fatal(err)
	}
	o := control.InCluster()
	o.Mesh = true
	r, err := o.Translate(set)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if c, _ := r.Sidecars.Inbound("shop", fmt.Sprintf("p%d", i%1000)); len(c.Listeners) == 0 {
			b.Fatal(c)
		}
	}
}
