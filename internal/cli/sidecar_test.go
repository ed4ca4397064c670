package cli_test

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

// meshed is the example of a mesh, with free ports, an application for cart and a trust domain.
type meshed struct {
	t            *testing.T
	dir, trust   string
	inbound, app string
	received     chan string
}

func newMesh(t *testing.T) *meshed {
	m := &meshed{t: t, dir: t.TempDir(), trust: filepath.Join(t.TempDir(), "trust"), received: make(chan string, 100)}
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { m.received <- r.Method + " " + r.URL.Path }))
	t.Cleanup(s.Close)
	m.app = s.Listener.Addr().String()
	port := weirtest.FreePort(t)
	m.inbound = fmt.Sprintf("127.0.0.1:%d", port)
	for _, name := range []string{"shop.yaml", "access.yaml"} {
		text, err := os.ReadFile("../../examples/mesh/" + name)
		if err != nil {
			t.Fatal(err)
		}
		m.write(name, strings.ReplaceAll(string(text), "15102", fmt.Sprint(port)))
	}
	weir("", "identity", m.trust, m.dir).want(t, 0, "trust domain cluster.local in ", "spiffe://cluster.local/ns/shop/sa/cart")
	return m
}

func (m *meshed) write(name, text string) {
	m.t.Helper()
	temporary := filepath.Join(m.dir, "."+name)
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		m.t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(m.dir, name)); err != nil {
		m.t.Fatal(err)
	}
}

// cart starts the sidecar of cart.
func (m *meshed) cart(args ...string) *weirtest.Process {
	args = append([]string{"--as", "shop/cart", "--identity", m.trust, "--inbound", "8080=" + m.inbound, "--app", "8080=" + m.app, "--access-log", "stdout"}, args...)
	return weirtest.Run(m.t, append(args, m.dir)...)
}

// client starts the sidecar of a client, and returns a client that calls through it.
func (m *meshed) client(name string) *http.Client { return m.clientOf("shop/" + name) }

func (m *meshed) clientOf(pod string) *http.Client {
	at := fmt.Sprintf("127.0.0.1:%d", weirtest.FreePort(m.t))
	weirtest.Run(m.t, "--as", pod, "--identity", m.trust, "--outbound", at, m.dir)
	through := &url.URL{Scheme: "http", Host: at}
	c := &http.Client{Transport: &http.Transport{Proxy: http.ProxyURL(through)}, Timeout: 30 * time.Second}
	m.t.Cleanup(c.CloseIdleConnections)
	return c
}

