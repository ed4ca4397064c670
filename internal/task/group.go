package task

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// leastPause is the pause before a failed task begins again. It doubles with each further failure, up to mostPause.
	leastPause, mostPause = time.Second, time.Minute
	// maxError bounds the text kept of an error, in bytes.
	maxError = 4 << 10
)

// Group runs the tasks of one process. A failed task stops no other, unless it is vital.
type Group struct {
	tasks   []*entry
	log     *slog.Logger
	leading atomic.Bool
}

// entry is a task and its status.
type entry struct {
	Task
	mu     sync.Mutex
	status Status
}

// NewGroup makes a Group of tasks. Their order is the order of Status and Ready. NewGroup panics if a task is invalid:
// without a name of its own, without Run, or with a Lease and also Vital or Ready.
func NewGroup(log *slog.Logger, tasks ...Task) *Group {
	g := &Group{log: log}
	names := map[string]bool{}
	for _, t := range tasks {
		if t.Off {
			continue
		}
		if t.Run == nil || t.Name == "" || names[t.Name] || t.Lease && (t.Vital || t.Ready != nil) {
			panic(fmt.Sprintf("%q is no task: see the fields of Task", t.Name))
		}
		names[t.Name] = true
		g.tasks = append(g.tasks, &entry{Task: t, status: Status{Name: t.Name, Lease: t.Lease, State: StandBy}})
	}
	return g
}

// Run runs the tasks that need no lease until ctx ends, which is not an error, or a vital task fails. It returns when
// all tasks have returned. Its errors are those of vital tasks.
func (g *Group) Run(ctx context.Context) error { return g.run(ctx, false) }

// Lead runs the tasks that need the lease until ctx ends. It returns when all have returned. It may be called again, as
// the lease comes and goes.
func (g *Group) Lead(ctx context.Context) {
	g.leading.Store(true)
	defer g.leading.Store(false)
	_ = g.run(ctx, true) // no task is vital
}

// Leading reports whether Lead runs.
func (g *Group) Leading() bool { return g.leading.Load() }

func (g *Group) run(ctx context.Context, lease bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	for _, t := range g.tasks {
		if t.Lease != lease {
			continue
		}
		wg.Go(func() {
			if err := g.keep(ctx, t); err != nil {
				mu.Lock()
				failed = append(failed, err)
				mu.Unlock()
				cancel()
			}
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// keep runs a task until ctx ends or the task is done. It runs the task again if it fails. The error is a vital task's.
func (g *Group) keep(ctx context.Context, t *entry) error {
	pause := leastPause
	for {
		t.enter(Waiting)
		if !t.await(ctx) {
			t.enter(StandBy)
			return nil
		}
		t.enter(Running)
		began := time.Now()
		err := g.call(ctx, t)
		ended := ctx.Err() != nil
		switch {
		case ended && (err == nil || errors.Is(err, context.Canceled)):
			t.enter(StandBy)
			return nil
		case err == nil:
			t.enter(Done)
			return nil
		case t.Vital:
			t.fail(err)
			return err
		case ended:
			t.fail(err)
			g.log.Warn("task ended with an error", "task", t.Name, "error", err)
			return nil
		}
		t.fail(err)
		if time.Since(began) >= mostPause { // it ran well in the meantime
			pause = leastPause
		}
		g.log.Error("task failed; beginning it again", "task", t.Name, "error", err, "after", pause)
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			t.enter(StandBy)
			return nil
		case <-timer.C:
		}
		pause = min(2*pause, mostPause)
	}
}

// call turns a panic into an error. One task's panic, such as over an object that a user wrote, must not stop the other
// tasks. This covers only the goroutine of Run: a panic in a goroutine that the task started ends the process.
func (g *Group) call(ctx context.Context, t *entry) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
			g.log.Error("task panicked", "task", t.Name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		}
	}()
	return t.Run(ctx)
}

// await waits for everything that the task needs. It returns false if ctx has ended.
func (t *entry) await(ctx context.Context) bool {
	for _, after := range t.After {
		select {
		case <-ctx.Done():
			return false
		case <-after():
		}
	}
	return ctx.Err() == nil
}

func (t *entry) enter(s State) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status.State = s
}

func (t *entry) fail(err error) {
	text := err.Error()
	if len(text) > maxError {
		text = strings.ToValidUTF8(text[:maxError], "")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.status.State, t.status.LastError, t.status.LastFailure = Failed, text, time.Now()
	t.status.Failures++
}

// Status returns the status of each task, in their order.
func (g *Group) Status() []Status {
	out := make([]Status, len(g.tasks))
	for i, t := range g.tasks {
		t.mu.Lock()
		out[i] = t.status
		t.mu.Unlock()
	}
	return out
}

// Ready reports whether others may rely on this process. Every task without a Lease that has a Ready must agree. note
// is the reason of the first that does not, or the first restriction if all agree.
func (g *Group) Ready() (ok bool, note string) {
	for _, t := range g.tasks {
		if t.Lease || t.Task.Ready == nil {
			continue
		}
		ok, why := t.Task.Ready()
		if !ok {
			return false, why
		}
		if note == "" {
			note = why
		}
	}
	return true, note
}
