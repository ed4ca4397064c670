package feed

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/test/size"
)

// from dials as an address of this machine.
func from(address string) *net.Dialer {
	return &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: patient}
}

// through passes connections on to an address, as if they came from another.
func through(t *testing.T, source, to string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				defer c.Close()
				d, err := from(source).Dial("tcp", to)
				if err != nil {
					return
				}
				defer d.Close()
				done := make(chan struct{})
				go func() { defer close(done); io.Copy(d, c); d.Close() }()
				io.Copy(c, d)
				c.Close()
				<-done
			})
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String()
}

// crowd is thousands of connections of one address, and another in the place of each that the other side closes.
type crowd struct {
	made, closed atomic.Int64
	stop         func()
}

// crowders share them, as a goroutine for each would be more than the race detector knows.
const crowders = 100

func crowdSize() int { return size.Of(2000, 10_000) }

// flood begins one. act is the behaviour of each accepted connection.
func flood(t *testing.T, source, to string, act func(net.Conn)) *crowd {
	c := &crowd{}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	for range crowders {
		all.Go(func() {
			conns := make([]net.Conn, crowdSize()/crowders)
			buffer := make([]byte, 4096)
			for ctx.Err() == nil {
				for i, conn := range conns {
					if conn == nil {
						conn, _ = from(source).DialContext(ctx, "tcp", to)
						if c.made.Add(1); conn == nil {
							c.closed.Add(1) // it was reset before this side knew of it
							continue
						}
						conns[i] = conn
						_ = conn.SetDeadline(time.Now().Add(100 * time.Millisecond))
						act(conn)
						continue
					}
					_ = conn.SetReadDeadline(time.Now().Add(time.Millisecond))
					if _, err := conn.Read(buffer); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
						conn.Close()
						conns[i] = nil
						c.closed.Add(1)
					}
				}
			}
			for _, conn := range conns {
				if conn != nil {
					conn.Close()
				}
			}
		})
	}
	c.stop = sync.OnceFunc(func() {
		cancel()
		all.Wait()
	})
	t.Cleanup(c.stop)
	return c
}

// TestCrowdOfOneAddressKeepsNoProxyOut opens 10,000 connections from one address, which are silent at once or after
// their handshake. A proxy from another address connects and is served, now and later.
func TestCrowdOfOneAddressKeepsNoProxyOut(t *testing.T) {
	for name, act := range map[string]func(net.Conn){
		"silent": func(net.Conn) {},
		"hands": func(c net.Conn) {
			_ = tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).Handshake()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.server()
			address, _ := w.serve(s, "")
			c := config(20, 20)
			publish(t, s, c)
			crowd := flood(t, "127.0.0.1", address, act)
			until(t, "the crowd is there", func() bool { return crowd.made.Load() >= int64(crowdSize()) })
			p := w.run(w.client("a", through(t, "127.0.0.2", address)))
			p.serves(c)
			c = moved(c, 3, "10.8.8.8:80")
			publish(t, s, c)
			p.serves(c)
			knows(t, s, "a", c)
			s.door.mu.Lock()
			strangers, known := s.door.strangers, s.door.known
			s.door.mu.Unlock()
			if strangers > strangersPerAddress+1 || known != 1 {
				t.Errorf("%d strangers, %d proxies", strangers, known)
			}
			// A connection is made once the system has taken it, which may be long before the server does.
			until(t, "most of the crowd are turned away", func() bool { return s.Stats().TurnedAway >= uint64(crowdSize()/2) })
			crowd.stop()
			t.Logf("%d connections, %d closed by the server", crowd.made.Load(), crowd.closed.Load())
		})
	}
}

