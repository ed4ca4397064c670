package upstream

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

func TestApplyKeepsEndpointsAcrossSwapsAndServices(t *testing.T) {
	srv := echoServer(t)
	s := newSet(t, Options{})
	e := one(t, s, srv.address())
	e.Put(get(t, e, false))
	e.Failed()

	other := service("ns/other:80", srv.address(), "10.0.0.9:80")
	twice := service("ns/svc:80", srv.address(), srv.address())
	snap, err := s.Apply(&model.Config{Services: []model.Service{other, twice}})
	if err != nil {
		t.Fatal(err)
	}
	if got := snap.Service("ns/svc:80", "").Endpoints(); len(got) != 1 || got[0] != e {
		t.Errorf("the endpoint changed: %v", got)
	}
	if got := snap.Service("ns/other:80", "").Endpoints(); len(got) != 2 || got[0] != e {
		t.Errorf("the endpoint is not shared: %v", got)
	}
	if snap.Service("ns/none:80", "") != nil {
		t.Error("a service that does not exist")
	}
	get(t, e, true).Close()
	if st := e.Stats(); st.Failures != 1 || st.Drained {
		t.Errorf("%+v", st)
	}
	var addresses []string
	for _, e := range s.endpoints {
		addresses = append(addresses, e.Address)
	}
	slices.Sort(addresses)
	want := []string{"10.0.0.9:80", srv.address()}
	slices.Sort(want)
	if !slices.Equal(addresses, want) {
		t.Errorf("endpoints %v, want %v", addresses, want)
	}
}

func TestEndpointsDifferByProtocolAndTLSIdentity(t *testing.T) {
	a, b := newAuthority(t, "a"), newAuthority(t, "b")
	services := []model.Service{
		{Name: "http", Protocol: model.HTTP},
		{Name: "h2c", Protocol: model.H2C},
		{Name: "tls", Protocol: model.HTTP, TLS: &model.ServiceTLS{Hostname: "a.test", CAs: a.pem}},
		{Name: "tls-h2", Protocol: model.H2C, TLS: &model.ServiceTLS{Hostname: "a.test", CAs: a.pem}},
		{Name: "tls-host", Protocol: model.HTTP, TLS: &model.ServiceTLS{Hostname: "b.test", CAs: a.pem}},
		{Name: "tls-ca", Protocol: model.HTTP, TLS: &model.ServiceTLS{Hostname: "a.test", CAs: b.pem}},
		{Name: "tls-san", Protocol: model.HTTP, TLS: &model.ServiceTLS{Hostname: "a.test", CAs: a.pem, SubjectAltNames: []string{"x.test", "y.test"}}},
		{Name: "tls-sans", Protocol: model.HTTP, TLS: &model.ServiceTLS{Hostname: "a.test", CAs: a.pem, SubjectAltNames: []string{"x.testy.test"}}},
		{Name: "tls-client", Protocol: model.HTTP, TLS: &model.ServiceTLS{Hostname: "a.test", CAs: a.pem}},
	}
	for i := range services {
		services[i].Endpoints = []model.Endpoint{{Address: "10.0.0.1:80"}}
	}
	cfg := &model.Config{Services: services, Certificates: []model.Certificate{*a.issue(t, "ns/client", 0, 0, nil)}}
	s := newSet(t, Options{})
	endpoints := func() map[string]*Endpoint {
		snap, err := s.ApplyFor(cfg, model.Presented{"tls-client": {"ns/client"}})
		if err != nil {
			t.Fatal(err)
		}
		m := map[string]*Endpoint{}
		for _, svc := range services {
			client := ""
			if svc.Name == "tls-client" {
				client = "ns/client"
			}
			got := snap.Service(svc.Name, client)
			if got.TLS != (svc.TLS != nil) || got.Protocol != svc.Protocol || got.Name != svc.Name {
				t.Errorf("%s: %+v", svc.Name, got)
			}
			m[svc.Name] = got.Endpoints()[0]
		}
		return m
	}
	first := endpoints()
	distinct := map[*Endpoint]bool{}
	for _, e := range first {
		distinct[e] = true
	}
	if len(distinct) != len(services) {
		t.Errorf("%d endpoints for %d identities", len(distinct), len(services))
	}
	if !maps.Equal(first, endpoints()) {
		t.Error("an equal configuration changed an endpoint")
	}
	cfg.Certificates[0] = *a.issue(t, "ns/client", 0, 0, nil)
	second := endpoints()
	for name, e := range second {
		if changed := e != first[name]; changed != (name == "tls-client") {
			t.Errorf("a new client certificate: endpoint of %s changed: %t", name, changed)
		}
	}
	if !first["tls-client"].Stats().Drained {
		t.Error("the endpoint with the old client certificate is not drained")
	}
}

