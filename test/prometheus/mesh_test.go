package prometheus_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/identity/folder"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/test/freeport"
	"github.com/weirmesh/weir/test/weirtest"
)

// A Gateway whose requests meet everything that boards show, and two sidecars of which one may call the other.
const manifests = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  gatewayClassName: weir
  listeners:
  - {name: http, port: HTTP, protocol: HTTP}
  - {name: https, port: TLS, protocol: HTTPS, tls: {certificateRefs: [{name: web-tls}]}}
  - {name: tcp, port: TCP, protocol: TCP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: shop}
spec:
  parentRefs: [{name: edge}]
  rules:
  - name: weights
    matches: [{path: {value: /weights}}]
    filters:
    - {type: RequestMirror, requestMirror: {backendRef: {name: shadow, port: 80}, percent: 50}}
    - {type: RequestMirror, requestMirror: {backendRef: {name: closed, port: 80}}}
    backendRefs: [{name: good, port: 80, weight: 3}, {name: other, port: 80, weight: 1}]
  - name: split
    matches: [{path: {value: /split}}]
    backendRefs: [{name: root, port: 80}]
  - name: retried
    matches: [{path: {value: /retried}}]
    retry: {attempts: 1, codes: [503]}
    backendRefs: [{name: flaky, port: 80}]
  - name: bad
    matches: [{path: {value: /bad}}]
    backendRefs: [{name: bad, port: 80}]
  - name: half
    matches: [{path: {value: /half}}]
    backendRefs: [{name: half, port: 80}]
  - name: moved
    matches: [{path: {value: /moved}}]
    filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplaceFullPath, replaceFullPath: /weights}}}]
