package controller

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/tapping"
	"github.com/weirmesh/weir/internal/telemetry"
)

// member is a replica with all that taps need.
type member struct {
	*controlPlane
	t         *testing.T
	taps      *tapping.Hub
	informers *informertest.FakeInformers
	stop      func()
}

// newMember serves the feed of a replica. api is what the replicas have in common.
func newMember(t *testing.T, name string, api client.Client) *member {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o := NewOptions()
	o.namespace, o.service, o.feed, o.replica = "weir-system", "weir-controller", l.Addr().String(), "127.0.0.1"
	log := slog.New(slog.DiscardHandler)
	c := &controlPlane{Options: o, log: log}
	accounts := map[string]model.Owner{"a": "shop/gw"}
	c.accounts.Store(&accounts)
	c.authority = &replica.Authority{Client: api, Namespace: o.namespace, Hosts: append(o.feedHosts(), o.replicaHost()), Logger: log}
	m := &member{controlPlane: c, t: t, informers: &informertest.FakeInformers{}}
	c.board = &replica.Board{
		Client: api, Cache: m.informers, Namespace: o.namespace, Name: "weir-proxies-" + name, Address: o.ownAddress(), Running: c.running, Changed: func() {}, Logger: log,
	}
	c.feeds = &feed.Server{Certificate: c.authority.Certificate, OnChange: func(model.Owner) { c.board.Tell() }, Authenticate: func(_ context.Context, token string) (model.Owner, string, error) {
		return "shop/gw", token, nil
	}}
	m.taps = newTaps(c)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = c.authority.Run(ctx) })
	running.Go(func() { _ = c.board.Run(ctx) })
	<-c.authority.Ready()
	running.Go(func() {
		if err := c.feeds.Serve(ctx, l); err != nil {
			t.Error(err)
		}
		m.taps.Wait()
	})
	m.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(m.stop)
	c.feeds.Publish(map[model.Owner]*model.Config{"shop/gw": {}})
	return m
}

// sees has a replica read the word of another.
func (m *member) sees(other *member) {
	m.t.Helper()
	eventually(m.t, "the other's word", func() bool {
		word := &corev1.ConfigMap{}
		if other.board.Client.Get(m.t.Context(), client.ObjectKey{Namespace: other.board.Namespace, Name: other.board.Name}, word) != nil {
			return false
		}
		informer, err := m.informers.FakeInformerFor(m.t.Context(), word)
		if err != nil {
			m.t.Fatal(err)
		}
		informer.Add(word)
		all := m.peers()
		return len(all) == 1 && all[0].Address == other.board.Address && all[0].Proxies == 1
	})
}

// proxy is one that follows a replica, "shop/NAME".
func (m *member) proxy(name string) *telemetry.Registry {
	m.t.Helper()
	dir := m.t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			m.t.Fatal(err)
		}
		return path
	}
	registry := telemetry.New()
	c := &feed.Client{
		Address: m.Options.feed, ServerName: m.feedHosts()[0], Owner: "shop/gw", CAFile: write("ca", m.authority.Bundle()), TokenFile: write("token", "shop/"+name),
		Taps: func(s *feed.Stream, end func()) error { return tapping.Serve(s, end, registry) },
	}
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx, func(*model.Config) error { return nil }) }()
	m.t.Cleanup(func() { cancel(); <-done })
	return registry
}

func eventually(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in time: %s", what)
		}
	}
}

