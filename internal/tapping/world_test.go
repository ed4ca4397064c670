package tapping

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/weirmesh/weir/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// end is one end of a stream in memory, which takes room messages that nobody reads.
type end struct {
	ctx     context.Context
	in, out chan []byte
}

const room = 4

// streams returns both ends of a stream, and what cuts it.
func streams(ctx context.Context) (a, b *end, cut context.CancelFunc) {
	ctx, cut = context.WithCancel(ctx)
	there, back := make(chan []byte, room), make(chan []byte, room)
	return &end{ctx, back, there}, &end{ctx, there, back}, cut
}

func (e *end) Context() context.Context { return e.ctx }

func (e *end) Send(b []byte) error {
	if err := e.ctx.Err(); err != nil {
		return err
	}
	select {
	case e.out <- b:
		return nil
	case <-e.ctx.Done():
		return e.ctx.Err()
	}
}

func (e *end) Recv() ([]byte, error) {
	select {
	case b := <-e.in:
		return b, nil
	case <-e.ctx.Done():
		return nil, e.ctx.Err()
	}
}

// world is one in which a test takes place, by a clock of its own.
type world struct {
	*testing.T
	ctx     context.Context
	running sync.WaitGroup
}

func inWorld(t *testing.T, test func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		w := &world{T: t, ctx: ctx}
		test(w)
		cancel()
		w.running.Wait()
	})
}

// hub is a replica's, with so many proxies connected.
func (w *world) hub(connected int) *Hub {
	h := &Hub{Connected: func() int { return connected }}
	context.AfterFunc(w.ctx, h.Wait)
	return h
}

// proxy has a proxy, "shop/NAME", be connected, and returns what it counts and what cuts its stream.
func (w *world) proxy(h *Hub, name string) (*telemetry.Registry, context.CancelFunc) {
	registry := telemetry.New()
	theirs, cut := w.link(h, name)
	w.running.Go(func() { _ = Serve(theirs, cut, registry) })
	synctest.Wait()
	return registry, cut
}

// link connects a proxy of which the test plays the part.
func (w *world) link(h *Hub, name string) (theirs *end, cut context.CancelFunc) {
	ours, theirs, cut := streams(w.ctx)
	w.running.Go(func() {
		defer cut()
		_ = h.ServeProxy(ours, "shop/gw", "shop/"+name)
	})
	synctest.Wait()
	return theirs, cut
}

func pod(name string) telemetry.Side {
	return telemetry.Side{Kind: "Pod", Namespace: "shop", Name: name}
}

func sides(names ...string) telemetry.TapSides {
	all := telemetry.TapSides{}
	for _, name := range names {
		all[pod(name)] = true
	}
	return all
}

// request is one that a proxy observed, to a pod.
func request(at, to, path string) *telemetry.Tapped {
	return &telemetry.Tapped{At: pod(at), To: pod(to), Method: "GET", Path: path, Status: 200}
}

func offer(r *telemetry.Registry, x *telemetry.Tapped) {
	for _, t := range r.Taps() {
		t.Offer(x)
	}
}

func query(change func(*telemetry.TapQuery)) telemetry.TapQuery {
	q, err := telemetry.ParseTapQuery(nil)
	if err != nil {
		panic(err)
	}
	if change != nil {
		change(&q)
	}
	return q
}

// reader is somebody who looks at a tap.
type reader struct {
	w     *world
	leave context.CancelFunc
	ended chan error

	mu     sync.Mutex
	sides  telemetry.TapSides
	paths  []string
	counts telemetry.TapCounts
	fault  string
}

// tap opens one as the API does.
func (w *world) tap(h *Hub, q telemetry.TapQuery, of telemetry.TapSides) *reader {
	ctx, leave := context.WithCancel(w.ctx)
	r := &reader{w: w, leave: leave, ended: make(chan error, 1), sides: of}
	out, in := io.Pipe()
	answer := &answer{httptest.NewRecorder(), in}
	w.running.Go(func() {
		err := h.ServeTap(answer, httptest.NewRequestWithContext(ctx, "GET", "/", nil), q, func(context.Context) (telemetry.TapSides, error) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if r.sides == nil {
				return nil, errors.New("you may not")
			}
			return r.sides, nil
		})
		_ = in.Close()
		r.ended <- err
	})
	w.running.Go(func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			var l telemetry.TapLine
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				w.Errorf("%s: %v", lines.Bytes(), err)
			}
			r.mu.Lock()
			if l.Request != nil {
				r.paths = append(r.paths, l.Request.Path)
			}
			if l.Counts != nil {
				r.counts = *l.Counts
			}
			r.fault += l.Error
			r.mu.Unlock()
		}
	})
	synctest.Wait()
	return r
}

// answer is a response that is read while it is written.
type answer struct {
	*httptest.ResponseRecorder
	to io.Writer
}

func (a *answer) Write(b []byte) (int, error)      { return a.to.Write(b) }
func (a *answer) SetWriteDeadline(time.Time) error { return nil }

// shows checks, some time later, which paths have been shown, and the counts.
func (r *reader) shows(after time.Duration, paths []string, counts telemetry.TapCounts) {
	r.w.Helper()
	time.Sleep(after)
	synctest.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.paths) != len(paths) {
		r.w.Errorf("shown: %q, want %q", r.paths, paths)
	} else {
		for i, p := range paths {
			if r.paths[i] != p {
				r.w.Errorf("shown: %q, want %q", r.paths, paths)
				break
			}
		}
	}
	if r.counts != counts {
		r.w.Errorf("counts %+v, want %+v", r.counts, counts)
	}
}
