package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
)

// paced sets a minimum rate that a stall breaks at once, while a single byte makes up for a day. A busy machine stalls nobody for as long as the grace.
func paced(o *Options) { o.MinBodyRate, o.BodyGrace = 1, 500*time.Millisecond }

// graces is longer than the grace of paced.
const graces = 1500 * time.Millisecond

// serveTalk serves a configuration and opens a connection to it. Over TLS, it connects as shop.example.
func serveTalk(t *testing.T, cfg *model.Config, overTLS bool, edit func(*Options)) (*testServer, *talk) {
	t.Helper()
	if !overTLS {
		s := serve(t, cfg, edit)
		return s, newTalk(t, s.addr())
	}
	pool := secure(t, cfg, "shop.example")
	s := serve(t, cfg, edit)
	return s, newTLSTalk(t, s.addr(), pool, "shop.example")
}

func TestSlowBodyIsTheClientsFault(t *testing.T) {
	t.Parallel()
	for name, request := range map[string]string{
		"length":                 "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf",
		"nothing":                "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n",
		"length, with retries":   "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nhalf",
		"chunks":                 "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
		"in the middle of one":   "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n40\r\nhalf",
		"the last chunk is late": "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n",
	} {
		for _, overTLS := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", name, overTLS), func(t *testing.T) {
				t.Parallel()
				addr := backend(t, func(w http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
				cfg := plain(addr)
				if strings.HasSuffix(name, "with retries") {
					cfg.Routes[0].Rules[0].Retry = &model.Retry{Attempts: 1, Codes: []int{503}} // keeps the body in memory first
				}
				s, k := serveTalk(t, cfg, overTLS, paced)
				k.send(strings.Replace(request, "Host: a", "Host: shop.example", 1))
				resp, text := k.answer("POST")
				if resp.StatusCode != 408 || !strings.HasPrefix(text, "client_timeout: ") || !resp.Close {
					t.Errorf("status %d, close %v, %q", resp.StatusCode, resp.Close, text)
				}
				k.closed()
				if n := s.failures(telemetry.ClientTimeout); n != 1 {
					t.Errorf("counted %d times", n)
				}
				for _, p := range reasonsOf(s) {
					if p.Party() == telemetry.PartyBackend {
						t.Errorf("the backend is blamed: %s", p)
					}
				}
			})
		}
	}
}

// reasonsOf are the reasons counted.
func reasonsOf(s *testServer) (all []telemetry.Reason) {
	for _, x := range s.metrics.Snapshot().Exchanges {
		for _, r := range x.Reasons {
			all = append(all, r.Reason)
		}
	}
	return all
}

func TestSlowBackendIsNotTheClientsFault(t *testing.T) {
	t.Parallel()
	const size = 8 << 20
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(graces)
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, n)
	})
	s := serve(t, plain(addr), paced)
	resp, err := newClient(t).Post("http://"+s.addr()+"/", "text/plain", io.LimitReader(zeros{}, size))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if text, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(text) != fmt.Sprint(size) {
		t.Errorf("status %d, %q, %v", resp.StatusCode, text, err)
	}
}

func TestClientThatWaitsForContinueIsNotSlow(t *testing.T) {
	t.Parallel()
	for _, rest := range []string{"data", ""} {
		t.Run("body "+rest, func(t *testing.T) {
			t.Parallel()
			addr := rawBackend(t, func(c net.Conn) {
				r := bufio.NewReader(c)
				if _, err := rawHead(r); err != nil {
					return
				}
				time.Sleep(graces)
				io.WriteString(c, "HTTP/1.1 100 Continue\r\n\r\n")
				if _, err := io.CopyN(io.Discard, r, 4); err == nil {
					io.WriteString(c, okResponse)
				}
			})
			s := serve(t, plain(addr), paced)
			k := newTalk(t, s.addr())
			k.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
			if head, err := rawHead(k.r); err != nil || !strings.HasPrefix(head, "HTTP/1.1 100 ") {
				t.Fatalf("%q, %v", head, err)
			}
			k.send(rest)
			want := 200
			if rest == "" {
				want = 408 // from then on the body is due
			}
			if resp, _ := k.answer("POST"); resp.StatusCode != want {
				t.Errorf("status %d, want %d", resp.StatusCode, want)
			}
		})
	}
}

// TestSilenceInsteadOfContinueIsTheBackends: the client waits for 100 (Continue) and the backend sends nothing. The
// failure counts as the backend's.
func TestSilenceInsteadOfContinueIsTheBackends(t *testing.T) {
	t.Parallel()
	addr := rawBackend(t, func(c net.Conn) { io.Copy(io.Discard, c) })
	s := serve(t, plain(addr), paced, func(o *Options) { o.ResponseTimeout = 50 * time.Millisecond })
	k := newTalk(t, s.addr())
	k.send("POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 4\r\n\r\n")
	if resp, text := k.answer("POST"); resp.StatusCode != 504 || !strings.HasPrefix(text, "backend_timeout: ") {
		t.Errorf("status %d, %q", resp.StatusCode, text)
	}
}

func TestSilenceBetweenEventsIsNoSlowness(t *testing.T) {
	t.Parallel()
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		for i := range 3 {
			time.Sleep(time.Second) // two graces
			fmt.Fprintf(w, "data: %d\n\n", i)
			w.(http.Flusher).Flush()
		}
	})
	s := serve(t, plain(addr), paced)
	k := newTalk(t, s.addr())
	k.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")
	if resp, text := k.answer("GET"); resp.StatusCode != 200 || !strings.HasSuffix(text, "data: 2\n\n") {
		t.Errorf("status %d, %q", resp.StatusCode, text)
	}
}