func (m *meshed) call(c *http.Client, method, at string) (status int, body string) {
	m.t.Helper()
	r, err := http.NewRequest(method, at, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	a, err := c.Do(r)
	if err != nil {
		m.t.Fatal(err)
	}
	defer a.Body.Close()
	text, err := io.ReadAll(a.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	return a.StatusCode, string(text)
}

// nothing checks that no further request has reached the application.
func (m *meshed) nothing() {
	m.t.Helper()
	select {
	case got := <-m.received:
		m.t.Errorf("the application received %s", got)
	default:
	}
}

func TestSidecarsPassWhatRolesAllow(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	cart := m.cart()
	web, report := m.client("web"), m.client("report")
	for _, host := range []string{"cart", "cart.shop", "cart.shop.svc", "cart.shop.svc.cluster.local:80"} {
		if status, _ := m.call(web, "GET", "http://"+host+"/carts/7"); status != 200 {
			t.Errorf("%s: %d", host, status)
		}
		if got := <-m.received; got != "GET /carts/7" {
			t.Errorf("the application received %s", got)
		}
	}
	for _, c := range []struct {
		client       *http.Client
		method, path string
	}{{web, "POST", "/carts/7"}, {web, "GET", "/carts/7/card"}, {report, "GET", "/carts/7"}} {
		status, body := m.call(c.client, c.method, "http://cart"+c.path)
		if status != 403 || body != "access_denied: access is denied\n" {
			t.Errorf("%s %s: %d %q", c.method, c.path, status, body)
		}
		m.nothing()
	}
	cart.WaitLog("configuration applied")
	// The role is given to report, too: the denial is gone, without a restart.
	text, err := os.ReadFile(filepath.Join(m.dir, "access.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m.write("access.yaml", strings.Replace(string(text), "  name: web\n", "  name: web\n- kind: Deployment\n  name: report\n", 1))
	cart.WaitLog("configuration applied", weirtest.Is("generation", 2.0))
	if status, _ := m.call(report, "GET", "http://cart/carts/7"); status != 200 {
		t.Errorf("after the edit: %d", status)
	}
	<-m.received
	m.nothing()
	cart.Stop()
	counts := map[string]int{}
	for d := json.NewDecoder(strings.NewReader(cart.Stdout())); d.More(); {
		var line struct{ Access, Source, Policy string }
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		counts[line.Access+" "+strings.TrimPrefix(line.Source, "spiffe://cluster.local/ns/shop/sa/")]++
		if (line.Access == "allowed") != (line.Policy == "TrafficRole shop/read-carts rules[0] by TrafficRoleBinding shop/web-reads-carts") {
			t.Errorf("logged %+v", line)
		}
	}
	if fmt.Sprint(counts) != "map[allowed report:1 allowed web:4 not_permitted web:2 unknown_source report:1]" {
		t.Error(counts)
	}
}

// Where nothing governs a workload, every client with an identity may do everything.
func TestSidecarsAreOpenWithoutAnyPolicy(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	cart := m.cart()
	report := m.client("report")
	if status, _ := m.call(report, "GET", "http://cart/carts/7"); status != 403 {
		t.Errorf("with a policy for others: %d", status)
	}
	if err := os.Remove(filepath.Join(m.dir, "access.yaml")); err != nil {
		t.Fatal(err)
	}
	cart.WaitLog("configuration applied", weirtest.Is("generation", 2.0))
	m.nothing()
	if status, _ := m.call(report, "DELETE", "http://cart/carts/7"); status != 200 {
		t.Fatalf("without any policy: %d", status)
	}
	if got := <-m.received; got != "DELETE /carts/7" {
		t.Errorf("the application received %s", got)
	}
	if c, err := tls.Dial("tcp", m.inbound, &tls.Config{InsecureSkipVerify: true}); err == nil {
		defer c.Close()
		fmt.Fprint(c, "GET / HTTP/1.1\r\nHost: cart\r\n\r\n")
		if text, err := io.ReadAll(c); err == nil {
			t.Errorf("a client without an identity is answered %q", text)
		}
	}
	cart.Stop()
	line := cart.Stdout()
	if last := line[strings.LastIndex(strings.TrimSpace(line), "\n")+1:]; !strings.Contains(last, "ungoverned") {
		t.Errorf("the access log says %s", last)
	}
}

// A permissive sidecar serves clients without TLS as nobody: they get what everybody gets.
func TestAPermissiveSidecarServesCleartextAsNobody(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	cart := m.cart("--permissive")
	web := m.client("web")
	direct := &http.Client{Transport: &http.Transport{}, Timeout: 30 * time.Second}
	t.Cleanup(direct.CloseIdleConnections)
	if status, _ := m.call(web, "GET", "http://cart/carts/7"); status != 200 {
		t.Errorf("with an identity: %d", status)
	}
	<-m.received
	if status, _ := m.call(direct, "GET", "http://"+m.inbound+"/carts/7"); status != 403 {
		t.Errorf("in cleartext, with a policy for others: %d", status)
	}
	m.nothing()
	if err := os.Remove(filepath.Join(m.dir, "access.yaml")); err != nil {
		t.Fatal(err)
	}
	cart.WaitLog("configuration applied", weirtest.Is("generation", 2.0))
	if status, _ := m.call(direct, "GET", "http://"+m.inbound+"/carts/8"); status != 200 {
		t.Errorf("in cleartext, without a policy: %d", status)
	}
	if got := <-m.received; got != "GET /carts/8" {
		t.Errorf("the application received %s", got)
	}
	cart.Stop()
	if !strings.Contains(cart.Stdout(), "no_identity") {
		t.Errorf("the access log has no denial: %s", cart.Stdout())
	}
}

func TestASidecarWantsAnIdentityOfEveryClient(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	m.cart()
	roots, err := os.ReadFile(filepath.Join(m.trust, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(roots)
	other := filepath.Join(t.TempDir(), "other")
	weir("", "identity", other, m.dir).want(t, 0)
	for name, file := range map[string]string{"own": filepath.Join(m.trust, "shop", "web.pem"), "of another authority": filepath.Join(other, "shop", "web.pem"), "none": ""} {
		config := &tls.Config{RootCAs: pool, ServerName: "cart.shop.svc"}
		if file != "" {
			pair, err := tls.LoadX509KeyPair(file, file)
			if err != nil {
				t.Fatal(err)
			}
			config.Certificates = []tls.Certificate{pair}
		}
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 30 * time.Second}, "tcp", m.inbound, config)
		if err == nil {
			conn.SetDeadline(time.Now().Add(30 * time.Second))
			fmt.Fprintf(conn, "GET /carts/7 HTTP/1.1\r\nHost: cart\r\n\r\n")
			answer := make([]byte, len("HTTP/1.1 200"))
			if _, err = io.ReadFull(conn, answer); err == nil && string(answer) != "HTTP/1.1 200" {
				err = fmt.Errorf("answered %s", answer)
			}
			conn.Close()
		}
		if (name == "own") != (err == nil) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got := <-m.received; got != "GET /carts/7" {
		t.Errorf("the application received %s", got)
	}
	m.nothing()
}

func TestAuditedNamespacesPassWhatTheyWouldDeny(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	text, err := os.ReadFile(filepath.Join(m.dir, "shop.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	m.write("shop.yaml", strings.Replace(string(text), "metadata:\n  name: shop\n", "metadata:\n  name: shop\n  annotations: {weirmesh.github.io/access-audit: \"true\"}\n", 1))
	cart := m.cart()
	if status, _ := m.call(m.client("report"), "DELETE", "http://cart/carts/7"); status != 200 {
		t.Errorf("%d", status)
	}
	<-m.received
	a, err := http.Get(cart.Admin() + "metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	metrics, err := io.ReadAll(a.Body)
	if err != nil || !strings.Contains(string(metrics), `weir_access_decisions_total{action="audited",reason="unknown_source",workload="shop/Deployment/cart"} 1`) {
		t.Errorf("%v\n%s", err, metrics)
	}
}

func TestMistakesOfSidecarFlags(t *testing.T) {
	m := newMesh(t)
	run := func(args ...string) result { return weir("", append(append([]string{"run"}, args...), m.dir)...) }
	for want, args := range map[string][]string{
		`--as "cart": want NAMESPACE/NAME`:                                         {"--as", "cart"},
		"--as needs --identity":                                                    {"--as", "shop/cart"},
		"weir identity ":                                                           {"--as", "shop/cart", "--identity", m.dir},
		"shop/gone.pem":                                                            {"--as", "shop/gone", "--identity", m.trust},
		`--inbound "8080": want PORT=ADDRESS:PORT`:                                 {"--as", "shop/cart", "--identity", m.trust, "--inbound", "8080"},
		`--inbound "0=127.0.0.1:1": want PORT=ADDRESS:PORT`:                        {"--as", "shop/cart", "--identity", m.trust, "--inbound", "0=127.0.0.1:1"},
		`--app "8080=127.0.0.1:2": port 8080 is there twice`:                       {"--as", "shop/cart", "--identity", m.trust, "--app", "8080=127.0.0.1:1", "--app", "8080=127.0.0.1:2"},
		`--outbound "here": want ADDRESS:PORT`:                                     {"--as", "shop/cart", "--identity", m.trust, "--outbound", "here"},
		`--forward "127.0.0.1:1=db": want ADDRESS:PORT=SERVICE:PORT`:               {"--as", "shop/cart", "--identity", m.trust, "--forward", "127.0.0.1:1=db"},
		`the trust domain of ` + m.trust + ` is "cluster.local", not "other.test"`: {"--as", "shop/cart", "--identity", m.trust, "--trust-domain", "other.test"},
		"leave out --address and --port-offset":                                    {"--as", "shop/cart", "--identity", m.trust, "--port-offset", "1"},
	} {
		if r := run(args...); r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("%v: %d %s, want %s", args, r.code, r.err, want)
		}
	}
	for want, args := range map[string][]string{
		"which folder?": {"identity"}, "want one minute to a year": {"identity", m.trust, "--life", "1s"}, `has the trust domain "cluster.local"`: {"identity", m.trust, "--trust-domain", "x"},
		"there are no pods": {"identity", m.trust, "../../examples/canary"}, `"a/b" is not the name`: {"identity", m.trust, "--node", "a/b"},
	} {
		if r := weir("", args...); r.code == 0 || !strings.Contains(r.err, want) {
			t.Errorf("%v: %d %s, want %s", args, r.code, r.err, want)
		}
	}
	r := weir("", "identity", m.trust, "--node", "n1", "-o", "json")
	var out struct {
		TrustDomain  string
		Certificates []struct{ Workload, ID, File string }
	}
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil || out.TrustDomain != "cluster.local" || len(out.Certificates) != 1 || out.Certificates[0].ID != "spiffe://cluster.local/node/n1" {
		t.Errorf("%s %v", r.stdout, err)
	}
}

// A TLSConfig in the form of the first SMI specification gives certificates of a folder its names, as in a cluster.
func TestIdentitiesHaveTheNamesOfTLSConfigs(t *testing.T) {
	dir, trust := t.TempDir(), filepath.Join(t.TempDir(), "trust")
	text := `apiVersion: v1beta1
kind: TLSConfig
name: my-tls-config
spec:
  subjectNames: [foo, bar]
  selector: {matchLabels: {app: foo}}
` + serviceFoo + `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: other}
spec: {selector: {matchLabels: {app: other}}, template: {metadata: {labels: {app: other}}, spec: {containers: [{name: c, image: i}]}}}
`
	if err := os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	names := func(pod string) string {
		t.Helper()
		all, err := os.ReadFile(filepath.Join(trust, "default", pod+".pem"))
		if err != nil {
			t.Fatal(err)
		}
		for block, rest := pem.Decode(all); block != nil; block, rest = pem.Decode(rest) {
			if block.Type == "CERTIFICATE" {
				c, err := x509.ParseCertificate(block.Bytes)
				if err != nil {
					t.Fatal(err)
				}
				return strings.Join(c.DNSNames, " ")
			}
		}
		return "no certificate"
	}
	r := weir("", "identity", trust, dir)
	r.want(t, 0, "spiffe://cluster.local/ns/default/sa/default")
	if !strings.Contains(r.err, `"bar" is not signed`) || names("foo") != "foo foo.default foo.default.svc" || names("other") != "" {
		t.Errorf("%q, foo has %q, other %q", r.err, names("foo"), names("other"))
	}
	granted := []string{"--mesh-subject-names", "default=bar"}
	if r := weir("", append([]string{"identity", trust, dir}, granted...)...); r.code != 0 || r.err != "" || names("foo") != "bar foo foo.default foo.default.svc" {
		t.Errorf("%d %q, foo has %q", r.code, r.err, names("foo"))
	}
	weir("", "check", "--target", "files", dir).want(t, 1, "WR1301", "--mesh-subject-names default=bar")
	if r := weir("", append([]string{"check", "--target", "files", dir}, granted...)...); strings.Contains(r.stdout, "WR1301") {
		t.Error(r.stdout)
	}
	if r := weir("", "identity", trust, dir, "--mesh-subject-names", "bar"); r.code != 2 || !strings.Contains(r.err, "write NAMESPACE=NAME") {
		t.Errorf("%d %s", r.code, r.err)
	}
}

// database is a workload of another protocol than HTTP, and who may connect to it.
const database = `apiVersion: apps/v1
kind: Deployment
metadata: {name: db, namespace: shop}
spec:
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {serviceAccountName: db, containers: [{name: db, ports: [{containerPort: 5432}]}]}
---
apiVersion: v1
kind: Service
metadata: {name: db, namespace: shop}
spec: {selector: {app: db}, ports: [{port: 5432, appProtocol: tcp}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: db, namespace: shop, labels: {kubernetes.io/service-name: db}}
addressType: IPv4
ports: [{port: %d}]
endpoints: [{addresses: ["127.0.0.1"]}]
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: TCPRoute
metadata: {name: postgres, namespace: shop}
spec: {matches: {ports: [5432]}}
---
apiVersion: access.smi-spec.io/v1alpha3
kind: TrafficTarget
metadata: {name: db, namespace: shop}
spec:
  destination: {kind: ServiceAccount, name: db}
  rules: [{kind: TCPRoute, name: postgres}]
  sources: [{kind: ServiceAccount, name: web}]
`

func TestConnectionsOfOtherProtocolsAreJudgedByTrafficTargets(t *testing.T) {
	t.Parallel()
	m := newMesh(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); io.Copy(c, c) }()
		}
	}()
	inbound := weirtest.FreePort(t)
	m.write("db.yaml", fmt.Sprintf(database, inbound))
	weir("", "identity", m.trust, m.dir).want(t, 0, "shop/db")
	weirtest.Run(t, "--as", "shop/db", "--identity", m.trust, "--inbound", fmt.Sprintf("5432=127.0.0.1:%d", inbound), "--app", "5432="+l.Addr().String(), m.dir)
	for name, allowed := range map[string]bool{"web": true, "report": false} {
		at := fmt.Sprintf("127.0.0.1:%d", weirtest.FreePort(t))
		weirtest.Run(t, "--as", "shop/"+name, "--identity", m.trust, "--forward", at+"=db:5432", m.dir)
		answer, err := query(at) // a refusal may come before the connection is known to be there
		if allowed != (err == nil && answer == "select 1") || !allowed && err == nil {
			t.Errorf("%s: %q, %v", name, answer, err)
		}
	}
}

// query sends a line to a server that repeats it.
func query(at string) (answer string, err error) {
	c, err := net.DialTimeout("tcp", at, 30*time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(30 * time.Second))
	fmt.Fprint(c, "select 1")
	text := make([]byte, len("select 1"))
	_, err = io.ReadFull(c, text)
	return string(text), err
}
