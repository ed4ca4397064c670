package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/test/size"
)

// Bounds that hold for every flood.
const (
	floodFrames = 10000 // none of them may be left over when the connection ends
	floodHits   = 100   // requests that reach the backend
)

// flooder is a client that does not wait. Its bytes go out when the buffer is full, or with send.
type flooder struct {
	*http2.Framer
	c     net.Conn
	b     bytes.Buffer
	ended chan http2.ErrCode // the code of GOAWAY, or endedWithout
}

const endedWithout = http2.ErrCode(1 << 31)

func newFlooder(t testing.TB, addr string, settings ...http2.Setting) *flooder {
	f := &flooder{c: dial(t, addr), ended: make(chan http2.ErrCode, 1)}
	f.Framer = http2.NewFramer(&f.b, nil)
	f.AllowIllegalWrites = true
	f.b.WriteString(http2.ClientPreface)
	f.WriteSettings(settings...)
	f.WriteSettingsAck()
	done := make(chan struct{})
	t.Cleanup(func() {
		f.c.Close()
		<-done
	})
	go func() {
		defer close(done)
		in := http2.NewFramer(nil, f.c)
		for {
			frame, err := in.ReadFrame()
			if err != nil {
				f.ended <- endedWithout
				return
			}
			if g, ok := frame.(*http2.GoAwayFrame); ok {
				f.ended <- g.ErrCode
				return
			}
		}
	}()
	return f
}

// send writes the buffered bytes. It returns false if the connection has ended.
func (f *flooder) send() bool {
	_, err := f.c.Write(f.b.Bytes())
	f.b.Reset()
	return err == nil
}

// get opens a stream with a complete request.
func (f *flooder) get(id uint32) {
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, EndStream: true, EndHeaders: true, BlockFragment: requestBlock})
}

var requestBlock = encode([][2]string{{":method", "GET"}, {":path", "/"}, {":scheme", "http"}, {":authority", "a"}})

