package dataplane

import (
	"fmt"
	"iter"
	"net/http"
	"slices"

	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/telemetry"
)

// planeAdmin is the data of a data plane's admin endpoint.
type planeAdmin struct {
	metrics http.Handler
	// report is how it stands; nil before the first report.
	report func() *Report
	// unserved is how many ports cannot be bound.
	unserved func() int
	services iter.Seq[telemetry.ServiceState]
	// draining means that the process is about to end.
	draining func() bool
	// waits is Plane.Waits.
	waits func() string
	// access is to all but metrics and health.
	access process.Access
	// more pages.
	more []process.Page
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
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { process.Text(w, http.StatusOK, a.index()) })
	mux.Handle("GET /metrics", process.Beside(a.metrics))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { process.Text(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", a.ready)
	for pattern, handler := range map[string]http.Handler{
		"GET /config":       process.Beside(http.HandlerFunc(a.config)),
		"GET /endpoints":    process.Beside(http.HandlerFunc(a.endpoints)),
		"GET /status":       process.Beside(http.HandlerFunc(a.status)),
		"GET /debug/pprof/": process.Profiles(),
	} {
		mux.Handle(pattern, a.access.Restrict(handler))
	}
	for _, p := range a.more {
		handler := p.Handler
		if !p.Lasting {
			handler = process.Beside(handler)
		}
		if !p.Open {
			handler = a.access.Restrict(handler)
		}
		mux.Handle(p.Pattern, handler)
	}
	return mux
}

func (a *planeAdmin) index() string {
	text := adminIndex
	for _, p := range a.more {
		if p.Index != "" {
			text += fmt.Sprintf("%-14s %s\n", p.Index, p.About)
		}
	}
	return text
}

func (a *planeAdmin) endpoints(w http.ResponseWriter, _ *http.Request) {
	process.Reply(w, endpointsReply{Services: append([]telemetry.ServiceState{}, slices.Collect(a.services)...)})
}

func (a *planeAdmin) ready(w http.ResponseWriter, _ *http.Request) {
	waits := ""
	if a.waits != nil {
		waits = a.waits()
	}
	switch s := a.standing(); {
	case a.draining():
		process.Text(w, http.StatusServiceUnavailable, "draining\n")
	case s.Generation == 0:
		process.Text(w, http.StatusServiceUnavailable, "no configuration yet\n")
	case waits != "":
		process.Text(w, http.StatusServiceUnavailable, waits+"\n")
	default:
		body := fmt.Sprintf("ready, generation %d\n", s.Generation)
		if n := a.unserved(); n == 1 {
			body += "degraded: 1 port cannot be bound, see /status\n"
		} else if n > 1 {
			body += fmt.Sprintf("degraded: %d ports cannot be bound, see /status\n", n)
		}
		process.Text(w, http.StatusOK, body)
	}
}

func (a *planeAdmin) config(w http.ResponseWriter, _ *http.Request) {
	cfg := a.standing().Config
	if cfg == nil {
		process.Text(w, http.StatusServiceUnavailable, "no configuration yet\n")
		return
	}
	process.Reply(w, cfg)
}

// endpointsReply is the JSON form of /endpoints.
type endpointsReply struct {
	Services []telemetry.ServiceState `json:"services"`
}

func (a *planeAdmin) status(w http.ResponseWriter, _ *http.Request) {
	if r := a.report(); r != nil {
		process.Reply(w, (*r).Status())
		return
	}
	process.Reply(w, Standing{}.Status())
}

// standing is the zero value before the first report.
func (a *planeAdmin) standing() Standing {
	if r := a.report(); r != nil {
		return (*r).Standing()
	}
	return Standing{}
}
