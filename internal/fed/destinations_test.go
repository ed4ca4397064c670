package fed

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
)

// lazily is a cluster whose sidecars ask for their destinations. meant is what the redirect's clients mean.
type lazily struct {
	*cluster
	meant  atomic.Pointer[netip.AddrPort]
	own    *model.Config
	common *feed.Common
}

func newLazily(t *testing.T) *lazily {
	t.Helper()
	c := &lazily{cluster: newCluster(t, spiffe.DefaultTrustDomain, func(c *cluster) { c.asks = true })}
	c.inbound(true)
	ref := model.Ref{Kind: "Pod", Name: "anywhere"}
	base := &model.Config{
		Listeners: []model.Listener{{Name: "outbound/other", Ref: ref, Redirect: model.RedirectOutbound, Protocol: model.TCP}},
		Routes:    []model.Route{{Ref: ref, Kind: model.RouteTCP, Attachments: []model.Attachment{{Listener: "outbound/other", Hostnames: []string{"*"}}}, Rules: []model.Rule{{Ref: ref, Backends: []model.Backend{{Ref: ref, Service: "cluster/unknown:0", Weight: 1}}}}}},
		Services:  []model.Service{{Name: "cluster/unknown:0", Protocol: model.HTTP, Meant: true, Ref: ref}},
	}
	if err := base.Validate(); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.common, err = feed.NewCommon(base, nil); err != nil {
		t.Fatal(err)
	}
	c.common.Partial = true
	return c
}

// inbound sets what is the pod's own, which serves plain text or not.
func (c *lazily) inbound(plain bool) {
	all := configuration("127.0.0.1:1", "127.0.0.1:1", plain)
	all.Listeners = slices.DeleteFunc(all.Listeners, func(l model.Listener) bool { return l.Redirect == model.RedirectOutbound })
	all.Routes = slices.DeleteFunc(all.Routes, func(r model.Route) bool { return r.Ref.Field == "outbound" })
	all.Services = slices.DeleteFunc(all.Services, func(s model.Service) bool { return s.TLS != nil })
	c.own = all
}

// gives gives the pod what is its own, once its sidecar is connected.
func (c *lazily) gives() {
	c.Helper()
	c.until("the sidecar is connected", func() bool {
		connected, err := c.feed.Set(pod, c.own, c.common)
		if err != nil {
			c.Fatal(err)
		}
		return connected
	})
}

func (c *lazily) mean(to netip.AddrPort) { c.meant.Store(&to) }

// clusterAt are the addresses of Services, of which each leads to app, and app itself.
func clusterAt(app string) func(string, netip.AddrPort) *model.Config {
	return func(_ string, to netip.AddrPort) *model.Config {
		if !netip.MustParsePrefix("10.96.0.0/16").Contains(to.Addr()) && to.String() != app {
			return nil
		}
		name := "outbound/" + to.String()
		ref := model.Ref{Kind: "Service", Namespace: "shop", Name: to.Addr().String()}
		return &model.Config{
			Listeners: []model.Listener{{Name: name, Ref: ref, Redirect: model.RedirectOutbound, Address: to.Addr().String(), Port: int32(to.Port()), Protocol: model.HTTP}},
			Routes: []model.Route{{Ref: ref, Attachments: []model.Attachment{{Listener: name, Hostnames: []string{"*"}}}, Rules: []model.Rule{{
				Ref: ref, Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}}, Backends: []model.Backend{{Ref: ref, Service: "shop/" + ref.Name + ":80", Weight: 1}},
			}}}},
			Services: []model.Service{{Name: "shop/" + ref.Name + ":80", Ref: ref, Protocol: model.HTTP, Endpoints: []model.Endpoint{{Address: app}}}},
		}
	}
}

// application answers 200 "pay" where nobody takes it for the pod.
func application(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.3:0") // 127.0.0.1 is the pod
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "pay") })}
	go s.Serve(l)
	t.Cleanup(func() { s.Close() })
	return l.Addr().String()
}