// TestATapReachesProxiesOfAllReplicas over real feeds: from a request at a proxy of another replica to a line for who asked
// this one.
func TestATapReachesProxiesOfAllReplicas(t *testing.T) {
	api := fake.NewFakeClient()
	a, b := newMember(t, "a", api), newMember(t, "b", api)
	here, there := a.proxy("gw-1"), b.proxy("gw-2")
	a.sees(b)

	web := telemetry.Side{Kind: "Pod", Namespace: "shop", Name: "web-1"}
	served := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		q, err := telemetry.ParseTapQuery(r.URL.Query())
		if err == nil {
			err = a.taps.ServeTap(w, r, q, func(context.Context) (telemetry.TapSides, error) { return telemetry.TapSides{web: true}, nil })
		}
		if err != nil {
			t.Error(err)
		}
	}))
	defer served.Close()
	answer, err := http.Get(served.URL + "?path=/a")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var lines []telemetry.TapLine
	scanner := bufio.NewScanner(answer.Body)
	next := func() telemetry.TapLine {
		t.Helper()
		if !scanner.Scan() {
			t.Fatalf("the answer ended: %v", scanner.Err())
		}
		var l telemetry.TapLine
		if err := json.Unmarshal(scanner.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, l)
		return l
	}
	for l := next(); l.Counts == nil || l.Counts.Proxies < 2; l = next() {
		if len(lines) > 60 {
			t.Fatalf("both proxies do not take part: %+v", l.Counts)
		}
	}
	for i, r := range []*telemetry.Registry{here, there} {
		for _, tap := range r.Taps() {
			tap.Offer(&telemetry.Tapped{At: telemetry.Side{Kind: "Pod", Namespace: "shop", Name: []string{"gw-1", "gw-2"}[i]}, To: web, Path: []string{"/a/here", "/a/there"}[i], Status: 200})
			tap.Offer(&telemetry.Tapped{At: telemetry.Side{Kind: "Pod", Namespace: "shop", Name: "gw-1"}, To: web, Path: "/b", Status: 200})
		}
	}
	shown := map[string]bool{}
	for len(shown) < 2 {
		if l := next(); l.Request != nil {
			shown[l.Request.Path] = true
		}
	}
	if !shown["/a/here"] || !shown["/a/there"] {
		t.Errorf("shown: %v", shown)
	}
	if a.taps.Stats().Open != 1 || b.taps.Stats().Open != 1 {
		t.Errorf("open: %+v, %+v", a.taps.Stats(), b.taps.Stats())
	}

	// The other replica goes: its proxies' lines are lost, and counted as such; this replica's go on.
	b.stop()
	for l := next(); l.Counts == nil || l.Counts.Proxies != 1 || l.Counts.Silent != 1; l = next() {
	}
	eventually(t, "the end of the tap at the proxy of a replica that is gone", func() bool { return there.Taps() == nil })
	if here.Taps() == nil {
		t.Error("the tap has ended at its own proxy")
	}
	answer.Body.Close()
	eventually(t, "the end of the tap at the proxy", func() bool { return here.Taps() == nil && a.taps.Stats().Open == 0 })
}

// TestAnAddressOnTheBoardThatNoPodHasIsNotCalled, and the replica is counted as one that does not answer.
func TestAnAddressOnTheBoardThatNoPodHasIsNotCalled(t *testing.T) {
	m := newMember(t, "a", fake.NewFakeClient())
	m.proxy("gw-1")
	word := &corev1.ConfigMap{}
	eventually(t, "its own word, with a proxy", func() bool {
		return len(m.running()) == 1 && m.board.Client.Get(t.Context(), client.ObjectKey{Namespace: m.board.Namespace, Name: m.board.Name}, word) == nil
	})
	informer, err := m.informers.FakeInformerFor(t.Context(), word)
	if err != nil {
		t.Fatal(err)
	}
	for name, address := range map[string]string{"b": "169.254.169.254:80", "c": "10.0.0.7:18000", "d": "", "e": "weir:18000"} {
		other := word.DeepCopy()
		other.Name, other.Data = name, map[string]string{"address": address}
		informer.Add(other)
	}
	eventually(t, "four replicas", func() bool { return len(m.peers()) == 4 })
	for _, p := range m.peers() {
		if want := map[string]string{"c": "10.0.0.7:18000"}[p.Name]; p.Address != want {
			t.Errorf("%s is called at %q, want %q", p.Name, p.Address, want)
		}
	}
}

// TestTapsAreSeen at the admin endpoint.
func TestTapsAreSeen(t *testing.T) {
	c := plane(t, "--traffic-metrics", "--replica-address", "10.0.0.7")
	w := httptest.NewRecorder()
	c.metrics.handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	text, _ := io.ReadAll(w.Body)
	for _, line := range []string{"weir_controller_taps 0", `weir_controller_tap_lines_total{result="accepted"} 0`, `weir_controller_tap_lines_total{result="rejected"} 0`} {
		if !strings.Contains(string(text), "\n"+line+"\n") {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	if c.board.Address != "10.0.0.7:0" {
		t.Errorf("the board says %q", c.board.Address)
	}
}

func TestReplicasAreCalledAtAddressesOfPodsAlone(t *testing.T) {
	for address, want := range map[string]bool{
		"10.0.0.7:18000": true, "[fd00::7]:18000": true,
		"": false, "10.0.0.7": false, "10.0.0.7:0": false, "127.0.0.1:18000": false, "[::1]:18000": false, "169.254.169.254:80": false, "[fe80::1%eth0]:18000": false,
		"localhost:18000": false, "[::ffff:127.0.0.1]:18000": false, "0.0.0.0:18000": false,
	} {
		if got := callable(address, "10.0.0.8:18000"); got != want {
			t.Errorf("%q: %v, want %v", address, got, want)
		}
	}
	if !callable("127.0.0.1:1", "127.0.0.1:2") || callable("127.0.0.1:1", "") {
		t.Error("replicas on one machine")
	}
}
