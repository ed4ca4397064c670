package overview

import (
	"fmt"

	"github.com/weirmesh/weir/api/split"
	"github.com/weirmesh/weir/internal/screen"
)

const splitKind = "TrafficSplit"

// splitRow is the row of a TrafficSplit.
type splitRow struct {
	// Root is the Service that is split, as written.
	Root   string    `json:"root"`
	Leaves []leafRow `json:"leaves"`
	// Matches are the HTTPRouteGroups that select the split's requests. Empty means all requests.
	Matches []string `json:"matches,omitempty"`
}

// leafRow is a Service that gets a part of a root's traffic.
type leafRow struct {
	Service string       `json:"service"`
	Weight  split.Weight `json:"weight"`
	// Share is the Service's share of the split traffic, 0 to 1. If a Service lacks a port, the others share that
	// port's traffic.
	Share float64 `json:"share"`
}

func newSplitRow(s split.Spec) *splitRow {
	r := &splitRow{Root: s.Service, Leaves: []leafRow{}}
	var sum split.Weight
	for _, b := range s.Backends {
		sum += b.Weight
	}
	for _, b := range s.Backends {
		r.Leaves = append(r.Leaves, leafRow{b.Service, b.Weight, float64(b.Weight) / float64(max(sum, 1))})
	}
	for _, m := range s.Matches {
		r.Matches = append(r.Matches, m.Name)
	}
	return r
}

// shares formats the leaves for a table: "v1 9 (90 %)".
func (r *splitRow) shares() []string {
	var out []string
	for _, l := range r.Leaves {
		out = append(out, fmt.Sprintf("%s %s (%s)", l.Service, l.Weight, screen.Percent(l.Share)))
	}
	return out
}
