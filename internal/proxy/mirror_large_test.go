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
	"github.com/weirmesh/weir/internal/telemetry"
)

// mirroredTo sends everything to primary and copies to a service.
func mirroredTo(primary string, to model.Service) *model.Config {
	c := mirrored(primary, "127.0.0.1:1", 1, 1)
	c.Services[1] = to
	return c
}

// postRandom posts a body that is not like any other, and gives its sum.
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
	const uploads, behind = 40, 8
	handlers := map[string]func(*testing.T, http.HandlerFunc) model.Service{
		"HTTP/1.1": func(t *testing.T, h http.HandlerFunc) model.Service { return toMirror(backend(t, h)) },
		"HTTP/2":   func(t *testing.T, h http.HandlerFunc) model.Service { return toHTTP2(mirrorHTTP2Backend(t, h)) },
		"TLS":      func(t *testing.T, h http.HandlerFunc) model.Service { return toTLS(t, false, h) },
	}
	for name, to := range handlers {
		for _, size := range []int{256 << 10, 512 << 10, 4 << 20} {
			for _, at := range []int{1, 4} {
				t.Run(fmt.Sprintf("%s/%d KiB/%d at once", name, size>>10, at), func(t *testing.T) {
					arrived := make(chan [32]byte, uploads)
					slots := make(chan struct{}, behind) // a mirror as fast as its primary is never further behind
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
					for range at {
						wg.Go(func() {
							for i := range uploads / at {
								slots <- struct{}{}
								sum := postRandom(t, client, "http://"+s.addr()+"/", size, i%2 == 1)
								mu.Lock()
								sums[sum] = true
								mu.Unlock()
							}
						})
					}
					wg.Wait()
					s.stop()
					<-s.ended
					if m := s.mirrorSnapshot(); m.Sent != uploads {
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

// The mirror begins to read when all primaries were answered: it is behind by all there is.
func TestCopiesOf4MiBWaitForAMirrorThatIsLate(t *testing.T) {
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
	const most = 4 << 20
	s := serve(t, mirrored(backend(t, summing), silent(t), 1, 1), func(o *Options) {
		o.Mirror.MaxBytes = most
		o.Mirror.Timeout = time.Minute
		o.DrainTimeout = 100 * time.Millisecond
		o.MaxBuffered = 64 << 20
	})
	var service *mirrorService
	s.mirrors.mu.Lock()
	for _, service = range s.mirrors.services {
	}
	s.mirrors.mu.Unlock()
	ctx, cancel := context.WithCancel(t.Context())
	var watch, wg sync.WaitGroup
	watch.Go(func() {
		for ctx.Err() == nil {
			if q := service.queued.Load(); q > most+4*copyPieceSize { // hold adds before it refuses
				t.Errorf("%d bytes are queued", q)
				return
			}
			time.Sleep(100 * time.Microsecond)
		}
	})
	client := newClient(t)
	for i := range 4 {
		wg.Go(func() {
			for range 3 {
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
	if m.Sent != 0 || m.Dropped+m.Failed != 12 {
		t.Errorf("%v", m.Outcomes)
	}
	if d := s.buffers.Drawn(); d != 0 {
		t.Errorf("%d bytes are left", d)
	}
}

func TestLargeCopiesLeaveRoomForSmallOnes(t *testing.T) {
	const most = 8 << 20
	f := newMirrorFixture(t, MirrorOptions{MaxBytes: most, Timeout: time.Minute}, toMirror(silent(t)))
	s := f.target.service
	piece := make([]byte, 64<<10)
	// Each is given up when it has as much as it leaves.
	var legs []*mirrorLeg
	for n := 1; n <= 4; n++ {
		l, _ := f.begin(f.target, mirrorPost("/", lengthBody(64<<20)), 0)
		legs = append(legs, l)
	}
	for full := false; !full; {
		for _, l := range legs {
			l.write(piece)
			full = full || l.fate.Load() != uint32(telemetry.MirrorPending)
		}
	}
	if q := s.queued.Load(); q > most {
		t.Errorf("%d bytes are queued", q)
	}
	for range 5 {
		l, o := f.begin(f.target, mirrorPost("/", lengthBody(200<<10)), 0)
		if l == nil {
			t.Fatal(o)
		}
		for range 4 {
			l.write(piece[:50<<10])
		}
		if o := telemetry.MirrorOutcome(l.fate.Load()); o != telemetry.MirrorPending {
			t.Errorf("a small copy: %v", o)
		}
		l.end(nil)
		legs = append(legs, l)
	}
	for _, l := range legs {
		l.abort()
		l.outcome()
	}
	ctx, cancel := contextCancelled()
	defer cancel()
	f.close(ctx)
	f.expectIdle(t)
}

func TestCopyQueueGivesWhatItGot(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		var q copyQueue
		var want, got []byte
		take := func() {
			p, more := q.take()
			got = append(got, p...)
			if len(p) == 0 && len(got) != len(want) || more != (len(got) < len(want)) {
				t.Fatalf("%d of %d bytes taken, more: %t", len(got), len(want), more)
			}
		}
		for range r.IntN(400) {
			if r.IntN(3) == 0 {
				take()
				continue
			}
			p := make([]byte, r.IntN([]int{10, 1000, 100_000}[r.IntN(3)]))
			for i := range p {
				p[i] = byte(r.Uint32())
			}
			q.put(p)
			want = append(want, p...)
		}
		for len(got) < len(want) {
			take()
		}
		if take(); !bytes.Equal(got, want) {
			t.Fatal("other bytes")
		}
		q.put([]byte("rest"))
		q.reset()
		if p, more := q.take(); len(p) > 0 || more {
			t.Fatal("something is left")
		}
	}
}

// A small copy is nobody's work until its primary was answered, or has taken long.
func TestSmallCopyWaitsForItsPrimary(t *testing.T) {
	handler, got := arrivals(100)
	f := newMirrorFixture(t, MirrorOptions{}, toMirror(backend(t, handler)))
	whole := func() *mirrorLeg {
		l, _ := f.begin(f.target, mirrorPost("/", lengthBody(4)), 0)
		l.write([]byte("body"))
		l.end(nil)
		return l
	}
	carried := &f.target.service.carried
	l := whole()
	if n := carried.Load(); n != 0 {
		t.Errorf("%d copies under way with the primary", n)
	}
	l.outcome()
	f.wait(t, 1)
	// The primary is not answered for long.
	l = whole()
	f.wait(t, 1)
	if o := l.outcome(); o != telemetry.MirrorSent {
		t.Errorf("%v", o)
	}
	// Many at once do not wait for the clock.
	var all []*mirrorLeg
	for range 3 * heldDue {
		all = append(all, whole())
	}
	for _, l := range all {
		l.outcome()
	}
	f.wait(t, len(all))
	for range 2 + len(all) {
		if a := <-got; a.body != "body" {
			t.Errorf("%q, %v", a.body, a.err)
		}
	}
	f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: uint64(2 + len(all))})
}

// What ends, aborts and is late in every order leaves nothing behind.
func TestHeldCopiesEndInEveryWay(t *testing.T) {
	f := newMirrorFixture(t, MirrorOptions{MaxInFlight: 4, BreakAfter: -1}, toMirror(cannedMirror(t)))
	var wg sync.WaitGroup
	for p := range 8 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(p), 1))
			for range 100 {
				l, _ := f.begin(f.target, mirrorPost("/", chunkedBody), uint32(p))
				if l == nil {
					continue
				}
				l.write(make([]byte, r.IntN(100)))
				if r.IntN(8) == 0 {
					time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
				}
				if r.IntN(4) == 0 {
					l.abort()
				} else {
					l.end(nil)
				}
				l.outcome()
			}
		})
	}
	wg.Wait()
	f.close(context.Background())
	f.expectIdle(t)
	if !f.held.empty() || f.target.service.carried.Load() != 0 {
		t.Errorf("%d are carried, all ended: %t", f.target.service.carried.Load(), f.held.empty())
	}
}
