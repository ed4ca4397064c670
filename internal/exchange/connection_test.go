package exchange

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"testing"

	"github.com/weirmesh/weir/internal/budget"
	"github.com/weirmesh/weir/internal/clientaddr"
	"github.com/weirmesh/weir/internal/mirror"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/upstream"
)

// fakeSocket is a client's socket: it has addresses, and nothing to send.
type fakeSocket struct{ local, remote net.TCPAddr }

func (s *fakeSocket) LocalAddr() net.Addr  { return &s.local }
func (s *fakeSocket) RemoteAddr() net.Addr { return &s.remote }

func socketFrom(from string) *fakeSocket {
	return &fakeSocket{
		local:  *net.TCPAddrFromAddrPort(netip.MustParseAddrPort("192.0.2.80:5432")),
		remote: *net.TCPAddrFromAddrPort(netip.MustParseAddrPort(from)),
	}
}

// relaying is a server of relayed connections without sockets of clients.
type relaying struct {
	pipe *Pipeline
	snap *Snapshot
	port *routing.Port
	end  func()
	log  bytes.Buffer
	open int64 // clients' connections
	met  []error
}

const relayedTo = "default/db:5432"

// relayTo serves one TCP listener, whose connections go to the addresses.
func relayTo(t testing.TB, edit func(*model.Config, *upstream.Options, *Around), addresses ...string) *relaying {
	t.Helper()
	ref := model.Ref{Kind: "TCPRoute", Namespace: "default", Name: "route"}
	cfg := &model.Config{
		Listeners: []model.Listener{{Name: "default/gw/db", Port: 5432, Protocol: model.TCP}},
		Routes: []model.Route{{
			Ref: ref, Kind: model.RouteTCP, Attachments: []model.Attachment{{Listener: "default/gw/db", Hostnames: []string{"*"}}},
			Rules: []model.Rule{{Ref: ref, Backends: []model.Backend{{Service: relayedTo, Weight: 1}}}},
		}},
		Services: []model.Service{peertest.Service(relayedTo, model.HTTP, addresses...)},
	}
	s := &relaying{}
	var opt upstream.Options
	around := Around{
		Connections: func() int64 { return s.open }, Current: func() *Snapshot { return s.snap }, Cut: make(chan struct{}),
		Shortage: func(err error) { s.met = append(s.met, err) },
	}
	if edit != nil {
		edit(cfg, &opt, &around)
	}
	metrics := telemetry.New()
	around.Mirrors = mirror.New(mirror.Options{}, upstream.Options{}, budget.New(0), slog.New(slog.DiscardHandler), metrics, func() {})
	access := telemetry.NewAccessLog(&s.log, telemetry.AccessLogOptions{})
	s.pipe = NewPipeline(Options{Metrics: metrics, AccessLog: access}, around)
	set := upstream.New(opt)
	s.end = sync.OnceFunc(func() {
		access.Close(context.Background())
		set.Close()
		around.Mirrors.Close(context.Background())
	})
	t.Cleanup(s.end)
	services, err := set.Apply(cfg)
	if err != nil {
		t.Fatal(err)
	}
	table, _ := routing.Compile(cfg, nil)
	s.snap = NewSnapshot(cfg, table, nil)
	s.pipe.Attach(cfg, s.snap, services)
	s.port = table.Ports()[0]
	return s
}

// connection is a connection from an address.
func (s *relaying) connection(from string) *Connection {
	c := &Connection{}
	c.Begin(s.pipe, socketFrom(from), 1)
	c.Peer.Port = "5432"
	return c
}

