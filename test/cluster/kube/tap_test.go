package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/weirmesh/weir/internal/tapping"
	"github.com/weirmesh/weir/internal/telemetry"
)

// wire is an end of a stream in memory.
type wire struct {
	ctx     context.Context
	in, out chan []byte
}

func (w wire) Context() context.Context { return w.ctx }

func (w wire) Send(b []byte) error {
	select {
	case w.out <- b:
		return nil
	case <-w.ctx.Done():
		return w.ctx.Err()
	}
}

func (w wire) Recv() ([]byte, error) {
	select {
	case b := <-w.in:
		return b, nil
	case <-w.ctx.Done():
		return nil, w.ctx.Err()
	}
}

// proxy has a proxy be connected until the test ends, which observes a request to the pod "web" of a namespace all the time.
func (s *served) proxy(namespace, name string) *telemetry.Registry {
	registry := telemetry.New()
	ctx, cancel := context.WithCancel(s.t.Context())
	there, back := make(chan []byte), make(chan []byte)
	var running sync.WaitGroup
	running.Go(func() { _ = s.hub.ServeProxy(wire{ctx, back, there}, "shop/gw", namespace+"/"+name) })
	running.Go(func() { _ = tapping.Serve(wire{ctx, there, back}, cancel, registry) })
	running.Go(func() {
		for ctx.Err() == nil {
			for _, tap := range registry.Taps() {
				tap.Offer(&telemetry.Tapped{
					Time: time.Now(), At: trafficPod(namespace, name), To: trafficPod(namespace, "web"), Method: "GET", Host: "shop", Path: "/tapped", Protocol: "HTTP/1.1",
					Status: 200, Duration: time.Millisecond,
				})
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
	s.t.Cleanup(func() { cancel(); running.Wait(); s.hub.Wait() })
	return registry
}

// TestWhoMayTap asks an API server as users with different roles.
func TestWhoMayTap(t *testing.T) {
	s := serveTraffic(t)
	registry := s.proxy(s.a, "gw")
	may := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{"traffic.metrics.k8s.io"}, Resources: []string{"pods/tap"}, Verbs: verbs}
	}
	_, gets := s.trafficUser("tap-gets", may("get"), "")
	_, watches := s.trafficUser("tap-watches", may("watch"), "")
	_, ofA := s.trafficUser("tap-of-a", allTraffic, s.a)
	_, edges := s.trafficUser("tap-edges", edgesOfPods, "")
	_, nothing := s.trafficUser("tap-nothing", may("get"))
	_, all := s.trafficUser("tap-all", allTraffic, "")
	pod := "/namespaces/" + s.a + "/pods/web/tap?for=2s"
	for _, c := range []struct {
		who  string
		as   *http.Client
		path string
		code int
		text string
	}{
		{"who may get", gets, pod, 200, `"path":"/tapped"`},
		{"who may get", gets, "/watch" + pod, 403, `cannot watch resource \"pods/tap\"`},
		{"who may watch", watches, "/watch" + pod, 200, `"path":"/tapped"`},
		{"who may watch", watches, pod, 403, `cannot get resource \"pods/tap\"`},
		{"who has all of a namespace", ofA, pod, 403, "you may not tap in all of them"},
		{"who has all of a namespace", ofA, "/watch" + pod, 403, "you may not tap in all of them"},
		{"who has edges everywhere", edges, pod, 403, `cannot get resource \"pods/tap\"`},
		{"who has nothing", nothing, pod, 403, `cannot get resource \"pods/tap\"`},
		{"who has all", all, "/watch" + pod, 200, `"path":"/tapped"`},
		{"who has all", all, pod + "&rate=0", 400, "rate: want a number"},
		{"who has all", all, "/watch/namespaces/" + s.a + "/pods/gone/tap", 404, `pods.traffic.metrics.k8s.io \"gone\" not found`},
		{"who has all", all, "/watch/namespaces/" + s.a + "/pods/db/tap?for=2s", 200, `"proxies":1,"silent":1`},
		{"who has all", all, "/watch/namespaces/" + s.a + "/tap?for=2s", 200, `"path":"/tapped"`}, // of the namespace
	} {
		code, text := s.ask(c.as, http.MethodGet, draftAPI+c.path, nil)
		if code != c.code || !strings.Contains(text, c.text) || code != 200 && strings.Contains(text, "tapped") {
			t.Errorf("%s, %s: %d %s", c.who, c.path, code, text)
		}
	}
	if _, text := s.ask(all, http.MethodGet, draftAPI+"/watch/namespaces/"+s.a+"/pods/db/tap?for=2s", nil); strings.Contains(text, "tapped") {
		t.Errorf("a tap of another pod shows %s", text)
	}
	// Nobody is let in beside the API server.
	for _, path := range []string{pod, "/watch" + pod} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.url+draftAPI+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Remote-User", "admin")
		r.Header.Set("X-Remote-Group", "system:masters")
		answer, err := (&http.Client{Transport: &http.Transport{TLSClientConfig: s.tls}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s past the API server: %s", path, answer.Status)
		}
	}
	s.tapEnds(watches, "/watch"+strings.Replace(pod, "2s", "1h", 1), registry)
	if st := s.hub.Stats(); st.Open != 0 || st.Rejected != 0 {
		t.Errorf("%+v", st)
	}
}

// tapEnds opens a tap, reads a line as it comes, and leaves: the proxy's tap ends.
func (s *served) tapEnds(c *http.Client, path string, registry *telemetry.Registry) {
	s.t.Helper()
	ctx, leave := context.WithCancel(s.t.Context())
	defer leave()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL+draftAPI+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	answer, err := c.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer answer.Body.Close()
	lines := bufio.NewScanner(answer.Body)
	for request := false; !request && lines.Scan(); {
		var l telemetry.TapLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			s.t.Fatal(err)
		}
		request = l.Request != nil
	}
	if registry.Taps() == nil {
		s.t.Fatalf("no tap is open: %v", lines.Err())
	}
	leave()
	began := time.Now()
	err = within(s.t.Context(), func() error {
		if registry.Taps() != nil {
			return errStill
		}
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("the tap at the proxy ended %v after the client left", time.Since(began).Round(time.Millisecond))
}

type still string

func (e still) Error() string { return string(e) }

const errStill = still("the tap at the proxy is still open")

// TestAWatchedTapLasts where an API server cuts off one that is not watched.
func TestAWatchedTapLasts(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes more than a minute")
	}
	s := serveTraffic(t)
	s.proxy(s.a, "gw")
	_, all := s.trafficUser("tap-lasts", allTraffic, "")
	lasts := func(path string) time.Duration {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+draftAPI+path+"/namespaces/"+s.a+"/pods/web/tap?for=75s", nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		began := time.Now()
		answer, err := all.Do(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		defer answer.Body.Close()
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
		}
		return time.Since(began)
	}
	var cut time.Duration
	var both sync.WaitGroup
	both.Go(func() { cut = lasts("") })
	if d := lasts("/watch"); d < 75*time.Second {
		t.Errorf("a watched tap lasts %v", d)
	}
	both.Wait()
	t.Logf("one that is not watched lasts %v", cut.Round(time.Second))
	if cut > 70*time.Second {
		t.Error("the API server cuts nothing off: the command line need not watch")
	}
}
