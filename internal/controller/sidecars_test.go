package controller

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/tapping"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/workload"
	"github.com/weirmesh/weir/test/freeport"
)

// fleet feeds pods, with tokens "NAMESPACE/NAME", and what is made for them.
type fleet struct {
	testing.TB
	*sidecars
	plane   *controlPlane
	address string
	ca      string
	taps    func(s *feed.Stream, end func()) error // of who connects
}

// meshed is a replica of a mesh. Sidecars are told the feed's port.
func meshed(t testing.TB, args ...string) *controlPlane {
	t.Helper()
	port, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	return plane(t, append(args, "--mesh", "--feed-address", fmt.Sprint("127.0.0.1:", port))...)
}

func newFleet(t testing.TB, args ...string) *fleet {
	t.Helper()
	return fleetOf(t, meshed(t, args...))
}

// fleetOf is newFleet with a control plane.
func fleetOf(t testing.TB, c *controlPlane) *fleet {
	t.Helper()
	authority, err := identity.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	own := &identity.Server{Subject: identity.Subject{DNSNames: []string{"localhost"}}}
	own.Use(authority)
	c.feeds.Certificate, c.feeds.Linger = own.Certificate, 10*time.Millisecond
	c.feeds.Authenticate = func(_ context.Context, token string) (model.Owner, string, error) {
		namespace, name, _ := strings.Cut(token, "/")
		return model.WorkloadOwner(namespace, name), token, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fleet{TB: t, sidecars: c.sidecars, plane: c, address: fmt.Sprintf("localhost:%d", l.Addr().(*net.TCPAddr).Port), ca: filepath.Join(t.TempDir(), "ca.crt")}
	f.file(f.ca, string(authority.Bundle()))
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := c.feeds.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	running.Go(func() {
		if err := c.sidecars.run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return f
}

func (f *fleet) file(path, content string) {
	f.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		f.Fatal(err)
	}
}

// of is the state of a cluster with pods, "NAMESPACE/NAME", that have a port each.
func (f *fleet) of(port int, pods ...string) *control.Sidecars {
	f.Helper()
	text := ""
	for i, pod := range pods {
		namespace, name, _ := strings.Cut(pod, "/")
		text += fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {namespace: %s, name: %s}\nspec: {containers: [{name: c, ports: [{containerPort: %d}]}]}\nstatus: {podIP: 10.0.%d.%d}\n---\n", namespace, name, port, i/250, i%250+1)
	}
	set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(text))
	if err != nil {
		f.Fatal(err)
	}
	r, err := f.plane.translation().Translate(set)
	if err != nil {
		f.Fatal(err)
	}
	return r.Sidecars
}

// sidecar is one that runs, and what it has.
type sidecarClient struct {
	mu      sync.Mutex
	configs []*model.Config
	stop    func()
}

func (f *fleet) connect(pod string) *sidecarClient { return f.connectAsking(pod, nil) }

func (f *fleet) connectAsking(pod string, asks *feed.Destinations) *sidecarClient {
	f.Helper()
	namespace, name, _ := strings.Cut(pod, "/")
	token := filepath.Join(f.TempDir(), "token")
	f.file(token, pod)
	client := &feed.Client{Address: f.address, CAFile: f.ca, TokenFile: token, Owner: model.WorkloadOwner(namespace, name), Taps: f.taps, Destinations: asks}
	s := &sidecarClient{}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := client.Run(ctx, func(c *model.Config) error {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.configs = append(s.configs, c)
			return nil
		}); err != nil {
			f.Error(err)
		}
	})
	s.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	f.Cleanup(s.stop)
	return s
}

// ports are those of the listeners that the sidecar has for its pod's own, other than the one for any, and how many
// configurations it got.
func (s *sidecarClient) ports() (ports []int32, configs int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.configs) == 0 {
		return nil, 0
	}
	for _, l := range s.configs[len(s.configs)-1].Listeners {
		if l.Workload != "" && l.WorkloadPort != 0 {
			ports = append(ports, l.WorkloadPort)
		}
	}
	return ports, len(s.configs)
}

func (f *fleet) until(what string, is func() bool) {
	f.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			f.Fatalf("not in time: %s", what)
		}
	}
}

func (f *fleet) has(s *sidecarClient, port int32) {
	f.Helper()
	f.until(fmt.Sprint("the sidecar serves port ", port), func() bool { ports, _ := s.ports(); return slices.Equal(ports, []int32{port}) })
}

