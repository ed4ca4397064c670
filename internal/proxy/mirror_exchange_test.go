package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/test/size"
)

// mirrored sends everything to primary and n of d requests to mirror too.
func mirrored(primary, mirror string, n, d uint32) *model.Config {
	rule := ruleTo(serviceName)
	rule.Filters.Mirrors = []model.Mirror{{Ref: rule.Ref, Service: peertest.MirrorName, Numerator: n, Denominator: d}}
	return config([]model.Service{service(serviceName, model.HTTP, primary), peertest.ToMirror(mirror)}, rule)
}

func (s *testServer) mirrorSnapshot() (m telemetry.MirrorSnapshot) {
	for _, m := range s.metrics.Snapshot().Mirrors {
		return m
	}
	return m
}

func TestPrimaryNeverNoticesItsMirror(t *testing.T) {
	t.Parallel()
	requests := size.Of(10, 60)
	for _, c := range []struct {
		name   string
		mirror func(testing.TB) string
	}{
		{"healthy", func(t testing.TB) string {
			return peertest.Raw(t, func(_ int, c net.Conn) { peertest.Respond(c, peertest.OK) })
		}},
		{"refuses", peertest.Refusing},
		{"never reads", peertest.Silent},
		{"slow", func(t testing.TB) string {
			return backend(t, func(_ http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body) // otherwise the server does not notice the end of the connection
				<-r.Context().Done()
			})
		}},
		{"garbage", func(t testing.TB) string {
			return peertest.Raw(t, func(_ int, c net.Conn) { io.WriteString(c, "garbage\r\n\r\n") })
		}},
		{"closes mid-body", func(t testing.TB) string {
			return peertest.Raw(t, func(_ int, c net.Conn) { c.Read(make([]byte, 100)) })
		}},
		{"other statuses", func(t testing.TB) string {
			return backend(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Set-Cookie", "mirror=1")
				w.WriteHeader(http.StatusInternalServerError)
			})
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			primary := backend(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Weir-Mirrored") != "" {
					t.Error("the primary is marked")
				}
				b, err := io.ReadAll(r.Body)
				if err != nil {
					t.Error(err)
				}
				fmt.Fprintf(w, "%s %d", r.Method, len(b))
			})
			s := serve(t, mirrored(primary, c.mirror(t), 1, 1), func(o *Options) {
				o.Mirror.MaxInFlight, o.DrainTimeout = 10, time.Second
				if c.name != "healthy" { // whose copies need what the machine takes
					o.Mirror.Timeout = 100 * time.Millisecond
				}
			})
			client := newClient(t)
			sizes := []int{0, 10, 5000, 100_000, 2_000_000}
			for i := range requests {
				length := sizes[i%len(sizes)]
				var body io.Reader = strings.NewReader(strings.Repeat("x", length))
				if i%2 == 0 {
					body = io.MultiReader(body) // chunked
				}
				resp, err := client.Post("http://"+s.addr()+"/", "text/plain", body)
				if err != nil {
					t.Fatal(err)
				}
				b, err := io.ReadAll(resp.Body)
				resp.Body.Close()
				if want := fmt.Sprintf("POST %d", length); err != nil || resp.StatusCode != 200 || string(b) != want || resp.Header.Get("Set-Cookie") != "" {
					t.Fatalf("request %d: %d %q, want %q, %v", i, resp.StatusCode, b, want, err)
				}
			}
			s.stop()
			<-s.ended
			m := s.mirrorSnapshot()
			if n := uint64(requests); m.Selected != n || m.Sent+m.Dropped+m.Failed != n {
				t.Errorf("of %d copies %d were selected, %v", n, m.Selected, m.Outcomes)
			}
			if c.name == "healthy" && m.Sent == 0 {
				t.Errorf("%v", m.Outcomes)
			}
		})
	}
}

func TestShareOfRequestsIsMirrored(t *testing.T) {
	got := make(chan string, 100)
	mirror := backend(t, func(_ http.ResponseWriter, r *http.Request) { got <- r.Method + " " + r.Host + r.RequestURI })
	s := serve(t, mirrored(backend(t, func(http.ResponseWriter, *http.Request) {}), mirror, 1, 4))
	client := newClient(t)
	for range 100 {
		resp, err := client.Get("http://" + s.addr() + "/a//b%2Fc?x=%20y")
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
	}
	addr := s.addr()
	s.stop()
	<-s.ended
	if m := s.mirrorSnapshot(); m.Considered != 100 || m.Selected != 25 || m.Sent != 25 || len(got) != 25 {
		t.Fatalf("%d of %d were mirrored, %v, %d arrived", m.Selected, m.Considered, m.Outcomes, len(got))
	}
	for range 25 {
		if r := <-got; r != "GET "+addr+"/a//b%2Fc?x=%20y" {
			t.Fatalf("got %q", r)
		}
	}
}

func TestUpgradeIsNotMirrored(t *testing.T) {
	primary := rawBackend(t, func(c net.Conn) {
		c.Read(make([]byte, 4096))
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\n")
	})
	s := serve(t, mirrored(primary, peertest.Refusing(t), 1, 1))
	c := dial(t, s.addr())
	io.WriteString(c, fields("GET / HTTP/1.1", "Host: a", "Connection: upgrade", "Upgrade: echo"))
	if _, err := io.ReadAll(c); err != nil {
		t.Fatal(err)
	}
	c.Close() // a drain waits for tunnels
	s.stop()
	<-s.ended
	if m := s.mirrorSnapshot(); m.Selected != 0 {
		t.Errorf("%v", m.Outcomes)
	}
}
