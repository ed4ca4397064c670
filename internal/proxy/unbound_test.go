package proxy

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/socket"
)

// portMachine is a machine whose ports can be taken. For each free port, it binds any port of the loopback address.
type portMachine struct {
	mu    sync.Mutex
	taken map[string]error // by ":port"
	tries map[string]int
}

func (m *portMachine) listen(network, address string) (net.Listener, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	port := address[strings.LastIndexByte(address, ':'):]
	m.tries[port]++
	if err := m.taken[port]; err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Err: err}
	}
	return socket.Listen(network, "127.0.0.1:0")
}

func (m *portMachine) take(port string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.taken[port] = err
}

func newPortMachine() *portMachine {
	return &portMachine{taken: map[string]error{}, tries: map[string]int{}}
}

// withPorts is plain plus one listener for each port, each in a separate Gateway.
func withPorts(addr string, ports ...int32) *model.Config {
	cfg := plain(addr)
	for _, port := range ports {
		l := cfg.Listeners[0]
		l.Name, l.Port = fmt.Sprintf("default/gw%d/http", port), port
		l.Ref = model.Ref{Kind: "Gateway", Namespace: "default", Name: fmt.Sprintf("gw%d", port), Field: "spec.listeners[0]"}
		cfg.Listeners = append(cfg.Listeners, l)
		cfg.Routes[0].Attachments = append(cfg.Routes[0].Attachments, model.Attachment{Listener: l.Name, Hostnames: []string{"*"}})
	}
	return cfg
}

func (s *testServer) status(t *testing.T, addr string) int {
	t.Helper()
	k := newTalk(t, addr)
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	resp, _ := k.answer("GET")
	return resp.StatusCode
}

// TestPortThatCannotBeBoundKeepsNothingElseFromBeingApplied has a port in use, a port without the privilege, and
// others.
func TestPortThatCannotBeBoundKeepsNothingElseFromBeingApplied(t *testing.T) {
	addr, _ := wire(t, okResponse)
	m := newPortMachine()
	m.take(":81", syscall.EADDRINUSE)
	m.take(":82", syscall.EACCES)
	changed := make(chan struct{}, 10)
	s := serve(t, withPorts(addr, 81, 82), func(o *Options) {
		o.Listen, o.PortsChanged = socket.Streams(m.listen), func() { changed <- struct{}{} }
	})
	if got := s.status(t, s.addr()); got != 200 {
		t.Errorf("the first configuration: status %d", got)
	}
	check := func(when string, ports ...int32) {
		t.Helper()
		var got []int32
		for _, e := range s.Unbound() {
			got = append(got, e.Port)
			if want := fmt.Sprintf("default/gw%d/http", e.Port); len(e.Listeners) != 1 || e.Listeners[0] != want || e.Refs[0].Name != fmt.Sprintf("gw%d", e.Port) ||
				!strings.Contains(e.Error(), want) || !strings.Contains(e.Error(), fmt.Sprintf("port %d", e.Port)) {
				t.Errorf("%s: %+v", when, e)
			}
		}
		if fmt.Sprint(got) != fmt.Sprint(ports) {
			t.Errorf("%s: unbound %v, want %v", when, got, ports)
		}
	}
	check("at first", 81, 82)
	if !errors.Is(s.Unbound()[1], fs.ErrPermission) {
		t.Errorf("the reason is lost: %v", s.Unbound()[1])
	}
	// Changes to other ports are applied, one after the other.
	if err := s.Apply(withPorts(addr, 81, 82, 83)); err != nil {
		t.Fatal(err)
	}
	if got := s.status(t, s.Addr("default/gw83/http").String()); got != 200 {
		t.Errorf("a port added later: status %d", got)
	}
	check("after a change", 81, 82)
	// The port is served once it is free, without another change.
	kept := newTalk(t, s.addr())
	kept.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	kept.answer("GET")
	m.take(":81", nil)
	<-changed
	check("once it is free", 82)
	if got := s.status(t, s.Addr("default/gw81/http").String()); got != 200 {
		t.Errorf("the port that became free: status %d", got)
	}
	kept.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, _ := kept.answer("GET"); resp.StatusCode != 200 || resp.Close {
		t.Errorf("a connection from before: status %d, close %v", resp.StatusCode, resp.Close)
	}
	// When a listener is removed, its error is removed too.
	if err := s.Apply(withPorts(addr, 81)); err != nil {
		t.Fatal(err)
	}
	check("without it")
	if got := s.status(t, s.Addr("default/gw81/http").String()); got != 200 {
		t.Errorf("after it is gone: status %d", got)
	}
}

