package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"

	"github.com/weirmesh/weir/internal/spare"
)

// admin is an endpoint for the people and programs that run the process. It answers GET requests only and changes
// nothing.
type admin struct {
	listener net.Listener
	server   *http.Server
}

// listenAdmin binds the endpoint; run serves it.
func listenAdmin(listen func(network, address string) (net.Listener, error), address string, handler http.Handler) (*admin, error) {
	l, err := listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("admin endpoint: %w; choose another address with --admin, or --admin off", err)
	}
	if ip, ok := netip.AddrFromSlice(l.Addr().(*net.TCPAddr).IP); ok && ip.Unmap().IsLoopback() {
		handler = localOnly(handler)
	}
	return &admin{listener: l, server: &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute, // profiles take as long as they are asked to
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}}, nil
}

// socket is where the endpoint listens.
func (a *admin) socket() netip.AddrPort {
	tcp, ok := a.listener.Addr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return tcp.AddrPort()
}

func (a *admin) url() string { return "http://" + a.listener.Addr().String() + "/" }

// run serves until ctx ends.
func (a *admin) run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = a.server.Close() })
	defer stop()
	if err := a.server.Serve(bounded(a.listener)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin endpoint: %w", err)
	}
	return nil
}

// localOnly refuses hosts that are names, see literalHost.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !literalHost(r.Host) {
			text(w, http.StatusForbidden, "use an IP address or localhost as the host\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// beside is for handlers that compute long where there is much to tell: they leave traffic its processor.
func beside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		spare.Do(func() { next.ServeHTTP(w, r) })
	})
}

// profiles of the process.
func profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
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
