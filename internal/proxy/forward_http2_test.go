package proxy

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

// frames is an endpoint that handles the HTTP/2 frames of one connection one by one.
type frames struct {
	*http2.Framer
	c      net.Conn
	number int // of the connection, from 1
	hpack  bytes.Buffer
	coder  *hpack.Encoder
	bodies map[uint32]*bytes.Buffer
}

// framed runs an endpoint. It gathers a request's body and then calls on with every frame of a stream, and with the
// answers to its PINGs. If on returns false, the connection closes.
func framed(t testing.TB, on func(c *frames, f http2.Frame) bool) string {
	var mu sync.Mutex
	number := 0
	return rawBackend(t, func(nc net.Conn) {
		mu.Lock()
		number++
		c := &frames{Framer: http2.NewFramer(nc, nc), c: nc, number: number, bodies: map[uint32]*bytes.Buffer{}}
		mu.Unlock()
		c.AllowIllegalWrites = true
		c.coder = hpack.NewEncoder(&c.hpack)
		if _, err := io.ReadFull(nc, make([]byte, len(http2.ClientPreface))); err != nil {
			return
		}
		c.WriteSettings()
		for {
			f, err := c.ReadFrame()
			if err != nil {
				return
			}
			switch f := f.(type) {
			case *http2.SettingsFrame:
				if !f.IsAck() {
					c.WriteSettingsAck()
				}
				continue
			case *http2.HeadersFrame:
				if c.bodies[f.StreamID] == nil {
					c.bodies[f.StreamID] = &bytes.Buffer{}
				}
			case *http2.DataFrame:
				c.bodies[f.StreamID].Write(f.Data())
			case *http2.WindowUpdateFrame:
				continue
			case *http2.PingFrame:
				if !f.IsAck() {
					continue
				}
			}
			if !on(c, f) {
				return
			}
		}
	})
}

// ended is the stream whose request f completes, or 0.
func ended(f http2.Frame) uint32 {
	switch f := f.(type) {
	case *http2.HeadersFrame:
		if f.StreamEnded() {
			return f.StreamID
		}
	case *http2.DataFrame:
		if f.StreamEnded() {
			return f.StreamID
		}
	}
	return 0
}

// opened is the stream that f begins, or 0.
func opened(f http2.Frame) uint32 {
	if h, ok := f.(*http2.HeadersFrame); ok {
		return h.StreamID
	}
	return 0
}

// head sends a header block of names and values.
func (c *frames) head(stream uint32, end bool, fields ...string) {
	c.hpack.Reset()
	for i := 0; i < len(fields); i += 2 {
		c.coder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]})
	}
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: c.hpack.Bytes(), EndHeaders: true, EndStream: end})
}

// echo answers with the request's body.
func (c *frames) echo(stream uint32) {
	c.head(stream, false, ":status", "200")
	c.WriteData(stream, true, c.bodies[stream].Bytes())
}

func toFrames(addr string) *model.Config {
	return config([]model.Service{service(serviceName, model.H2C, addr)}, ruleTo(serviceName))
}

