package embedded

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/telemetry"
)

// Source is a proxy that Run reads.
type Source struct {
	// Name tells it from others: its pod, or its address. Two of one name are read once.
	Name string
	// At is whom it may observe at; what it tells of others is left out, as somebody else may speak in its place. The zero
	// value is anybody.
	At telemetry.Side
	// As, unless it is the zero value, is what it then observes as, in place of At.
	As telemetry.Side
	// Read returns its report. An error says what is wrong; Run adds the name.
	Read func(context.Context) (telemetry.Report, error)
}

// Run reads the proxies that each of the functions returns, in every interval each once, spread over it, until ctx ends. One
// that fails is left out for some intervals, up to seven, and keeps what it had until that leaves the window. The proxies of
// one function have Options.Concurrency readers of their own, so that those that hang hold up none of another's.
func (s *Store) Run(ctx context.Context, sources ...func() []Source) error {
	readers := make([]*reader, len(sources))
	for i := range readers {
		readers[i] = &reader{store: s, ctx: ctx, free: make(chan struct{}, s.options.Concurrency), targets: map[string]*target{}}
	}
	s.readers.Store(&readers)
	defer s.readers.Store(nil)
	var all sync.WaitGroup
	for i, r := range readers {
		all.Go(func() { _ = r.run(ctx, sources[i]) }) // ctx says why it ended
	}
	all.Wait()
	return ctx.Err()
}

// run reads those of one function.
func (r *reader) run(ctx context.Context, sources func() []Source) error {
	s := r.store
	defer r.all.Wait()
	for round := uint64(1); ; round++ {
		began := s.nextRound(time.Now())
		if !sleepUntil(ctx, began) {
			return ctx.Err()
		}
		r.begin(round, sources())
		for tick := range ticks {
			if !sleepUntil(ctx, began.Add(s.options.Interval*time.Duration(tick)/ticks)) {
				return ctx.Err()
			}
			if !r.tick(tick) {
				return ctx.Err()
			}
		}
		if !s.options.Aligned && !sleepUntil(ctx, began.Add(s.options.Interval)) {
			return ctx.Err()
		}
	}
}

// nextRound is when the next round begins. It has a monotonic reading, so that nobody waits longer if the wall clock is set back.
func (s *Store) nextRound(now time.Time) time.Time {
	if !s.options.Aligned {
		return now
	}
	return now.Add(s.options.Interval - now.Sub(now.Truncate(s.options.Interval)))
}

// ticks are the parts of an interval. The proxies of one begin together, so that thousands need no timer each.
const ticks = 50

func sleepUntil(ctx context.Context, t time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(time.Until(t)):
		return ctx.Err() == nil
	}
}

// reader is the state of Run.
type reader struct {
	store *Store
	ctx   context.Context
	all   sync.WaitGroup
	free  chan struct{}
	due   []*target // of this round, by their ticks

	failing atomic.Int64
	// waiting is that not all of the first round that had any were asked, asked that they were.
	waiting, asked atomic.Bool

	mu      sync.Mutex
	targets map[string]*target
	failed  failures
	first   int // how many of the first round that had any were not asked yet
}

// target is a source over the rounds.
type target struct {
	source Source
	round  uint64 // the last one that had it
	tick   int
	busy   bool
	fails  int // in a row
	first  bool
}

// failures are those of proxies that did not fail before.
type failures struct {
	count   int
	example error
}

// begin makes the list of a round, and logs what went wrong in the last one.
func (r *reader) begin(round uint64, sources []Source) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.due = r.due[:0]
	for _, source := range sources {
		t := r.targets[source.Name]
		switch {
		case t == nil:
			t = &target{tick: tickOf(source.Name)}
			r.targets[source.Name] = t
		case t.round == round:
			continue // twice
		}
		t.round = round
		if t.busy || round%(1<<min(t.fails, 3)) != 0 {
			continue
		}
		t.source = source
		r.due = append(r.due, t)
	}
	if r.first == 0 && !r.asked.Load() && len(r.due) > 0 {
		r.first = len(r.due)
		r.waiting.Store(true)
		for _, t := range r.due {
			t.first = true
		}
	}
	failing := int64(0)
	for name, t := range r.targets {
		switch {
		case t.round != round && !t.busy:
			delete(r.targets, name)
		case t.round == round && t.fails > 0:
			failing++
		}
	}
	r.failing.Store(failing)
	slices.SortFunc(r.due, func(a, b *target) int {
		return cmp.Or(cmp.Compare(a.tick, b.tick), cmp.Compare(a.source.Name, b.source.Name))
	})
	if f := r.failed; f.count > 0 {
		r.failed = failures{}
		r.store.options.Log.Warn("proxies did not report their traffic", "count", f.count, "example", f.example.Error())
	}
}

// tickOf spreads names over the ticks.
func tickOf(name string) int {
	h := fnv.New32a()
	h.Write([]byte(name))
	return int(h.Sum32() % ticks)
}

// tick begins to read the proxies of a tick, and waits for free readers. It returns false when ctx has ended.
func (r *reader) tick(tick int) bool {
	for len(r.due) > 0 && r.due[0].tick == tick {
		t := r.due[0]
		r.due = r.due[1:]
		select {
		case r.free <- struct{}{}:
		case <-r.ctx.Done():
			return false
		}
		r.mu.Lock()
		t.busy = true
		r.mu.Unlock()
		r.all.Go(func() {
			err := r.read(t.source)
			<-r.free
			r.done(t, err)
		})
	}
	return true
}

func (r *reader) read(source Source) error {
	ctx, cancel := context.WithTimeout(r.ctx, r.store.options.Timeout)
	defer cancel()
	report, err := source.Read(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", source.Name, err)
	}
	if source.At != (telemetry.Side{}) {
		report.Edges = slices.DeleteFunc(report.Edges, func(e telemetry.EdgeSnapshot) bool {
			return e.At != source.At && e.EdgeLabels != telemetry.OtherEdge(e.Out)
		})
	}
	if source.As != (telemetry.Side{}) {
		for i := range report.Edges {
			if e := &report.Edges[i]; e.At == source.At {
				e.At = source.As
			}
		}
	}
	r.store.Add(source.Name, report)
	return nil
}

func (r *reader) done(t *target, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t.busy = false
	if t.first {
		t.first = false
		if r.first--; r.first == 0 {
			r.asked.Store(true)
			r.waiting.Store(false)
		}
	}
	switch {
	case err == nil:
		t.fails = 0
		r.store.readings.Add(1)
	case r.ctx.Err() == nil:
		r.store.failures.Add(1)
		if t.fails++; t.fails == 1 {
			r.failed.count++
			r.failed.example = err
		}
	}
}