// TestConversationIsNoSlowness: once the answer has begun, both sides may pause if the body's length is unknown.
func TestConversationIsNoSlowness(t *testing.T) {
	t.Parallel()
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		if err := rc.EnableFullDuplex(); err != nil {
			t.Error(err)
		}
		fmt.Fprint(w, "hello\n")
		rc.Flush()
		io.Copy(w, r.Body)
	})
	s := serve(t, plain(addr), paced)
	k := newTalk(t, s.addr())
	k.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
	resp, err := http.ReadResponse(k.r, nil)
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReaderSize(resp.Body, 16).ReadString('\n')
	if resp.StatusCode != 200 || line != "hello\n" {
		t.Fatalf("status %d, %q, %v", resp.StatusCode, line, err)
	}
	time.Sleep(graces)
	k.send("4\r\nmore\r\n0\r\n\r\n")
	if rest, err := io.ReadAll(resp.Body); string(rest) != "more" || err != nil {
		t.Errorf("%q, %v", rest, err)
	}
}

// TestClientThatTakesNothingIsLetGo: if the client does not read its answer, the connection ends, however the answer is
// sent.
func TestClientThatTakesNothingIsLetGo(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"length", "chunked"} {
		for _, overTLS := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, TLS %v", kind, overTLS), func(t *testing.T) {
				t.Parallel()
				ended := make(chan error, 1)
				addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
					if kind == "length" {
						w.Header().Set("Content-Length", fmt.Sprint(1<<30))
					}
					_, err := io.CopyN(w, zeros{}, 1<<30)
					ended <- err
				})
				cfg := plain(addr)
				s, k := serveTalk(t, cfg, overTLS, paced)
				k.send("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n")
				if err := <-ended; err == nil {
					t.Error("the backend sent all of it")
				}
				_, err := io.Copy(io.Discard, k.r)
				var ne net.Error
				if errors.As(err, &ne) && ne.Timeout() {
					t.Error("the connection is still open")
				}
				if n := s.failures(telemetry.ClientTimeout); n != 1 {
					t.Errorf("counted %d times, %v", n, reasonsOf(s))
				}
			})
		}
	}
}

// TestClientThatTakesLittleIsServed: the system takes megabytes at once and then nothing for seconds, while the client
// reads a little all the time. That is fast enough.
func TestClientThatTakesLittleIsServed(t *testing.T) {
	t.Parallel()
	if !socket.CanAcknowledge {
		t.Skip("this system does not tell what a client has taken")
	}
	const size, grace = 6 << 20, time.Second
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/length" {
			w.Header().Set("Content-Length", fmt.Sprint(size))
		}
		io.CopyN(w, zeros{}, size)
	})
	for _, overTLS := range []bool{false, true} {
		for _, path := range []string{"/length", "/chunked"} {
			t.Run(fmt.Sprintf("%s, TLS %v", path, overTLS), func(t *testing.T) {
				t.Parallel()
				cfg := plain(addr)
				edit := func(o *Options) { o.MinBodyRate, o.BodyGrace = 1000, grace }
				connect := func() *talk { return newTalk(t, serve(t, cfg, edit).addr()) }
				if overTLS {
					pool := secure(t, cfg, "shop.example")
					connect = func() *talk { return newTLSTalk(t, serve(t, cfg, edit).addr(), pool, "shop.example") }
				}
				// take returns how much came, and the longest time in which the client took nothing.
				take := func(k *talk) (got int, pause time.Duration, err error) {
					k.send("GET " + path + " HTTP/1.1\r\nHost: shop.example\r\n\r\n")
					resp, err := http.ReadResponse(k.r, nil)
					if err != nil {
						return 0, 0, err
					}
					buf := make([]byte, 64<<10)
					for at := time.Now(); ; time.Sleep(50 * time.Millisecond) {
						n, err := io.ReadFull(resp.Body, buf)
						got, pause, at = got+n, max(pause, time.Since(at)), time.Now()
						if err == io.EOF || err == io.ErrUnexpectedEOF && got == size {
							return got, pause, nil
						}
						if err != nil {
							return got, pause, err
						}
					}
				}
				for try := 0; ; try++ {
					got, pause, err := take(connect())
					switch {
					case err == nil && got == size:
					case pause < grace/2:
						t.Errorf("after %d bytes, pauses up to %v: %v", got, pause, err)
					case try < 5:
						continue // the client made a pause that is too long, on a busy machine
					default:
						t.Skip("this machine has too much to do")
					}
					break
				}
			})
		}
	}
}

func TestBodiesBeyondTheLimitAreRefused(t *testing.T) {
	var got bytes.Buffer
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) { got.Reset(); io.Copy(&got, r.Body) })
	s := serve(t, plain(addr), func(o *Options) { o.MaxBody = 10 })
	for _, test := range []struct {
		request string
		status  int
	}{
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n0123456789", 200},
		{"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 11\r\n\r\n0123456789x", 413},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n0\r\n\r\n", 200},
		{"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\na\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n", 413},
	} {
		k := newTalk(t, s.addr())
		k.send(test.request)
		resp, text := k.answer("POST")
		if resp.StatusCode != test.status || test.status == 413 && !strings.HasPrefix(text, "body_too_large: ") {
			t.Errorf("%q: status %d, %q", test.request, resp.StatusCode, text)
		}
		if test.status == 200 && got.String() != "0123456789" {
			t.Errorf("%q: the backend got %q", test.request, got.String())
		}
	}
	if n := s.failures(telemetry.BodyTooLarge); n != 2 {
		t.Errorf("counted %d times", n)
	}
}
