package cli

import (
	"fmt"
	"iter"
	"net/http"
	"slices"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/telemetry"
)

// planeAdmin is what a data plane's admin endpoint tells.
type planeAdmin struct {
	metrics http.Handler
	// report is how it stands; nil before the first report.
	report func() *control.Report
	// unserved is how many ports cannot be bound.
	unserved func() int
	services iter.Seq[telemetry.ServiceState]
	// draining says that the process is about to end.
	draining func() bool
	// access is to all but metrics and health.
	access adminAccess
}

const adminIndex = `weir admin

/metrics       Prometheus metrics
/healthz       200 as long as the process runs
/readyz        200 once a configuration is served, 503 before and while draining; degraded if some ports are not
/config        the routing model being served, private keys redacted
/endpoints     the services being served, and the health of their endpoints
/status        generation, findings, and the conditions of every resource
/debug/pprof/  profiles of the process
`

func (a *planeAdmin) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, adminIndex) })
	mux.Handle("GET /metrics", beside(a.metrics))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", a.ready)
	for pattern, handler := range map[string]http.Handler{
		"GET /config":       beside(http.HandlerFunc(a.config)),
		"GET /endpoints":    beside(http.HandlerFunc(a.endpoints)),
		"GET /status":       beside(http.HandlerFunc(a.status)),
		"GET /debug/pprof/": profiles(),
	} {
		mux.Handle(pattern, a.access.restrict(handler))
	}
	return mux
}

func (a *planeAdmin) endpoints(w http.ResponseWriter, _ *http.Request) {
	reply(w, endpointsReply{Services: append([]telemetry.ServiceState{}, slices.Collect(a.services)...)})
}

func (a *planeAdmin) ready(w http.ResponseWriter, _ *http.Request) {
	switch r := a.report(); {
	case a.draining():
		text(w, http.StatusServiceUnavailable, "draining\n")
	case r == nil || r.Generation == 0:
		text(w, http.StatusServiceUnavailable, "no configuration yet\n")
	default:
		body := fmt.Sprintf("ready, generation %d\n", r.Generation)
		if n := a.unserved(); n == 1 {
			body += "degraded: 1 port cannot be bound, see /status\n"
		} else if n > 1 {
			body += fmt.Sprintf("degraded: %d ports cannot be bound, see /status\n", n)
		}
		text(w, http.StatusOK, body)
	}
}

func (a *planeAdmin) config(w http.ResponseWriter, _ *http.Request) {
	r := a.report()
	if r == nil || r.Config == nil {
		text(w, http.StatusServiceUnavailable, "no configuration yet\n")
		return
	}
	reply(w, r.Config)
}

// endpointsReply is the JSON form of /endpoints.
type endpointsReply struct {
	Services []telemetry.ServiceState `json:"services"`
}

// statusReply is the JSON form of /status.
type statusReply struct {
	// Generation counts the configurations served since the start.
	Generation uint64 `json:"generation"`
	// Error says why the newest configuration is not the one being served.
	Error    string             `json:"error,omitempty"`
	Findings []resource.Finding `json:"findings"`
	Statuses []resource.Status  `json:"statuses"`
	// Events are what a cluster would show on the objects.
	Events []resource.Event `json:"events"`
}

func (a *planeAdmin) status(w http.ResponseWriter, _ *http.Request) {
	reply(w, newStatusReply(a.report()))
}

func newStatusReply(r *control.Report) statusReply {
	out := statusReply{Findings: []resource.Finding{}, Statuses: []resource.Status{}, Events: []resource.Event{}}
	if r != nil {
		out.Generation = r.Generation
		if r.Err != nil {
			out.Error = r.Err.Error()
		}
		out.Findings = append(out.Findings, r.Findings...)
		out.Statuses = append(out.Statuses, r.Statuses...)
		out.Events = append(out.Events, r.Events...)
	}
	return out
}
