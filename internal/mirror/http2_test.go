package mirror

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
)

func TestMirrorOverHTTP2CarriesTheRequestUnchanged(t *testing.T) {
	handler, got := arrivals(1)
	f := newFixture(t, Options{MaxCopyBytes: 8 << 20}, peertest.ToHTTP2(peertest.H2CBackend(t, handler)))
	piece := strings.Repeat("0123456789", 9000)
	f.copy(post("//a%2Fb?x=%zz", chunkedBody, http1.Field{Name: "Trailer", Value: "X-Sum"}, http1.Field{Name: "X-A", Value: "1"}, http1.Field{Name: "x-a", Value: "2"}),
		[]http1.Field{{Name: "X-Sum", Value: "42"}, {Name: "X-Undeclared", Value: "1"}}, slicesRepeat(piece, 20)...)
	f.wait(t, 1)
	a := <-got
	if a.err != nil || a.body != strings.Repeat(piece, 20) || a.trailer.Get("X-Sum") != "42" || len(a.trailer) != 1 {
		t.Errorf("%d bytes, trailers %v, %v", len(a.body), a.trailer, a.err)
	}
	r := a.req
	if r.ProtoMajor != 2 || r.Method != "POST" || r.RequestURI != "//a%2Fb?x=%zz" || r.Host != "shop.example" || strings.Join(r.Header["X-A"], ",") != "1,2" ||
		r.Header.Get("Weir-Mirrored") != "1" || r.Header.Get("User-Agent") != "" || r.ContentLength != -1 {
		t.Errorf("%s %s %s of %s, %v, %d", r.Proto, r.Method, r.RequestURI, r.Host, r.Header, r.ContentLength)
	}
	f.copy(post("/", lengthBody(4)), nil, "body")
	f.wait(t, 1)
	if a := <-got; a.body != "body" || a.req.ContentLength != 4 {
		t.Errorf("%q, %d", a.body, a.req.ContentLength)
	}
	f.copy(get("/"), nil)
	f.wait(t, 1)
	if a := <-got; a.body != "" || a.req.Method != "GET" {
		t.Errorf("%q, %s", a.body, a.req.Method)
	}
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 3})
}

func TestGRPCIsMirroredOverHTTP2MessageByMessage(t *testing.T) {
	first := make(chan string)
	addr := peertest.H2CBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Te") != "trailers" || r.ProtoMajor != 2 {
			t.Errorf("%s, TE %q", r.Proto, r.Header.Get("Te"))
		}
		b := make([]byte, 5)
		io.ReadFull(r.Body, b)
		first <- string(b)
		io.Copy(w, r.Body)
		w.Header().Set(http.TrailerPrefix+"GRPC-Status", "0")
	})
	f := newFixture(t, Options{}, peertest.ToMirror(addr)) // the service speaks HTTP/1.1
	l, _ := f.Begin(f.target, post("/shop.Cart/Watch", chunkedBody, http1.Field{Name: "Content-Type", Value: "application/grpc+proto"}, http1.Field{Name: "TE", Value: "trailers"}), 0)
	l.Write([]byte("hello"))
	if got := <-first; got != "hello" { // before the second message
		t.Errorf("got %q", got)
	}
	l.Write([]byte("world"))
	l.End(nil)
	l.Outcome()
	f.wait(t, 1)
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 1})
}

func TestFailuresOfAServiceOverHTTP2AreCountedByKind(t *testing.T) {
	handler := func(h http.HandlerFunc) func(testing.TB) string {
		return func(t testing.TB) string { return peertest.H2CBackend(t, h) }
	}
	for _, c := range []struct {
		name    string
		service func(testing.TB) string
		want    telemetry.MirrorOutcome
	}{
		{"refuses", peertest.Refusing, telemetry.MirrorFailedConnect},
		{"never answers", handler(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }), telemetry.MirrorFailedTimeout},
		{"answers without end", handler(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(200)
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}), telemetry.MirrorSent},
		{"resets the stream", handler(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), telemetry.MirrorFailedReset},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, Options{Timeout: 200 * time.Millisecond, BreakAfter: -1}, peertest.ToHTTP2(c.service(t)))
			f.copy(get("/"), nil)
			f.wait(t, 1)
			f.copy(post("/", chunkedBody), nil, "body")
			f.wait(t, 1)
			f.expect(t, map[telemetry.MirrorOutcome]uint64{c.want: 2})
		})
	}
}

func TestServiceThatSpeaksNoHTTP2FailsTheCopy(t *testing.T) {
	f := newFixture(t, Options{}, peertest.ToHTTP2(peertest.Raw(t, func(_ int, c net.Conn) {
		io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n")
		io.Copy(io.Discard, c)
	})))
	f.copy(get("/"), nil)
	f.wait(t, 1)
	if n := f.metric.Snapshot().Failed; n != 1 {
		t.Errorf("%d failed", n)
	}
	f.expectIdle(t)
}

func TestServiceThatNeverReadsOverHTTP2CostsBoundedMemory(t *testing.T) {
	f := newFixture(t, Options{MaxCopyBytes: 64 << 10}, peertest.ToHTTP2(peertest.H2CBackend(t, func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })))
	l, _ := f.Begin(f.target, post("/", chunkedBody), 0)
	piece := make([]byte, 8<<10)
	for i := 0; l.fate.Load() == uint32(telemetry.MirrorPending); i++ {
		if l.Write(piece); i > 100000 {
			t.Fatal("the copy grows without end")
		}
	}
	l.Abort()
	if o := l.Outcome(); o != telemetry.MirrorDroppedBody {
		t.Errorf("%v", o)
	}
	f.wait(t, 1)
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorDroppedBody: 1})
}

func TestTimesOfACopyOverHTTP2(t *testing.T) {
	addr := peertest.H2CBackend(t, func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	f := newFixture(t, Options{MaxDuration: 200 * time.Millisecond}, peertest.ToHTTP2(addr))
	// The primary streams for too long.
	l, _ := f.Begin(f.target, post("/", chunkedBody), 0)
	l.Write([]byte("x"))
	f.wait(t, 1)
	l.End(nil)
	l.Outcome()
	// It is broken off.
	l, _ = f.Begin(f.target, post("/", chunkedBody), 0)
	l.Write([]byte("x"))
	l.Abort()
	l.Outcome()
	f.wait(t, 1)
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorDroppedTime: 1, telemetry.MirrorDroppedAborted: 1})
}

func TestClosingGivesUpCopiesOverHTTP2(t *testing.T) {
	entered := make(chan struct{}, 2)
	f := newFixture(t, Options{}, peertest.ToHTTP2(peertest.H2CBackend(t, func(_ http.ResponseWriter, r *http.Request) {
		entered <- struct{}{}
		<-r.Context().Done()
	})))
	f.copy(get("/"), nil)
	l, _ := f.Begin(f.target, post("/", chunkedBody), 0)
	l.Write([]byte("x"))
	<-entered
	<-entered
	ctx, cancel := contextCancelled()
	defer cancel()
	f.Close(ctx)
	l.Abort()
	l.Outcome()
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorDroppedDraining: 2})
}

func TestGRPCIsMirroredOverTLS(t *testing.T) {
	to, got := toMirrorOverTLS(t, true)
	f := newFixture(t, Options{}, to)
	f.copy(post("/x/Y", chunkedBody, http1.Field{Name: "content-type", Value: "application/grpc"}), nil, "body")
	f.wait(t, 1)
	if r := <-got; r.body != "body" || r.req.ProtoMajor != 2 || r.req.TLS == nil {
		t.Errorf("%q, %s", r.body, r.req.Proto)
	}
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 1})
}