func TestNothingThatCanBeBoundIsAnErrorAndTheOldConfigurationServes(t *testing.T) {
	addr, _ := wire(t, okResponse)
	m := newPortMachine()
	m.take(":81", syscall.EADDRINUSE)
	only := func(port int32) *model.Config {
		cfg := withPorts(addr, port)
		cfg.Listeners, cfg.Routes[0].Attachments = cfg.Listeners[1:], cfg.Routes[0].Attachments[1:]
		return cfg
	}
	first := New(Options{Listen: socket.Streams(m.listen)})
	err := first.Apply(only(81))
	var le *ListenError
	if !errors.Is(err, ErrNothingServed) || !errors.As(err, &le) || le.Port != 81 {
		t.Errorf("the first configuration: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := first.Run(ended); err != nil {
		t.Error(err)
	}
	s := serve(t, plain(addr), func(o *Options) { o.Listen = socket.Streams(m.listen) })
	if err := s.Apply(only(81)); !errors.Is(err, ErrNothingServed) {
		t.Errorf("got %v", err)
	}
	if got := s.status(t, s.addr()); got != 200 || len(s.Addrs()) != 1 || len(s.Unbound()) > 0 {
		t.Errorf("status %d at %v, unbound %v", got, s.Addrs(), s.Unbound())
	}
	if err := s.Apply(&model.Config{}); err != nil {
		t.Errorf("a configuration without listeners: %v", err)
	}
}

// TestAPortMovesToAnAddressThatItsOldOneCovers binds 127.0.0.1 after all addresses were bound. The old socket blocks
// the new one until it is closed.
func TestAPortMovesToAnAddressThatItsOldOneCovers(t *testing.T) {
	addr, _ := wire(t, okResponse)
	free, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	port := int32(free.Addr().(*net.TCPAddr).Port)
	free.Close()
	cfg := func(address string) *model.Config {
		c := plain(addr)
		c.Listeners[0].Address, c.Listeners[0].Port = address, port
		return c
	}
	changed := make(chan struct{}, 10)
	s := serve(t, cfg(""), func(o *Options) { o.Listen, o.PortsChanged = socket.Open, func() { changed <- struct{}{} } })
	for _, address := range []string{"127.0.0.1", "", "127.0.0.1"} {
		if err := s.Apply(cfg(address)); err != nil {
			t.Fatal(err)
		}
		for len(s.Unbound()) > 0 {
			<-changed
		}
		if got := s.status(t, fmt.Sprintf("127.0.0.1:%d", port)); got != 200 {
			t.Errorf("at %q: status %d", address, got)
		}
	}
	// The port is removed and added again while the old socket may still be open.
	for range 5 {
		for _, c := range []*model.Config{{}, cfg("127.0.0.1")} {
			if err := s.Apply(c); err != nil && !errors.Is(err, ErrNothingServed) {
				t.Fatal(err)
			}
		}
		for len(s.Unbound()) > 0 {
			<-changed
		}
	}
}

func TestPortsAreTriedEverySecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newPortMachine()
		m.take(":81", syscall.EADDRINUSE)
		s := New(Options{Listen: socket.Streams(func(network, address string) (net.Listener, error) {
			if strings.HasSuffix(address, ":81") {
				return m.listen(network, address)
			}
			return &pipeListener{done: make(chan struct{})}, nil
		})})
		if err := s.Apply(withPorts("192.0.2.1:80", 81)); err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		done := make(chan struct{})
		go func() { defer close(done); s.rebindLoop(ctx) }()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		m.mu.Lock()
		before := m.tries[":81"]
		m.mu.Unlock()
		time.Sleep(time.Minute)
		synctest.Wait()
		m.mu.Lock()
		if n := m.tries[":81"] - before; n != 60 {
			t.Errorf("%d tries in a minute", n)
		}
		m.mu.Unlock()
		s.upstream.Close()
		s.mirrors.Close(ctx)
	})
}

// pipeListener accepts nothing.
type pipeListener struct {
	once sync.Once
	done chan struct{}
}

func (l *pipeListener) Accept() (net.Conn, error) { <-l.done; return nil, net.ErrClosed }
func (l *pipeListener) Close() error              { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr            { return &net.TCPAddr{} }

// TestWhatIsBoundIsWhatCanBe applies random configurations on a machine whose ports become free and taken.
func TestWhatIsBoundIsWhatCanBe(t *testing.T) {
	addr, _ := wire(t, okResponse)
	m := newPortMachine()
	s := serve(t, plain(addr), func(o *Options) { o.Listen = socket.Streams(m.listen) })
	r := rand.New(rand.NewPCG(3, 4))
	for step := range 200 {
		var ports []int32
		for port := int32(81); port < 87; port++ {
			if r.IntN(2) == 0 {
				ports = append(ports, port)
			}
			var err error
			if r.IntN(3) == 0 {
				err = syscall.EADDRINUSE
			}
			m.take(fmt.Sprintf(":%d", port), err)
		}
		if err := s.Apply(withPorts(addr, ports...)); err != nil {
			t.Fatal(err)
		}
		have := map[int32]int{}
		for _, a := range s.Addrs() {
			have[a.Port]++
		}
		for _, e := range s.Unbound() {
			have[e.Port] += 10
		}
		for _, port := range ports {
			if n := have[port]; n != 1 && n != 10 {
				t.Fatalf("step %d: port %d is %d", step, port, n)
			}
			delete(have, port)
		}
		if delete(have, 80); len(have) > 0 {
			t.Fatalf("step %d: beside what is configured: %v", step, have)
		}
	}
}
