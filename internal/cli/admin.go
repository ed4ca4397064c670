package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/telemetry"
)

// admin is the endpoint for the people and programs that run the gateway. It answers GET requests only and changes
// nothing.
type admin struct {
	listener net.Listener
	server   *http.Server
	// report is where the control loop stands; nil before its first report.
	report func() *control.Report
	// draining says that the process is about to end.
	draining func() bool
}

const adminIndex = `weir admin

/metrics       Prometheus metrics
/healthz       200 as long as the process runs
/readyz        200 once a configuration is served, 503 before and while draining
/config        the routing model being served, private keys redacted
/endpoints     the services being served, and the health of their endpoints
/status        generation, findings, and the conditions of every resource
/debug/pprof/  profiles of the process
`

// listenAdmin binds the endpoint; run serves it.
func listenAdmin(listen func(network, address string) (net.Listener, error), address string, metrics http.Handler, report func() *control.Report,
	services iter.Seq[telemetry.ServiceState], draining func() bool) (*admin, error) {
	l, err := listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("admin endpoint: %w; choose another address with --admin, or --admin off", err)
	}
	a := &admin{listener: l, report: report, draining: draining}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, adminIndex) })
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { text(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", a.ready)
	mux.HandleFunc("GET /config", a.config)
	mux.HandleFunc("GET /endpoints", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, endpointsReply{Services: append([]telemetry.ServiceState{}, slices.Collect(services)...)})
	})
	mux.HandleFunc("GET /status", a.status)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	handler := http.Handler(mux)
	if ip, ok := netip.AddrFromSlice(l.Addr().(*net.TCPAddr).IP); ok && ip.Unmap().IsLoopback() {
		handler = localOnly(mux)
	}
	a.server = &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute, // profiles take as long as they are asked to
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	return a, nil
}

func (a *admin) url() string { return "http://" + a.listener.Addr().String() + "/" }

// run serves until ctx ends.
func (a *admin) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = a.server.Close() })
	defer stop()
	if err := a.server.Serve(a.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin endpoint: %w", err)
	}
	return nil
}

// localOnly refuses hosts that are names: a web page that had its own name resolve to the loopback address could read
// the endpoint otherwise.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		host = strings.Trim(host, "[]")
		if _, err := netip.ParseAddr(host); err != nil && host != "localhost" {
			text(w, http.StatusForbidden, "use an IP address or localhost as the host\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (a *admin) ready(w http.ResponseWriter, _ *http.Request) {
	switch r := a.report(); {
	case a.draining():
		text(w, http.StatusServiceUnavailable, "draining\n")
	case r == nil || r.Generation == 0:
		text(w, http.StatusServiceUnavailable, "no configuration yet\n")
	default:
		text(w, http.StatusOK, fmt.Sprintf("ready, generation %d\n", r.Generation))
	}
}

func (a *admin) config(w http.ResponseWriter, _ *http.Request) {
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

func (a *admin) status(w http.ResponseWriter, _ *http.Request) {
	out := statusReply{Findings: []resource.Finding{}, Statuses: []resource.Status{}, Events: []resource.Event{}}
	if r := a.report(); r != nil {
		out.Generation = r.Generation
		if r.Err != nil {
			out.Error = r.Err.Error()
		}
		out.Findings = append(out.Findings, r.Findings...)
		out.Statuses = append(out.Statuses, r.Statuses...)
		out.Events = append(out.Events, r.Events...)
	}
	reply(w, out)
}

func text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("content-type", "text/plain; charset=utf-8")
	w.Header().Set("x-content-type-options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

func reply(w http.ResponseWriter, v any) {
	var body bytes.Buffer
	if err := writeJSON(&body, v); err != nil {
		text(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	w.Header().Set("content-type", "application/json")
	_, _ = w.Write(body.Bytes())
}
