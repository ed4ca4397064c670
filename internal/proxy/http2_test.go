package proxy

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
)

// h2cClient speaks HTTP/2 with prior knowledge.
func h2cClient(t testing.TB) *http.Client {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	tr := &http.Transport{Protocols: p, DisableCompression: true}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// h2cBackend serves h over cleartext HTTP/2 with prior knowledge, and over HTTP/1.1.
func h2cBackend(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Config.Protocols.SetHTTP1(true)
	s.Start()
	t.Cleanup(s.Close)
	return s.Listener.Addr().String()
}

// describe answers with the request that arrived, and with trailers.
func describe(w http.ResponseWriter, r *http.Request) {
	b, _ := io.ReadAll(r.Body)
	w.Header().Set("Trailer", "X-Sum")
	w.Header().Set("X-Proto", r.Proto)
	fmt.Fprintf(w, "%s %s %s %d %s %s", r.Method, r.Host, r.RequestURI, len(b), r.Header.Get("X-Forwarded-For"), r.Trailer.Get("X-In"))
	w.Header().Set("X-Sum", "42")
}

func TestHTTP2IsServedWithPriorKnowledge(t *testing.T) {
	for _, protocol := range []model.Protocol{model.HTTP, model.H2C} {
		t.Run(string(protocol), func(t *testing.T) {
			addr := h2cBackend(t, describe)
			s := serve(t, config([]model.Service{service(serviceName, protocol, addr)}, ruleTo(serviceName)))
			c := h2cClient(t)
			for _, size := range []int{0, 1, 5000, 300000} {
				for _, known := range []bool{true, false} {
					var r io.Reader = bytes.NewReader(body(size))
					if !known {
						r = io.MultiReader(r)
					}
					req, _ := http.NewRequest("POST", "http://"+s.addr()+"/a//%7e?x=%20&", r)
					req.Host = "shop.example"
					req.Header["Cookie"] = []string{"a=1", "b=2"}
					if !known {
						req.Trailer = http.Header{"X-In": {"7"}}
					}
					resp, err := c.Do(req)
					if err != nil {
						t.Fatal(err)
					}
					got, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err != nil {
						t.Fatal(err)
					}
					want := fmt.Sprintf("POST shop.example /a//%%7e?x=%%20& %d 127.0.0.1 ", size)
					if !known {
						want += "7"
					}
					if string(got) != want || resp.ProtoMajor != 2 {
						t.Errorf("%s: %q, want %q", resp.Proto, got, want)
					}
					if resp.Trailer.Get("X-Sum") != "42" {
						t.Errorf("trailers %v", resp.Trailer)
					}
					if want := map[model.Protocol]string{model.HTTP: "HTTP/1.1", model.H2C: "HTTP/2.0"}[protocol]; resp.Header.Get("X-Proto") != want {
						t.Errorf("the backend was spoken to in %s", resp.Header.Get("X-Proto"))
					}
				}
			}
		})
	}
}

func TestHTTP1ClientReachesH2CBackend(t *testing.T) {
	addr := h2cBackend(t, describe)
	s := serve(t, config([]model.Service{service(serviceName, model.H2C, addr)}, ruleTo(serviceName)))
	k := newTalk(t, s.addr())
	k.send("POST /1 HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTrailer: X-In\r\n\r\n3\r\nabc\r\n")
	k.send("0\r\nX-In: 9\r\n\r\n")
	resp, body := k.answer("POST")
	if body != "POST a /1 3 127.0.0.1 9" || resp.Header.Get("X-Proto") != "HTTP/2.0" || resp.Trailer.Get("X-Sum") != "42" {
		t.Errorf("%q, %v, %v", body, resp.Header, resp.Trailer)
	}
	k.send("POST /2 HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")
	if head, err := rawHead(k.r); head != "HTTP/1.1 100 Continue\r\n\r\n" || err != nil {
		t.Fatalf("%q, %v", head, err)
	}
	k.send("hello")
	if _, body = k.answer("POST"); body != "POST a /2 5 127.0.0.1 " {
		t.Errorf("%q", body)
	}
	k.send("HEAD /3 HTTP/1.1\r\nHost: a\r\n\r\nGET /4 HTTP/1.1\r\nHost: a\r\n\r\n")
	k.answer("HEAD")
	if _, body = k.answer("GET"); body != "GET a /4 0 127.0.0.1 " {
		t.Errorf("%q", body)
	}
	// The upload is large, and the connection survives.
	k.send("POST /5 HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + strings.Repeat("x", 1000000))
	if _, body = k.answer("POST"); body != "POST a /5 1000000 127.0.0.1 " {
		t.Errorf("%q", body)
	}
	k.send("GET /6 HTTP/1.1\r\nHost: a\r\n\r\n")
	k.answer("GET")
}

func TestHTTP2ByALPN(t *testing.T) {
	addr := backend(t, describe)
	cfg := plain(addr)
	pool := secure(t, cfg, "shop.example", "two.example")
	second := cfg.Listeners[0]
	second.Name, second.Hostname = "default/gw/two", "two.example"
	cfg.Listeners = append(cfg.Listeners, second)
	s := serve(t, cfg)
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool, ServerName: "shop.example"}}
	t.Cleanup(tr.CloseIdleConnections)
	for host, want := range map[string]int{"shop.example": 200, "two.example": 421} {
		req, _ := http.NewRequest("GET", "https://"+s.addr()+"/x", nil)
		req.Host = host
		resp, err := tr.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want || resp.ProtoMajor != 2 {
			t.Errorf("%s: %s %d, want %d", host, resp.Proto, resp.StatusCode, want)
		}
	}
}