func TestFloodsEndWithTheConnection(t *testing.T) {
	id := func(i int) uint32 { return uint32(2*i + 1) }
	for name, test := range map[string]struct {
		frames int                 // maximum to send; 0 means floodFrames
		each   func(*flooder, int) // writes frames that belong together
		alone  bool                // sends each group by itself
		first  func(*flooder)
		code   http2.ErrCode
		reason telemetry.Reason
	}{
		"reset": {frames: 20000, each: func(f *flooder, i int) {
			f.get(id(i))
			f.WriteRSTStream(id(i), http2.ErrCodeCancel)
		}},
		"reset, one by one": {frames: 20000, alone: true, each: func(f *flooder, i int) {
			if i%2 == 0 {
				f.get(id(i / 2))
			} else {
				f.WriteRSTStream(id(i/2), http2.ErrCodeCancel)
			}
		}},
		"reset provoked by a window of nothing": {frames: 20000, alone: true, each: func(f *flooder, i int) {
			f.get(id(i))
			f.WriteWindowUpdate(id(i), 0)
		}},
		"reset provoked by a window too large": {frames: 20000, alone: true, each: func(f *flooder, i int) {
			f.get(id(i))
			f.WriteWindowUpdate(id(i), 1<<31-1)
		}},
		"reset provoked by DATA behind the end": {frames: 20000, alone: true, each: func(f *flooder, i int) {
			f.get(id(i))
			f.WriteData(id(i), false, []byte("x"))
		}},
		"reset provoked by HEADERS behind the end": {frames: 20000, alone: true, each: func(f *flooder, i int) {
			f.get(id(i))
			f.get(id(i))
		}},
		"reset provoked by priority": {frames: 20000, alone: true, each: func(f *flooder, i int) {
			f.get(id(i))
			f.WritePriority(id(i), http2.PriorityParam{StreamDep: id(i)})
		}},
		"malformed heads": {each: func(f *flooder, i int) {
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: id(i), EndStream: true, EndHeaders: true,
				BlockFragment: encode([][2]string{{":method", "GET"}, {":path", "/"}, {":scheme", "http"}, {"Upper", "x"}})})
		}},
		"PING":         {each: func(f *flooder, i int) { f.WritePing(false, [8]byte{byte(i)}) }},
		"PING answers": {each: func(f *flooder, i int) { f.WritePing(true, [8]byte{byte(i)}) }},
		"SETTINGS": {each: func(f *flooder, i int) {
			f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: uint32(i)})
		}},
		"empty SETTINGS":     {each: func(f *flooder, i int) { f.WriteSettings() }},
		"SETTINGS answers":   {each: func(f *flooder, i int) { f.WriteSettingsAck() }},
		"WINDOW_UPDATE":      {each: func(f *flooder, i int) { f.WriteWindowUpdate(0, 1) }},
		"PRIORITY":           {each: func(f *flooder, i int) { f.WritePriority(id(i), http2.PriorityParam{}) }},
		"unknown frames":     {each: func(f *flooder, i int) { f.WriteRawFrame(0x7f, 0, 0, []byte("x")) }},
		"GOAWAY":             {each: func(f *flooder, i int) { f.WriteGoAway(0, http2.ErrCodeNo, nil) }},
		"empty DATA":         {first: post, each: func(f *flooder, i int) { f.WriteData(1, false, nil) }},
		"padding":            {first: post, each: func(f *flooder, i int) { f.WriteDataPadded(1, false, nil, make([]byte, 10)) }},
		"window of a stream": {first: post, each: func(f *flooder, i int) { f.WriteWindowUpdate(1, 1) }},
		"RST_STREAM": {first: func(f *flooder) {
			f.get(1)
			f.WriteRSTStream(1, http2.ErrCodeCancel)
		}, each: func(f *flooder, i int) { f.WriteRSTStream(1, http2.ErrCodeCancel) }},
		"CONTINUATION": {frames: 1000, first: openBlock, each: func(f *flooder, i int) {
			f.WriteContinuation(1, false, bytes.Repeat([]byte{0}, 1000))
		}},
		"short CONTINUATION": {first: openBlock, each: func(f *flooder, i int) { f.WriteContinuation(1, false, []byte{0}) }},
		"empty CONTINUATION": {frames: 10, first: openBlock, each: func(f *flooder, i int) { f.WriteContinuation(1, false, nil) }},
	} {
		t.Run(name, func(t *testing.T) {
			var hits atomic.Int64
			addr := backend(t, func(w http.ResponseWriter, r *http.Request) { hits.Add(1) })
			s := serve(t, plain(addr))
			f := newFlooder(t, s.addr())
			if test.first != nil {
				test.first(f)
			}
			frames := test.frames
			if frames == 0 {
				frames = floodFrames
			}
			for i := range frames {
				test.each(f, i)
				if (test.alone || f.b.Len() > 16<<10) && !f.send() {
					break
				}
			}
			f.send()
			want := test.code
			if want == 0 {
				want = http2.ErrCodeEnhanceYourCalm
			}
			if code := <-f.ended; code != want {
				t.Errorf("the connection ended with %v, want %v", code, want)
			}
			f.c.Close()
			if n := s.failures(telemetry.ClientProtocol); n != 1 {
				t.Errorf("counted %d times", n)
			}
			if n := hits.Load(); n > floodHits {
				t.Errorf("%d requests reached the backend", n)
			}
		})
	}
}

// post opens stream 1 with a request whose body is still to come.
func post(f *flooder) {
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true,
		BlockFragment: encode([][2]string{{":method", "POST"}, {":path", "/"}, {":scheme", "http"}, {":authority", "a"}})})
}

// openBlock begins a header block on stream 1.
func openBlock(f *flooder) {
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestBlock})
}

func TestResetInOneFlightReachesNoBackend(t *testing.T) {
	var hits atomic.Int64
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) { hits.Add(1) })
	s := serve(t, plain(addr))
	f := newFlooder(t, s.addr())
	for i := range uint32(50) {
		f.get(2*i + 1)
		f.WriteRSTStream(2*i+1, http2.ErrCodeCancel)
	}
	f.send()
	f.WriteGoAway(0, http2.ErrCodeNo, nil)
	f.send()
	resp, err := h2cClient(t).Get("http://" + s.addr() + "/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if n := hits.Load(); n != 1 {
		t.Errorf("%d requests reached the backend, want that which was not reset", n)
	}
}

