//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// options of a soak.
type options struct {
	command                                func(args ...string) *exec.Cmd // weir
	requests, reloads, handovers, rollings int
	drainTimeout, drainDelay, streamLife   time.Duration
	endless                                int // streams that no drain timeout is long enough for
	width                                  int // how many clients there are, in no particular unit
	keepLogs                               bool
	out                                    io.Writer
	progress                               io.Writer // nil for none
}

// patience is how long anything may take before the soak gives up; it decides nothing else.
const patience = 2 * time.Minute

// soak is a running one.
type soak struct {
	options
	dir     string
	ports   ports
	truth   truth
	fleet   fleet
	edge    edge
	diary   diary
	answers answers
	tls     *authority

	mains    target // the chain of processes that hand over
	balanced *balancer
	passing  *passing // the port that comes and goes

	ctx    context.Context
	gate   sync.RWMutex // held for reading while a request is under way; for writing while everything rests
	sent   atomic.Int64
	acting atomic.Bool // changes are still to come
}

func run(ctx context.Context, o options) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s := &soak{options: o, ctx: ctx}
	s.diary.begun = time.Now()
	if s.dir, err = os.MkdirTemp("", "weir-soak-"); err != nil {
		return err
	}
	defer func() {
		if o.keepLogs {
			fmt.Fprintln(o.out, "logs:", s.dir)
		} else {
			os.RemoveAll(s.dir)
		}
	}()
	if s.tls, err = newAuthority(); err != nil {
		return err
	}
	if s.ports, err = freePorts(); err != nil {
		return err
	}
	s.truth.broken = make([]atomic.Bool, 2*o.reloads+10)
	if err := s.edge.start(s); err != nil {
		return err
	}
	defer s.edge.stop()
	if err := s.edge.write(s); err != nil {
		return err
	}
	s.fleet.s = s
	defer s.fleet.kill()
	main, err := s.fleet.start("main", "127.0.0.1", "--handover", filepath.Join(s.dir, "handover"))
	if err != nil {
		return err
	}
	s.mains = fixed("127.0.0.1")
	s.balanced = &balancer{s: s, replicas: map[string]*process{}}
	for i, address := range []string{"127.0.0.2", "127.0.0.3"} {
		p, err := s.fleet.start(fmt.Sprintf("replica-%d", i+1), address, "--drain-delay", o.drainDelay.String())
		if err != nil {
			return err
		}
		s.balanced.replicas[address] = p
	}
	s.passing = newPassing()

	var clients, watch sync.WaitGroup
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	watch.Go(func() { s.balanced.follow(watching) })
	if o.progress != nil {
		watch.Go(func() { s.tell(watching) })
	}
	s.acting.Store(true)
	s.startClients(&clients)
	actErr := s.act(main)
	s.acting.Store(false)
	s.passing.end()
	clients.Wait()
	stopWatching()
	watch.Wait()
	if ctx.Err() != nil && actErr == nil {
		actErr = ctx.Err()
	}
	if actErr == nil {
		actErr = s.fleet.stopAll()
	}
	return s.report(actErr)
}

// tell says every now and then how far it is.
func (s *soak) tell(ctx context.Context) {
	t := time.NewTicker(10 * time.Second)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			d := &s.diary
			d.mu.Lock()
			fmt.Fprintf(s.progress, "%v: %d requests, %d failed, %d reloads, %d processes drained\n",
				time.Since(d.begun).Round(time.Second), s.sent.Load(), d.lost, d.reloads.Load(), d.drained.Load())
			d.mu.Unlock()
		}
	}
}

// more says whether another request is to be sent, and counts it.
func (s *soak) more() bool {
	if s.ctx.Err() != nil || !s.acting.Load() && s.sent.Load() >= int64(s.requests) {
		return false
	}
	s.sent.Add(1)
	return true
}

// act makes the changes, each when so many requests were sent.
func (s *soak) act(main *process) error {
	type event struct {
		at float64
		do func() error
	}
	var events []event
	for i := range s.reloads {
		events = append(events, event{(float64(i) + 0.5) / float64(s.reloads), func() error { return s.edge.reload(s, i) }})
	}
	for i := range s.handovers {
		events = append(events, event{0.05 + 0.25*float64(i)/float64(s.handovers), func() (err error) {
			main, err = s.handOver(main)
			return err
		}})
	}
	// From here on the process that took over last stays, so that it can be seen whether it grows.
	var before footprint
	events = append(events, event{0.34, func() (err error) { before, err = s.rest(main); return err }})
	var rolling sync.WaitGroup
	defer rolling.Wait()
	failed := make(chan error, s.rollings)
	for i := range s.rollings {
		events = append(events, event{0.4 + 0.5*float64(i)/float64(s.rollings), func() error {
			rolling.Wait()
			rolling.Go(func() { failed <- s.roll() })
			return nil
		}})
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(1e6*a.at) - int(1e6*b.at) })
	for _, e := range events {
		for s.sent.Load() < int64(e.at*float64(s.requests)) {
			select {
			case <-s.ctx.Done():
				return s.ctx.Err()
			case <-time.After(5 * time.Millisecond):
			}
		}
		if err := e.do(); err != nil {
			return err
		}
	}
	for s.sent.Load() < int64(s.requests) && s.ctx.Err() == nil {
		time.Sleep(5 * time.Millisecond)
	}
	rolling.Wait()
	close(failed)
	for err := range failed {
		if err != nil {
			return err
		}
	}
	after, err := s.rest(main)
	s.diary.before, s.diary.after = before, after
	return err
}

// handOver starts a process that takes over from another.
func (s *soak) handOver(old *process) (*process, error) {
	s.diary.handovers.Add(1)
	defer s.diary.during("handover %d", s.diary.handovers.Load())()
	p, err := s.fleet.start("main", "127.0.0.1", "--handover", filepath.Join(s.dir, "handover"))
	if err != nil {
		return nil, err
	}
	if err := old.await("another process has taken over"); err != nil {
		return nil, err
	}
	s.fleet.leave(old)
	return p, nil
}

// roll replaces the replicas one after the other, as a Deployment does.
func (s *soak) roll() error {
	s.diary.rollings.Add(1)
	for i, address := range []string{"127.0.0.2", "127.0.0.3"} {
		done := s.diary.during("rolling %s", address)
		old := s.balanced.get(address)
		s.fleet.leave(old)
		if err := old.terminate(); err != nil {
			return err
		}
		if err := old.wait(); err != nil {
			return err
		}
		p, err := s.fleet.start(fmt.Sprintf("replica-%d", i+1), address, "--drain-delay", s.drainDelay.String())
		if err != nil {
			return err
		}
		s.balanced.set(address, p)
		if err := s.balanced.awaitReady(address); err != nil {
			return err
		}
		done()
	}
	return nil
}

// rest lets all requests end and looks at a process, with its connections open but nothing under way.
func (s *soak) rest(p *process) (footprint, error) {
	s.gate.Lock()
	defer s.gate.Unlock()
	time.Sleep(200 * time.Millisecond) // for what follows an answer
	return p.footprint()
}

var errGaveUp = errors.New("it took too long")