func TestHTTP2AnswersInventNothing(t *testing.T) {
	addr, _ := wire(t, "HTTP/1.1 200 OK\r\nContent-Length: 15\r\nConnection: keep-alive\r\nKeep-Alive: 1\r\n\r\n<html>hi</html>")
	s := serve(t, plain(addr))
	resp, err := h2cClient(t).Get("http://" + s.addr() + "/")
	if err != nil {
		t.Fatal(err)
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	for name := range resp.Header {
		if name != "Content-Length" && name != "Via" {
			t.Errorf("field %s: %v", name, resp.Header[name])
		}
	}
}

// h2Frames is a raw HTTP/2 client.
type h2Frames struct {
	*http2.Framer
	c net.Conn
}

func newH2Frames(t testing.TB, addr string) *h2Frames {
	c := dial(t, addr)
	io.WriteString(c, http2.ClientPreface)
	f := http2.NewFramer(c, c)
	if err := f.WriteSettings(); err != nil {
		t.Fatal(err)
	}
	return &h2Frames{f, c}
}

// answered reads up to the head of an answer, and checks its status.
func (f *h2Frames) answered(t *testing.T, status string) {
	t.Helper()
	f.ReadMetaHeaders = decoder()
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := frame.(*http2.MetaHeadersFrame); ok {
			if got := h.PseudoValue("status"); got != status {
				t.Errorf("status %s, want %s", got, status)
			}
			return
		}
	}
}

func TestNothingIsInjectedFromHTTP2IntoHTTP1(t *testing.T) {
	addr, heads := wire(t, okResponse)
	s := serve(t, plain(addr))
	for _, block := range [][][2]string{
		{{":method", "GET"}, {":path", "/ HTTP/1.1\r\nX: y"}, {":scheme", "http"}, {":authority", "a"}},
		{{":method", "GET"}, {":path", "/a b"}, {":scheme", "http"}, {":authority", "a"}},
		{{":method", "GE T"}, {":path", "/"}, {":scheme", "http"}, {":authority", "a"}},
		{{":method", "GET"}, {":path", "/"}, {":scheme", "http"}, {":authority", "a b"}},
		{{":method", "GET"}, {":path", "/"}, {":scheme", "http"}, {":authority", "user@a"}},
		{{":method", "GET"}, {":path", "/"}, {":scheme", "http"}, {":authority", "a"}, {"x", "a\r\nb: c"}},
		{{":method", "GET"}, {":path", "/"}, {":scheme", "http"}, {":authority", "a"}, {"transfer-encoding", "chunked"}},
		{{":method", "GET"}, {":path", "/"}, {":scheme", "http"}, {":authority", "a"}, {"connection", "x"}},
		{{":method", "GET"}, {":path", "/"}, {":scheme", "http"}, {":authority", "a"}, {"host", "evil"}},
		{{":method", "CONNECT"}, {":authority", "a:80"}},
		{{":method", "GET"}, {":path", "*"}, {":scheme", "http"}, {":authority", "a"}},
	} {
		f := newH2Frames(t, s.addr())
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: encode(block), EndHeaders: true, EndStream: true}); err != nil {
			t.Fatal(err)
		}
		f.ReadMetaHeaders = decoder()
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				break // the connection was closed: refused
			}
			if h, ok := frame.(*http2.MetaHeadersFrame); ok {
				if code := h.PseudoValue("status"); code[0] != '4' {
					t.Errorf("%q: status %s", block, code)
				}
				break
			}
			if _, ok := frame.(*http2.RSTStreamFrame); ok {
				break
			}
		}
		f.c.Close()
	}
	if len(heads) > 0 {
		t.Errorf("the backend got %q", <-heads)
	}
}

