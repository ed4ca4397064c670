package mirror

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
)

// headsOf records each request's head on each connection, and answers it.
func headsOf(t *testing.T) (addr string, heads chan string) {
	heads = make(chan string, 10)
	return peertest.Raw(t, func(_ int, c net.Conn) {
		r := bufio.NewReader(c)
		for {
			var head strings.Builder
			for {
				line, err := r.ReadString('\n')
				if err != nil {
					return
				}
				if head.WriteString(line); line == "\r\n" {
					break
				}
			}
			heads <- head.String()
			c.Write([]byte(peertest.OK))
		}
	}), heads
}

func TestMirroredHeadIsThatOfThePrimaryAndMarked(t *testing.T) {
	for _, c := range []struct {
		name string
		opt  Options
		head *Head
		want string
	}{
		{"fields", Options{}, get("/a%2Fb//c?q=1&q=%zz", http1.Field{Name: "X-A", Value: "1"},
			http1.Field{Name: "x-a", Value: "2"}, http1.Field{Name: "X-Forwarded-For", Value: "203.0.113.9"}, http1.Field{Name: "Cookie", Value: "a=b"}),
			"GET /a%2Fb//c?q=1&q=%zz HTTP/1.1\r\nHost: shop.example\r\nX-A: 1\r\nx-a: 2\r\nX-Forwarded-For: 203.0.113.9\r\nCookie: a=b\r\nWeir-Mirrored: 1\r\n\r\n"},
		{"a mark from a filter", Options{}, get("/", http1.Field{Name: "weir-mirrored", Value: "no"}),
			"GET / HTTP/1.1\r\nHost: shop.example\r\nWeir-Mirrored: 1\r\n\r\n"},
		{"a mark of another name", Options{Header: "X-Shadow"}, get("/", http1.Field{Name: "x-shadow", Value: "0"}),
			"GET / HTTP/1.1\r\nHost: shop.example\r\nX-Shadow: 1\r\n\r\n"},
		{"no mark", Options{Unmarked: true}, get("/"), "GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			addr, heads := headsOf(t)
			f := newFixture(t, c.opt, peertest.ToMirror(addr))
			f.copy(c.head, nil)
			f.wait(t, 1)
			if got := <-heads; got != c.want {
				t.Errorf("got  %q\nwant %q", got, c.want)
			}
			f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 1})
		})
	}
}

// arrival is a request as the service of a mirror received it.
type arrival struct {
	req     *http.Request
	body    string
	trailer http.Header
	err     error
}

// arrivals returns a handler that answers requests after it has read them.
func arrivals(size int) (http.HandlerFunc, chan arrival) {
	ch := make(chan arrival, size)
	return func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		ch <- arrival{r, string(b), r.Trailer, err}
	}, ch
}

func TestStreamedBodyArrivesUnchangedWithTrailers(t *testing.T) {
	handler, got := arrivals(1)
	f := newFixture(t, Options{MaxCopyBytes: 8 << 20}, peertest.ToMirror(peertest.Backend(t, handler)))
	var whole bytes.Buffer
	l, _ := f.Begin(f.target, post("/up", chunkedBody, http1.Field{Name: "Trailer", Value: "X-Sum"}, http1.Field{Name: "Transfer-Encoding", Value: "chunked"}), 0)
	for i := range 300 {
		p := bytes.Repeat([]byte{byte('a' + i%26)}, i*i%9001)
		whole.Write(p)
		l.Write(p)
		clear(p) // the leg must not keep a reference to it
	}
	l.End([]http1.Field{{Name: "X-Sum", Value: "42"}})
	l.Outcome()
	f.wait(t, 1)
	a := <-got
	if a.err != nil || a.body != whole.String() || a.trailer.Get("X-Sum") != "42" || a.req.ContentLength != -1 {
		t.Errorf("%d bytes of %d, length %d, trailers %v, %v", len(a.body), whole.Len(), a.req.ContentLength, a.trailer, a.err)
	}
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 1})
}

