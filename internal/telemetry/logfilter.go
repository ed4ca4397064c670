package telemetry

import (
	"slices"
	"time"
)

// Filter says which exchanges the access log has a line for. The zero value: for all.
//
// Statuses, Reasons and Routes say what the log is about: an exchange that one of them leaves out is never logged. Of the others those that failed (with
// a Reason, or a status of 500 and above) always are, and those that took MinDuration or longer; Sample is asked about the rest.
type Filter struct {
	// Statuses are what the client was answered with; empty is any.
	Statuses []StatusRange
	// Reasons are those of exchanges that failed; empty is any, and none.
	Reasons []Reason
	// Routes are "namespace/name"; empty is any, and none.
	Routes []string
	// MinDuration, if not zero, is from which duration on an exchange is logged.
	MinDuration time.Duration
	// Sample says whether the next of the others is logged. It is called from many goroutines. Nil is all, or none where there is a MinDuration.
	Sample func() bool
}

// StatusRange are the statuses From to To. 0 is that of an exchange without an answer.
type StatusRange struct{ From, To int }

// Wants says whether an exchange is to be logged. Each is asked about once: the sample counts the questions.
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