func TestBackendThatBreaksOffResetsTheStream(t *testing.T) {
	for name, size := range map[string]int{"before anything was sent": 10, "later": 2 * exchange.Gather} {
		t.Run(name, func(t *testing.T) {
			chunk := fmt.Sprintf("%x\r\n%s\r\n", size, body(size))
			addr, _ := wire(t, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"+chunk+"broken")
			s := serve(t, plain(addr))
			resp, err := h2cClient(t).Get("http://" + s.addr() + "/")
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				resp.Body.Close()
			}
			if size < exchange.Gather {
				if err != nil || resp.StatusCode != 502 {
					t.Errorf("%v, %v; want a 502", resp, err)
				}
			} else if err == nil {
				t.Error("the client took the broken answer for whole")
			}
			if s.failures(telemetry.MalformedResponse) != 1 {
				t.Error("not counted")
			}
		})
	}
}

func TestStreamThatIsCancelledEndsTheExchange(t *testing.T) {
	for _, protocol := range []model.Protocol{model.HTTP, model.H2C} {
		t.Run(string(protocol), func(t *testing.T) {
			started, ended := make(chan struct{}), make(chan struct{})
			addr := h2cBackend(t, func(w http.ResponseWriter, r *http.Request) {
				close(started)
				<-r.Context().Done()
				close(ended)
			})
			s := serve(t, config([]model.Service{service(serviceName, protocol, addr)}, ruleTo(serviceName)))
			ctx, cancel := context.WithCancel(context.Background())
			req, _ := http.NewRequestWithContext(ctx, "GET", "http://"+s.addr()+"/", nil)
			done := make(chan error, 1)
			c := h2cClient(t)
			go func() {
				_, err := c.Do(req)
				done <- err
			}()
			<-started
			cancel()
			<-ended
			<-done
			if s.failures(telemetry.ClientClosed) != 1 {
				t.Error("not counted as the client's")
			}
		})
	}
}

func TestTimeoutsOverHTTP2(t *testing.T) {
	release := make(chan struct{})
	addr := h2cBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			w.(http.Flusher).Flush()
		}
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	t.Cleanup(func() { close(release) })
	cfg := config([]model.Service{service(serviceName, model.H2C, addr)}, ruleTo(serviceName))
	cfg.Routes[0].Rules[0].Timeouts.Request = model.Duration(100 * time.Millisecond)
	s := serve(t, cfg)
	c := h2cClient(t)
	resp, err := c.Get("http://" + s.addr() + "/head")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 504 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if resp, err = c.Get("http://" + s.addr() + "/body"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); err == nil {
		t.Error("the answer came to a good end")
	}
	resp.Body.Close()
	if n := s.failures(telemetry.RequestTimeout); n != 2 {
		t.Errorf("%d timeouts counted", n)
	}
}

// bytesCodec carries messages unchanged.
type bytesCodec struct{}

func (bytesCodec) Marshal(v any) ([]byte, error)   { return *v.(*[]byte), nil }
func (bytesCodec) Unmarshal(b []byte, v any) error { *v.(*[]byte) = bytes.Clone(b); return nil }
func (bytesCodec) Name() string                    { return "bytes" }

// echoService answers each message with the message and its number; "fail" ends the stream with an error.
var echoService = grpc.ServiceDesc{ServiceName: "test.Echo", HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
	StreamName: "Chat", ServerStreams: true, ClientStreams: true,
	Handler: func(_ any, st grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(st.Context())
		st.SetHeader(metadata.Pairs("x-head", strings.Join(md["x-in"], ",")))
		st.SetTrailer(metadata.Pairs("x-tail", "end"))
		for n := 1; ; n++ {
			var m []byte
			if err := st.RecvMsg(&m); err == io.EOF {
				return nil
			} else if err != nil {
				return err
			}
			if string(m) == "fail" {
				return status.Error(codes.ResourceExhausted, "too much: 100%")
			}
			m = fmt.Appendf(m, " %d", n)
			if err := st.SendMsg(&m); err != nil {
				return err
			}
		}
	},
}}}

func grpcBackend(t testing.TB) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := grpc.NewServer(grpc.ForceServerCodec(bytesCodec{}))
	s.RegisterService(&echoService, nil)
	done := make(chan error, 1)
	go func() { done <- s.Serve(ln) }()
	t.Cleanup(func() {
		s.Stop()
		<-done
	})
	return ln.Addr().String()
}