// TestTokensOfOneAddressHoldNotAllPlaces has tokens of one address whose review never ends.
func TestTokensOfOneAddressHoldNotAllPlaces(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	s.Logger = slog.New(slog.DiscardHandler)
	var stuck atomic.Int32
	s.Authenticate = func(ctx context.Context, token string) (model.Owner, string, error) {
		if token == "stuck" {
			stuck.Add(1)
			<-ctx.Done()
			return "", "", ctx.Err()
		}
		return authenticate(ctx, token)
	}
	address, _ := w.serve(s, "")
	c := config(3, 3)
	publish(t, s, c)
	for i := range 3 * maxChecks / 2 {
		client := w.client("stuck", address)
		client.TokenFile = w.write("stuck.token", "stuck")
		conn, err := client.dial()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
		if err == nil {
			_ = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL})
		} else if i == 0 {
			t.Fatal(err)
		}
		t.Cleanup(func() { cancel(); conn.Close() })
	}
	until(t, "some are looked at", func() bool { return stuck.Load() >= checksPerAddress })
	w.run(w.client("a", through(t, "127.0.0.2", address))).serves(c)
	if n := len(s.checks); n > checksPerAddress {
		t.Errorf("%d places are taken", n)
	}
}

// TestOneProxyTakesOnePlace has a proxy, or who has taken it over, that comes again and again with a good token.
func TestOneProxyTakesOnePlace(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	s.Logger = slog.New(slog.DiscardHandler)
	address, _ := w.serve(s, "")
	publish(t, s, config(2, 2))
	for range size.Of(2*strangersPerAddress, 100) {
		stream, end := w.raw("a", address)
		t.Cleanup(end)
		if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL}); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "its earlier connections are closed", func() bool {
		s.door.mu.Lock()
		defer s.door.mu.Unlock()
		return s.door.known == 1 && s.door.strangers == 0
	})
}

// fake is a connection of an address that is closed once.
type fake struct {
	net.Conn
	from   net.Addr
	closed atomic.Int32
}

func (f *fake) RemoteAddr() net.Addr { return f.from }
func (f *fake) Close() error         { f.closed.Add(1); return nil }

func at(n int) net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 1))
}

func TestStrangersHaveLittleTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor()
		var let []*fake
		for range 2 * strangersPerAddress {
			f := &fake{from: at(1)}
			if d.admit(f) != nil {
				let = append(let, f)
			}
		}
		if len(let) != strangersPerAddress || d.admit(&fake{from: at(2)}) == nil {
			t.Fatalf("%d are let in of one address", len(let))
		}
		time.Sleep(strangerTime - time.Millisecond)
		synctest.Wait()
		for _, f := range let {
			if f.closed.Load() != 0 {
				t.Fatal("closed too early")
			}
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		for _, f := range let {
			if f.closed.Load() != 1 {
				t.Fatalf("closed %d times", f.closed.Load())
			}
		}
		if d.strangers != 0 {
			t.Errorf("%d strangers", d.strangers)
		}
	})
}

func TestStreamsThatAreRefusedKeepNoConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor()
		f := &fake{from: at(1)}
		v := d.admit(f)
		began := time.Now()
		for f.closed.Load() == 0 { // one stream after the other, each at the last moment
			v.arrived()
			time.Sleep(checkTime - time.Millisecond)
			v.refuse()
			time.Sleep(leaveTime - time.Millisecond)
			synctest.Wait()
			if time.Since(began) > time.Hour {
				t.Fatal("it stays")
			}
		}
		if took := time.Since(began); took > 3*checkTime {
			t.Errorf("closed after %s", took)
		}
		if v.prove() == nil {
			t.Error("proven when it was closed")
		}
	})
}

func TestArrivalsOfOneAddressArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDoor()
		try := func(n int) (let int) {
			for range n {
				if v := d.admit(&fake{from: at(1)}); v != nil {
					let++
					_ = v.Close()
				}
			}
			return let
		}
		if n := try(10_000); n != arrivals {
			t.Errorf("%d are let in at once", n)
		}
		time.Sleep(10 * time.Second)
		if n := try(10_000); n != 10*arrivalRate {
			t.Errorf("%d are let in within 10 s after that", n)
		}
		time.Sleep(time.Hour)
		if n := try(10_000); n != arrivals {
			t.Errorf("%d are let in after an hour", n)
		}
		if d.admit(&fake{from: at(2)}) == nil {
			t.Error("another address is not let in")
		}
	})
}