---
apiVersion: gateway.networking.k8s.io/v1alpha2
kind: TCPRoute
metadata: {name: plain, namespace: shop}
spec: {parentRefs: [{name: edge, sectionName: tcp}], rules: [{backendRefs: [{name: good, port: 80}]}]}
---
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: root, namespace: shop}
spec: {service: root, backends: [{service: good, weight: 1}, {service: other, weight: 1}]}
---
apiVersion: v1
kind: Pod
metadata: {name: cart-0, namespace: shop, labels: {app: cart}}
spec: {serviceAccountName: cart, containers: [{name: cart, image: cart, ports: [{containerPort: 8080}]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: web-0, namespace: shop, labels: {app: web}}
spec: {serviceAccountName: web, containers: [{name: web, image: web}]}
---
apiVersion: access.smi-spec.io/v1beta1
kind: TrafficRole
metadata: {name: read, namespace: shop}
rules: [{resources: [{kind: Pod, name: cart-0}], methods: [GET], paths: ['/carts']}]
---
apiVersion: access.smi-spec.io/v1beta1
kind: TrafficRoleBinding
metadata: {name: read, namespace: shop}
subjects: [{kind: Pod, name: web-0}]
roleRef: {kind: TrafficRole, name: read}
`

// service has the names of pods as where its endpoints are.
const service = `---
apiVersion: v1
kind: Service
metadata: {name: NAME, namespace: shop, annotations: {weirmesh.github.io/eject-after-failures: "1"}}
spec: {selector: {app: NAME}, ports: [{name: http, port: 80, targetPort: PORT}]}
`

const endpoint = `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: NAME-N, namespace: shop, labels: {kubernetes.io/service-name: NAME}}
addressType: IPv4
ports: [{name: http, port: PORT}]
endpoints: [{addresses: [127.0.0.1], targetRef: {kind: Pod, namespace: shop, name: POD}}]
`

// mesh is what runs, and what it is called by.
type mesh struct {
	t       *testing.T
	targets []target
	http    string // the Gateway's
	tls     string
	tcp     string
	web     *http.Client // by the sidecar of web
	cart    *http.Client
	plain   *http.Client

	sent, denied atomic.Int64 // by web
}

// target is one for Prometheus.
type target struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

func free(t *testing.T) string {
	t.Helper()
	port, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(port)
}

func portOf(address string) string { return address[strings.LastIndex(address, ":")+1:] }

// startMesh runs the Gateway, the sidecars and a controller until the test ends.
func startMesh(t *testing.T) *mesh {
	m := &mesh{t: t, plain: &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	t.Cleanup(m.plain.CloseIdleConnections)
	backend := func(status func() int) string {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(status())
			io.WriteString(w, "hello")
		}))
		t.Cleanup(s.Close)
		return portOf(s.URL)
	}
	always := func(status int) func() int { return func() int { return status } }
	var n atomic.Int64
	good, closed := backend(always(200)), free(t)
	dir, cart, inbound, outbound, further := t.TempDir(), backend(always(200)), free(t), free(t), free(t)
	ports := map[string]string{"HTTP": free(t), "TLS": free(t), "TCP": free(t)}
	text := strings.NewReplacer("port: HTTP", "port: "+ports["HTTP"], "port: TLS", "port: "+ports["TLS"], "port: TCP", "port: "+ports["TCP"]).Replace(manifests)
	for _, s := range []struct {
		name string
		pods [][2]string // name and port
	}{
		{"good", [][2]string{{"good-7d4b9c8f6d-x7k2p", good}}}, {"other", [][2]string{{"other-0", backend(always(200))}}}, {"root", nil}, {"shadow", [][2]string{{"shadow-x7k2p", good}}},
		{"closed", [][2]string{{"closed", closed}}}, {"bad", [][2]string{{"bad", backend(always(500))}}}, {"half", [][2]string{{"half-0", good}, {"half-1", free(t)}}},
		{"flaky", [][2]string{{"flaky", backend(func() int { return []int{503, 200}[n.Add(1)%2] })}}}, {"cart", [][2]string{{"cart-0", inbound}}},
	} {
		text += strings.NewReplacer("NAME", s.name, "PORT", "8080").Replace(service)
		for i, p := range s.pods {
			text += strings.NewReplacer("NAME-N", fmt.Sprint(s.name, "-", i), "NAME", s.name, "PORT", p[1], "POD", p[0]).Replace(endpoint)
		}
	}
	chain, key := peertest.NewAuthority(t).Issue(t, "web.example")
	secret, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": map[string]string{"name": "web-tls", "namespace": "shop"},
		"stringData": map[string]string{"tls.crt": chain, "tls.key": key},
	})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "mesh.yaml")
	if err := os.WriteFile(file, []byte(text+"---\n"+string(secret)), 0o600); err != nil {
		t.Fatal(err)
	}
	trust := filepath.Join(dir, "trust")
	authority, err := folder.Make(trust, "", "cluster.local", time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"cart", "web"} {
		if _, _, err := authority.Pod(folder.Pod{Namespace: "shop", Name: name + "-0", Account: name}, time.Hour, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	collector := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(collector.Close)
	m.runs("edge", "edge-weir-5f7d8c9b6-abcde", weirtest.Run(t, "--otlp-endpoint", collector.URL, "--trace-share", "1/2", "--max-in-flight", "1000", "--max-connections", "1000", file))
	m.runs("", "cart-0", weirtest.Run(t, "--as", "shop/cart-0", "--identity", trust, "--inbound", "8080=127.0.0.1:"+inbound, "--app", "8080=127.0.0.1:"+cart, "--outbound", "127.0.0.1:"+further, file))
	m.runs("", "web-0", weirtest.Run(t, "--as", "shop/web-0", "--identity", trust, "--outbound", "127.0.0.1:"+outbound, file))
	m.http, m.tls, m.tcp = "http://127.0.0.1:"+ports["HTTP"], "127.0.0.1:"+ports["TLS"], "127.0.0.1:"+ports["TCP"]
	by := func(port string) *http.Client {
		c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(&url.URL{Scheme: "http", Host: "127.0.0.1:" + port})}}
		t.Cleanup(c.CloseIdleConnections)
		return c
	}
	m.web, m.cart = by(outbound), by(further)
	m.controller(dir)
	return m
}

// pod is a target as Prometheus finds it in a cluster.
func pod(address, namespace, name, component, gateway string) target {
	const meta = "__meta_kubernetes_"
	return target{[]string{address}, map[string]string{
		meta + "namespace": namespace, meta + "pod_name": name, meta + "pod_container_port_name": "admin", meta + "pod_label_app_kubernetes_io_name": "weir",
		meta + "pod_label_app_kubernetes_io_component": component, meta + "pod_label_gateway_networking_k8s_io_gateway_name": gateway,
	}}
}

// runs adds a process to what Prometheus reads.
func (m *mesh) runs(gateway, name string, p *weirtest.Process) {
	u, err := url.Parse(p.Admin())
	if err != nil {
		m.t.Fatal(err)
	}
	m.targets = append(m.targets, pod(u.Host, "shop", name, "proxy", gateway))
}

// controller runs one whose API server has ConfigMaps, none, and nothing else. So its tasks fail, but it has all of its
// metrics.
func (m *mesh) controller(dir string) {
	ctx, cancel := context.WithCancel(context.Background())
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/api":
			io.WriteString(w, `{"kind": "APIVersions", "versions": ["v1"]}`)
		case r.URL.Path == "/apis":
			io.WriteString(w, `{"kind": "APIGroupList", "apiVersion": "v1", "groups": []}`)
		case r.URL.Path == "/api/v1":
			io.WriteString(w, `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [{"name": "configmaps", "namespaced": true, "kind": "ConfigMap", "verbs": ["get", "list", "watch"]}]}`)
		case r.URL.Query().Get("watch") != "":
			w.(http.Flusher).Flush()
			select {
			case <-ctx.Done():
			case <-r.Context().Done():
			}
		default:
			http.Error(w, `{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}`, http.StatusNotFound)
		}
	}))
	m.t.Cleanup(api.Close)
	m.t.Cleanup(cancel)
	config := filepath.Join(dir, "kubeconfig")
	err := os.WriteFile(config, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"clusters": [{"name": "a", "cluster": {"server": "`+api.URL+`"}}], "contexts": [{"name": "a", "context": {"cluster": "a"}}]}`), 0o600)
	if err != nil {
		m.t.Fatal(err)
	}
	admin := "127.0.0.1:" + free(m.t)
	weirtest.Start(m.t, "controller", "--log-format", "json", "--kubeconfig", config, "--proxy-image", "weir:1", "--name", "a", "--admin", admin,
		"--feed-address", "127.0.0.1:0", "--conversion-address", "127.0.0.1:0", "--drain-delay", "0s")
	m.targets = append(m.targets, pod(admin, "weir-system", "weir-controller-0", "controller", ""))
	m.releases()
}