func TestStreamedBodyOfKnownLengthArrivesUnchanged(t *testing.T) {
	handler, got := arrivals(1)
	f := newFixture(t, Options{MaxCopyBytes: 8 << 20}, peertest.ToMirror(peertest.Backend(t, handler)))
	piece := strings.Repeat("0123456789", 5000)
	f.copy(post("/", lengthBody(20*len(piece)), http1.Field{Name: "Content-Length", Value: "1"}), nil, slicesRepeat(piece, 20)...)
	f.wait(t, 1)
	if a := <-got; a.err != nil || a.body != strings.Repeat(piece, 20) || a.req.ContentLength != int64(20*len(piece)) || len(a.req.TransferEncoding) > 0 {
		t.Errorf("%d bytes, length %d, %v", len(a.body), a.req.ContentLength, a.err)
	}
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 1})
}

// TestStreamedCopiesUseConnectionsAgain relies on the race detector: the answer of a streamed copy is read while the
// copy is written.
func TestStreamedCopiesUseConnectionsAgain(t *testing.T) {
	handler, got := arrivals(2)
	f := newFixture(t, Options{}, peertest.ToMirror(peertest.Backend(t, handler)))
	for range 2 {
		l, _ := f.Begin(f.target, post("/up", chunkedBody, http1.Field{Name: "Transfer-Encoding", Value: "chunked"}), 0)
		l.Write([]byte("half "))
		for attached := false; !attached; time.Sleep(time.Millisecond) {
			l.mu.Lock()
			attached = l.call != nil
			l.mu.Unlock()
		}
		l.Write([]byte("whole"))
		l.End(nil)
		l.Outcome()
		f.wait(t, 1)
		if a := <-got; a.err != nil || a.body != "half whole" {
			t.Errorf("%q, %v", a.body, a.err)
		}
	}
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 2})
}

func slicesRepeat(s string, n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = s
	}
	return all
}

func TestWholeBodyGoesOutInOneWrite(t *testing.T) {
	sizes := make(chan int, 1)
	addr := peertest.Raw(t, func(_ int, c net.Conn) {
		b := make([]byte, 64<<10)
		n, _ := c.Read(b)
		sizes <- n
		c.Write([]byte(peertest.OK))
		c.Read(b)
	})
	f := newFixture(t, Options{}, peertest.ToMirror(addr))
	f.copy(post("/", lengthBody(5000)), nil, strings.Repeat("x", 2000), strings.Repeat("y", 3000))
	f.wait(t, 1)
	if n := <-sizes; n < 5000 {
		t.Errorf("the first read gave %d bytes", n)
	}
}

func TestMirrorOutlivesItsPrimary(t *testing.T) {
	handler, got := arrivals(1)
	release := make(chan struct{})
	f := newFixture(t, Options{}, peertest.ToMirror(peertest.Backend(t, func(w http.ResponseWriter, r *http.Request) {
		<-release
		handler(w, r)
	})))
	if o := f.copy(post("/", lengthBody(4)), nil, "body"); o != telemetry.MirrorPending {
		t.Errorf("%v at the primary's end", o)
	}
	close(release)
	f.wait(t, 1)
	if a := <-got; a.body != "body" {
		t.Errorf("got %q", a.body)
	}
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 1})
}

