package process

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"

	"github.com/weirmesh/weir/internal/spare"
	"github.com/weirmesh/weir/internal/visible"
)

// Admin is an endpoint for the people and programs that run the process.
type Admin struct {
	Listener net.Listener
	server   *http.Server
}

// ListenAdmin binds the endpoint at address; Run serves handler there. At a loopback address other hosts are refused.
func ListenAdmin(listen func(network, address string) (net.Listener, error), address string, handler http.Handler) (*Admin, error) {
	l, err := listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("admin endpoint: %w; choose another address with --admin, or --admin off", err)
	}
	if ip, ok := netip.AddrFromSlice(l.Addr().(*net.TCPAddr).IP); ok && ip.Unmap().IsLoopback() {
		handler = localOnly(handler)
	}
	return &Admin{Listener: l, server: &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      2 * time.Minute, // profiles take as long as they are asked to
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}}, nil
}

// Socket is where the endpoint listens.
func (a *Admin) Socket() netip.AddrPort {
	tcp, ok := a.Listener.Addr().(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	return tcp.AddrPort()
}

// URL is the endpoint's address for a browser.
func (a *Admin) URL() string { return "http://" + a.Listener.Addr().String() + "/" }

// Run serves until ctx ends.
func (a *Admin) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = a.server.Close() })
	defer stop()
	if err := a.server.Serve(Bounded(a.Listener)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin endpoint: %w", err)
	}
	return nil
}

// localOnly refuses hosts that are not this machine, see loopbackHost.
func localOnly(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !loopbackHost(r.Host) {
			Text(w, http.StatusForbidden, "use 127.0.0.1, [::1] or localhost as the host\n")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Page is a page that a part of the process adds to the endpoint. It is restricted (Access) unless it is open.
type Page struct {
	// Pattern is that of http.ServeMux, with the method.
	Pattern string
	// Index and About are its line in the list of pages; empty for none.
	Index, About string
	Handler      http.Handler
	// Lasting says that the handler takes its processor by itself (Beside): some of its answers last.
	Lasting bool
	// Open says that everyone may see it who may see /metrics.
	Open bool
}

// Beside wraps handlers whose work can take long: they leave a processor to traffic.
func Beside(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		spare.Do(func() { next.ServeHTTP(w, r) })
	})
}

// Profiles of the process.
func Profiles() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// Text answers with plain text.
func Text(w http.ResponseWriter, status int, body string) {
	w.Header().Set("content-type", "text/plain; charset=utf-8")
	w.Header().Set("x-content-type-options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body))
}

// Reply answers 200 with v as JSON.
func Reply(w http.ResponseWriter, v any) {
	var body bytes.Buffer
	if err := WriteJSON(&body, v); err != nil {
		Text(w, http.StatusInternalServerError, err.Error()+"\n")
		return
	}
	w.Header().Set("content-type", "application/json")
	_, _ = w.Write(body.Bytes())
}

// WriteJSON writes indented JSON without escaping HTML, but all that is not visible in its strings.
func WriteJSON(w io.Writer, v any) error {
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := w.Write(visible.JSON(text.Bytes()))
	return err
}
