package fed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/identity/workload"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/test/freeport"
)

const pod = model.Owner("workload/shop/cart-1")

// cluster is a controller's feed, which signs for the pods of its tokens, "NAMESPACE/POD", unless it is told not to.
type cluster struct {
	*testing.T
	feed    *feed.Server
	asks    bool // the feed's Destinations
	own     *identity.Server
	stop    func()
	issuer  workload.Issuer
	address string
	ca      string
	refuse  atomic.Bool
}

func newCluster(t *testing.T, trustDomain string, edit ...func(*cluster)) *cluster {
	t.Helper()
	own, err := identity.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	signer, err := identity.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{T: t}
	for _, e := range edit {
		e(c)
	}
	c.ca = c.file("ca.crt", string(own.Bundle()))
	c.issuer = workload.Issuer{TrustDomain: trustDomain, Authority: func() *identity.Authority { return signer }, Attest: func(_ context.Context, token string) (*workload.Pod, error) {
		namespace, name, ok := strings.Cut(token, "/")
		if !ok || c.refuse.Load() {
			return nil, workload.ErrRefused
		}
		return &workload.Pod{Namespace: namespace, Name: name, UID: "u-" + name, Account: strings.TrimSuffix(name, "-1")}, nil
	}}
	c.own = &identity.Server{Subject: identity.Subject{DNSNames: []string{"localhost"}}}
	c.own.Use(own)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.address = fmt.Sprintf("localhost:%d", l.Addr().(*net.TCPAddr).Port)
	c.stop = c.serve(l)
	return c
}

// serve serves a feed of its own until the test ends or stop is called.
func (c *cluster) serve(l net.Listener) (stop func()) {
	c.feed = &feed.Server{Destinations: c.asks, Certificate: c.own.Certificate, Sign: c.issuer.For, Authenticate: func(_ context.Context, token string) (model.Owner, string, error) {
		namespace, name, _ := strings.Cut(token, "/")
		if token == "shop/edge-1" {
			return "shop/edge", token, nil
		}
		return model.WorkloadOwner(namespace, name), token, nil
	}}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func(s *feed.Server) { served <- s.Serve(ctx, l) }(c.feed)
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			c.Error(err)
		}
	})
	c.Cleanup(stop)
	return stop
}

// restart has another controller take the place of this one.
func (c *cluster) restart() {
	c.Helper()
	c.stop()
	l, err := net.Listen("tcp", strings.Replace(c.address, "localhost", "127.0.0.1", 1))
	if err != nil {
		c.Fatal(err)
	}
	c.stop = c.serve(l)
}

func (c *cluster) file(name, content string) string {
	c.Helper()
	path := filepath.Join(c.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		c.Fatal(err)
	}
	return path
}

// gives makes a configuration that of the pod once its sidecar is connected.
func (c *cluster) gives(config *model.Config) {
	c.Helper()
	c.until("the sidecar is connected", func() bool {
		connected, err := c.feed.Set(pod, config, nil)
		if err != nil {
			c.Fatal(err)
		}
		return connected
	})
}

// identity is one of another pod.
func (c *cluster) identity(token string) *spiffe.Identity {
	c.Helper()
	got := make(chan *spiffe.Identity, 1)
	source := &workload.Source{Changed: func(id *spiffe.Identity) { got <- id }, Sign: func(ctx context.Context, request []byte) ([]byte, error) {
		answer, err := c.issuer.For(ctx, token)
		if err != nil {
			return nil, err
		}
		return answer(request)
	}}
	ctx, cancel := context.WithCancel(c.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = source.Run(ctx) })
	defer running.Wait()
	defer cancel()
	return <-got
}

func (c *cluster) until(what string, is func() bool) {
	c.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			c.Fatalf("not in time: %s", what)
		}
	}
}

// running is a sidecar that runs.
type running struct {
	*cluster
	admin             string
	inbound, outbound int
	log               *peertest.Log
	stop              func() error
}