// releases stands for a controller that carries Rollouts out, which needs an API server that has some. Tests of
// deploy/prometheus hold that these are the metrics and labels that docs/metrics.md has, and one of internal/controller that
// they are told so.
func (m *mesh) releases() {
	began := time.Now()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		now := time.Since(began).Seconds()
		fmt.Fprintf(w, `# TYPE weir_controller_rollouts gauge
weir_controller_rollouts 2
weir_controller_rollouts_unshown 0
weir_controller_rollouts_away{reason="openkruise"} 0
weir_controller_rollouts_away{reason="undefined"} 0
weir_controller_rollout_phase{rollout="shop/web"} 2
weir_controller_rollout_phase{rollout="shop/cart"} 1
weir_controller_rollout_step{rollout="shop/web"} 2
weir_controller_rollout_step{rollout="shop/cart"} 0
weir_controller_rollout_steps{rollout="shop/web"} 3
weir_controller_rollout_steps{rollout="shop/cart"} 2
weir_controller_rollout_step_age_seconds{rollout="shop/web"} %v
weir_controller_rollout_set_ratio{rollout="shop/web"} 0.2
weir_controller_rollout_measured_ratio{rollout="shop/web"} 0.199
`, now)
		for _, t := range []string{"begun", "replaced", "step_reached", "completed", "rolled_back", "aborted", "stopped"} {
			fmt.Fprintf(w, "weir_controller_rollout_transitions_total{transition=%q} %v\n", t, int(now))
		}
		for _, of := range []string{"release", "measurement"} {
			fmt.Fprintf(w, "weir_controller_rollout_errors_total{of=%q} %v\n", of, int(now))
		}
	}))
	m.t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		m.t.Fatal(err)
	}
	m.targets = append(m.targets, pod(u.Host, "weir-system", "weir-controller-1", "controller", ""))
}

// call makes requests of each kind until ctx ends.
func (m *mesh) call(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	repeat := func(f func()) {
		all.Go(func() {
			for ctx.Err() == nil {
				f()
				select {
				case <-ctx.Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		})
	}
	for _, path := range []string{"/weights", "/split", "/retried", "/bad", "/half", "/moved", "/none"} {
		repeat(func() { m.ask(ctx, m.plain, "POST", m.http+path, "some bytes") })
	}
	repeat(func() {
		if m.ask(ctx, m.web, "GET", "http://cart.shop/carts", "") == 200 {
			m.sent.Add(1)
		}
	})
	repeat(func() {
		if m.ask(ctx, m.web, "DELETE", "http://cart.shop/carts", "") == 403 {
			m.denied.Add(1)
		}
	})
	repeat(func() { m.ask(ctx, m.cart, "GET", "http://good.shop/", "") })
	repeat(func() { m.tls13(ctx) })
	repeat(func() { m.connection(ctx, m.tls, "no TLS\r\n\r\n") }) // fails the handshake
	repeat(func() { m.connection(ctx, m.tcp, "GET / HTTP/1.0\r\n\r\n") })
}

func (m *mesh) ask(ctx context.Context, c *http.Client, method, url, body string) int {
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		m.t.Error(err)
		return 0
	}
	a, err := c.Do(r)
	if err != nil {
		return 0
	}
	defer a.Body.Close()
	io.Copy(io.Discard, a.Body)
	return a.StatusCode
}

func (m *mesh) tls13(ctx context.Context) {
	d := tls.Dialer{Config: &tls.Config{ServerName: "web.example", InsecureSkipVerify: true}}
	if c, err := d.DialContext(ctx, "tcp", m.tls); err == nil {
		c.Close()
	}
}

// connection sends a text and reads until the other end closes.
func (m *mesh) connection(ctx context.Context, address, text string) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return
	}
	defer c.Close()
	defer context.AfterFunc(ctx, func() { c.Close() })()
	io.WriteString(c, text)
	io.Copy(io.Discard, c)
}
