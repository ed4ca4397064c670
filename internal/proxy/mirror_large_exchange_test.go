package proxy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/test/size"
)

// mirroredTo sends everything to primary and copies to a service.
func mirroredTo(primary string, to model.Service) *model.Config {
	c := mirrored(primary, "127.0.0.1:1", 1, 1)
	c.Services[1] = to
	return c
}

// postRandom posts a unique body and returns its sum.
func postRandom(t *testing.T, client *http.Client, url string, size int, chunked bool) (sum [32]byte) {
	body := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32())}).Read(body)
	var r io.Reader = bytes.NewReader(body)
	if chunked {
		r = io.MultiReader(r)
	}
	resp, err := client.Post(url, "application/octet-stream", r)
	if err != nil {
		t.Error(err)
		return
	}
	io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if sum = sha256.Sum256(body); resp.StatusCode != 200 || resp.Header.Get("X-Sum") != fmt.Sprintf("%x", sum) {
		t.Errorf("%d: the primary did not get what was sent", resp.StatusCode)
	}
	return sum
}

// summing answers with the sum of the body.
func summing(w http.ResponseWriter, r *http.Request) {
	h := sha256.New()
	if _, err := io.Copy(h, r.Body); err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("X-Sum", fmt.Sprintf("%x", h.Sum(nil)))
}

func TestLargeBodiesAreMirroredWholeAtDefaults(t *testing.T) {
	t.Parallel()
	const behind = 8
	uploads := size.Of(4, 40)
	handlers := map[string]func(*testing.T, http.HandlerFunc) model.Service{
		"HTTP/1.1": func(t *testing.T, h http.HandlerFunc) model.Service { return peertest.ToMirror(backend(t, h)) },
		"HTTP/2": func(t *testing.T, h http.HandlerFunc) model.Service {
			return peertest.ToHTTP2(peertest.H2CBackend(t, h))
		},
		"TLS": func(t *testing.T, h http.HandlerFunc) model.Service { return peertest.ToTLS(t, false, h) },
	}
	for name, to := range handlers {
		for _, size := range []int{256 << 10, 512 << 10, 4 << 20} {
			for _, at := range []int{1, 4} {
				t.Run(fmt.Sprintf("%s/%d KiB/%d at once", name, size>>10, at), func(t *testing.T) {
					arrived := make(chan [32]byte, uploads)
					slots := make(chan struct{}, behind) // bounds the mirror's lag: a mirror as fast as its primary is never further behind
					service := to(t, func(_ http.ResponseWriter, r *http.Request) {
						h := sha256.New()
						if _, err := io.Copy(h, r.Body); err == nil {
							arrived <- [32]byte(h.Sum(nil))
						}
						<-slots
					})
					s := serve(t, mirroredTo(backend(t, summing), service))
					client := newClient(t)
					sums := map[[32]byte]bool{}
					var mu sync.Mutex
					var wg sync.WaitGroup
					for w := range at {
						wg.Go(func() {
							for i := range uploads / at {
								slots <- struct{}{}
								sum := postRandom(t, client, "http://"+s.addr()+"/", size, (w+i)%2 == 1)
								mu.Lock()
								sums[sum] = true
								mu.Unlock()
							}
						})
					}
					wg.Wait()
					s.stop()
					<-s.ended
					if m := s.mirrorSnapshot(); m.Sent != uint64(uploads) {
						t.Errorf("of %d copies: %v", uploads, m.Outcomes)
					}
					close(arrived)
					for sum := range arrived {
						delete(sums, sum)
					}
					if len(sums) > 0 {
						t.Errorf("%d copies are not what was sent", len(sums))
					}
				})
			}
		}
	}
}

// TestCopiesOf4MiBWaitForAMirrorThatIsLate: the mirror begins to read when all primaries have answered. Then all copies
// wait for it.
func TestCopiesOf4MiBWaitForAMirrorThatIsLate(t *testing.T) {
	t.Parallel()
	const uploads = 8
	late := make(chan struct{})
	sums := make(chan [32]byte, uploads)
	mirror := backend(t, func(_ http.ResponseWriter, r *http.Request) {
		<-late
		h := sha256.New()
		if _, err := io.Copy(h, r.Body); err == nil {
			sums <- [32]byte(h.Sum(nil))
		}
	})
	s := serve(t, mirrored(backend(t, summing), mirror, 1, 1), func(o *Options) { o.Mirror.Timeout = time.Minute })
	client := newClient(t)
	want := make(chan [32]byte, uploads)
	var wg sync.WaitGroup
	for i := range uploads {
		wg.Go(func() { want <- postRandom(t, client, "http://"+s.addr()+"/", 4<<20, i%2 == 1) })
	}
	wg.Wait()
	close(late)
	s.stop()
	<-s.ended
	all := map[[32]byte]bool{}
	for range uploads {
		all[<-want] = true
	}
	if m := s.mirrorSnapshot(); m.Sent != uploads {
		t.Fatalf("of %d copies: %v", uploads, m.Outcomes)
	}
	for range uploads {
		if sum := <-sums; !all[sum] {
			t.Error("a copy is not what was sent")
		}
	}
}

func TestLargeBodiesToASlowMirrorStayWithinBounds(t *testing.T) {
	t.Parallel()
	const most = 4 << 20
	s := serve(t, mirrored(backend(t, summing), peertest.Silent(t), 1, 1), func(o *Options) {
		o.Mirror.MaxBytes = most
		o.Mirror.Timeout = time.Minute
		o.DrainTimeout = 100 * time.Millisecond
		o.MaxBuffered = 64 << 20
	})
	ctx, cancel := context.WithCancel(t.Context())
	var watch, wg sync.WaitGroup
	watch.Go(func() {
		for ctx.Err() == nil {
			over := false
			s.mirrors.States(func(m telemetry.MirrorState) {
				if over = m.QueuedBytes > most+4*32<<10; over { // a piece of each upload is counted before it is refused
					t.Errorf("%d bytes are queued", m.QueuedBytes)
				}
			})
			if over {
				return
			}
			time.Sleep(100 * time.Microsecond)
		}
	})
	client := newClient(t)
	each := size.Of(1, 3)
	for i := range 4 {
		wg.Go(func() {
			for range each {
				postRandom(t, client, "http://"+s.addr()+"/", 12<<20, i%2 == 0)
			}
		})
	}
	wg.Wait()
	cancel()
	watch.Wait()
	s.stop()
	<-s.ended
	m := s.mirrorSnapshot()
	if m.Sent != 0 || m.Dropped+m.Failed != uint64(4*each) {
		t.Errorf("%v", m.Outcomes)
	}
	if d := s.buffers.Drawn(); d != 0 {
		t.Errorf("%d bytes are left", d)
	}
}