// start runs the sidecar of the pod. meant stands for the redirect.
func (c *cluster) start(meant func() netip.AddrPort, args ...string) *running {
	c.Helper()
	r := &running{cluster: c, log: &peertest.Log{}, inbound: c.port(), outbound: c.port(), admin: fmt.Sprintf("127.0.0.1:%d", c.port())}
	s := NewSidecar()
	s.original = func(net.Conn) (netip.AddrPort, error) { return meant(), nil }
	f := pflag.NewFlagSet("sidecar", pflag.ContinueOnError)
	s.Flags(f)
	args = append([]string{"--controller=" + c.address, "--ca-file=" + c.ca, "--token-file=" + c.file("token", "shop/cart-1"), "--pod-namespace=shop", "--pod-name=cart-1", "--pod-ips=127.0.0.1,fd00::7",
		fmt.Sprintf("--inbound-ports=%d", r.inbound), fmt.Sprintf("--outbound-ports=%d", r.outbound), "--admin=" + r.admin, "--log-format=text"}, args...)
	if err := f.Parse(args); err != nil {
		c.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx, io.Discard, r.log) }()
	r.stop = sync.OnceValue(func() error { cancel(); return <-ended })
	c.Cleanup(func() {
		if err := r.stop(); err != nil {
			c.Errorf("the sidecar: %v", err)
		}
		if c.Failed() {
			c.Log(r.log)
		}
	})
	return r
}

func (c *cluster) port() int {
	c.Helper()
	port, err := freeport.Take()
	if err != nil {
		c.Fatal(err)
	}
	return port
}

// ready waits for an answer of /readyz.
func (r *running) ready(status int, body string) {
	r.Helper()
	got := ""
	r.until("/readyz "+body, func() bool {
		answer, err := http.Get("http://" + r.admin + "/readyz")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		text, _ := io.ReadAll(answer.Body)
		got = string(text)
		return answer.StatusCode == status && strings.HasPrefix(got, body)
	})
}

// configuration is that of a pod: its port 8080 with identities, served by app, and what it calls at 10.0.0.9:80, which is
// at peer and known by an identity.
func configuration(app, peer string, plain bool) *model.Config {
	ref := model.Ref{Kind: "Pod", Namespace: "shop", Name: "cart-1"}
	w := model.Workload{Ref: ref, Account: "cart"}
	to := func(field, listener, service string) model.Route {
		r := ref
		r.Field = field
		return model.Route{Ref: r, Attachments: []model.Attachment{{Listener: listener, Hostnames: []string{"*"}}}, Rules: []model.Rule{{
			Ref: r, Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}}, Backends: []model.Backend{{Ref: r, Service: service, Weight: 1}},
		}}}
	}
	out := to("outbound", "outbound/10.0.0.9:80", "shop/pay:80")
	out.ClientCertificate = model.WorkloadIdentity
	c := &model.Config{
		Listeners: []model.Listener{
			{Name: "shop/cart-1/inbound", Ref: ref, Owner: pod, Redirect: model.RedirectInbound, Port: 8080, Protocol: model.HTTPS,
				TLS: &model.ListenerTLS{Certificates: []string{model.WorkloadIdentity}, Plain: plain}, Workload: w.Name(), WorkloadPort: 8080},
			{Name: "outbound/10.0.0.9:80", Ref: ref, Redirect: model.RedirectOutbound, Address: "10.0.0.9", Port: 80, Protocol: model.HTTP},
		},
		Routes: []model.Route{to("inbound", "shop/cart-1/inbound", "shop/cart-1.pod:8080"), out},
		Services: []model.Service{
			{Name: "shop/cart-1.pod:8080", Ref: ref, Protocol: model.HTTP, Endpoints: []model.Endpoint{{Address: app}}},
			{Name: "shop/pay:80", Ref: ref, Protocol: model.HTTP, Endpoints: []model.Endpoint{{Address: peer}}, TLS: &model.ServiceTLS{
				Hostname: "pay.shop.svc", CAs: model.WorkloadIdentity, SubjectAltNames: []string{"spiffe://cluster.local/ns/shop/sa/pay"}}},
		},
		Workloads: []model.Workload{w},
	}
	c.Sort()
	return c
}

// tlsOf is an identity's end of a connection, which believes who is of its trust domain.
func tlsOf(id *spiffe.Identity, usage x509.ExtKeyUsage, peer *atomic.Pointer[string]) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{*id.Certificate}, ClientAuth: tls.RequireAnyClientCert, InsecureSkipVerify: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			who, err := id.Verify(s.PeerCertificates, usage)
			text := who.String()
			peer.Store(&text)
			return err
		}}
}

