package cli_test

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"
)

// external is a Service that stands for a host name.
func external(name, host, port string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: %s}
spec: {type: ExternalName, externalName: %q, ports: [{port: 80, targetPort: %s}]}
`, name, host, port)
}

func sliced(name, addressType, address, port string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec: {ports: [{port: 80, targetPort: %[4]s}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: %[2]s
ports: [{port: %[4]s}]
endpoints: [{addresses: [%[3]q]}]
`, name, addressType, address, port)
}

// TestNoRouteReachesTheAdminEndpoint has routes and mirrors that lead to it in every way that files can say.
func TestNoRouteReachesTheAdminEndpoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("--access-log", "stdout")
	u, err := url.Parse(w.weir.Admin())
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(u.Host)
	services := w.services()
	ways := map[string]string{
		"name": external("name", "localhost", port), "v4": sliced("v4", "IPv4", "127.0.0.1", port), "fqdn": sliced("fqdn", "FQDN", "localhost", port),
		"mapped": sliced("mapped", "IPv6", "::ffff:127.0.0.1", port), "mappedhex": sliced("mappedhex", "IPv6", "::ffff:7f00:1", port),
	}
	for name, manifests := range ways {
		route := strings.Replace(w.route(name), "backendRefs", "filters: [{type: RequestMirror, requestMirror: {backendRef: {name: "+name+", port: 80}}}], backendRefs", 1)
		w.write("services.yaml", services+manifests)
		w.write("route.yaml", route)
		waitUntil(t, func() bool {
			_, config := w.admin("config")
			return strings.Contains(config, `"service": "default/`+name+`:80"`)
		})
		if got := w.get(); got != "500 Internal Server Error" {
			t.Errorf("%s: %q", name, got)
		}
		waitUntil(t, func() bool {
			_, metrics := w.admin("metrics")
			return strings.Contains(metrics, `weir_request_failures_total{reason="address_refused",route="default/all",rule="all"} `) &&
				strings.Contains(metrics, `weir_mirror_requests_total{mirror="default/`+name+`:80",outcome="failed_connect"`)
		})
	}
	w.weir.WaitLog("endpoint is refused; give its Service endpoints with addresses of their own")
	// What else is on this machine is the user's.
	w.write("services.yaml", services+external("name", "localhost", w.backends["green"]))
	w.write("route.yaml", w.route("name"))
	waitUntil(t, func() bool { return w.get() == "green" })
	w.weir.Stop()
}

func TestReachOfAClusterRefusesThisMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run("--reach", "cluster")
	if got := w.get(); got != "500 Internal Server Error" {
		t.Errorf("an endpoint at 127.0.0.1 answers %q", got)
	}
	w.weir.Stop()
}

// TestAdminPagesAskForTheToken says what a token does and what it does not.
func TestAdminPagesAskForTheToken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.write("token", "secret\n")
	w.run("--admin-token-file", w.dir+"/token")
	for path, want := range map[string]int{"metrics": 200, "readyz": 200, "healthz": 200, "config": 401, "status": 401, "endpoints": 401, "debug/pprof/": 401} {
		if got, body := w.admin(path); got != want {
			t.Errorf("/%s: %d, want %d: %s", path, got, want, body)
		}
	}
	w.weir.Stop()
	weir("", "run", "--admin-token-file", w.dir+"/nothing", w.dir).want(t, 2, "stderr:--admin-token-file")
}