// TestSidecarsAreFedWhileTheyAreConnected has some connect before and after what is known of their pods, and leave.
func TestSidecarsAreFedWhileTheyAreConnected(t *testing.T) {
	f := newFleet(t)
	cart := f.connect("shop/cart-1")
	f.until("it is connected", func() bool { return len(f.feeds.Running(model.WorkloadOwner("shop", "cart-1"))) == 1 })
	first := f.of(8080, "shop/cart-1", "shop/pay-1", "blog/cart-1")
	f.know(first)
	f.has(cart, 8080)
	pay, later := f.connect("shop/pay-1"), f.connect("shop/later-1")
	f.has(pay, 8080) // without a change
	f.until("a pod that is not known yet is connected", func() bool { return f.status().Connected == 3 && f.status().Due == 0 })
	if ports, n := later.ports(); n != 0 {
		t.Errorf("a pod that is not known got %v", ports)
	}
	f.know(first) // a report of the same state
	same := f.of(8080, "shop/cart-1", "shop/pay-1", "blog/cart-1", "shop/later-1")
	f.know(same)
	f.has(later, 8080)
	f.until("all are made", func() bool { return f.status().Due == 0 })
	if _, n := cart.ports(); n != 1 {
		t.Errorf("what did not change was sent again: %d configurations", n)
	}
	f.know(f.of(9090, "shop/cart-1", "shop/pay-1", "blog/cart-1"))
	f.has(cart, 9090)
	f.has(pay, 9090)
	f.until("all are made", func() bool { return f.status().Due == 0 })
	if ports, _ := later.ports(); !slices.Equal(ports, []int32{8080}) {
		t.Errorf("a pod that is not known any more has %v", ports)
	}
	cart.stop()
	f.until("who has gone is forgotten", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		_, known := f.known[model.WorkloadOwner("shop", "cart-1")]
		return !known && f.feeds.Version(model.WorkloadOwner("shop", "cart-1")) == ""
	})
	cart = f.connect("shop/cart-1")
	f.has(cart, 9090)
	if running := f.plane.running(); len(running) != 0 {
		t.Errorf("the board has %v", running)
	}
}

// TestChangesDoNotWaitForSidecars has a change come while those of many are due: it is taken at once, each is made once
// more, and who is new has its own before the others are through.
func TestChangesDoNotWaitForSidecars(t *testing.T) {
	s := &sidecars{feeds: &feed.Server{}, woken: make(chan struct{}, 1), known: map[model.Owner]bool{}, whole: map[model.Owner]bool{}}
	owner := func(i int) model.Owner { return model.WorkloadOwner("shop", fmt.Sprint("pod-", i)) }
	for i := range 2000 {
		s.known[owner(i)] = false
	}
	f := newFleet(t)
	one, two := f.of(8080, "shop/cart-1"), f.of(9090, "shop/cart-1")
	s.know(one)
	for range 500 {
		if _, newest := s.next(); newest != one {
			t.Fatal("another state")
		}
	}
	s.know(two)
	s.mu.Lock()
	s.known["workload/shop/new"], s.fresh = true, append(s.fresh, "workload/shop/new")
	s.mu.Unlock()
	seen := map[model.Owner]int{}
	first := 0
	for n := 1; ; n++ {
		who, newest := s.next()
		if who == "" {
			if newest != two {
				t.Error("questions are not due")
			}
			break
		}
		if newest != two {
			t.Fatal("an old state")
		}
		if seen[who]++; who == "workload/shop/new" {
			first = n
		}
	}
	if len(seen) != 2001 || first == 0 || first > 2 {
		t.Errorf("%d are made; the new one as number %d", len(seen), first)
	}
	for who, n := range seen {
		if n != 1 {
			t.Errorf("%s is made %d times", who, n)
		}
	}
}

// TestSidecarsAreATaskOfAMesh looks for it, and for the metrics.
func TestSidecarsAreATaskOfAMesh(t *testing.T) {
	for c, want := range map[*controlPlane]bool{meshed(t): true, plane(t): false} {
		found := false
		for _, s := range c.group.Status() {
			found = found || s.Name == "sidecars" && !s.Lease
		}
		if found != want || (c.tokens.Pods != nil) != want || (c.status().Sidecars != nil) != want {
			t.Errorf("a mesh %t: a task %t, tokens of pods %t, a status %t", want, found, c.tokens.Pods != nil, c.status().Sidecars != nil)
		}
	}
}

// TestTapsAreNotForPodsWithoutAMesh: every pod may connect, and what is asked for is not for every pod.
func TestTapsAreNotForPodsWithoutAMesh(t *testing.T) {
	c := plane(t, "--traffic-metrics")
	if err := c.feeds.Taps(nil, model.WorkloadOwner("shop", "cart-1"), "shop/cart-1"); !errors.Is(err, errNotTapped) {
		t.Errorf("%v", err)
	}
}