func grpcClient(t testing.TB, addr string) *grpc.ClientConn {
	c, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodec(bytesCodec{})))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func chat(t testing.TB, c *grpc.ClientConn) grpc.ClientStream {
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "x-in", "value"), patience)
	t.Cleanup(cancel)
	st, err := c.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/test.Echo/Chat")
	if err != nil {
		t.Fatal(err)
	}
	return st
}

func TestGRPCStreamsBothWays(t *testing.T) {
	addr := grpcBackend(t)
	for _, protocol := range []model.Protocol{model.HTTP, model.H2C} {
		t.Run(string(protocol), func(t *testing.T) {
			s := serve(t, config([]model.Service{service(serviceName, protocol, addr)}, ruleTo(serviceName)))
			st := chat(t, grpcClient(t, s.addr()))
			for i := 1; i <= 5; i++ {
				m := fmt.Appendf(nil, "message %d", i)
				if err := st.SendMsg(&m); err != nil {
					t.Fatal(err)
				}
				var got []byte
				if err := st.RecvMsg(&got); err != nil || string(got) != fmt.Sprintf("message %d %d", i, i) {
					t.Fatalf("%q, %v", got, err)
				}
			}
			if md, _ := st.Header(); strings.Join(md["x-head"], ",") != "value" {
				t.Errorf("header %v", md)
			}
			st.CloseSend()
			var got []byte
			if err := st.RecvMsg(&got); err != io.EOF {
				t.Errorf("%q, %v", got, err)
			}
			if strings.Join(st.Trailer()["x-tail"], ",") != "end" {
				t.Errorf("trailer %v", st.Trailer())
			}
		})
	}
}

func TestGRPCStatusesPass(t *testing.T) {
	s := serve(t, config([]model.Service{service(serviceName, model.HTTP, grpcBackend(t))}, ruleTo(serviceName)))
	c := grpcClient(t, s.addr())
	for _, first := range []bool{true, false} {
		st := chat(t, c)
		var got []byte
		if !first {
			m := []byte("x")
			st.SendMsg(&m)
			st.RecvMsg(&got)
		}
		m := []byte("fail")
		st.SendMsg(&m)
		err := st.RecvMsg(&got)
		if status.Code(err) != codes.ResourceExhausted || status.Convert(err).Message() != "too much: 100%" {
			t.Errorf("%v", err)
		}
	}
}

func TestGRPCRequestsGetGRPCStatusesFromTheProxy(t *testing.T) {
	for name, test := range map[string]struct {
		edit func(*model.Config)
		code codes.Code
	}{
		"no rule":     {func(c *model.Config) { c.Routes[0].Rules[0].Matches[0].Path.Value = "/other" }, codes.Unimplemented},
		"no backend":  {func(c *model.Config) { c.Routes[0].Rules[0].Backends = nil }, codes.Unavailable},
		"no endpoint": {func(c *model.Config) { c.Services[0].Endpoints = nil }, codes.Unavailable},
		"refused":     {func(c *model.Config) { c.Services[0].Endpoints[0].Address = peertest.Refusing(t) }, codes.Unavailable},
		"timeout": {func(c *model.Config) {
			c.Services[0].Endpoints[0].Address = rawBackend(t, func(c net.Conn) { io.Copy(io.Discard, c) })
			c.Routes[0].Rules[0].Timeouts.Request = model.Duration(50 * time.Millisecond)
		}, codes.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := plain("127.0.0.1:1")
			test.edit(cfg)
			s := serve(t, cfg)
			st := chat(t, grpcClient(t, s.addr()))
			var got []byte
			if err := st.RecvMsg(&got); status.Code(err) != test.code {
				t.Errorf("%v, want %s", err, test.code)
			}
		})
	}
}