// TestFullHouseMakesRoomForOthers fills all places with strangers from many addresses: the address with the fewest
// connections gets in.
func TestFullHouseMakesRoomForOthers(t *testing.T) {
	d := newDoor()
	for i := range maxStrangers / strangersPerAddress {
		for range strangersPerAddress {
			if d.admit(&fake{from: at(i)}) == nil {
				t.Fatal("there is room")
			}
		}
	}
	if d.admit(&fake{from: at(1)}) != nil {
		t.Error("one that has as many as anybody is let in")
	}
	for i := range 500 {
		if d.admit(&fake{from: at(1000 + i)}) == nil {
			t.Fatalf("newcomer %d is not let in", i)
		}
	}
	if d.strangers != maxStrangers {
		t.Errorf("%d strangers", d.strangers)
	}
}

// TestDoorKeepsItsBooks does things in random order, and adds up after each.
func TestDoorKeepsItsBooks(t *testing.T) {
	d := newDoor()
	random := rand.New(rand.NewPCG(1, 2))
	var all []*visitor
	streams := map[*visitor]int{}
	for step := range 9_000 {
		switch {
		case random.IntN(3) == 0 || len(all) == 0:
			if v := d.admit(&fake{from: at(random.IntN(1 + step/2))}); v != nil {
				all = append(all, v)
			}
		default:
			v := all[random.IntN(len(all))]
			switch random.IntN(6) {
			case 0:
				v.arrived()
			case 1:
				if v.prove() == nil {
					streams[v]++
				}
			case 2:
				v.refuse()
			case 3:
				if streams[v] > 0 {
					streams[v]--
					v.ended()
				}
			case 4:
				_ = v.Close()
			case 5:
				_ = v.Close()
				_ = v.Close()
			}
		}
		if step%100 != 0 {
			continue
		}
		d.mu.Lock()
		strangers, known, listed := 0, 0, 0
		for _, v := range all {
			switch v.state {
			case stranger:
				strangers++
			case proven:
				known++
			case gone:
			}
		}
		for _, a := range d.addresses {
			if listed += len(a.strangers); len(a.strangers) > strangersPerAddress {
				t.Fatalf("%d strangers of one address", len(a.strangers))
			}
		}
		if strangers != d.strangers || listed != strangers || known != d.known || strangers > maxStrangers || len(d.addresses) > maxAddresses+1 {
			t.Fatalf("step %d: %d strangers, counted %d, listed %d; %d proxies, counted %d; %d addresses", step, strangers, d.strangers, listed, known, d.known, len(d.addresses))
		}
		d.mu.Unlock()
	}
	for _, v := range all {
		_ = v.Close()
	}
	if d.strangers != 0 || d.known != 0 {
		t.Errorf("%d strangers and %d proxies are left", d.strangers, d.known)
	}
}

// TestHandshakesComputeAFewAtATime holds what a crowd of handshakes takes of the processors.
func TestHandshakesComputeAFewAtATime(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	own := s.Certificate
	var now, most atomic.Int32
	s.Certificate = func() (*tls.Certificate, error) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		for range 100 {
			runtime.Gosched() // others may come
		}
		return own()
	}
	address, _ := w.serve(s, "")
	var wait sync.WaitGroup
	var done atomic.Int32
	for i := range 8 * strangersPerAddress {
		wait.Go(func() {
			c, err := from("127.0.0."+[]string{"1", "2", "3", "4", "5", "6", "7", "8"}[i%8]).Dial("tcp", address)
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			if err := tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).Handshake(); err != nil && !strings.Contains(err.Error(), "reset") {
				t.Error(err)
			} else if err == nil {
				done.Add(1)
			}
		})
	}
	wait.Wait()
	if limit := int32(runtime.GOMAXPROCS(0)); most.Load() > limit {
		t.Errorf("%d handshakes computed at once, %d are to", most.Load(), limit)
	}
	if done.Load() == 0 {
		t.Error("no handshake was made")
	}
}
