// Package traffic shows Traffic Metrics to people: as tables of resources and of the edges of one, and as a graph of who
// talks to whom. It reads the objects of any server that has the API (api/metrics) and asks nobody itself.
package traffic

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/screen"
)

// short names of kinds, as kubectl has them.
var short = map[string]string{
	"ns": "namespaces", "no": "nodes", "po": "pods", "rc": "replicationcontrollers", "svc": "services", "ds": "daemonsets",
	"deploy": "deployments", "rs": "replicasets", "sts": "statefulsets",
}

// Kind returns the kind of a word that a user wrote: its plural, singular or short name in any case, or with its group as
// "deployments.apps". ok is false if Traffic Metrics have no such kind.
func Kind(word string) (r metrics.Resource, ok bool) {
	word = strings.ToLower(word)
	word, group, grouped := strings.Cut(word, ".")
	if full := short[word]; full != "" {
		word = full
	}
	for _, r := range metrics.Resources() {
		own, _, inGroup := strings.Cut(r.APIVersion, "/")
		if grouped && (!inGroup || own != group) {
			continue
		}
		if word == r.Plural || word == strings.ToLower(r.Kind) {
			return r, true
		}
	}
	return metrics.Resource{}, false
}

// Kinds are the words for all kinds.
func Kinds() []string {
	var all []string
	for _, r := range metrics.Resources() {
		all = append(all, r.Plural)
	}
	return all
}

// Row is what a table says of a resource or of an edge.
type Row struct {
	Of       corev1.ObjectReference
	Edge     metrics.Edge
	Measured metrics.Measured
	Window   time.Duration
}

// Rows are those of a list. Items without counts are left out.
func Rows(l *metrics.TrafficMetricsList) []Row {
	var all []Row
	for i := range l.Items {
		item := &l.Items[i]
		m, ok := item.Measured()
		if !ok {
			continue
		}
		all = append(all, Row{item.Resource, item.Edge, m, item.Window.Duration})
	}
	return all
}

// Order is what a table is sorted by.
type Order string

// The orders: by name, or what should be looked at first at the top.
const (
	ByName     Order = "name"
	BySuccess  Order = "success"
	ByRPS      Order = "rps"
	ByP50      Order = "p50"
	ByP90      Order = "p90"
	ByP99      Order = "p99"
	ByRequests Order = "requests"
	ByFailures Order = "failures"
)

// Orders are all of them.
func Orders() []string {
	return []string{string(ByName), string(BySuccess), string(ByRPS), string(ByP50), string(ByP90), string(ByP99), string(ByRequests), string(ByFailures)}
}

// Sort sorts rows. Those without traffic come last, but for ByName.
func Sort(rows []Row, by Order) {
	key := func(r *Row) float64 { // the highest first
		m := r.Measured
		switch by {
		case BySuccess:
			rate, _ := m.SuccessRate()
			return -rate
		case ByRPS:
			return m.Rate(r.Window)
		case ByP50:
			return float64(m.P50)
		case ByP90:
			return float64(m.P90)
		case ByP99:
			return float64(m.P99)
		case ByRequests:
			return float64(m.Success + m.Failure)
		case ByFailures:
			return float64(m.Failure)
		}
		return 0
	}
	slices.SortStableFunc(rows, func(a, b Row) int {
		if by != ByName {
			_, aHas := a.Measured.SuccessRate()
			_, bHas := b.Measured.SuccessRate()
			if aHas != bHas {
				if aHas {
					return -1
				}
				return 1
			}
			if c := cmp.Compare(key(&b), key(&a)); c != 0 {
				return c
			}
		}
		return cmp.Or(cmp.Compare(a.Of.Namespace, b.Of.Namespace), cmp.Compare(a.Of.Kind, b.Of.Kind), cmp.Compare(a.Of.Name, b.Of.Name))
	})
}

// Options say what a table shows.
type Options struct {
	// Namespaces adds a column for them.
	Namespaces bool
	// Wide adds the numbers of requests and failures, and the window.
	Wide bool
	// Most is how many rows are shown; 0 is all.
	Most int
}

