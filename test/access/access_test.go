package access

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/identity/folder"
	"github.com/weirmesh/weir/test/freeport"
	"github.com/weirmesh/weir/test/weirtest"
)

func TestMain(m *testing.M) { weirtest.Main(m) }

const manifests = `apiVersion: v1
kind: Namespace
metadata: {name: shop}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: cart, namespace: shop}
spec:
  selector: {matchLabels: {app: cart}}
  template:
    metadata: {labels: {app: cart}}
    spec:
      serviceAccountName: cart
      containers: [{name: cart, image: cart, ports: [{containerPort: 8080}, {containerPort: 8081}]}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {serviceAccountName: apps, containers: [{name: web, image: web}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: report, namespace: shop}
spec:
  selector: {matchLabels: {app: report}}
  template:
    metadata: {labels: {app: report}}
    spec: {serviceAccountName: apps, containers: [{name: report, image: report}]}
---
apiVersion: access.smi-spec.io/v1alpha4
kind: IdentityBinding
metadata: {name: web, namespace: shop}
spec: {schemes: {podLabelSelector: {matchLabels: {app: web}}}}
---
apiVersion: access.smi-spec.io/v1alpha4
kind: TrafficTarget
metadata: {name: web, namespace: shop}
spec:
  destination: {kind: ServiceAccount, name: cart}
  rules: [{kind: HTTPRouteGroup, name: rules}, {kind: TCPRoute, name: main}]
  sources: [{kind: IdentityBinding, name: web}]
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: {name: rules, namespace: shop}
spec:
  matches:
  - {name: public, pathRegex: '/public/[a-z0-9]+$', methods: [GET]}
  - {name: upload, pathRegex: '/upload$', methods: [POST]}
  - {name: team, pathRegex: /team/, methods: [GET], headers: [{x-team: a|b}]}
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: TCPRoute
metadata: {name: main, namespace: shop}
spec: {matches: {ports: [8080]}}
`

// field is a running sidecar in front of a recorder.
type field struct {
	*Recorder
	dir         string
	trust       *folder.Folder
	main, other string // where ports 8080 and 8081 of the workload are accepted
	web         tls.Certificate
}

// multiplexed is a Service by which the application speaks HTTP/2 alone.
const multiplexed = `---
apiVersion: v1
kind: Service
metadata: {name: cart, namespace: shop}
spec: {selector: {app: cart}, ports: [{port: 8080, appProtocol: kubernetes.io/h2c}]}
`

// start starts the sidecar, with more manifests. The recorder is behind both ports.
func start(t *testing.T, more ...string) *field {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &field{Recorder: Record(l), dir: t.TempDir()}
	t.Cleanup(f.Stop)
	files := filepath.Join(f.dir, "cart.yaml")
	if err := os.WriteFile(files, []byte(strings.Join(append([]string{manifests}, more...), "")), 0o600); err != nil {
		t.Fatal(err)
	}
	trust := filepath.Join(f.dir, "trust")
	if f.trust, err = folder.Make(trust, "", "cluster.local", time.Now()); err != nil {
		t.Fatal(err)
	}
	f.issue(t, folder.Pod{Namespace: "shop", Name: "cart", Account: "cart", Owners: deployment("cart")}, time.Hour)
	f.web = f.issue(t, folder.Pod{Namespace: "shop", Name: "web", Account: "apps", Owners: deployment("web")}, time.Hour)
	args := []string{"--as", "shop/cart", "--identity", trust}
	for port, at := range map[string]*string{"8080": &f.main, "8081": &f.other} {
		n, err := freeport.Take()
		if err != nil {
			t.Fatal(err)
		}
		*at = fmt.Sprintf("127.0.0.1:%d", n)
		args = append(args, "--inbound", port+"="+*at, "--app", port+"="+f.Addr().String())
	}
	weirtest.Run(t, append(args, files)...)
	return f
}

func deployment(name string) []claim.Owner { return []claim.Owner{{Kind: "Deployment", Name: name}} }

func (f *field) issue(t *testing.T, p folder.Pod, life time.Duration) tls.Certificate {
	t.Helper()
	path, _, err := f.trust.Pod(p, life, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.LoadX509KeyPair(path, path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func dial(address, protocol string, certificates ...tls.Certificate) (*tls.Conn, error) {
	d := tls.Dialer{Config: &tls.Config{Certificates: certificates, NextProtos: []string{protocol}, InsecureSkipVerify: true}}
	c, err := d.Dial("tcp", address)
	if err != nil {
		return nil, err
	}
	return c.(*tls.Conn), c.SetDeadline(time.Now().Add(patience))
}

// judge says what the backend received that it should not have; most are the requests that may be there.
func (f *field) judge(t *testing.T, name string, most int) (reached int) {
	t.Helper()
	reached, wrong := f.Judge()
	for _, what := range wrong {
		t.Errorf("%s: %s", name, what)
	}
	if reached > most {
		t.Errorf("%s: %d requests reached the backend", name, reached)
	}
	return reached
}

func TestNoWayLeadsAroundARule(t *testing.T) { start(t).ways(t) }

func TestNoWayLeadsAroundARuleOverHTTP2(t *testing.T) { start(t).ways2(t) }

func TestNoWayLeadsAroundARuleToAnApplicationOfHTTP2(t *testing.T) {
	f := start(t, multiplexed)
	f.ways(t)
	f.ways2(t)
	f.note(func() {
		if f.second == 0 {
			t.Error("no connection of the application was of HTTP/2")
		}
	})
}

// ways tries those of HTTP/1.1.
func (f *field) ways(t *testing.T) {
	t.Helper()
	for _, permitted := range []string{head("GET /public/a"), head("POST /upload", "Content-Length: 1") + "x", head("GET /team/x", "X-Team: b")} {
		f.way(t, way{"permitted", permitted, permitted, 1}, 1)
	}
	all := ways()
	for _, w := range all {
		f.way(t, w, -1)
	}
	t.Logf("%d ways", len(all))
}

// way tries a way; reached, unless it is negative, is how many requests must reach the backend.
func (f *field) way(t *testing.T, w way, reached int) {
	t.Helper()
	c, err := dial(f.main, "http/1.1", f.web)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if answer, err := w.send(c); err != nil {
		t.Errorf("%s: %v after %q", w.name, err, answer)
	}
	if n := f.judge(t, w.name, w.most); reached >= 0 && n != reached {
		t.Errorf("%s: %d requests reached the backend, want %d", w.name, n, reached)
	}
}

// ways2 tries those of HTTP/2.
func (f *field) ways2(t *testing.T) {
	t.Helper()
	all := append([]way2{{"permitted", []stream{usual("GET", "/public/a")}, 1}}, ways2()...)
	for i := range all {
		c, err := dial(f.main, "h2", f.web)
		if err != nil {
			t.Fatal(err)
		}
		if err := all[i].send(c); err != nil {
			t.Errorf("%s: %v", all[i].name(), err)
		}
		c.Close()
		if n := f.judge(t, all[i].name(), all[i].most); i == 0 && n != 1 {
			t.Fatal("what is permitted does not reach the backend")
		}
	}
	t.Logf("%d ways", len(all))
}
