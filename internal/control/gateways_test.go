package control_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/model"
)

// meshed is mesh with a sidecar in the pod pay-1, and a slice that leads to it and to an address without one.
func meshed(t *testing.T) string {
	t.Helper()
	const pod = "spec: {serviceAccountName: pay, containers:"
	if !strings.Contains(mesh, pod) {
		t.Fatal("there is no such pod")
	}
	return strings.Replace(mesh, pod, "spec: {serviceAccountName: pay, initContainers: [{name: weir-sidecar, restartPolicy: Always}], containers:", 1) + `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {namespace: shop, name: pay-x, labels: {kubernetes.io/service-name: pay}}
addressType: IPv4
ports: [{port: 8080, protocol: TCP}]
endpoints:
- {addresses: [10.0.0.8], conditions: {ready: true}, targetRef: {kind: Pod, name: pay-1, namespace: shop}}
- {addresses: [10.0.0.99], conditions: {ready: true}}
`
}

const policy = `---
apiVersion: gateway.networking.k8s.io/v1
kind: BackendTLSPolicy
metadata: {namespace: shop, name: pay}
spec:
  targetRefs: [{group: "", kind: Service, name: pay}]
  validation: {hostname: pay.example, wellKnownCACertificates: System}
`

func edge(t *testing.T, manifests string, in bool) *model.Config {
	t.Helper()
	c := sidecarsOf(t, manifests, func(o *control.Options) { o.Mesh = in }).Config.ByOwner()["shop/edge"]
	if c == nil || len(c.Services) != 1 || len(c.Services[0].Endpoints) != 2 {
		t.Fatalf("the Gateway has %+v", c)
	}
	return c
}

// TestGatewaysKnowPodsWithSidecarsByIdentity leaves the other endpoint of the Service in cleartext.
func TestGatewaysKnowPodsWithSidecarsByIdentity(t *testing.T) {
	tls := edge(t, meshed(t), true).Services[0].TLS
	want := []model.PodIdentity{{Address: "10.0.0.8", ID: "spiffe://cluster.local/ns/shop/sa/pay", Pod: "pay-1"}}
	if tls == nil || tls.Identity() != model.WorkloadIdentity || !slices.Equal(tls.Pods, want) {
		t.Errorf("%+v", tls)
	}
	if tls := edge(t, meshed(t), false).Services[0].TLS; tls != nil {
		t.Errorf("without a mesh: %+v", tls)
	}
}

// TestAPolicyOfAServiceCountsBeforeTheMesh is for TLS that the application ends.
func TestAPolicyOfAServiceCountsBeforeTheMesh(t *testing.T) {
	in, out := edge(t, meshed(t)+policy, true), edge(t, meshed(t)+policy, false)
	if tls := in.Services[0].TLS; tls == nil || tls.Hostname != "pay.example" || !in.Equal(out) {
		t.Errorf("%+v, without a mesh %+v", in.Services, out.Services)
	}
}

// TestAFaultOfAServiceStaysInTheMesh has an appProtocol that needs a policy, and no policy.
func TestAFaultOfAServiceStaysInTheMesh(t *testing.T) {
	text := strings.Replace(meshed(t), "ports: [{port: 80, targetPort: 8080}]", "ports: [{port: 80, targetPort: 8080, appProtocol: https}]", 1)
	text = strings.Replace(text, "kind: HTTPRoute", "kind: TCPRoute", 1)
	text = strings.Replace(text, "apiVersion: gateway.networking.k8s.io/v1\nkind: TCPRoute", "apiVersion: gateway.networking.k8s.io/v1alpha2\nkind: TCPRoute", 1)
	text = strings.Replace(text, "protocol: HTTP}", "protocol: TCP}", 1)
	s := edge(t, text, true).Services[0]
	if s.Fault == nil || s.Fault.Reason != model.UnsupportedProtocol || s.TLS == nil || len(s.TLS.Pods) != 1 {
		t.Errorf("%+v", s)
	}
}
