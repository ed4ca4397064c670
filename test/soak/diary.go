//go:build unix

package main

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// diary is what happened.
type diary struct {
	begun                        time.Time
	reloads, broken              atomic.Int64
	handovers, rollings, drained atomic.Int64
	messages, streams            atomic.Int64
	copies                       atomic.Int64 // that the mirror's backend was sent
	before, after                footprint

	mu       sync.Mutex
	doing    []string
	failures []failure
	lost     int
	kinds    map[string]int // of failures
	notes    map[string]int
}

type failure struct {
	at       time.Duration
	protocol string
	err      error
	doing    []string
}

// keptFailures bounds what is told; all are counted.
const keptFailures = 50

// during notes what is going on until the result is called.
func (d *diary) during(format string, args ...any) func() {
	what := fmt.Sprintf(format, args...)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.doing = append(d.doing, what)
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		if i := slices.Index(d.doing, what); i >= 0 {
			d.doing = slices.Delete(d.doing, i, i+1)
		}
	}
}

var digits = regexp.MustCompile(`\d+`)

// fail notes a request that was lost or answered wrongly.
func (d *diary) fail(protocol string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kinds == nil {
		d.kinds = map[string]int{}
	}
	d.kinds[protocol+": "+digits.ReplaceAllString(err.Error(), "N")]++
	if d.lost++; len(d.failures) < keptFailures {
		d.failures = append(d.failures, failure{time.Since(d.begun), protocol, err, slices.Clone(d.doing)})
	}
}

// note counts what a client met and is no failure.
func (d *diary) note(what string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.notes == nil {
		d.notes = map[string]int{}
	}
	d.notes[what]++
}

// answers are the latencies of those that were right, by protocol.
type answers struct {
	mu  sync.Mutex
	all map[string][]uint32 // in microseconds
}

func (a *answers) add(protocol string, took []uint32) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.all == nil {
		a.all = map[string][]uint32{}
	}
	a.all[protocol] = append(a.all[protocol], took...)
}

// footprint is what a process holds.
type footprint struct {
	goroutines int
	heap, rss  int64 // bytes; the heap after a collection
}

func (f footprint) String() string {
	return fmt.Sprintf("%d goroutines, heap %.1f MiB, resident %.1f MiB", f.goroutines, float64(f.heap)/(1<<20), float64(f.rss)/(1<<20))
}

// grown says what has become more than by chance.
func (f footprint) grown(since footprint) error {
	var errs []error
	if f.goroutines > since.goroutines+since.goroutines/10+32 {
		errs = append(errs, fmt.Errorf("goroutines grew from %d to %d", since.goroutines, f.goroutines))
	}
	if f.heap > since.heap+since.heap/2+8<<20 {
		errs = append(errs, fmt.Errorf("the heap grew from %d to %d bytes", since.heap, f.heap))
	}
	return errors.Join(errs...)
}

// report prints what happened; its error is what is wrong with it.
func (s *soak) report(cause error) error {
	d := &s.diary
	d.mu.Lock()
	defer d.mu.Unlock()
	var out strings.Builder
	total := 0
	fmt.Fprintf(&out, "%-22s %10s %10s %10s\n", "answered", "requests", "p50", "p99")
	for _, protocol := range slices.Sorted(maps.Keys(s.answers.all)) {
		took := s.answers.all[protocol]
		slices.Sort(took)
		at := func(q float64) time.Duration {
			if len(took) == 0 {
				return 0
			}
			return time.Duration(took[int(q*float64(len(took)-1))]) * time.Microsecond
		}
		fmt.Fprintf(&out, "%-22s %10d %10v %10v\n", protocol, len(took), at(0.5), at(0.99))
		total += len(took)
	}
	fmt.Fprintf(&out, "%-22s %10d in %v\n", "all", total, time.Since(d.begun).Round(time.Second))
	fmt.Fprintf(&out, "\nbidirectional streams  %d, with %d messages\n", d.streams.Load(), d.messages.Load())
	fmt.Fprintf(&out, "copies received        %d\n", d.copies.Load())
	fmt.Fprintf(&out, "reloads                %d, of them %d broken\n", d.reloads.Load(), d.broken.Load())
	fmt.Fprintf(&out, "handovers              %d\n", d.handovers.Load())
	fmt.Fprintf(&out, "rolling replacements   %d, of two replicas each\n", d.rollings.Load())
	fmt.Fprintf(&out, "processes drained      %d\n", d.drained.Load())
	fmt.Fprintf(&out, "after %2d reloads       %v\n", s.reloads*34/100, d.before)
	fmt.Fprintf(&out, "at the end             %v\n", d.after)
	fmt.Fprintf(&out, "\nwhat clients met and coped with\n")
	for _, what := range slices.Sorted(maps.Keys(d.notes)) {
		fmt.Fprintf(&out, "%10d %s\n", d.notes[what], what)
	}
	fmt.Fprintf(&out, "\nfailed requests        %d\n", d.lost)
	for _, kind := range slices.Sorted(maps.Keys(d.kinds)) {
		fmt.Fprintf(&out, "%10d %s\n", d.kinds[kind], kind)
	}
	for _, f := range d.failures {
		fmt.Fprintf(&out, "  %8.3fs %-14s %v (during: %s)\n", f.at.Seconds(), f.protocol, f.err, strings.Join(f.doing, ", "))
	}
	fmt.Fprint(s.out, out.String())
	errs := []error{cause}
	if cause == nil {
		errs = append(errs, d.after.grown(d.before))
	}
	if d.lost > 0 {
		errs = append(errs, fmt.Errorf("%d requests failed", d.lost))
	}
	if cause == nil && total+d.lost < s.requests {
		errs = append(errs, fmt.Errorf("%d requests were answered, %d were to be sent", total, s.requests))
	}
	return errors.Join(errs...)
}