// TestConnectedSidecarsAreReadAndTapped, once they serve something, whichever pods others say they are.
func TestConnectedSidecarsAreReadAndTapped(t *testing.T) {
	f := newFleet(t, "--traffic-metrics")
	registry := telemetry.New()
	f.taps = func(s *feed.Stream, end func()) error { return tapping.Serve(s, end, registry) }
	cart := f.connect("shop/cart-1")
	f.until("it is connected", func() bool { return f.status().Connected == 1 })
	if got := f.plane.connectedSidecars(); len(got) != 0 {
		t.Errorf("before it serves anything: %q", got)
	}
	state := f.of(8080, "shop/cart-1")
	f.know(state)
	f.has(cart, 8080)
	if want, got := feed.Version(state.Whole("shop", "cart-1")), f.feeds.Version(model.WorkloadOwner("shop", "cart-1")); want != got {
		t.Errorf("what is told of its configuration has the version %s, and it was given %s", want, got)
	}
	f.until("it says so", func() bool { return slices.Equal(f.plane.connectedSidecars(), []string{"shop/cart-1"}) })
	objects := resource.NewCollection(metrics.Kinds())
	pod := &workload.Pod{Object: workload.Object{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-1"}, Addresses: []string{"10.0.0.1"}, Sidecar: true}}
	objects.Put(resource.Adopt(metrics.Kinds(), pod))
	f.plane.traffic.pods.Known(objects.Set())
	read := []string{}
	for _, fleet := range f.plane.traffic.fleets {
		for _, s := range fleet.Sources() {
			read = append(read, s.Name)
		}
	}
	if !slices.Equal(read, []string{"sidecar of shop/cart-1"}) {
		t.Errorf("read are %q", read)
	}
	side := telemetry.Side{Kind: model.KindPod, Namespace: "shop", Name: "cart-1"}
	taps := f.plane.traffic.taps
	if n := taps.Sidecars(telemetry.TapSides{side: true, {Kind: model.KindPod, Namespace: "shop", Name: "other"}: true}); n != 1 {
		t.Errorf("%d sidecars of the pods are connected", n)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q := telemetry.TapQuery{Rate: 100, Highest: 599, For: time.Minute}
		if err := taps.ServeTap(w, r, q, func(context.Context) (telemetry.TapSides, error) { return telemetry.TapSides{side: true}, nil }); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	answer, err := server.Client().Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	f.until("the sidecar is asked", func() bool { return len(registry.Taps()) == 1 })
	registry.Taps()[0].Offer(&telemetry.Tapped{At: side, Method: "GET", Path: "/cart", Status: 200})
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), `"path":"/cart"`) {
		t.Logf("%s", lines.Text())
	}
	if !strings.Contains(lines.Text(), `"path":"/cart"`) {
		t.Errorf("no line shows the request: %v", lines.Err())
	}
	if n := taps.Stats().Lines; n != 1 {
		t.Errorf("%d lines came from sidecars", n)
	}
}

// TestSidecarsThatAskGetWhatTheyAskFor has one that asks beside one that does not, and Services that neither of them uses.
func TestSidecarsThatAskGetWhatTheyAskFor(t *testing.T) {
	f := newFleet(t)
	state := func(port int) *control.Sidecars {
		text := ""
		for i := range 20 {
			text += fmt.Sprintf("apiVersion: v1\nkind: Service\nmetadata: {namespace: shop, name: s%d}\nspec: {clusterIP: 10.96.0.%d, ports: [{port: 80, name: http}]}\n---\n", i, i+1)
			text += fmt.Sprintf("apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata: {namespace: shop, name: s%d-1, labels: {kubernetes.io/service-name: s%d}}\naddressType: IPv4\nports: [{port: %d, name: http}]\nendpoints: [{addresses: [10.0.9.%d]}]\n---\n", i, i, port, i+1)
		}
		for _, pod := range []string{"cart-1", "old-1"} {
			text += fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {namespace: shop, name: %s}\nspec: {containers: [{name: c, ports: [{containerPort: 8080}]}]}\nstatus: {podIP: 10.0.0.%d}\n---\n", pod, len(pod))
		}
		set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		r, err := f.plane.translation().Translate(set)
		if err != nil {
			t.Fatal(err)
		}
		return r.Sidecars
	}
	asks := &feed.Destinations{}
	cart, old := f.connectAsking("shop/cart-1", asks), f.connect("shop/old-1")
	f.know(state(8080))
	to := netip.MustParseAddrPort("10.96.0.7:80")
	if err := asks.Find(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	f.has(cart, 8080)
	f.has(old, 8080)
	outbound := func(s *sidecarClient) (n int, endpoint string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		c := s.configs[len(s.configs)-1]
		for _, l := range c.Listeners {
			if l.Redirect == model.RedirectOutbound && l.Address != "" {
				n++
			}
		}
		for _, x := range c.Services {
			if x.Name == "shop/s6:80" && len(x.Endpoints) > 0 {
				endpoint = x.Endpoints[0].Address
			}
		}
		return n, endpoint
	}
	if n, endpoint := outbound(cart); n != 1 || endpoint != "10.0.9.7:8080" {
		t.Errorf("who asks has %d destinations, at %q", n, endpoint)
	}
	if n, endpoint := outbound(old); n != 20 || endpoint != "10.0.9.7:8080" {
		t.Errorf("who does not has %d destinations, at %q", n, endpoint)
	}
	f.know(state(9090))
	f.until("both have the change", func() bool {
		_, one := outbound(cart)
		_, other := outbound(old)
		return one == "10.0.9.7:9090" && other == one
	})
	if n, _ := outbound(cart); n != 1 {
		t.Errorf("who asks has %d destinations", n)
	}
}