func TestConnectionIsUsedAgainIfTheAnswerAllows(t *testing.T) {
	for _, c := range []struct {
		name, method, answer string
		connections          int
	}{
		{"length", "GET", peertest.OK, 1},
		{"chunked with trailers", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nX: y\r\n\r\n", 1},
		{"interim answers", "GET", "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + peertest.OK, 1},
		{"a large answer", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + strings.Repeat("x", 100000), 1},
		{"a large head", "GET", "HTTP/1.1 204 No Content\r\nX: " + strings.Repeat("x", 20000) + "\r\n\r\n", 1},
		{"HEAD", "HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", 1},
		{"close", "GET", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", 3},
		{"an answer beyond the bound", "GET", "HTTP/1.1 200 OK\r\nContent-Length: 200000\r\n\r\n" + strings.Repeat("x", 200000), 3},
		{"chunks beyond the bound", "GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n30d40\r\n" + strings.Repeat("x", 200000) + "\r\n0\r\n\r\n", 3},
		{"more than an answer", "GET", peertest.OK + "more", 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			opened := make(chan struct{}, 10)
			addr := peertest.Raw(t, func(_ int, conn net.Conn) {
				opened <- struct{}{}
				peertest.Respond(conn, c.answer)
			})
			f := newFixture(t, Options{MaxAnswerBytes: 150000}, peertest.ToMirror(addr))
			for range 3 {
				head := get("/")
				head.Method = c.method
				f.copy(head, nil)
				f.wait(t, 1)
			}
			if n := len(opened); n != c.connections {
				t.Errorf("%d connections", n)
			}
			f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 3})
		})
	}
}

func TestAnswerUntilCloseIsReadToItsEnd(t *testing.T) {
	f := newFixture(t, Options{}, peertest.ToMirror(peertest.Raw(t, func(_ int, c net.Conn) {
		http.ReadRequest(bufio.NewReader(c))
		io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n"+strings.Repeat("x", 100000))
	})))
	f.copy(get("/"), nil)
	f.wait(t, 1)
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 1})
}

func TestServiceThatEchoesWhileItReadsIsNoDeadlock(t *testing.T) {
	f := newFixture(t, Options{MaxCopyBytes: 64 << 20, MaxBytes: 64 << 20, MaxAnswerBytes: 64 << 20}, peertest.ToMirror(peertest.Backend(t, func(w http.ResponseWriter, r *http.Request) {
		http.NewResponseController(w).EnableFullDuplex()
		io.Copy(w, r.Body)
	})))
	piece := strings.Repeat("x", 1<<20)
	f.copy(post("/", lengthBody(32<<20)), nil, slicesRepeat(piece, 32)...)
	f.wait(t, 1)
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 1})
}

func TestAbortedRequestIsNotMirrored(t *testing.T) {
	opened := make(chan error, 1)
	f := newFixture(t, Options{}, peertest.ToMirror(peertest.Raw(t, func(_ int, c net.Conn) {
		_, err := http.ReadRequest(bufio.NewReader(c))
		if err == nil {
			_, err = io.ReadAll(c)
		}
		opened <- err
	})))
	// Before anything was sent:
	l, _ := f.Begin(f.target, post("/", lengthBody(4)), 0)
	l.Abort()
	if o := l.Outcome(); o != telemetry.MirrorDroppedAborted {
		t.Errorf("%v", o)
	}
	f.wait(t, 1)
	if len(opened) > 0 {
		t.Error("something was sent")
	}
	// The copy is cut off while it is sent: the service must see that it is incomplete.
	l, _ = f.Begin(f.target, post("/", lengthBody(4)), 0)
	l.Write([]byte("bo"))
	l.Abort()
	l.Write([]byte("dy"))
	if o := l.Outcome(); o != telemetry.MirrorDroppedAborted {
		t.Errorf("%v", o)
	}
	f.wait(t, 1)
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorDroppedAborted: 2})
}

func TestMirrorWithoutEndpointIsDropped(t *testing.T) {
	f := newFixture(t, Options{}, peertest.ToMirror())
	if o := f.copy(get("/"), nil); o != telemetry.MirrorDroppedNoEndpoint {
		t.Errorf("%v", o)
	}
	f.configure(model.Service{Name: peertest.MirrorName, Protocol: model.HTTP, Fault: &model.Fault{Status: 500}, Endpoints: []model.Endpoint{{Address: "127.0.0.1:1"}}})
	if o := f.copy(get("/"), nil); o != telemetry.MirrorDroppedNoEndpoint {
		t.Errorf("%v", o)
	}
	f.configure(model.Service{Name: "another"})
	if o := f.copy(get("/"), nil); o != telemetry.MirrorDroppedNoEndpoint {
		t.Errorf("%v", o)
	}
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorDroppedNoEndpoint: 3})
}