func TestMalformedAnswersOverHTTP2Are502(t *testing.T) {
	for name, answer := range map[string]func(c *frames, id uint32){
		"upper case":               func(c *frames, id uint32) { c.head(id, true, ":status", "200", "X-Upper", "1") },
		"an invalid name":          func(c *frames, id uint32) { c.head(id, true, ":status", "200", "x y", "1") },
		"CR and LF in a value":     func(c *frames, id uint32) { c.head(id, true, ":status", "200", "x", "1\r\nset-cookie: a=b") },
		"NUL in a value":           func(c *frames, id uint32) { c.head(id, true, ":status", "200", "x", "\x00") },
		"no status":                func(c *frames, id uint32) { c.head(id, true, "x", "1") },
		"two statuses":             func(c *frames, id uint32) { c.head(id, true, ":status", "200", ":status", "200") },
		"a status of two digits":   func(c *frames, id uint32) { c.head(id, true, ":status", "20") },
		"a status of four digits":  func(c *frames, id uint32) { c.head(id, true, ":status", "2000") },
		"a status behind fields":   func(c *frames, id uint32) { c.head(id, true, "x", "1", ":status", "200") },
		"a request's pseudo-field": func(c *frames, id uint32) { c.head(id, true, ":status", "200", ":path", "/") },
		"an unknown pseudo-field":  func(c *frames, id uint32) { c.head(id, true, ":status", "200", ":x", "1") },
		"Connection":               func(c *frames, id uint32) { c.head(id, true, ":status", "200", "connection", "close") },
		"Transfer-Encoding":        func(c *frames, id uint32) { c.head(id, true, ":status", "200", "transfer-encoding", "chunked") },
		"Upgrade":                  func(c *frames, id uint32) { c.head(id, true, ":status", "200", "upgrade", "x") },
		"switching protocols":      func(c *frames, id uint32) { c.head(id, false, ":status", "101") },
		"an interim end":           func(c *frames, id uint32) { c.head(id, true, ":status", "103") },
		"two lengths": func(c *frames, id uint32) {
			c.head(id, true, ":status", "200", "content-length", "0", "content-length", "1")
		},
		"a length that is none":  func(c *frames, id uint32) { c.head(id, true, ":status", "200", "content-length", "+1") },
		"no body but a length":   func(c *frames, id uint32) { c.head(id, true, ":status", "200", "content-length", "5") },
		"a body before the head": func(c *frames, id uint32) { c.WriteData(id, true, []byte("x")) },
		"fields without end":     func(c *frames, id uint32) { c.head(id, true, ":status", "200", "x", strings.Repeat("x", 70<<10)) },
		"less body than the length": func(c *frames, id uint32) {
			c.head(id, false, ":status", "200", "content-length", "5")
			c.WriteData(id, true, []byte("x"))
		},
		"more body than the length": func(c *frames, id uint32) {
			c.head(id, false, ":status", "200", "content-length", "1")
			c.WriteData(id, true, []byte("xy"))
		},
		"a second head": func(c *frames, id uint32) {
			c.head(id, false, ":status", "200", "content-length", "1")
			c.head(id, true, ":status", "200")
		},
		"trailers that do not end": func(c *frames, id uint32) {
			c.head(id, false, ":status", "200", "content-length", "1")
			c.head(id, false, "x", "1")
		},
		"too many interim answers": func(c *frames, id uint32) {
			for range 100 {
				c.head(id, false, ":status", "103")
			}
		},
		"a block that is not HPACK": func(c *frames, id uint32) {
			c.WriteRawFrame(http2.FrameHeaders, 5, id, []byte{0xff, 0xff, 0xff, 0xff, 0xff})
		},
		"a push":                      func(c *frames, id uint32) { c.WriteRawFrame(http2.FramePushPromise, 4, id, []byte{0, 0, 0, 2, 0x88}) },
		"a frame on no stream":        func(c *frames, id uint32) { c.WriteData(0, false, []byte("x")) },
		"a stream that was not asked": func(c *frames, id uint32) { c.head(id+2, true, ":status", "200") },
	} {
		t.Run(name, func(t *testing.T) {
			addr := framed(t, func(c *frames, f http2.Frame) bool {
				if id := ended(f); id != 0 {
					answer(c, id)
				}
				return true
			})
			s := serve(t, toFrames(addr))
			k := newTalk(t, s.addr())
			k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			resp, body := k.answer("GET")
			// Interim answers before the fault are passed on.
			for resp.StatusCode == 103 {
				resp, body = k.answer("GET")
			}
			if resp.StatusCode != 502 || !strings.HasPrefix(body, "malformed_response: ") {
				t.Errorf("status %d, %q", resp.StatusCode, body)
			}
			if s.failures(telemetry.MalformedResponse) != 1 {
				t.Error("not counted")
			}
		})
	}
}

// postBody sends a request with a body of known or unknown length, over HTTP/1.1 or HTTP/2.
func postBody(t testing.TB, s *testServer, over string, body io.Reader, length int64) (*http.Response, string, error) {
	t.Helper()
	client := newClient(t)
	if over == "HTTP/2" {
		client = h2cClient(t)
	}
	req, err := http.NewRequest("POST", "http://"+s.addr()+"/", body)
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength, req.GetBody = length, nil
	resp, err := client.Do(req)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return resp, string(b), err
}

