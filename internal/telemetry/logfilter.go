package telemetry

import (
	"slices"
	"time"
)

// Filter selects the exchanges for which the access log has a line. The zero value selects all.
//
// Statuses, Reasons and Routes say what the log is about: an exchange that one of them excludes is never logged. Of the
// others, failed ones (with a Reason, or a status of 500 and above) are always logged, and those that took MinDuration
// or longer. Sample decides about the rest.
type Filter struct {
	// Statuses are the wanted statuses of answers; empty means any.
	Statuses []StatusRange
	// Reasons are the wanted reasons of failures; empty means any, and also exchanges that did not fail.
	Reasons []Reason
	// Routes are the wanted routes, "namespace/name"; empty means any, and also exchanges without a route.
	Routes []string
	// MinDuration, if not zero, is from which duration on an exchange is logged.
	MinDuration time.Duration
	// Sample reports whether the next of the others is logged. It is called from many goroutines. Nil means all of them
	// or, if there is a MinDuration, none.
	Sample func() bool
}

// StatusRange are the statuses From to To. 0 is that of an exchange without an answer.
type StatusRange struct{ From, To int }

// Wants reports whether to log an exchange. It must be called once for each exchange, since the sample counts the
// calls.
func (l *AccessLog) Wants(status int, reason Reason, route string, d time.Duration) bool {
	if l == nil {
		return false
	}
	f := &l.filter
	switch {
	case len(f.Statuses) > 0 && !slices.ContainsFunc(f.Statuses, func(r StatusRange) bool { return r.From <= status && status <= r.To }),
		len(f.Reasons) > 0 && !slices.Contains(f.Reasons, reason),
		len(f.Routes) > 0 && !slices.Contains(f.Routes, route):
		return false
	case reason != "", status >= 500, f.MinDuration > 0 && d >= f.MinDuration:
		return true
	case f.Sample != nil:
		return f.Sample()
	}
	return f.MinDuration <= 0
}