// Top is a table of resources (SMI's first draft, "Top": NAME, SUCCESS, RPS, LATENCY_P99), with further percentiles.
func Top(rows []Row, o Options, s screen.Screen) string {
	head := []string{"NAME"}
	if o.Namespaces {
		head = []string{"NAMESPACE", "NAME"}
	}
	return table(rows, o, s, head, func(r *Row) []string {
		if o.Namespaces {
			return []string{r.Of.Namespace, r.Of.Name}
		}
		return []string{r.Of.Name}
	})
}

// Edges is a table of a resource's edges.
func Edges(rows []Row, o Options, s screen.Screen) string {
	return table(rows, o, s, []string{"DIRECTION", "RESOURCE"}, func(r *Row) []string {
		return []string{string(r.Edge.Direction), Side(r.Edge.Resource)}
	})
}

func table(rows []Row, o Options, s screen.Screen, head []string, first func(*Row) []string) string {
	named := len(head)
	head = append(head, "SUCCESS", "RPS", "LATENCY_P99", "LATENCY_P90", "LATENCY_P50")
	if o.Wide {
		head = append(head, "REQUESTS", "FAILURES", "WINDOW")
	}
	out := [][]string{head}
	for i := range rows {
		if o.Most > 0 && i == o.Most {
			break
		}
		r := &rows[i]
		m := r.Measured
		line := append(first(r), metrics.Percent(m), RPS(m.Rate(r.Window)), latency(m, m.P99), latency(m, m.P90), latency(m, m.P50))
		if o.Wide {
			line = append(line, strconv.FormatUint(m.Success+m.Failure, 10), strconv.FormatUint(m.Failure, 10), r.Window.String())
		}
		out = append(out, line)
	}
	text := s.NamedTable(out, named, "WINDOW", "REQUESTS", "FAILURES", "LATENCY_P90", "LATENCY_P50")
	if left := len(rows) - o.Most; o.Most > 0 && left > 0 {
		text += fmt.Sprintf("... and %d more\n", left)
	}
	return text
}

// Side is the other side of an edge in words: "Deployment shop/web", a kind or a namespace alone, or "unknown".
func Side(r *corev1.ObjectReference) string {
	switch {
	case r == nil || r.Kind == "" && r.Name == "" && r.Namespace == "":
		return "unknown"
	case r.Kind == "" && r.Name == "":
		return "Namespace " + r.Namespace
	case r.Name == "":
		return "any " + strings.TrimSpace(r.Kind+" "+r.Namespace)
	case r.Namespace == "":
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// RPS writes a number of requests a second as the draft's table does, "1.8rps".
func RPS(rate float64) string {
	digits := 1
	if rate > 0 && rate < 0.05 {
		digits = 3
	}
	return strconv.FormatFloat(rate, 'f', digits, 64) + "rps"
}

func latency(m metrics.Measured, d time.Duration) string {
	if m.Success+m.Failure == 0 {
		return "-"
	}
	return Latency(d)
}

// Latency writes a duration with about two digits that count: "0.35ms", "1ms", "2.5ms", "120ms", "1.25s". What took time is never none.
func Latency(d time.Duration) string {
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case d <= 0:
		return "0ms"
	case ms < 0.01:
		return "<0.01ms"
	case ms < 1:
		return number(ms, 2) + "ms"
	case ms < 10:
		return number(ms, 1) + "ms"
	case ms < 999.5:
		return number(ms, 0) + "ms"
	}
	return number(ms/1000, 2) + "s"
}

// number writes a number with so many digits behind the point, without zeros at the end.
func number(f float64, digits int) string {
	scale := math.Pow10(digits)
	return strconv.FormatFloat(math.Round(f*scale)/scale, 'f', -1, 64)
}

// Namespaces is how many the resources of rows, and the other sides of edges, are in.
func Namespaces(rows []Row) int {
	all := map[string]bool{}
	for i := range rows {
		all[rows[i].Of.Namespace] = true
		if other := rows[i].Edge.Resource; other != nil && other.Namespace != "" {
			all[other.Namespace] = true
		}
	}
	return len(all)
}