func TestStateOfAMirrorSurvivesANewConfiguration(t *testing.T) {
	opened := make(chan struct{}, 10)
	addr := peertest.Raw(t, func(_ int, c net.Conn) {
		opened <- struct{}{}
		peertest.Respond(c, peertest.OK)
	})
	f := newFixture(t, Options{}, peertest.ToMirror(addr))
	before := f.target.service
	f.copy(get("/"), nil)
	f.wait(t, 1)
	f.configure(peertest.ToMirror(addr))
	f.copy(get("/"), nil)
	f.wait(t, 1)
	if f.target.service != before || len(opened) != 1 {
		t.Errorf("%d connections", len(opened))
	}
	// A filter of an older configuration whose service is gone copies no more.
	old := f.target
	f.Apply(&model.Config{}, nil)
	f.target = old
	if o := f.copy(get("/"), nil); o != telemetry.MirrorDroppedDraining {
		t.Errorf("%v", o)
	}
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 2, telemetry.MirrorDroppedDraining: 1})
}

func TestFiltersOfOneServiceShareItsBounds(t *testing.T) {
	f := newFixture(t, Options{}, peertest.ToMirror("127.0.0.1:1"))
	targets := f.Apply(&model.Config{Services: []model.Service{peertest.ToMirror("127.0.0.1:1")}}, []Spec{{Key: Key{Name: peertest.MirrorName}, Metric: f.metric}, {Key: Key{Name: "other"}, Metric: f.metric}, {Key: Key{Name: peertest.MirrorName}, Metric: f.metric}})
	if targets[0].service != targets[2].service || targets[0].service == targets[1].service {
		t.Error("services are not told apart by name")
	}
}

func TestClosingLetsCopiesEnd(t *testing.T) {
	handler, got := arrivals(1)
	entered, release := make(chan struct{}), make(chan struct{})
	f := newFixture(t, Options{}, peertest.ToMirror(peertest.Backend(t, func(w http.ResponseWriter, r *http.Request) {
		close(entered)
		<-release
		handler(w, r)
	})))
	f.copy(get("/"), nil)
	<-entered
	closed := make(chan struct{})
	go func() {
		f.Close(context.Background())
		close(closed)
	}()
	close(release)
	<-closed
	<-got
	if o := f.copy(get("/"), nil); !o.Dropped() {
		t.Errorf("%v after close", o)
	}
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 1, telemetry.MirrorDroppedDraining: 1})
}

func TestClosingGivesCopiesUpInTheEnd(t *testing.T) {
	entered := make(chan struct{}, 2)
	f := newFixture(t, Options{}, peertest.ToMirror(peertest.Raw(t, func(_ int, c net.Conn) {
		http.ReadRequest(bufio.NewReader(c))
		entered <- struct{}{}
		io.Copy(io.Discard, c)
	})))
	f.copy(get("/"), nil)
	l, _ := f.Begin(f.target, post("/", lengthBody(4)), 0)
	l.Write([]byte("bo"))
	<-entered
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f.Close(ctx)
	l.End(nil)
	l.Outcome()
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorDroppedDraining: 2})
}

// toMirrorOverTLS returns a service at mirror.example, and a channel of what arrives there.
func toMirrorOverTLS(t *testing.T, http2 bool) (model.Service, <-chan arrival) {
	t.Helper()
	handler, got := arrivals(1)
	return peertest.ToTLS(t, http2, handler), got
}