// get returns what gets an answer from the sidecar, of one connection that is kept, or of a new one each time.
func (r *running) get(kept bool) (get func() string, end func()) {
	tr := &http.Transport{DisableKeepAlives: !kept}
	client := &http.Client{Transport: tr, Timeout: 30 * time.Second}
	return func() string {
		answer, err := client.Get(fmt.Sprintf("http://127.0.0.1:%d/", r.outbound))
		if err != nil {
			return "error: " + err.Error()
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return fmt.Sprint(answer.StatusCode, " ", string(body))
	}, tr.CloseIdleConnections
}

// TestControllersChangeUnderLoad has connections that are kept, and new ones, while a controller takes over that has not read
// yet what is in the cluster.
func TestControllersChangeUnderLoad(t *testing.T) {
	c := newLazily(t)
	app := application(t)
	find := clusterAt(app)
	pay := netip.MustParseAddrPort("10.96.0.9:80")
	c.mean(pay)
	c.feed.Direct(find)
	r := c.start(func() netip.AddrPort { return *c.meant.Load() })
	c.gives()
	r.ready(http.StatusOK, "ready")
	ctx, stop := context.WithCancel(t.Context())
	var load sync.WaitGroup
	var answered [4]atomic.Int64
	for i := range answered {
		get, end := r.get(i > 0)
		load.Go(func() {
			defer end()
			for ctx.Err() == nil {
				if got := get(); got != "200 pay" {
					t.Errorf("under load: %s", got)
					return
				}
				answered[i].Add(1)
				time.Sleep(time.Millisecond)
			}
		})
	}
	defer func() { stop(); load.Wait() }()
	more := func(what string) {
		t.Helper()
		for i := range answered {
			n := answered[i].Load()
			r.until(what, func() bool { return t.Failed() || answered[i].Load() > n+20 })
		}
	}
	more("the first controller")
	c.restart()
	more("no controller answers")
	c.gives()
	more("a controller that has read nothing")
	c.feed.Direct(find)
	c.until("it has answered", func() bool { return c.feed.Version(pod) != "" && c.feed.Stats().Responses > 0 })
	more("the second controller")
	stop()
	load.Wait()
	if t.Failed() {
		return
	}

	// A controller that knows nothing takes the listener of a kept connection away: its requests go where a new one's would.
	get, end := r.get(true)
	defer end()
	c.mean(netip.MustParseAddrPort(app))
	if got := get(); got != "200 pay" {
		t.Fatal(got)
	}
	c.restart()
	c.feed.Direct(func(string, netip.AddrPort) *model.Config { return nil })
	c.gives()
	c.until("it has answered", func() bool { return c.feed.Stats().Responses > 0 })
	for range 20 {
		if got := get(); got != "200 pay" {
			t.Fatal(got)
		}
	}
}

// TestWhoRequiresTLSConnectsToNothingUnknown has no controller to ask what is at an address. A connection passes only if the
// pod serves plain text, too.
func TestWhoRequiresTLSConnectsToNothingUnknown(t *testing.T) {
	app := netip.MustParseAddrPort(application(t))
	for _, x := range []struct {
		name              string
		permissive, plain bool
		passes            bool
	}{{"permissive", true, true, true}, {"a TLSConfig", true, false, false}, {"strict", false, true, false}} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			c := newLazily(t)
			c.inbound(x.plain)
			c.mean(app)
			c.feed.Direct(func(string, netip.AddrPort) *model.Config { return nil })
			r := c.start(func() netip.AddrPort { return *c.meant.Load() }, fmt.Sprintf("--permissive=%t", x.permissive))
			c.gives()
			r.ready(http.StatusOK, "ready")
			c.stop()
			get, end := r.get(false)
			defer end()
			if got := get(); (got == "200 pay") != x.passes {
				t.Errorf("%s", got)
			}
		})
	}
}

// TestTheFirstConnectionWaitsForAnAnswer logs for how long.
func TestTheFirstConnectionWaitsForAnAnswer(t *testing.T) {
	c := newLazily(t)
	c.feed.Direct(clusterAt(application(t)))
	r := c.start(func() netip.AddrPort { return *c.meant.Load() })
	c.gives()
	r.ready(http.StatusOK, "ready")
	get, end := r.get(false)
	defer end()
	var first, known []time.Duration
	for i := range 50 {
		c.mean(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 1, byte(i)}), 80))
		for _, of := range []*[]time.Duration{&first, &known} {
			start := time.Now()
			if got := get(); got != "200 pay" {
				t.Fatal(got)
			}
			*of = append(*of, time.Since(start))
		}
	}
	slices.Sort(first)
	slices.Sort(known)
	t.Logf("a request over a new connection takes %s if its address is known, and %s if it is asked for (medians; the longest %s and %s)", known[25], first[25], known[49], first[49])
}