func TestWhatAnEndpointDidNotProcessIsSentAgain(t *testing.T) {
	for name, test := range map[string]struct {
		refuse func(c *frames, f http2.Frame) (refused bool)
		status int
	}{
		"GOAWAY at the head": {func(c *frames, f http2.Frame) bool {
			if id := opened(f); c.number < 3 && id != 0 {
				c.WriteGoAway(0, http2.ErrCodeNo, nil)
			}
			return c.number < 3
		}, 200},
		"GOAWAY at the end": {func(c *frames, f http2.Frame) bool {
			if id := ended(f); c.number < 3 && id != 0 {
				c.WriteGoAway(0, http2.ErrCodeNo, nil)
			}
			return c.number < 3
		}, 200},
		"GOAWAY for ever":        {func(c *frames, f http2.Frame) bool { c.WriteGoAway(0, http2.ErrCodeNo, nil); return true }, 502},
		"a refused stream":       {func(c *frames, f http2.Frame) bool { return refuse(c, f, 1) }, 200},
		"a stream refused twice": {func(c *frames, f http2.Frame) bool { return refuse(c, f, 3) }, 502},
	} {
		for _, over := range []string{"HTTP/1.1", "HTTP/2"} {
			for kind, length := range map[string]int64{"no": 0, "known": 5, "unknown": -1} {
				t.Run(name+", "+over+", "+kind+" length", func(t *testing.T) {
					addr := framed(t, func(c *frames, f http2.Frame) bool {
						if !test.refuse(c, f) {
							if id := ended(f); id != 0 {
								c.echo(id)
							}
						}
						return true
					})
					s := serve(t, toFrames(addr))
					sent := "hello"
					if length == 0 {
						sent = ""
					}
					resp, body, err := postBody(t, s, over, strings.NewReader(sent), length)
					if err != nil || resp.StatusCode != test.status || test.status == 200 && body != sent {
						t.Fatalf("%v, %q, %v; want %d", resp, body, err, test.status)
					}
					for _, e := range s.endpoints() {
						if st := e.Stats(); st.Failures != 0 {
							t.Errorf("%+v", st)
						}
						for deadline := time.Now().Add(patience); e.InFlight() != 0; time.Sleep(time.Millisecond) {
							if time.Now().After(deadline) {
								t.Fatalf("%+v", e.Stats())
							}
						}
					}
				})
			}
		}
	}
}

// refuse refuses streams up to the number most.
func refuse(c *frames, f http2.Frame, most uint32) bool {
	h := f.Header()
	if h.StreamID > most {
		return false
	}
	if opened(f) != 0 {
		c.WriteRSTStream(h.StreamID, http2.ErrCodeRefusedStream)
	}
	return true
}

func TestAStreamedBodyGoesOnAfterItsStreamWasRefused(t *testing.T) {
	for _, over := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(over, func(t *testing.T) {
			arrived := make(chan uint32, 10)
			addr := framed(t, func(c *frames, f http2.Frame) bool {
				if d, ok := f.(*http2.DataFrame); ok && len(d.Data()) > 0 {
					if d.StreamID == 1 {
						c.WriteRSTStream(1, http2.ErrCodeRefusedStream)
					}
					arrived <- d.StreamID
				}
				if id := ended(f); id > 1 {
					c.echo(id)
				}
				return true
			})
			s := serve(t, toFrames(addr))
			pr, pw := io.Pipe()
			done := make(chan struct{})
			go func() {
				defer close(done)
				io.WriteString(pw, "first ")
				if id := <-arrived; id != 1 {
					t.Errorf("the first piece came on stream %d", id)
				}
				if id := <-arrived; id != 3 {
					t.Errorf("it came again on stream %d", id)
				}
				io.WriteString(pw, "second")
				pw.Close()
			}()
			resp, body, err := postBody(t, s, over, pr, -1)
			if err != nil || resp.StatusCode != 200 || body != "first second" {
				t.Errorf("%v, %q, %v", resp, body, err)
			}
			pr.CloseWithError(io.ErrClosedPipe)
			<-done
		})
	}
}

func TestAnIdleConnectionThatBreaksCostsNoRepeatableRequest(t *testing.T) {
	for method, want := range map[string]int{"GET": 200, "POST": 502} {
		t.Run(method, func(t *testing.T) {
			addr := framed(t, func(c *frames, f http2.Frame) bool {
				if id := ended(f); id == 1 {
					c.echo(id)
				} else if id != 0 {
					return false
				}
				return true
			})
			s := serve(t, toFrames(addr))
			k := newTalk(t, s.addr())
			for _, want := range []int{200, want} {
				k.send(method + " / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n")
				if resp, _ := k.answer(method); resp.StatusCode != want {
					t.Errorf("status %d, want %d", resp.StatusCode, want)
				}
			}
		})
	}
}

