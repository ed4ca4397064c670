package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/clock"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
	"github.com/weirmesh/weir/test/size"
)

// connections is a TCP listener whose route divides connections among the services by weight.
func connections(services []model.Service, backends ...model.Backend) *model.Config {
	ref := model.Ref{Kind: "TCPRoute", Namespace: "default", Name: "route"}
	return &model.Config{
		Listeners: []model.Listener{{Name: listenerName, Ref: model.Ref{Kind: "Gateway", Namespace: "default", Name: "gw"}, Port: 80, Protocol: model.TCP}},
		Routes: []model.Route{{
			Ref: ref, Kind: model.RouteTCP, Attachments: []model.Attachment{{Listener: listenerName, Hostnames: []string{"*"}}},
			Rules: []model.Rule{{Ref: ref, Backends: backends}},
		}},
		Services: services,
	}
}

// toAddresses leads all connections to one service.
func toAddresses(addresses ...string) *model.Config {
	return connections([]model.Service{service(serviceName, model.HTTP, addresses...)}, model.Backend{Service: serviceName, Weight: 1})
}

// echo sends back what it receives, behind a prefix, and ends when the client has.
func echo(t testing.TB, prefix string) string {
	return rawBackend(t, func(c net.Conn) {
		io.WriteString(c, prefix)
		io.Copy(c, c)
	})
}

// say sends text, closes its sending side and returns the answer.
func say(t testing.TB, addr, text string) string {
	t.Helper()
	c := dial(t, addr)
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		return err.Error()
	}
	c.(*net.TCPConn).CloseWrite()
	got, err := io.ReadAll(c)
	if err != nil {
		return err.Error()
	}
	return string(got)
}

func TestConnectionsAreRelayedBothWaysWithHalfClose(t *testing.T) {
	s := serve(t, toAddresses(rawBackend(t, func(c net.Conn) {
		got, err := io.ReadAll(c) // until the client ends its side
		fmt.Fprintf(c, "%d bytes, %v", len(got), err)
	})))
	const size = 3 << 20
	if got, want := say(t, s.addr(), strings.Repeat("x", size)), fmt.Sprintf("%d bytes, <nil>", size); got != want {
		t.Errorf("answer = %q, want %q", got, want)
	}
	s.stop()
	<-s.ended
	x := s.metrics.Snapshot().Exchanges[0]
	if x.Backend != serviceName || len(x.Codes) != 1 || x.Codes[0] != (telemetry.CodeCount{Count: 1}) || len(x.Reasons) != 0 || x.BytesIn != size {
		t.Errorf("counted %+v, want one connection to %s without a failure", x, serviceName)
	}
	if total, open := s.metrics.Listener(":80").Connections(); total != 1 || open != 0 {
		t.Errorf("%d connections, %d of them open, want one, closed", total, open)
	}
}

func TestConnectionsOfAServiceHaveABound(t *testing.T) {
	s := serve(t, toAddresses(echo(t, "hello")), func(o *Options) { o.Upstream.MaxRelays = 2 })
	// open is a connection that is relayed; nil if it was reset, perhaps before it was known here that it is open.
	open := func() net.Conn {
		c, err := net.Dial("tcp", s.addr())
		if err != nil {
			return nil
		}
		c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := io.ReadFull(c, make([]byte, len("hello"))); err != nil {
			c.Close()
			return nil
		}
		return c
	}
	first, second := open(), open()
	if first == nil || second == nil {
		t.Fatal("a connection within the bound was reset")
	}
	if c := open(); c != nil {
		c.Close()
		t.Fatal("a third connection was relayed")
	}
	first.Close()
	until(t, "there is no place again", func() bool {
		c := open()
		if c != nil {
			c.Close()
		}
		return c != nil
	})
	second.Close()
	s.stop()
	<-s.ended
	for _, x := range s.metrics.Snapshot().Exchanges {
		if !slices.ContainsFunc(x.Reasons, func(r telemetry.ReasonCount) bool { return r.Reason == telemetry.BackendOverload }) {
			t.Errorf("counted %+v, want the reason %s", x, telemetry.BackendOverload)
		}
	}
}

func TestTheSocketsOfRelaysAreKnown(t *testing.T) {
	s := serve(t, toAddresses(echo(t, "")))
	if got := fmt.Sprint(s.Server.Relays()); got != "["+s.addr()+"]" {
		t.Errorf("relays %s, want %s", got, s.addr())
	}
	if err := s.Server.Apply(plain("127.0.0.1:1")); err != nil {
		t.Fatal(err)
	}
	if got := s.Server.Relays(); len(got) != 0 {
		t.Errorf("relays %v of a configuration without any", got)
	}
}

func TestMuchIsRelayedUnchanged(t *testing.T) {
	s := serve(t, toAddresses(echo(t, "")))
	var text strings.Builder
	for i := range size.Of(40_000, 400_000) {
		fmt.Fprintf(&text, "%d ", i)
	}
	c := dial(t, s.addr())
	go func() {
		io.WriteString(c, text.String())
		c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c)
	if err != nil || string(got) != text.String() {
		t.Errorf("%d bytes came back, %v; want the same %d", len(got), err, text.Len())
	}
}

