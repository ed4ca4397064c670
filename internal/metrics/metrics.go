// Package metrics says how the traffic of a resource of Kubernetes went in a window of time: whole, or with each of the
// others that it exchanged traffic with. It adds up what proxies observed at pods; a Deployment, a Service, a namespace
// and the like are the sums of their pods, with percentiles of their merged durations.
//
// It is pure: a Store, such as those of metrics/embedded and metrics/prometheus, says what was observed. It forms the
// answers of SMI's Traffic Metrics (api/metrics) and serves no connections.
package metrics

import (
	"context"
	"time"

	"github.com/weirmesh/weir/internal/telemetry"
)

// Traffic is what one side observed of its traffic with another in a window.
type Traffic struct {
	telemetry.EdgeLabels
	// Success and Failure are numbers of requests: a request succeeded if its answer's status is below 500, and failed
	// otherwise and without an answer.
	Success, Failure uint64
	// Latency is the durations of the requests; those of a store that has coarser ones are somewhere in their buckets.
	Latency telemetry.Latency
}

// Question asks a Store for the traffic of the last Window.
type Question struct {
	Window time.Duration
	// At restricts the answer to what these sides observed, and With to traffic with these. If both are set, one of the
	// two must hold. nil does not restrict; a list that is empty and not nil is for nobody.
	At, With []telemetry.Side
	// Sum leaves out who the traffic was with, and its route and Services: one row for each side and direction. It is not
	// for questions that set With.
	Sum bool
	// Took asks also for how long requests took together (telemetry.Latency.Sum). A Store may tell it unasked.
	Took bool
}

// Answer is a Store's answer.
type Answer struct {
	// Time is the end of the window that was measured, and Window its length, which may differ from the one asked for.
	Time   time.Time
	Window time.Duration
	// Traffic is sorted by its labels, each once.
	Traffic []Traffic
}

// Store has what proxies observed.
type Store interface {
	// Ask answers from what there is. An error says why nothing can be said at present; that there was no traffic is none.
	Ask(ctx context.Context, q Question) (Answer, error)
}