func TestResetsOfTheEndpointReachTheClient(t *testing.T) {
	for name, test := range map[string]struct {
		after func(c *frames, id uint32)
		want  string
	}{
		"before the answer": {func(*frames, uint32) {}, "502"},
		"in the middle": {func(c *frames, id uint32) {
			c.head(id, false, ":status", "200")
			c.WriteData(id, false, []byte("some"))
			time.Sleep(20 * time.Millisecond) // so that it is sent
		}, "broken"},
	} {
		for _, over := range []string{"HTTP/1.1", "HTTP/2"} {
			for _, code := range []http2.ErrCode{http2.ErrCodeCancel, http2.ErrCodeInternal, http2.ErrCodeNo} {
				t.Run(name+", "+over+", "+code.String(), func(t *testing.T) {
					addr := framed(t, func(c *frames, f http2.Frame) bool {
						if id := ended(f); id != 0 {
							test.after(c, id)
							c.WriteRSTStream(id, code)
						}
						return true
					})
					s := serve(t, toFrames(addr))
					resp, _, err := postBody(t, s, over, strings.NewReader("x"), 1)
					got := "broken"
					if err == nil {
						got = resp.Status[:3]
					}
					if got != test.want && (test.want == "502" || got != "502") {
						t.Errorf("%s, want %s", got, test.want)
					}
					if s.failures(telemetry.BackendReset) != 1 {
						t.Error("not counted")
					}
				})
			}
		}
	}
}

func TestAnEarlyAnswerEndsTheUpload(t *testing.T) {
	for _, over := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(over, func(t *testing.T) {
			addr := framed(t, func(c *frames, f http2.Frame) bool {
				if id := opened(f); id != 0 {
					c.head(id, false, ":status", "413", "content-length", "3")
					c.WriteData(id, true, []byte("no!"))
					c.WriteRSTStream(id, http2.ErrCodeNo)
				}
				return true
			})
			s := serve(t, toFrames(addr))
			pr, pw := io.Pipe()
			defer pw.Close()
			go io.WriteString(pw, "some")
			resp, body, err := postBody(t, s, over, pr, 1000)
			if err != nil || resp.StatusCode != 413 || body != "no!" {
				t.Errorf("%v, %q, %v", resp, body, err)
			}
			pr.CloseWithError(io.ErrClosedPipe)
		})
	}
}

func TestAClientThatLeavesCancelsItsStream(t *testing.T) {
	t.Parallel()
	for _, over := range []string{"HTTP/1.1", "HTTP/2"} {
		t.Run(over, func(t *testing.T) {
			arrived, codes := make(chan struct{}, 1), make(chan http2.ErrCode, 1)
			addr := framed(t, func(c *frames, f http2.Frame) bool {
				if opened(f) != 0 {
					arrived <- struct{}{}
				}
				if r, ok := f.(*http2.RSTStreamFrame); ok {
					codes <- r.ErrCode
				}
				return true
			})
			s := serve(t, toFrames(addr))
			c := dial(t, s.addr())
			if over == "HTTP/1.1" {
				io.WriteString(c, "GET / HTTP/1.1\r\nHost: a\r\n\r\n")
			} else {
				io.WriteString(c, http2.ClientPreface)
				f := http2.NewFramer(c, c)
				f.WriteSettings()
				var b bytes.Buffer
				e := hpack.NewEncoder(&b)
				for _, x := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}} {
					e.WriteField(hpack.HeaderField{Name: x[0], Value: x[1]})
				}
				f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: true})
			}
			<-arrived
			c.Close()
			if code := <-codes; code != http2.ErrCodeCancel {
				t.Errorf("the stream was reset with %v", code)
			}
		})
	}
}

