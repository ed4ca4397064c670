package cli_test

import (
	"fmt"
	"net"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/weirmesh/weir/test/weirtest"
)

// takePort listens at a port of all addresses, as another process would.
func takePort(t *testing.T) (int, net.Listener) {
	t.Helper()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().(*net.TCPAddr).Port, l
}

// other is a Gateway of one listener beside the world's own.
func other(port int) string {
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: other}
spec:
  gatewayClassName: weir
  listeners: [{name: http, port: %d, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: other}
spec:
  parentRefs: [{name: other}]
  rules: [{backendRefs: [{name: green, port: 80}]}]
`, port)
}

// TestATakenPortOfOneGatewayIsNoOthersMatter starts with a port that is taken and changes another Gateway meanwhile.
func TestATakenPortOfOneGatewayIsNoOthersMatter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	port, taken := takePort(t)
	w.write("other.yaml", other(port))
	w.run()
	if got := w.get(); got != "blue" {
		t.Errorf("the other Gateway answers %q", got)
	}
	code, ready := w.admin("readyz")
	if code != http.StatusOK || !strings.Contains(ready, "degraded: 1 port cannot be bound") {
		t.Errorf("/readyz: %d %q", code, ready)
	}
	_, status := w.admin("status")
	for _, part := range []string{`"code": "WR805"`, `"PortUnavailable"`, "other.yaml", "spec.listeners[0].port", "address already in use", "free the port"} {
		if !strings.Contains(status, part) {
			t.Errorf("/status lacks %q:\n%s", part, status)
		}
	}
	w.weir.WaitLog("finding", weirtest.Is("code", "WR805"), weirtest.Is("object", "Gateway default/other"))
	for i, to := range []string{"green", "blue", "green"} {
		w.write("route.yaml", w.route(to))
		w.weir.WaitLog("configuration applied", weirtest.Is("generation", i+2))
		if got := w.get(); got != to {
			t.Errorf("after change %d: %q, want %s", i, got, to)
		}
	}
	taken.Close()
	w.weir.WaitLog("port bound")
	w.port = port
	if got := w.get(); got != "green" {
		t.Errorf("the port that became free answers %q", got)
	}
	waitUntil(t, func() bool { _, status := w.admin("status"); return !strings.Contains(status, "WR805") })
	if _, ready := w.admin("readyz"); strings.Contains(ready, "degraded") {
		t.Errorf("/readyz: %q", ready)
	}
	w.weir.Stop()
}

func TestNothingThatCanBeServedIsAnError(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.port, _ = takePort(t)
	w.write("route.yaml", w.route("blue"))
	weir("", "run", "--admin", "off", w.dir).want(t, 1, "stderr:configuration not applied, nothing is served", "stderr:!keeps serving", "stderr:default/edge/http", "stderr:port "+strconv.Itoa(w.port), "stderr:free the port")
	if runtime.GOOS == "linux" {
		weir("", "run", "--admin", "off", w.dir).want(t, 1, fmt.Sprintf("stderr:port %d is in use by cli.test (process %d)", w.port, os.Getpid()))
	}
}
