package control

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// setOn is a set with one Gateway that listens on a port.
func setOn(port int32) *resource.Set {
	return &resource.Set{Gateways: []*gatewayv1.Gateway{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "edge"},
		Spec: gatewayv1.GatewaySpec{
			GatewayClassName: "weir",
			Listeners:        []gatewayv1.Listener{{Name: "http", Port: port, Protocol: gatewayv1.HTTPProtocolType}},
		},
	}}}
}

// scripted is a source whose sets a test sends; closing it ends the source with err.
type scripted struct {
	sets  chan *resource.Set
	err   error
	ended atomic.Bool
}

func newScripted() *scripted { return &scripted{sets: make(chan *resource.Set)} }

func (s *scripted) Run(ctx context.Context, emit func(*resource.Set)) error {
	defer s.ended.Store(true)
	for {
		select {
		case <-ctx.Done():
			return nil
		case set, ok := <-s.sets:
			if !ok {
				return s.err
			}
			emit(set)
		}
	}
}

// harness runs a loop and records what it publishes and reports.
type harness struct {
	source *scripted
	cancel context.CancelFunc
	done   chan error

	mu        sync.Mutex
	published []*model.Config
	reports   []Report
	// failure is what Publish answers.
	failure error
}

// start begins a loop inside a synctest bubble.
func start(t *testing.T, settle time.Duration) *harness {
	ctx, cancel := context.WithCancel(t.Context())
	h := &harness{source: newScripted(), cancel: cancel, done: make(chan error, 1)}
	l := &Loop{Source: h.source, Publish: h.publish, Report: h.report, Settle: settle}
	go func() { h.done <- l.Run(ctx) }()
	return h
}

// change sends a set with a listener on that port, and waits until it has been dealt with.
func (h *harness) change(port int32) {
	h.source.sets <- setOn(port)
	synctest.Wait()
}

func (h *harness) publish(configs map[model.Owner]*model.Config) map[model.Owner]error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failure != nil {
		return map[model.Owner]error{"": h.failure}
	}
	h.published = append(h.published, configs[""])
	return nil
}

func (h *harness) report(r Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reports = append(h.reports, r)
}

func (h *harness) fail(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failure = err
}

// state is what was published and reported so far.
func (h *harness) state() ([]*model.Config, []Report) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.published), slices.Clone(h.reports)
}

func (h *harness) last() Report {
	_, reports := h.state()
	return reports[len(reports)-1]
}

func (h *harness) stop(t *testing.T) {
	t.Helper()
	h.cancel()
	if err := <-h.done; err != nil {
		t.Errorf("Run = %v, want nil", err)
	}
	if !h.source.ended.Load() {
		t.Error("Run returned before its source had ended")
	}
}

func TestSetIsTranslatedPublishedAndReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, 0)
		h.change(8080)
		published, _ := h.state()
		if len(published) != 1 || len(published[0].Listeners) != 1 || published[0].Listeners[0].Port != 8080 {
			t.Fatalf("published %+v, want one configuration with a listener on 8080", published)
		}
		r := h.last()
		if r.Generation != 1 || !r.Changed || r.Err != nil || r.Config != published[0] {
			t.Errorf("report = %+v, want generation 1, changed", r)
		}
		if len(r.Statuses) != 1 || r.Statuses[0].Ref.Name != "edge" {
			t.Errorf("statuses = %+v, want the Gateway's", r.Statuses)
		}
		h.stop(t)
	})
}

func TestSetThatMeansTheSameIsNotPublishedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, 0)
		h.change(8080)
		h.change(8080)
		if published, reports := h.state(); len(published) != 1 || len(reports) != 2 {
			t.Fatalf("%d published, %d reported, want 1 and 2", len(published), len(reports))
		}
		if r := h.last(); r.Generation != 1 || r.Changed {
			t.Errorf("report = %+v, want generation 1, unchanged", r)
		}
		h.stop(t)
	})
}

func TestLastGoodConfigurationStaysWhenPublishingFailsAndIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, 0)
		h.change(8080)
		inUse := errors.New("port in use")
		h.fail(inUse)
		h.change(8081)
		if r := h.last(); r.Generation != 1 || r.Config.Listeners[0].Port != 8080 || !errors.Is(r.Err, inUse) {
			t.Fatalf("report = %+v, want generation 1 and the failure", r)
		}
		h.fail(nil)
		time.Sleep(2 * time.Second) // the bubble's clock: long enough for one more attempt
		synctest.Wait()
		if r := h.last(); r.Generation != 2 || r.Err != nil || r.Config.Listeners[0].Port != 8081 {
			t.Errorf("report = %+v, want generation 2 on 8081", r)
		}
		_, before := h.state()
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, after := h.state(); len(after) != len(before) {
			t.Errorf("%d reports without a new set", len(after)-len(before))
		}
		h.stop(t)
	})
}