func TestMirrorOverTLS(t *testing.T) {
	to, got := toMirrorOverTLS(t, false)
	f := newFixture(t, Options{}, to)
	f.copy(post("/x", lengthBody(4)), nil, "body")
	f.wait(t, 1)
	if r := <-got; r.body != "body" || r.req.TLS == nil || r.req.TLS.ServerName != "mirror.example" {
		t.Errorf("got %q, %+v", r.body, r.req.TLS)
	}
	to.TLS = &model.ServiceTLS{Hostname: "other.example", CAs: to.TLS.CAs}
	f.configure(to)
	f.copy(get("/"), nil)
	f.wait(t, 1)
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 1, telemetry.MirrorFailedConnect: 1})
}

func TestMirrorStateIsShownToTheMetrics(t *testing.T) {
	entered := make(chan struct{})
	f := newFixture(t, Options{}, peertest.ToMirror(peertest.Raw(t, func(_ int, c net.Conn) {
		http.ReadRequest(bufio.NewReader(c))
		close(entered)
		io.Copy(io.Discard, c)
	})))
	l, _ := f.Begin(f.target, get("/"), 0)
	var got []telemetry.MirrorState
	f.States(func(s telemetry.MirrorState) { got = append(got, s) })
	if len(got) != 1 || got[0].Service != peertest.MirrorName || got[0].InFlight != 1 || got[0].QueuedBytes == 0 || got[0].BreakerOpen {
		t.Errorf("%+v", got)
	}
	l.End(nil)
	l.Outcome()
	<-entered
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	f.Close(ctx)
	f.expectIdle(t)
}

func TestIdleWorkersEnd(t *testing.T) {
	f := newFixture(t, Options{}, peertest.ToMirror(peertest.Raw(t, func(_ int, c net.Conn) { peertest.Respond(c, peertest.OK) })))
	s := f.target.service
	parked := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.idle)
	}
	f.copy(get("/"), nil)
	f.wait(t, 1)
	for parked() == 0 { // the worker parks right after the copy's end
		time.Sleep(time.Millisecond)
	}
	s.retire(time.Now().Add(-time.Hour))
	if parked() != 1 {
		t.Error("a worker ended too early")
	}
	s.retire(time.Now().Add(time.Hour))
	f.workers.Wait()
	if parked() != 0 {
		t.Error("a worker is left")
	}
	f.copy(get("/"), nil)
	f.wait(t, 1)
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 2})
}

func TestManyMirrorsAtOnceKeepTheirAccounts(t *testing.T) {
	// This combines a service that misbehaves in every way, bounds that are always reached, and primaries that end in
	// every way.
	f := newFixture(t, Options{MaxInFlight: 8, MaxBytes: 64 << 10, MaxCopyBytes: 16 << 10, Timeout: 200 * time.Millisecond, BreakAfter: -1},
		peertest.ToMirror(peertest.Raw(t, func(n int, c net.Conn) {
			switch n % 5 {
			case 0:
				return
			case 1:
				io.WriteString(c, "garbage\r\n\r\n")
			case 2:
				peertest.Respond(c, "")
			case 3:
				c.Read(make([]byte, 10))
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx")
			default:
				peertest.Respond(c, peertest.OK)
			}
		})))
	const primaries, each = 8, 200
	var wg sync.WaitGroup
	for p := range primaries {
		wg.Go(func() {
			piece := bytes.Repeat([]byte("x"), 3000)
			for i := range each {
				head := post("/", chunkedBody)
				if i%3 == 0 {
					head = post("/", lengthBody(6000))
				}
				l, _ := f.Begin(f.target, head, uint32(p))
				if l == nil {
					continue
				}
				l.Write(piece)
				l.Write(piece)
				if i%3 > 0 {
					for range i % 7 {
						l.Write(piece)
					}
				}
				if i%5 == 0 {
					l.Abort()
				} else {
					l.End(nil)
				}
				l.Outcome()
			}
		})
	}
	wg.Wait()
	f.Close(context.Background())
	f.expectIdle(t)
	var n uint64
	for _, o := range f.metric.Snapshot().Outcomes {
		n += o.Count
	}
	if n != primaries*each {
		t.Errorf("%d copies are counted, not %d", n, primaries*each)
	}
}
