package prometheus

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/telemetry"
)

const (
	// gap is how long a proxy may not be scraped without being taken for one that nothing is known of.
	gap = "2m"
	// maxSteps is how many steps a window has at most.
	maxSteps = 30
	// maxSides is how many sides a query names. Beyond that it asks for all, and the others are left out afterwards.
	maxSides = 500
)

// grid divides a window into steps that end at multiples of their length.
type grid struct {
	end   time.Time
	step  time.Duration
	steps int
}

func newGrid(now time.Time, window, step time.Duration) grid {
	steps := max(1, (window+step-1)/step)
	step *= (steps + maxSteps - 1) / maxSteps
	return grid{time.UnixMilli(now.UnixMilli() / step.Milliseconds() * step.Milliseconds()), step, int(max(1, (window+step-1)/step))}
}

func (g grid) window() time.Duration { return time.Duration(g.steps) * g.step }

// query is the PromQL that sums what was counted in the grid, by labels. family's series have the labels of edges and, unless
// own is empty, that one more, and selectors say which of them are wanted; any of these suffices. targets restricts the proxies.
//
// Counts must be exact, but increase() extrapolates, and takes a series that begins for one that began long ago. So the
// window is taken in steps, each of which counts what a series has more than a step before:
//
//	sum by (labels) (sum_over_time((
//	  (
//	      ((FAMILY and SAME) - BEFORE) >= 0     # the same run of a proxy, that counted on
//	    or
//	      FAMILY + 0                            # all of it: a new series, a new run, or one that was dropped and began again
//	  )
//	  and (KNOWN or BEGAN > begin of window)    # not what a proxy has counted that nothing was known of
//	)[window:step])) > 0
//
// with BEGAN the time at which a proxy's counts began, KNOWN that of a step before, and SAME where the two are equal. They
// have the labels of the target alone, so they match a series on all its labels but those that are its own; whatever else
// a Prometheus adds (instance, pod, cluster, replica) may be there. FAMILY is an instant vector: a series that the last
// scrape lacked is not there. BEFORE and KNOWN are those of a step before, and if that scrape failed the last of the 2
// minutes before: last_over_time takes no notice of the marks of staleness that a failed scrape leaves. Adding 0 takes the
// name away, as subtracting does: with it and without it would be two series.
//
// What is left out: what no scrape saw, and what a proxy counted before a restart in the same step.
//
// The window is a millisecond shorter than its steps, and ends at a multiple of the step, as subqueries are aligned to
// those: so there are as many steps in Prometheus 3 as before, which differ in whether the beginning belongs to it.
func (g grid) query(family string, own string, selectors []string, targets string, labels []string) string {
	step := fmt.Sprintf("%dms", g.step.Milliseconds())
	series := telemetry.EdgeLabelNames()
	if own != "" {
		series, labels = slices.Concat(series, []string{own}), slices.Concat(labels, []string{own})
	}
	ignoring := "ignoring(" + strings.Join(series, ", ") + ")"
	began := telemetry.BeganTimestamp + braces(targets)
	beganBefore := fmt.Sprintf("%s offset %s", began, step)
	known := fmt.Sprintf("(%s or last_over_time(%s[%s] offset %s))", beganBefore, began, gap, step)
	begin := strconv.FormatFloat(float64(g.end.Add(-g.window()).UnixMilli())/1e3, 'f', 3, 64)
	var of []string
	for _, selector := range selectors {
		series := family + braces(selector, targets)
		before := fmt.Sprintf("(%[1]s offset %[2]s or (last_over_time(%[1]s[%[3]s] offset %[2]s) unless %[4]s %[5]s))", series, step, gap, ignoring, beganBefore)
		more := fmt.Sprintf("((%s and %s (%s == %s)) - %s) >= 0", series, ignoring, began, known, before)
		counted := fmt.Sprintf("(%s or %s + 0) and %s (%s or %s > %s)", more, series, ignoring, known, began, begin)
		of = append(of, fmt.Sprintf("sum_over_time((%s)[%dms:%s])", counted, g.window().Milliseconds()-1, step))
	}
	return fmt.Sprintf("sum by (%s) (%s) > 0", strings.Join(labels, ", "), strings.Join(of, " or "))
}

func braces(matchers ...string) string {
	matchers = slices.DeleteFunc(slices.Clone(matchers), func(m string) bool { return m == "" })
	return "{" + strings.Join(matchers, ",") + "}"
}

// selectors are the matchers for the series of a question; none if it is for nobody. They may match others, too.
func selectors(q metrics.Question) (out []string) {
	if q.At == nil && q.With == nil || len(q.At)+len(q.With) > maxSides {
		return []string{""}
	}
	if len(q.At) > 0 {
		out = append(out, sides("at_", q.At))
	}
	if len(q.With) > 0 {
		out = append(out, sides("peer_", q.With))
	}
	return out
}

func sides(prefix string, all []telemetry.Side) string {
	return strings.Join([]string{
		matcher(prefix+"kind", all, func(s telemetry.Side) string { return s.Kind }),
		matcher(prefix+"namespace", all, func(s telemetry.Side) string { return s.Namespace }),
		matcher(prefix+"name", all, func(s telemetry.Side) string { return s.Name }),
	}, ",")
}

// matcher matches the values of a part of the sides.
func matcher(label string, all []telemetry.Side, part func(telemetry.Side) string) string {
	values := map[string]bool{}
	for _, s := range all {
		values[part(s)] = true
	}
	sorted := slices.Sorted(maps.Keys(values))
	if len(sorted) == 1 {
		return label + "=" + quote(sorted[0])
	}
	for i, v := range sorted {
		sorted[i] = regexp.QuoteMeta(v)
	}
	return label + "=~" + quote(strings.Join(sorted, "|"))
}

// quote writes a string of PromQL, which has the escapes of Go.
func quote(s string) string { return strconv.Quote(strings.ToValidUTF8(s, "\ufffd")) }