func TestConnectionsAreDividedExactlyByWeightsAndSplit(t *testing.T) {
	v1, v2, other := "default/v1:80", "default/v2:80", "default/other:80"
	cfg := connections([]model.Service{
		service(serviceName, model.HTTP, echo(t, "root")), service(v1, model.HTTP, echo(t, "v1")), service(v2, model.HTTP, echo(t, "v2")),
		service(other, model.HTTP, echo(t, "other")),
	}, model.Backend{Service: serviceName, Weight: 4}, model.Backend{Service: other, Weight: 1})
	cfg.Splits = []model.Split{{
		Ref: model.Ref{Kind: "TrafficSplit", Namespace: "default", Name: "s"}, Root: serviceName,
		Leaves: []model.Leaf{{Service: v1, Weight: 3}, {Service: v2, Weight: 1}},
	}}
	s := serve(t, cfg)
	got := map[string]int{}
	for range 100 {
		got[say(t, s.addr(), "")]++
	}
	if got["v1"] != 60 || got["v2"] != 20 || got["other"] != 20 {
		t.Errorf("100 connections went to %v, want 60, 20 and 20", got)
	}
}

// greeting connects, which may already meet the reset, and waits for a byte.
func greeting(addr string) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(patience))
	_, err = c.Read(make([]byte, 1))
	return err
}

func TestConnectionsThatCannotBeServedAreResetAndCounted(t *testing.T) {
	for reason, cfg := range map[telemetry.Reason]*model.Config{
		telemetry.NoEndpoint:      toAddresses(),
		telemetry.ConnectFailed:   toAddresses(peertest.Refusing(t)),
		telemetry.NoBackend:       connections(nil, model.Backend{Fault: &model.Fault{Status: 500, Reason: "x"}}),
		telemetry.BackendNotFound: connections(nil, model.Backend{Weight: 1, Fault: &model.Fault{Status: 500, Reason: "BackendNotFound"}}),
	} {
		s := serve(t, cfg)
		if err := greeting(s.addr()); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("%s: %v, want a reset", reason, err)
		}
		if n := s.failures(reason); n != 1 {
			t.Errorf("%s counted %d times, want once", reason, n)
		}
	}
	bare := toAddresses()
	bare.Routes = nil
	s := serve(t, bare)
	if err := greeting(s.addr()); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("without a route: %v, want a reset", err)
	}
	if n := s.failures(telemetry.NoRoute); n != 1 {
		t.Errorf("no_route counted %d times, want once", n)
	}
}

func TestConnectionsGoToAServiceWhoseProtocolRequestsCannotUse(t *testing.T) {
	cfg := toAddresses(echo(t, "db"))
	cfg.Services[0].Fault = &model.Fault{Status: 500, Reason: model.UnsupportedProtocol}
	s := serve(t, cfg)
	if got := say(t, s.addr(), ""); got != "db" {
		t.Errorf("got %q, want the endpoint's greeting", got)
	}
}

func TestAnotherEndpointIsTriedWhenOneRefuses(t *testing.T) {
	s := serve(t, toAddresses(peertest.Refusing(t), echo(t, "up")))
	for range 20 {
		if got := say(t, s.addr(), "!"); got != "up!" {
			t.Fatalf("got %q, want up!", got)
		}
	}
	if n := s.failures(telemetry.ConnectFailed); n != 0 {
		t.Errorf("%d connections failed", n)
	}
}

func TestAConnectionWaitsForTheSuccessorOfAnEndpoint(t *testing.T) {
	old, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	next := echo(t, "next")
	s := serve(t, toAddresses(old.Addr().String()), func(o *Options) { o.Succession, o.Upstream.ConnectTimeout = time.Hour, time.Hour })
	c := dial(t, s.addr())
	served, err := old.Accept()
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(served, "!")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err) // otherwise the proxy knows that the endpoint has served
	}
	old.Close()
	served.Close()
	c.Close()
	got := make(chan string)
	go func() { got <- say(t, s.addr(), "!") }()
	endpoint := s.state.Load().Service(&upstream.Service{Name: serviceName}).Endpoints()[0]
	for endpoint.Stats().DialFails == 0 {
		time.Sleep(time.Millisecond)
	}
	if err := s.Apply(toAddresses(next)); err != nil {
		t.Fatal(err)
	}
	if got := <-got; got != "next!" {
		t.Errorf("got %q, want next!", got)
	}
}

func TestABrokenEndpointBreaksTheClientsConnection(t *testing.T) {
	s := serve(t, toAddresses(rawBackend(t, func(c net.Conn) {
		io.ReadFull(c, make([]byte, 1))
		c.(*net.TCPConn).SetLinger(0)
	})))
	c := dial(t, s.addr())
	io.WriteString(c, "x")
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v, want a reset", err)
	}
	if n := s.failures(telemetry.BackendReset); n != 1 {
		t.Errorf("backend_reset counted %d times, want once", n)
	}
}