// TestASidecarServesItsPod has connections come as a redirect brings them, in both directions, with identities that a
// controller signed.
func TestASidecarServesItsPod(t *testing.T) {
	c := newCluster(t, spiffe.DefaultTrustDomain)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "cart") }))
	defer app.Close()
	var asked, answered atomic.Pointer[string]
	pay := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "pay") }))
	elsewhere, err := net.Listen("tcp", "127.0.0.3:0") // 127.0.0.1 is the pod
	if err != nil {
		t.Fatal(err)
	}
	pay.Listener.Close()
	pay.Listener = elsewhere
	pay.TLS = tlsOf(c.identity("shop/pay-1"), x509.ExtKeyUsageClientAuth, &asked)
	pay.StartTLS()
	defer pay.Close()
	var meant atomic.Pointer[netip.AddrPort]
	mean := func(text string) {
		to := netip.MustParseAddrPort(text)
		meant.Store(&to)
	}
	mean("10.0.0.7:8080")
	c.refuse.Store(true)
	r := c.start(func() netip.AddrPort { return *meant.Load() })
	r.ready(http.StatusServiceUnavailable, "no configuration yet")
	c.gives(configuration(app.Listener.Addr().String(), pay.Listener.Addr().String(), true))
	r.ready(http.StatusServiceUnavailable, "no identity yet")
	c.refuse.Store(false)
	r.ready(http.StatusOK, "ready, generation 1")

	transport := &http.Transport{TLSClientConfig: tlsOf(c.identity("shop/web-1"), x509.ExtKeyUsageServerAuth, &answered), DisableKeepAlives: true}
	client := &http.Client{Transport: transport, Timeout: 30 * time.Second}
	get := func(url string) string {
		answer, err := client.Get(url)
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return fmt.Sprint(answer.StatusCode, " ", string(body))
	}
	in, out := fmt.Sprintf("127.0.0.1:%d", r.inbound), fmt.Sprintf("127.0.0.1:%d", r.outbound)
	if got := get("https://" + in); got != "200 cart" || *answered.Load() != "spiffe://cluster.local/ns/shop/sa/cart" {
		t.Errorf("to the pod: %s, by %v", got, *answered.Load())
	}
	mean("10.0.0.9:80")
	if got := get("http://" + out); got != "200 pay" || *asked.Load() != "spiffe://cluster.local/ns/shop/sa/cart" {
		t.Errorf("from the pod: %s, by %v", got, asked.Load())
	}
	// A pod that is not permissive serves no plain text, whatever the configuration says.
	mean("10.0.0.7:8080")
	if got := get("http://" + in); strings.HasPrefix(got, "200") {
		t.Errorf("plain text: %s", got)
	}
	// What was meant for the sidecar itself is refused: at the pod's addresses, and at loopback.
	for _, own := range []string{
		fmt.Sprintf("127.0.0.1:%d", r.inbound), fmt.Sprintf("127.0.0.8:%d", r.outbound), fmt.Sprintf("[::1]:%d", r.outbound), fmt.Sprintf("[fd00::7]:%d", r.inbound),
	} {
		mean(own)
		for _, at := range []string{in, out} {
			nc, err := net.Dial("tcp", at)
			if err == nil {
				_, err = io.ReadAll(nc)
				nc.Close()
			}
			if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("a connection to %s: %v", own, err)
			}
		}
	}
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	if strings.Contains(r.log.String(), "level=ERROR") {
		t.Errorf("the log:\n%s", r.log)
	}
}

// TestAPermissiveSidecarServesPlainText is for the time until all clients have identities.
func TestAPermissiveSidecarServesPlainText(t *testing.T) {
	c := newCluster(t, spiffe.DefaultTrustDomain)
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "cart") }))
	defer app.Close()
	r := c.start(func() netip.AddrPort { return netip.MustParseAddrPort("10.0.0.7:8080") }, "--permissive")
	for plain, want := range map[bool]bool{true: true, false: false} {
		c.gives(configuration(app.Listener.Addr().String(), "127.0.0.1:1", plain))
		r.until("plain text is served or not, as the controller says", func() bool {
			answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/", r.inbound))
			if err == nil {
				answer.Body.Close()
			}
			return (err == nil && answer.StatusCode == 200) == want
		})
	}
}