func TestHeaderBlocksOverTheLimitAreRefused(t *testing.T) {
	addr, heads := wire(t, okResponse)
	s := serve(t, plain(addr))
	req, _ := http.NewRequest("GET", "http://"+s.addr()+"/", nil)
	req.Header.Set("X-Big", strings.Repeat("a", 200<<10))
	resp, err := h2cClient(t).Do(req)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode != 431 {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	if len(heads) != 0 {
		t.Error("the request reached the backend")
	}
}

// TestPseudoFieldsAreJudgedStrictly checks pseudo-fields by RFC 9113 §8.3.1, and by RFC 9110 §4.2 for http and https.
func TestPseudoFieldsAreJudgedStrictly(t *testing.T) {
	addr, heads := wire(t, okResponse)
	s := serve(t, plain(addr))
	request := func(name, value string) [][2]string {
		block := [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}}
		for i := range block {
			if block[i][0] == name {
				block[i][1] = value
			}
		}
		return block
	}
	for _, test := range []struct {
		name   string
		values []string
		good   bool
	}{
		{":scheme", []string{"http", "https", "HTTP", "Https"}, true},
		{":scheme", []string{"", "ftp", "ws", "wss", "httpx", "htt", "http:", "http://a", "https://", "http https", " http", "http\t", "1http", "h\xc3\xa9", "*"}, false},
		{":authority", []string{"a", "a:80", "A.example", "[::1]:8080"}, true},
		{":authority", []string{"", "a/b", "a?b", "a#b", "user@a", "a:b", "a:99999", "a,b", "a b", "[::1", "a..b", ":80", "http://a"}, false},
		{":path", []string{"/", "/a?b=c", "//a", "/a%20b"}, true},
		{":path", []string{"", "*", "a", "?a", "http://a/", "/a#b", "/a b", "/\x7f", "/%zz", "/../../x%2f..%2f"}, false},
		{":method", []string{"GET", "M-SEARCH"}, true},
		{":method", []string{"", "get", "GE T", "GET/", "G\x00T", "(GET)"}, false},
	} {
		for _, value := range test.values {
			f := newH2Frames(t, s.addr())
			if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: encode(request(test.name, value)), EndHeaders: true, EndStream: true}); err != nil {
				t.Fatal(err)
			}
			f.ReadMetaHeaders = decoder()
			answer := ""
			for answer == "" {
				frame, err := f.ReadFrame()
				if err != nil {
					t.Fatalf("%s %q: %v", test.name, value, err)
				}
				switch frame := frame.(type) {
				case *http2.MetaHeadersFrame:
					answer = frame.PseudoValue("status")
				case *http2.RSTStreamFrame:
					answer = frame.ErrCode.String()
				}
			}
			if good := answer == "200"; good != test.good || !good && answer != "400" && answer != "PROTOCOL_ERROR" {
				t.Errorf("%s %q: answered %s", test.name, value, answer)
			}
			if good := len(heads) > 0; good != test.good {
				t.Errorf("%s %q: reached the backend %t", test.name, value, good)
			}
			for len(heads) > 0 {
				if head := <-heads; !strings.Contains(head, "\r\nX-Forwarded-Proto: http\r\n") {
					t.Errorf("%s %q: the backend got %q", test.name, value, head)
				}
			}
			f.c.Close()
		}
	}
}

func TestExpectationsOverHTTP2(t *testing.T) {
	for _, test := range []struct {
		expect   []string
		end      bool
		length   string
		status   string
		expected bool // Expect reaches the backend
	}{
		{[]string{"100-continue"}, true, "", "200", false},
		{[]string{"100-continue"}, true, "0", "200", false},
		{[]string{"100-continue"}, false, "", "200", true},
		{[]string{"100-continue"}, false, "5", "200", true},
		{[]string{"100-Continue, 100-continue", ""}, false, "5", "200", true},
		{[]string{"tea"}, true, "", "417", false},
		{[]string{"tea"}, false, "5", "417", false},
		{[]string{"100-continue", "tea"}, false, "5", "417", false},
	} {
		heads := make(chan string, 1)
		addr := peertest.Raw(t, func(_ int, c net.Conn) {
			if h, err := rawHead(bufio.NewReader(c)); err == nil {
				heads <- h
				io.WriteString(c, okResponse)
				io.Copy(io.Discard, c)
			}
		})
		s := serve(t, plain(addr))
		f := newH2Frames(t, s.addr())
		block := [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}}
		for _, e := range test.expect {
			block = append(block, [2]string{"expect", e})
		}
		if test.length != "" {
			block = append(block, [2]string{"content-length", test.length})
		}
		if err := f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: encode(block), EndHeaders: true, EndStream: test.end}); err != nil {
			t.Fatal(err)
		}
		f.answered(t, test.status)
		if test.status != "200" {
			if len(heads) > 0 {
				t.Errorf("%q: the backend got %q", test.expect, <-heads)
			}
			continue
		}
		if h := <-heads; strings.Contains(h, "Expect: 100-continue\r\n") != test.expected {
			t.Errorf("%q, end %t: the backend got %q", test.expect, test.end, h)
		}
	}
}