func TestAServiceWithAFaultHasNoEndpoints(t *testing.T) {
	svc := service("ns/svc:80", "10.0.0.1:80")
	svc.Fault = &model.Fault{Status: 500, Reason: "InvalidBackend"}
	got := apply(t, newSet(t, Options{}), &model.Config{Services: []model.Service{svc}})
	if got.Fault == nil || got.Fault.Reason != "InvalidBackend" || got.Pick(nil) != nil {
		t.Errorf("%+v", got)
	}
}

func TestVanishedEndpointsAreDrained(t *testing.T) {
	srv := echoServer(t)
	s := newSet(t, Options{})
	e := one(t, s, srv.address())
	used, idle := get(t, e, false), get(t, e, false)
	exchange(t, used, "before")
	e.Put(idle)
	apply(t, s, config("10.0.0.1:80"))
	if st := e.Stats(); !st.Drained || st.Idle != 0 || st.Open != 1 || st.InFlight != 1 {
		t.Fatalf("%+v", st)
	}
	exchange(t, used, "the exchange under way goes on")
	e.Put(used)
	if st := e.Stats(); st.Open != 0 || st.InFlight != 0 {
		t.Errorf("the last connection was kept: %+v", st)
	}
	s.sweep()
	if len(s.drained) != 0 {
		t.Error("a finished endpoint is not forgotten")
	}

	// An exchange that still holds the old snapshot.
	late := get(t, e, false)
	exchange(t, late, "late")
	if len(s.drained) != 1 {
		t.Error("a drained endpoint with a connection is nobody's")
	}
	e.Put(late)
	if st := e.Stats(); st.Open != 0 {
		t.Errorf("%+v", st)
	}

	back := one(t, s, srv.address())
	if back == e {
		t.Error("a drained endpoint came back")
	}
	c := get(t, back, false)
	exchange(t, c, "back")
	back.Put(c)
}

func TestCloseReachesConnectionsOfDrainedEndpoints(t *testing.T) {
	srv := echoServer(t)
	s := New(Options{})
	e := one(t, s, srv.address())
	before := get(t, e, false)
	apply(t, s, &model.Config{})
	if snap, err := s.Apply(&model.Config{}); err != nil || snap.Service("ns/svc:80", "") != nil {
		t.Fatal(err)
	}
	after := get(t, e, false)
	s.Close()
	for _, c := range []*Conn{before, after} {
		if _, err := c.Fill(); err == nil {
			t.Error("a connection survived Close")
		}
		c.Close()
	}
	if _, err := e.Dial(time.Time{}); err == nil {
		t.Error("connected after Close")
	}
}

func TestCloseEndsADialUnderWay(t *testing.T) {
	started := make(chan struct{})
	s := New(Options{dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		close(started)
		<-ctx.Done()
		return nil, ctx.Err()
	}})
	e := one(t, s, "10.0.0.1:80")
	done := make(chan error)
	go func() {
		_, err := e.Dial(time.Time{})
		done <- err
	}()
	<-started
	s.Close()
	if err := <-done; err == nil || e.Stats().Failures != 0 {
		t.Errorf("%v, %+v", err, e.Stats())
	}
}

func TestExchangesGoOnWhileConfigurationsSwap(t *testing.T) {
	servers := []*tcpServer{echoServer(t), echoServer(t), echoServer(t)}
	s := newSet(t, Options{})
	var mu sync.RWMutex
	svc := apply(t, s, config(servers[0].address()))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				mu.RLock()
				e := svc.Pick(nil)
				mu.RUnlock()
				c, _, err := e.Get(time.Time{})
				if err != nil {
					t.Error(err)
					return
				}
				line := fmt.Sprintln(w, i)
				io.WriteString(c, line)
				for len(c.Buffered()) < len(line) {
					if _, err := c.Fill(); err != nil {
						t.Error(err)
						c.Close()
						return
					}
				}
				c.Discard(len(line))
				e.Succeeded()
				e.Put(c)
			}
		})
	}
	for i := range 100 {
		next := apply(t, s, config(servers[i%3].address(), servers[(i+i/7)%3].address()))
		mu.Lock()
		svc = next
		mu.Unlock()
		s.sweep()
	}
	close(stop)
	wg.Wait()
	for _, e := range s.endpoints {
		if st := e.Stats(); st.InFlight != 0 || st.Open != st.Idle || st.Failures != 0 {
			t.Errorf("%s: %+v", e.Address, st)
		}
	}
	s.sweep()
	if len(s.drained) != 0 {
		t.Errorf("%d endpoints never finished", len(s.drained))
	}
}