// logged ends the server and returns the lines of the access log.
func (s *relaying) logged(t *testing.T) (lines []map[string]any) {
	t.Helper()
	s.end()
	for d := json.NewDecoder(&s.log); d.More(); {
		var line map[string]any
		if err := d.Decode(&line); err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	return lines
}

// failures are what was counted, by reason; connections without a failure count as "".
func (s *relaying) failures() map[telemetry.Reason]uint64 {
	all := map[telemetry.Reason]uint64{}
	for _, x := range s.pipe.Metrics.Snapshot().Exchanges {
		var failed uint64
		for _, r := range x.Reasons {
			all[r.Reason] += r.Count
			failed += r.Count
		}
		for _, c := range x.Codes {
			all[""] += c.Count - failed
		}
	}
	return all
}

func TestAConnectionThatCannotBeServedSaysWhy(t *testing.T) {
	fault := &model.Fault{Status: 500, Reason: "BackendNotFound"}
	db := peertest.Raw(t, func(int, net.Conn) {})
	for name, c := range map[string]struct {
		edit      func(*model.Config, *upstream.Options, *Around)
		prepare   func(*relaying)
		addresses []string
		want      telemetry.Reason
	}{
		"no rule":           {edit: func(c *model.Config, _ *upstream.Options, _ *Around) { c.Routes = nil }, want: telemetry.NoRoute},
		"rule with a fault": {edit: func(c *model.Config, _ *upstream.Options, _ *Around) { c.Routes[0].Rules[0].Fault = fault }, want: telemetry.BackendNotFound},
		"no backend":        {edit: func(c *model.Config, _ *upstream.Options, _ *Around) { c.Routes[0].Rules[0].Backends = nil }, want: telemetry.NoBackend},
		"unknown service":   {edit: func(c *model.Config, _ *upstream.Options, _ *Around) { c.Services = nil }, want: telemetry.BackendNotFound},
		"no endpoint":       {want: telemetry.NoEndpoint},
		"refusing endpoint": {addresses: []string{peertest.Refusing(t)}, want: telemetry.ConnectFailed},
		"forbidden endpoint": {edit: func(_ *model.Config, o *upstream.Options, _ *Around) {
			o.Refuse = func(netip.AddrPort) string { return "is ours" }
		}, addresses: []string{db}, want: telemetry.AddressRefused},
		"busy service": {
			edit: func(c *model.Config, _ *upstream.Options, _ *Around) {
				c.Services[0].Limits = &model.Limits{Requests: 1}
			},
			prepare: func(s *relaying) { s.snap.Upstream[0].Begin() }, addresses: []string{db}, want: telemetry.BackendOverload,
		},
		"port that speaks HTTP now": {edit: func(c *model.Config, _ *upstream.Options, _ *Around) { c.Listeners[0].Protocol = model.HTTP }, want: telemetry.Draining},
	} {
		t.Run(name, func(t *testing.T) {
			s := relayTo(t, c.edit, c.addresses...)
			if c.prepare != nil {
				c.prepare(s)
			}
			conn := s.connection("198.51.100.7:1234")
			if up := conn.Connect(s.snap, s.port); up != nil || !conn.Aborted() {
				t.Errorf("got %v, aborted: %t; want an aborted connection without an endpoint", up, conn.Aborted())
			}
			if conn.Abort(&Failure{Reason: telemetry.Internal}) {
				t.Error("it could be aborted once more")
			}
			conn.Finish()
			if got := s.failures(); got[c.want] != 1 || len(got) > 2 || got[""] != 0 {
				t.Errorf("counted %v, want %s once", got, c.want)
			}
			lines := s.logged(t)
			if len(lines) != 1 || lines[0]["reason"] != string(c.want) || lines[0]["protocol"] != "TCP" || lines[0]["client"] != "198.51.100.7:1234" {
				t.Errorf("logged %v", lines)
			}
		})
	}
}

func TestAConnectionThatAnEndpointRefusesGoesToAnother(t *testing.T) {
	db := peertest.Raw(t, func(_ int, c net.Conn) { c.Read(make([]byte, 1)) })
	s := relayTo(t, nil, peertest.Refusing(t), db)
	second := false
	for range 30 {
		c := s.connection("198.51.100.7:1234")
		up := c.Connect(s.snap, s.port)
		if up == nil {
			t.Fatal("no endpoint")
		}
		if n := s.snap.Upstream[0].Endpoints()[1].InFlight(); n != 1 {
			t.Errorf("%d connections are in flight, want 1", n)
		}
		c.In, c.Out = 3, 5
		c.Finish()
		second = second || c.record.Attempts == 2
	}
	if !second {
		t.Error("the endpoint that refuses was never tried")
	}
	if n := s.snap.Upstream[0].Endpoints()[1].InFlight(); n != 0 {
		t.Errorf("%d connections are in flight at the end", n)
	}
	if got := s.failures(); got[""] != 30 || len(got) != 1 {
		t.Errorf("counted %v, want 30 without a failure", got)
	}
	for _, line := range s.logged(t) {
		if line["endpoint"] != db || line["backend"] != relayedTo || line["route"] != "default/route" || line["bytes_in"] != 3.0 || line["bytes_out"] != 5.0 {
			t.Fatalf("logged %v", line)
		}
	}
}

func TestAClientHasItsShareOfRelayedConnections(t *testing.T) {
	db := peertest.Raw(t, func(_ int, c net.Conn) { c.Read(make([]byte, 1)) })
	const most = 16
	s := relayTo(t, func(_ *model.Config, _ *upstream.Options, a *Around) { a.MaxConnections = most }, db)
	var all []*Connection
	connect := func(from string, h *clientaddr.Header) bool {
		s.open++
		c := s.connection(from)
		if h != nil {
			c.Announce(*h)
		}
		all = append(all, c)
		return c.Connect(s.snap, s.port) != nil
	}
	one := 0
	for range most {
		if connect("198.51.100.7:1234", nil) {
			one++
		}
	}
	if one != most/4*3 {
		t.Errorf("one client got %d of %d connections, want %d", one, most, most/4*3)
	}
	if !connect("198.51.100.8:1234", nil) {
		t.Error("another client got none")
	}
	// Behind a proxy, the client counts that the proxy names.
	named := &clientaddr.Header{Pair: clientaddr.Pair{
		Source: netip.MustParseAddrPort("[2001:db8::9]:99"), Destination: netip.MustParseAddrPort("[2001:db8::1]:5432"),
	}}
	if !connect("198.51.100.7:1234", named) {
		t.Error("a client behind a proxy was taken for the proxy")
	}
	if p := &all[len(all)-1].Peer; p.IP != "2001:db8::9" || p.Address.String() != p.IP || p.Port != "5432" || p.Name() != "[2001:db8::9]:99" || p.Addresses() != named.Pair {
		t.Errorf("the peer is %s, %s, port %s, %s", p.IP, p.Address, p.Port, p.Name())
	}
	if n := s.pipe.relaying.count(); n != 3 {
		t.Errorf("%d clients are counted, want 3", n)
	}
	for _, c := range all {
		c.Finish()
	}
	if n := s.pipe.relaying.count(); n != 0 {
		t.Errorf("%d clients are still counted", n)
	}
	if got := s.failures(); got[telemetry.ClientOverload] != most/4 {
		t.Errorf("counted %v, want %d failures", got, most/4)
	}
}

// A connection that ends while its endpoint is dialled takes no endpoint, and its first reason counts.
func TestAConnectionCanBeAbortedWhileItIsDialled(t *testing.T) {
	ended := make(chan struct{})
	db := peertest.Raw(t, func(_ int, c net.Conn) {
		c.Read(make([]byte, 1)) // until the proxy closes it
		close(ended)
	})
	var c *Connection
	s := relayTo(t, func(_ *model.Config, o *upstream.Options, _ *Around) {
		o.Refuse = func(netip.AddrPort) string {
			if !c.Abort(&Failure{Reason: telemetry.Draining}) {
				t.Error("it was aborted before")
			}
			return ""
		}
	}, db)
	c = s.connection("198.51.100.7:1234")
	if up := c.Connect(s.snap, s.port); up != nil {
		t.Error("it has an endpoint")
	}
	c.Finish()
	<-ended
	if got := s.failures(); got[telemetry.Draining] != 1 || got[""] != 0 {
		t.Errorf("counted %v", got)
	}
	if n := s.snap.Upstream[0].Endpoints()[0].InFlight(); n != 0 {
		t.Errorf("%d connections are in flight", n)
	}
}

func TestAddressesAreTakenFromTheirText(t *testing.T) {
	for name, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "[2001:db8::1]:80": "2001:db8::1", "[fe80::1%eth0]:80": "fe80::1",
	} {
		var p Peer
		p.meet(socketFrom(name), socketFrom(name).RemoteAddr().String())
		var q Peer
		q.Come(socketFrom(name), "", "")
		if p.IP != want || q.IP != want || p.Address != q.Address {
			t.Errorf("%s is %s and %s, want %s", name, p.IP, q.IP, want)
		}
	}
}
