package control

import (
	"context"
	"errors"
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

// harness runs a loop and records what it publishes and reports. publishErr is what Publish answers.
type harness struct {
	source     *scripted
	published  []*model.Config
	reports    []Report
	publishErr error
	cancel     context.CancelFunc
	done       chan error
}

// start begins a loop inside a synctest bubble.
func start(t *testing.T, settle time.Duration) *harness {
	ctx, cancel := context.WithCancel(t.Context())
	h := &harness{source: newScripted(), cancel: cancel, done: make(chan error, 1)}
	l := &Loop{
		Source: h.source,
		Publish: func(c *model.Config) error {
			if h.publishErr == nil {
				h.published = append(h.published, c)
			}
			return h.publishErr
		},
		Report: func(r Report) { h.reports = append(h.reports, r) },
		Settle: settle,
	}
	go func() { h.done <- l.Run(ctx) }()
	return h
}

func (h *harness) last() Report { return h.reports[len(h.reports)-1] }

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
		h.source.sets <- setOn(8080)
		synctest.Wait()
		if len(h.published) != 1 || len(h.published[0].Listeners) != 1 || h.published[0].Listeners[0].Port != 8080 {
			t.Fatalf("published %+v, want one configuration with a listener on 8080", h.published)
		}
		r := h.last()
		if r.Generation != 1 || !r.Changed || r.Err != nil || r.Config != h.published[0] {
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
		h.source.sets <- setOn(8080)
		synctest.Wait()
		h.source.sets <- setOn(8080)
		synctest.Wait()
		if len(h.published) != 1 || len(h.reports) != 2 {
			t.Fatalf("%d published, %d reported, want 1 and 2", len(h.published), len(h.reports))
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
		h.source.sets <- setOn(8080)
		synctest.Wait()
		h.publishErr = errors.New("port in use")
		h.source.sets <- setOn(8081)
		synctest.Wait()
		if r := h.last(); r.Generation != 1 || r.Config != h.published[0] || !errors.Is(r.Err, h.publishErr) {
			t.Fatalf("report = %+v, want generation 1 and the failure", r)
		}
		h.publishErr = nil
		time.Sleep(2 * time.Second) // the bubble's clock: long enough for one more attempt
		synctest.Wait()
		if r := h.last(); r.Generation != 2 || r.Err != nil || r.Config.Listeners[0].Port != 8081 {
			t.Errorf("report = %+v, want generation 2 on 8081", r)
		}
		before := len(h.reports)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(h.reports) != before {
			t.Errorf("%d reports without a new set", len(h.reports)-before)
		}
		h.stop(t)
	})
}

func TestReturningToTheServedConfigurationEndsTheRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, 0)
		h.source.sets <- setOn(8080)
		synctest.Wait()
		h.publishErr = errors.New("port in use")
		h.source.sets <- setOn(8081)
		synctest.Wait()
		h.source.sets <- setOn(8080)
		synctest.Wait()
		if r := h.last(); r.Err != nil || r.Generation != 1 {
			t.Fatalf("report = %+v, want generation 1 without a failure", r)
		}
		before := len(h.reports)
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(h.reports) != before {
			t.Errorf("%d reports after the failure was gone", len(h.reports)-before)
		}
		h.stop(t)
	})
}

func TestRunFailsWhenTheFirstConfigurationCannotBePublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := start(t, 0)
		h.publishErr = errors.New("permission denied")
		h.source.sets <- setOn(80)
		if err := <-h.done; !errors.Is(err, h.publishErr) {
			t.Errorf("Run = %v, want %v", err, h.publishErr)
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
		if len(h.published) != 0 {
			t.Fatalf("%d published before the sets had settled", len(h.published))
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if len(h.published) != 1 || h.published[0].Listeners[0].Port != 8089 {
			t.Errorf("published %d configurations, want the newest alone", len(h.published))
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
		if len(h.published) == 0 {
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
		if len(h.published) != 1 {
			t.Fatalf("%d published, want 1", len(h.published))
		}
		h.stop(t)
	})
}

func TestCodesAreUniqueAndDocumented(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range Codes() {
		if seen[c.ID] {
			t.Errorf("code %s twice", c.ID)
		}
		seen[c.ID] = true
		if c.Title == "" || c.Meaning == "" {
			t.Errorf("code %s has no title or meaning", c.ID)
		}
	}
}
