package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/conformance/install"
)

// TestATCPRouteThatLeadsBackIsRefused leads a TCP listener to the Gateway's own Service and to its ClusterIP.
func TestATCPRouteThatLeadsBackIsRefused(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	t.Parallel()
	w := newWorld(t)
	w.apply(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: ` + install.Class + `
  listeners: [{name: tcp, port: 9000, protocol: TCP}]
`)
	address := strings.TrimPrefix(w.programmed("edge"), "http://")
	service := w.kubectl("", "get", "services", "--selector=gateway.networking.k8s.io/gateway-name=edge", "--output=jsonpath={.items[0].metadata.name} {.items[0].spec.clusterIP}")
	name, clusterIP, found := strings.Cut(service, " ")
	if !found {
		t.Fatalf("the Gateway's Service is %q", service)
	}
	backends := []string{name + ", port: 9000", "back, port: 80"}
	w.apply(fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: back}
spec: {ports: [{port: 80, targetPort: 9000}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: back, labels: {kubernetes.io/service-name: back}}
addressType: IPv4
ports: [{port: 9000}]
endpoints: [{addresses: [%s]}]
`, clusterIP))
	for _, backend := range backends {
		w.apply(fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: back}
spec:
  parentRefs: [{name: edge}]
  rules: [{backendRefs: [{name: %s}]}]
`, backend))
		w.condition("tcproute/back", ".status.parents[*]", "ResolvedRefs", "False")
		w.eventually(func() error {
			nc, err := net.DialTimeout("tcp", net.JoinHostPort(address, "9000"), 5*time.Second)
			if errors.Is(err, syscall.ECONNRESET) {
				return nil
			}
			if err != nil {
				return err
			}
			defer nc.Close()
			nc.SetDeadline(time.Now().Add(10 * time.Second))
			if _, err := io.Copy(io.Discard, nc); !errors.Is(err, syscall.ECONNRESET) {
				return fmt.Errorf("backend %s: %v, want a reset", backend, err)
			}
			return nil
		})
	}
}