func TestASilentConnectionIsClosed(t *testing.T) {
	t.Parallel()
	const limit = 300 * time.Millisecond
	// Where the proxy's process does not run for that long, it cannot tell a read that timed out from a write.
	late := true
	for try := 0; late && try < 20; try++ {
		var log bytes.Buffer
		access := telemetry.NewAccessLog(&log, telemetry.AccessLogOptions{})
		s := serve(t, toAddresses(echo(t, "")), func(o *Options) { o.StreamTimeout, o.AccessLog = limit, access })
		c := dial(t, s.addr())
		io.WriteString(c, "ping")
		if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("read: %v, want a reset", err)
		}
		s.stop()
		<-s.ended
		if err := access.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		var line map[string]any
		err := json.Unmarshal(log.Bytes(), &line)
		took, _ := line["duration_ms"].(float64)
		if late = time.Duration(took*float64(time.Millisecond)) >= limit+limit/2; late {
			continue
		}
		if err != nil || line["protocol"] != "TCP" || line["backend"] != serviceName || line["route"] != "default/route" || line["reason"] != nil {
			t.Errorf("access log: %s (%v), want one line of a TCP connection to %s without a reason", log.Bytes(), err, serviceName)
		}
	}
	if late {
		t.Skip("this machine has too much to do")
	}
}

// lateReads are reads that time out when this process runs again: after each of the times. Then comes the end.
type lateReads struct {
	late []time.Duration
	also func()
}

func (r *lateReads) Read([]byte) (int, error) {
	if len(r.late) == 0 {
		return 0, io.EOF
	}
	time.Sleep(r.late[0])
	r.late = r.late[1:]
	r.also()
	return 0, os.ErrDeadlineExceeded
}

// A read whose timeout is noticed late, because this process did not run meanwhile, is no write of a peer that is stuck.
func TestALateReadOfARelayIsNobodysFault(t *testing.T) {
	const limit = 4 * time.Minute
	for late, want := range map[time.Duration]telemetry.Reason{
		limit - time.Second:         "",
		limit + time.Second:         "",
		limit + limit/4 - 1:         "",
		limit + limit/4:             telemetry.ClientTimeout, // as a write
		limit + limit/4 + time.Hour: telemetry.ClientTimeout,
	} {
		synctest.Test(t, func(t *testing.T) {
			s := New(Options{})
			defer func() {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				s.Run(ctx)
			}()
			client, other := net.Pipe()
			defer other.Close()
			r := &relay{srv: s, sock: client, nc: client, limit: limit}
			r.Begin(s.pipe, client, 1)
			// The other direction goes on, so that the relay is not idle.
			src := &lateReads{[]time.Duration{late}, func() { r.moved.Store(clock.Instant(time.Now())) }}
			var n int64
			r.copy(&n, client, src, func() error { return nil }, func(time.Time, time.Time) {}, relayEndpoint, relayClient)
			if r.Aborted() != (want != "") {
				t.Errorf("a read that is noticed after %v aborts the relay: %t, want %q", late, r.Aborted(), want)
			}
		})
	}
}

func TestDrainLetsConnectionsFinish(t *testing.T) {
	s := serve(t, toAddresses(echo(t, "")))
	addr := s.addr()
	c := dial(t, addr)
	io.WriteString(c, "a")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(&model.Config{}); err != nil { // removes the port
		t.Fatal(err)
	}
	s.stop()
	io.WriteString(c, "b")
	c.(*net.TCPConn).CloseWrite()
	if got, err := io.ReadAll(c); string(got) != "b" || err != nil {
		t.Errorf("while draining: %q, %v, want b", got, err)
	}
	<-s.ended
}

func TestTheEndOfTheDrainCutsConnections(t *testing.T) {
	s := serve(t, toAddresses(echo(t, "")), func(o *Options) { o.DrainTimeout = 20 * time.Millisecond })
	c := dial(t, s.addr())
	io.WriteString(c, "a")
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if n := s.failures(telemetry.Draining); n != 1 {
		t.Errorf("draining counted %d times, want once", n)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
}

func TestAPortChangesBetweenHTTPAndTCP(t *testing.T) {
	addresses := echo(t, "raw")
	s := serve(t, plain(backend(t, nil)))
	addr := s.addr()
	if err := s.Apply(toAddresses(addresses)); err != nil {
		t.Fatal(err)
	}
	if got := say(t, addr, "!"); got != "raw!" {
		t.Errorf("got %q, want raw!", got)
	}
	if err := s.Apply(plain()); err != nil {
		t.Fatal(err)
	}
	if got := say(t, addr, "GET / "+fields("HTTP/1.1", "Host: a", "Connection: close")); !strings.HasPrefix(got, "HTTP/1.1 503") {
		t.Errorf("got %q, want 503", got)
	}
}