func TestClientsThatCancelWhatTheySawBeginAreKept(t *testing.T) {
	t.Parallel()
	addr := h2cBackend(t, func(w http.ResponseWriter, r *http.Request) {
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	s := serve(t, plain(addr))
	c := h2cClient(t)
	tr := c.Transport.(*http.Transport)
	cc, err := tr.NewClientConn(t.Context(), "http", s.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer cc.Close()
	for i := range 5 * floodHits {
		req, _ := http.NewRequest("GET", "http://"+s.addr()+"/", nil)
		resp, err := cc.RoundTrip(req)
		if err != nil {
			t.Fatalf("request %d: %v", i, err)
		}
		resp.Body.Close() // resets the stream
	}
}

func TestClientsThatGiveWindowInSmallPartsAreKept(t *testing.T) {
	const size = 8 << 20
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) { w.Write(body(size)) })
	s := serve(t, plain(addr))
	f := newH2Frames(t, s.addr())
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true, BlockFragment: requestBlock})
	for got := 0; ; {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatalf("after %d bytes: %v", got, err)
		}
		d, ok := frame.(*http2.DataFrame)
		if !ok {
			continue
		}
		got += len(d.Data())
		if d.StreamEnded() {
			if got != size {
				t.Errorf("%d bytes", got)
			}
			return
		}
		for rest := len(d.Data()); rest > 0; rest -= 2048 {
			f.WriteWindowUpdate(0, uint32(min(rest, 2048)))
			f.WriteWindowUpdate(1, uint32(min(rest, 2048)))
		}
	}
}

func TestFieldsThatUnpackToMuchAreAnsweredWith431(t *testing.T) {
	addr, heads := wire(t, okResponse)
	s := serve(t, plain(addr))
	f := newH2Frames(t, s.addr())
	block := append(bytes.Clone(requestBlock), 0x40, 1, 'x', 0x7f) // a field of 3,000 bytes for the table,
	block = binary.AppendUvarint(block, 3000-0x7f)
	block = append(block, strings.Repeat("v", 3000)...)
	block = append(block, bytes.Repeat([]byte{0x80 | 62}, 1000)...) // sent 1,000 more times
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndStream: true, EndHeaders: true, BlockFragment: block})
	f.answered(t, "431")
	if len(heads) > 0 {
		t.Error("the request reached the backend")
	}
}

// TestFloodOfSlowReadersHoldsBoundedMemory has clients that never open their windows, and a backend with large answers.
func TestFloodOfSlowReadersHoldsBoundedMemory(t *testing.T) {
	conns, streams := size.Of(2, 4), size.Of(10, 25)
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) { w.Write(body(512 << 10)) })
	s := serve(t, plain(addr), func(o *Options) { o.StreamTimeout = time.Duration(size.Of(1, 3)) * time.Second })
	before := heap()
	var all []*h2Frames
	for range conns {
		f := newH2Frames(t, s.addr())
		f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
		f.WriteSettingsAck()
		for i := range uint32(streams) {
			f.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, EndStream: true, EndHeaders: true, BlockFragment: requestBlock})
		}
		all = append(all, f)
	}
	seen := make([]map[http2.FrameType]int, conns)
	for _, kind := range []http2.FrameType{http2.FrameHeaders, http2.FrameRSTStream} {
		for i, f := range all {
			if seen[i] == nil {
				seen[i] = map[http2.FrameType]int{}
			}
			for seen[i][kind] < streams {
				frame, err := f.ReadFrame()
				if err != nil {
					t.Fatalf("connection %d after %v: %v", i, seen[i], err)
				}
				if seen[i][frame.Header().Type]++; seen[i][http2.FrameData] > 0 {
					t.Fatal("DATA without a window")
				}
			}
		}
		if used := heap() - before; kind == http2.FrameHeaders && used > int64(conns*streams*(256<<10)) {
			t.Errorf("%d KiB for each stream", used>>10/int64(conns*streams))
		}
	}
	for _, f := range all {
		f.c.Close() // a drain waits for them
	}
	if n := s.failures(telemetry.ClientTimeout); n != uint64(conns*streams) {
		t.Errorf("%d timeouts counted, want %d", n, conns*streams)
	}
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