func TestInterimAnswersOfHTTP2EndpointsPass(t *testing.T) {
	addr := framed(t, func(c *frames, f http2.Frame) bool {
		if id := ended(f); id != 0 {
			c.head(id, false, ":status", "103", "link", "</style.css>")
			c.head(id, false, ":status", "103", "link", "</script.js>")
			c.echo(id)
		}
		return true
	})
	s := serve(t, toFrames(addr))
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	for _, want := range []string{"</style.css>", "</script.js>"} {
		if resp, _ := k.answer("GET"); resp.StatusCode != 103 || resp.Header.Get("Link") != want {
			t.Errorf("%v", resp)
		}
	}
	if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
		t.Errorf("%v", resp)
	}
	f := newH2Frames(t, s.addr())
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	for _, x := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "a"}, {":path", "/"}} {
		e.WriteField(hpack.HeaderField{Name: x[0], Value: x[1]})
	}
	f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: b.Bytes(), EndHeaders: true, EndStream: true})
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	for _, want := range []string{"103", "103", "200"} {
		for {
			frame, err := f.ReadFrame()
			if err != nil {
				t.Fatal(err)
			}
			if h, ok := frame.(*http2.MetaHeadersFrame); ok {
				if got := h.PseudoValue("status"); got != want {
					t.Errorf("status %s, want %s", got, want)
				}
				break
			}
		}
	}
}

func TestRetriesOverHTTP2KeepSmallBodies(t *testing.T) {
	for _, over := range []string{"HTTP/1.1", "HTTP/2"} {
		for name, test := range map[string]struct {
			length, want int
		}{"small": {40000, 200}, "large": {400000, 503}} {
			t.Run(over+", "+name, func(t *testing.T) {
				var requests atomic.Int32 // over all connections
				addr := framed(t, func(c *frames, f http2.Frame) bool {
					if d, ok := f.(*http2.DataFrame); ok && len(d.Data()) > 0 {
						c.WriteWindowUpdate(d.StreamID, uint32(len(d.Data())))
						c.WriteWindowUpdate(0, uint32(len(d.Data())))
					}
					if id := ended(f); id == 0 {
						return true
					} else if requests.Add(1) <= 2 {
						c.head(id, true, ":status", "503")
					} else {
						c.echo2(id)
					}
					return true
				})
				cfg := toFrames(addr)
				cfg.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 3, Codes: []int{503}}
				s := serve(t, cfg)
				resp, body, err := postBody(t, s, over, strings.NewReader(strings.Repeat("x", test.length)), -1)
				if err != nil || resp.StatusCode != test.want || test.want == 200 && body != "40000" {
					t.Errorf("%v, %.20q, %v", resp, body, err)
				}
			})
		}
	}
}

// echo2 answers with the length of the request's body.
func (c *frames) echo2(stream uint32) {
	n := c.bodies[stream].Len()
	c.head(stream, false, ":status", "200")
	c.WriteData(stream, true, []byte(strconv.Itoa(n)))
}

func TestASlowClientHoldsUpNobodyElse(t *testing.T) {
	t.Parallel()
	block := make([]byte, 1<<20)
	addr := h2cBackend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			for range 64 {
				if _, err := w.Write(block); err != nil {
					return
				}
			}
		}
	})
	s := serve(t, toFrames(addr))
	for range 20 {
		newTalk(t, s.addr()).send("GET /large HTTP/1.1\r\nHost: a\r\n\r\n") // and reads nothing
	}
	k := newTalk(t, s.addr())
	for range 50 {
		k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
		if resp, _ := k.answer("GET"); resp.StatusCode != 200 {
			t.Errorf("%v", resp)
		}
	}
	for _, e := range s.endpoints() {
		if st := e.Stats(); st.HTTP2 != 1 {
			t.Errorf("%+v", st)
		}
	}
}

func TestAStalledEndpointDoesNotOutlastADeadline(t *testing.T) {
	t.Parallel()
	addr := rawBackend(t, func(c net.Conn) {
		http2.NewFramer(c, nil).WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 30})
		http2.NewFramer(c, nil).WriteWindowUpdate(0, 1<<30)
		<-t.Context().Done() // and reads nothing
	})
	cfg := toFrames(addr)
	cfg.Routes[0].Rules[0].Timeouts = model.Timeouts{Request: model.Duration(300 * time.Millisecond)}
	s := serve(t, cfg)
	_, _, err := postBody(t, s, "HTTP/1.1", bytes.NewReader(make([]byte, 64<<20)), 64<<20)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Logf("the large request: %v", err) // its upload was aborted, which the client may notice first
	}
	resp, _, err := postBody(t, s, "HTTP/1.1", strings.NewReader("x"), 1)
	if err != nil || resp.StatusCode != 504 {
		t.Errorf("%v, %v", resp, err)
	}
}

