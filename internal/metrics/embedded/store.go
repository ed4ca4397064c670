// Package embedded keeps in memory what proxies reported in the last minute, as the differences between their reports:
// a store of traffic for whom no Prometheus is at hand. It asks the proxies itself (Run), or is told (Add); it keeps
// nothing on disk, and serves no connections.
package embedded

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/telemetry"
)

// Options are a Store's. The zero value has the defaults.
type Options struct {
	// Keep is how far back the Store answers. Default 1 minute.
	Keep time.Duration
	// Interval is the time between two readings of a proxy. Default 5 seconds.
	Interval time.Duration
	// Aligned has Run begin each round at a multiple of Interval by the wall clock, so that stores of several processes
	// read a proxy at about the same time, and answer alike.
	Aligned bool
	// MaxEdges bounds the series of all proxies. When a further one comes, the eighth with the least traffic makes room, at
	// most once in Keep, but those of proxies that have fewer than the others do not. The requests of those that have no
	// room count under the label "other". Default 40,000.
	MaxEdges int
	// Timeout is how long a proxy may take to answer Run. Default 3 seconds.
	Timeout time.Duration
	// Concurrency is how many proxies Run reads at a time. Default 32.
	Concurrency int
	// Log gets what Run cannot read. Default: nothing is logged.
	Log *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Keep <= 0 {
		o.Keep = time.Minute
	}
	if o.Interval <= 0 {
		o.Interval = 5 * time.Second
	}
	if o.MaxEdges <= 0 {
		o.MaxEdges = 40_000
	}
	if o.Timeout <= 0 {
		o.Timeout = 3 * time.Second
	}
	if o.Concurrency <= 0 {
		o.Concurrency = 32
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// Store is a metrics.Store of what proxies report.
type Store struct {
	options Options

	mu      sync.RWMutex
	sources map[string]*source
	// sides are the proxies that have series with a side, whether it observes or is the other one, and how many.
	sides   map[telemetry.Side]map[*source]int
	edges   int // of all sources
	swept   time.Time
	evicted time.Time
	scratch scratch

	readings, failures atomic.Uint64
	readers            atomic.Pointer[[]*reader] // of Run; nil while it does not run
	readAll            atomic.Bool
}

// New is an empty Store.
func New(o Options) *Store {
	return &Store{options: o.withDefaults(), sources: map[string]*source{}, sides: map[telemetry.Side]map[*source]int{}}
}

// ReadAll reports whether Run has asked each proxy of the first rounds that had any, whether or not it answered.
func (s *Store) ReadAll() bool {
	if readers := s.readers.Load(); readers != nil && !s.readAll.Load() {
		some, waiting := false, false
		for _, r := range *readers {
			some, waiting = some || r.asked.Load(), waiting || r.waiting.Load()
		}
		if some && !waiting {
			s.readAll.Store(true)
		}
	}
	return s.readAll.Load()
}

// failing is how many proxies failed when they were last read.
func (s *Store) failing() (n int) {
	if readers := s.readers.Load(); readers != nil {
		for _, r := range *readers {
			n += int(r.failing.Load())
		}
	}
	return n
}

// Stats are how a Store stands.
type Stats struct {
	// Proxies are those that reported in the time that is kept, Edges their series.
	Proxies, Edges int
	// Newest is when the newest report was received; zero if there is none.
	Newest time.Time
	// Failing are the proxies of Run's last round that failed when they were last read. Readings and Failures count what Run
	// read, and what it could not read.
	Failing            int
	Readings, Failures uint64
}

// Missing says it of proxies that failed, "" if none did.
func (s Stats) Missing() string {
	if s.Failing == 0 {
		return ""
	}
	return fmt.Sprintf("%d of the proxies did not answer when they were last asked: what they counted since then is missing", s.Failing)
}

// Stats returns how the Store stands now.
func (s *Store) Stats() Stats {
	out := Stats{Failing: s.failing(), Readings: s.readings.Load(), Failures: s.failures.Load()}
	s.mu.RLock()
	defer s.mu.RUnlock()
	out.Edges = s.edges
	now := time.Now()
	for _, p := range s.sources {
		if s.left(p, now) {
			continue // not swept yet
		}
		out.Proxies++
		if at := p.newest(); at.After(out.Newest) {
			out.Newest = at
		}
	}
	return out
}

// Add takes a report of the proxy of this name, received now. What of it is traffic of the window follows from what is
// known of the proxy: the difference to its report before, or all since it began, if it began anew, or within the
// window. Otherwise the report is where counting begins. Clocks of proxies may be wrong: a report's Time orders the
// reports of one proxy, and says how old it is.
//
// Reports that come late or twice are left out, as are those that follow in less than a tenth of Options.Interval.
func (s *Store) Add(name string, r telemetry.Report) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sweep(now)
	p := s.sources[name]
	if p != nil && s.left(p, now) {
		p.clear()
		p = nil
	}
	if p == nil {
		p = &source{store: s, byLabels: map[telemetry.EdgeLabels]int32{}}
		s.sources[name] = p
	}
	p.add(r, now)
}

// sweep forgets what has left the window.
func (s *Store) sweep(now time.Time) {
	if now.Sub(s.swept) < s.options.Interval {
		return
	}
	s.swept = now
	for name, p := range s.sources {
		if s.left(p, now) {
			p.clear()
			delete(s.sources, name)
		} else {
			p.prune(now)
		}
	}
}

// left reports whether all that is known of a source is older than what is kept.
func (s *Store) left(p *source, now time.Time) bool { return now.Sub(p.newest()) > s.options.Keep }

// index counts series of a source with a side; n is 1 or -1.
func (s *Store) index(side telemetry.Side, p *source, n int) {
	of := s.sides[side]
	if of == nil {
		of = map[*source]int{}
		s.sides[side] = of
	}
	if of[p] += n; of[p] == 0 {
		if delete(of, p); len(of) == 0 {
			delete(s.sides, side)
		}
	}
}