func TestHTTP2ClientsThatDoNotGoOnAreEnded(t *testing.T) {
	settings := func(w io.Writer) {
		f := http2.NewFramer(w, nil)
		f.WriteSettings()
		f.WriteSettingsAck()
	}
	for name, test := range map[string]struct {
		send func(io.Writer)
		code http2.ErrCode
	}{
		"no SETTINGS":        {func(w io.Writer) {}, http2.ErrCodeSettingsTimeout},
		"no acknowledgement": {func(w io.Writer) { http2.NewFramer(w, nil).WriteSettings() }, http2.ErrCodeSettingsTimeout},
		"half a frame":       {func(w io.Writer) { settings(w); w.Write([]byte{0, 0, 8, 6}) }, http2.ErrCodeEnhanceYourCalm},
		"half a header block": {func(w io.Writer) {
			settings(w)
			http2.NewFramer(w, nil).WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: requestBlock})
		}, http2.ErrCodeEnhanceYourCalm},
		"nothing more": {settings, http2.ErrCodeNo},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, plain("127.0.0.1:1"), func(o *Options) { o.HeaderTimeout, o.IdleTimeout = 50*time.Millisecond, 100*time.Millisecond })
			c := dial(t, s.addr())
			io.WriteString(c, http2.ClientPreface)
			test.send(c)
			f := http2.NewFramer(nil, c)
			for {
				frame, err := f.ReadFrame()
				if err != nil {
					t.Fatalf("ended without GOAWAY: %v", err)
				}
				if g, ok := frame.(*http2.GoAwayFrame); ok {
					if g.ErrCode != test.code {
						t.Errorf("%v, want %v", g.ErrCode, test.code)
					}
					break
				}
			}
			if _, err := c.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("the connection goes on: %v", err)
			}
		})
	}
}

func TestHTTP2ClientsThatSendTheirBodyTooSlowlyAreEnded(t *testing.T) {
	t.Parallel()
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
	s := serve(t, plain(addr), func(o *Options) { o.MinBodyRate, o.BodyGrace = 1000, 500*time.Millisecond })
	f := newH2Frames(t, s.addr())
	f.WriteSettingsAck()
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true,
		BlockFragment: encode([][2]string{{":method", "POST"}, {":path", "/"}, {":scheme", "http"}, {":authority", "a"}})})
	f.WriteData(1, false, []byte("a beginning"))
	f.answered(t, "408")
	if n := s.failures(telemetry.ClientTimeout); n != 1 {
		t.Errorf("counted %d times", n)
	}
}

func TestHTTP2ClientsAreToldToContinue(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		w.Write(b)
	})
	s := serve(t, plain(addr))
	f := newH2Frames(t, s.addr())
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, EndHeaders: true, BlockFragment: encode([][2]string{
		{":method", "POST"}, {":path", "/"}, {":scheme", "http"}, {":authority", "a"}, {"expect", "100-continue"}, {"content-length", "5"}})})
	f.ReadMetaHeaders = decoder()
	var got []string
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		switch frame := frame.(type) {
		case *http2.MetaHeadersFrame:
			if got = append(got, frame.PseudoValue("status")); len(got) == 1 {
				f.WriteData(1, true, []byte("hello"))
			}
		case *http2.DataFrame:
			got = append(got, string(frame.Data()))
		}
		if h := frame.Header(); h.StreamID == 1 && h.Flags.Has(http2.FlagDataEndStream) && (h.Type == http2.FrameData || h.Type == http2.FrameHeaders) {
			break
		}
	}
	if strings.Join(got, " ") != "100 200 hello" {
		t.Errorf("%q", got)
	}
}