// TestFramesBehindAnAnswerReachNobody: an endpoint sends bytes where no body may be, or behind an end. They reach no
// other stream, whether that is opened after them or before they were read. Frames of the next stream are the
// exception: once that stream is open, they are the endpoint's answer to it.
func TestFramesBehindAnAnswerReachNobody(t *testing.T) {
	poison := []byte("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison")
	for name, test := range map[string]struct {
		method string
		answer func(c *frames, id uint32)
		status int
		next   bool // they are of the next stream
	}{
		"DATA for HEAD": {"HEAD", func(c *frames, id uint32) { c.head(id, false, ":status", "200"); c.WriteData(id, true, poison) }, 200, false},
		"announced DATA for HEAD": {"HEAD", func(c *frames, id uint32) {
			c.head(id, false, ":status", "200", "content-length", "48")
			c.WriteData(id, true, poison)
		}, 200, false},
		"DATA with 204":         {"GET", func(c *frames, id uint32) { c.head(id, false, ":status", "204"); c.WriteData(id, true, poison) }, 0, false},
		"DATA with 304":         {"GET", func(c *frames, id uint32) { c.head(id, false, ":status", "304"); c.WriteData(id, true, poison) }, 0, false},
		"DATA behind the end":   {"GET", func(c *frames, id uint32) { c.head(id, true, ":status", "200"); c.WriteData(id, true, poison) }, 200, false},
		"a head behind the end": {"GET", func(c *frames, id uint32) { c.head(id, true, ":status", "200"); c.head(id, true, ":status", "201") }, 200, false},
		"a head behind trailers": {"GET", func(c *frames, id uint32) {
			c.head(id, false, ":status", "200")
			c.head(id, true, "x", "y")
			c.head(id, true, ":status", "201")
		}, 200, false},
		"103 behind the end": {"GET", func(c *frames, id uint32) { c.head(id, true, ":status", "200"); c.head(id, false, ":status", "103") }, 200, false},
		"DATA of the next stream": {"GET", func(c *frames, id uint32) {
			c.head(id, true, ":status", "200")
			c.WriteData(id+2, true, poison)
		}, 200, true},
		"the next stream's answer": {"GET", func(c *frames, id uint32) {
			c.head(id, true, ":status", "200")
			c.head(id+2, true, ":status", "201")
		}, 200, true},
	} {
		for _, order := range []string{"read before the next", "read at any time"} {
			if test.next && order == "read at any time" {
				continue
			}
			t.Run(name+", "+order, func(t *testing.T) {
				var n atomic.Int64
				read := make(chan struct{})
				sign := sync.OnceFunc(func() { close(read) })
				addr := framed(t, func(c *frames, f http2.Frame) bool {
					switch f.(type) {
					case *http2.PingFrame, *http2.GoAwayFrame: // what the proxy says once it has read them
						sign()
					}
					id := ended(f)
					if id == 0 {
						return true
					}
					if n.Add(1) == 1 {
						test.answer(c, id)
						c.WritePing(false, [8]byte{})
						return true
					}
					c.head(id, false, ":status", "200", "x-nonce", "own")
					c.WriteData(id, true, []byte("own"))
					return true
				})
				s := serve(t, toFrames(addr))
				k := newTalk(t, s.addr())
				k.send(test.method + " / HTTP/1.1\r\nHost: a\r\n\r\n")
				if resp, body := k.answer(test.method); test.status != 0 && resp.StatusCode != test.status || strings.Contains(body, "poison") {
					t.Errorf("status %d, %q", resp.StatusCode, body)
				}
				if order == "read before the next" {
					<-read
				}
				for range 3 {
					k := newTalk(t, s.addr())
					k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
					if resp, body := k.answer("GET"); resp.StatusCode != 200 || body != "own" || resp.Header.Get("X-Nonce") != "own" {
						t.Errorf("the next was answered %d %q", resp.StatusCode, body)
					}
					k.Close()
				}
			})
		}
	}
}