// TestAnIdentityOfSomebodyElseIsNotUsed has a controller of another trust domain.
func TestAnIdentityOfSomebodyElseIsNotUsed(t *testing.T) {
	c := newCluster(t, "elsewhere.example")
	r := c.start(func() netip.AddrPort { return netip.AddrPort{} })
	c.gives(configuration("127.0.0.1:1", "127.0.0.1:1", false))
	r.ready(http.StatusServiceUnavailable, "no identity yet")
	r.until("the log says why", func() bool {
		return regexp.MustCompile(`level=ERROR msg="the identity is not used".*elsewhere.example`).MatchString(r.log.String())
	})
	r.ready(http.StatusServiceUnavailable, "no identity yet")
}

// TestASidecarWithoutAControllerGoesOn answers the kubelet meanwhile, and ends when it is asked to.
func TestASidecarWithoutAControllerGoesOn(t *testing.T) {
	c := newCluster(t, spiffe.DefaultTrustDomain)
	c.address = "127.0.0.1:1"
	arrived, over := make(chan struct{}), make(chan struct{})
	app := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/stop" {
			close(arrived)
			<-r.Context().Done()
			close(over)
		}
	}))
	defer app.Close()
	_, port, _ := net.SplitHostPort(app.Listener.Addr().String())
	probes := c.port()
	r := c.start(func() netip.AddrPort { return netip.AddrPort{} }, fmt.Sprintf("--probe-port=%d", probes),
		fmt.Sprintf(`--probes={"app/readiness":{"http":{"port":%s,"path":"/"}},"app/preStop":{"http":{"port":%s,"path":"/stop"}}}`, port, port))
	r.ready(http.StatusServiceUnavailable, "no configuration yet")
	status := func(path string) int {
		answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/%s", probes, path))
		if err != nil {
			return 0
		}
		defer answer.Body.Close()
		return answer.StatusCode
	}
	if got := status("app/readiness"); got != 200 {
		t.Errorf("a probe: %d", got)
	}
	if got := status("app/liveness"); got != 404 {
		t.Errorf("a probe that the pod has not: %d", got)
	}
	r.until("it has tried to reach the controller", func() bool {
		return strings.Contains(r.log.String(), "no identity yet") && strings.Contains(r.log.String(), "no configuration from the control plane")
	})
	hook := make(chan int, 1)
	go func() { hook <- status("app/preStop") }()
	<-arrived
	if err := r.stop(); err != nil {
		t.Error(err)
	}
	<-over
	if got := <-hook; got == 200 {
		t.Errorf("a hook that did not end: %d", got)
	}
}

func TestACommandLineOfASidecarThatIsNotValid(t *testing.T) {
	for want, args := range map[string][]string{
		`--pod-namespace "shop" and --pod-name "a/b"`:  {"--pod-name=a/b"},
		`--controller "x": want HOST:PORT`:             {"--controller=x"},
		`--pod-ips: "10.0.0" is not an IP`:             {"--pod-ips=10.0.0"},
		`--pod-ips: "fe80::1%eth0" is not an IP`:       {"--pod-ips=fe80::1%eth0"},
		"--pod-ips: want at least one":                 {"--pod-ips="},
		`--inbound-ports "80": the sidecar needs`:      {"--inbound-ports=80"},
		`--outbound-ports "x": this is no port`:        {"--outbound-ports=x"},
		"--inbound-ports":                              {"--inbound-ports=15001-15002"},
		"--probes: the table of probes":                {"--probes={"},
		"--probe-port 15012: want a port that is none": {"--probe-port=15012", `--probes={"a/readiness":{"tcp":{"port":1}}}`},
	} {
		s := NewSidecar()
		f := pflag.NewFlagSet("sidecar", pflag.ContinueOnError)
		s.Flags(f)
		if err := f.Parse(append([]string{"--controller=localhost:1", "--pod-namespace=shop", "--pod-name=cart-1"}, args...)); err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(args[0], "--pod-ips") {
			s.podIPs = []string{"10.0.0.7"}
		}
		if err := s.Run(t.Context(), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", args, err, want)
		}
	}
}

// TestASidecarOpensItsRedirectsSocketsAlone asks for others.
func TestASidecarOpensItsRedirectsSocketsAlone(t *testing.T) {
	s := NewSidecar()
	for _, address := range []string{":8080", "10.0.0.7:8080", "redirect/sideways", ""} {
		if b, err := s.open("tcp", address); err == nil {
			b.Close()
			t.Errorf("%q is opened", address)
		}
	}
	if b, err := s.open("udp", inboundSocket); err == nil {
		b.Close()
		t.Error("datagrams are accepted")
	}
}