func TestReturningToTheServedConfigurationEndsTheRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, 0)
		h.change(8080)
		inUse := errors.New("port in use")
		h.fail(inUse)
		h.change(8081)
		h.change(8080)
		if r := h.last(); r.Err != nil || r.Generation != 1 {
			t.Fatalf("report = %+v, want generation 1 without a failure", r)
		}
		_, before := h.state()
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, after := h.state(); len(after) != len(before) {
			t.Errorf("%d reports after the failure was gone", len(after)-len(before))
		}
		h.stop(t)
	})
}

func TestRunFailsWhenTheFirstConfigurationCannotBePublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, 0)
		denied := errors.New("permission denied")
		h.fail(denied)
		h.source.sets <- setOn(80)
		if err := <-h.done; !errors.Is(err, denied) {
			t.Errorf("Run = %v, want %v", err, denied)
		}
		if !h.source.ended.Load() {
			t.Error("Run returned before its source had ended")
		}
		h.cancel()
	})
}

func TestBurstOfSetsIsSettledToTheNewest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, 50*time.Millisecond)
		for port := range int32(10) {
			h.source.sets <- setOn(8080 + port)
			time.Sleep(10 * time.Millisecond)
		}
		synctest.Wait()
		if published, _ := h.state(); len(published) != 0 {
			t.Fatalf("%d published before the sets had settled", len(published))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if published, _ := h.state(); len(published) != 1 || published[0].Listeners[0].Port != 8089 {
			t.Errorf("published %d configurations, want the newest alone", len(published))
		}
		h.stop(t)
	})
}

func TestEndlessStreamOfSetsIsCutAfterAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, 50*time.Millisecond)
		for port := range int32(100) {
			h.source.sets <- setOn(8080 + port)
			time.Sleep(10 * time.Millisecond)
		}
		if published, _ := h.state(); len(published) == 0 {
			t.Error("nothing published in a second of changes every 10 ms")
		}
		h.stop(t)
	})
}

func TestSourceThatFailsEndsTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, 0)
		h.source.err = errors.New("no such folder")
		close(h.source.sets)
		if err := <-h.done; !errors.Is(err, h.source.err) {
			t.Errorf("Run = %v, want %v", err, h.source.err)
		}
		h.cancel()
	})
}

func TestSourceThatEndsLeavesItsLastSetServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, 0)
		h.source.sets <- setOn(8080)
		close(h.source.sets)
		synctest.Wait()
		if published, _ := h.state(); len(published) != 1 {
			t.Fatalf("%d published, want 1", len(published))
		}
		h.stop(t)
	})
}

func TestCodesAreUniqueAndDocumented(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range (Options{}).Codes() {
		if seen[c.ID] {
			t.Errorf("code %s twice", c.ID)
		}
		seen[c.ID] = true
		if c.Title == "" || c.Meaning == "" {
			t.Errorf("code %s has no title or meaning", c.ID)
		}
	}
}

func TestTrafficKeepsAProcessorWhileAConfigurationIsMadeAndPublished(t *testing.T) {
	t.Setenv("GOMAXPROCS", "1") // what is put back afterwards
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	ctx, cancel := context.WithCancel(t.Context())
	source := newScripted()
	go func() {
		for _, port := range []int32{80, 81} {
			select {
			case source.sets <- setOn(port):
			case <-ctx.Done():
			}
		}
	}()
	var during []int
	l := &Loop{Source: source, Publish: func(map[model.Owner]*model.Config) map[model.Owner]error {
		switch during = append(during, runtime.GOMAXPROCS(0)); len(during) {
		case 1: // the first has to be published
			return nil
		case 2:
			return map[model.Owner]error{"": errors.New("a port is in use")} // it is tried again
		}
		cancel()
		return nil
	}, Retry: time.Millisecond}
	if err := l.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(during, []int{2, 2, 2}) {
		t.Errorf("%v processors while something was published, want 2 each time", during)
	}
	if n := runtime.GOMAXPROCS(0); n != 1 {
		t.Errorf("%d processors afterwards, want 1", n)
	}
}
