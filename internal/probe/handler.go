package probe

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"

	"github.com/weirmesh/weir/internal/loglimit"
)

// atOnce is how many runs of one check may be under way. The kubelet begins one when the one before has ended or its
// time is up; whoever else reaches the port cannot have an application asked more often than that.
const atOnce = 3

// reason is how many bytes of why a check failed are told.
const reason = 1 << 10

// Handler answers the kubelet: 200 when the application passes a check, 503 with the reason when it does not, 404 for
// what is no check of the pod. Its methods may be called from any goroutine.
type Handler struct {
	checks map[string]*running
	pod    netip.Addr
	log    *slog.Logger
	told   loglimit.Limiter
}

// running is a check and how many runs of it are under way.
type running struct {
	Check
	name   string
	places chan struct{}
}

// New makes a handler for the checks of a pod with that address, at which the application is asked. It logs failures, each
// check's at most once in ten seconds, since the kubelet tells of a failure no more than the status.
func New(t Table, pod netip.Addr, log *slog.Logger) *Handler {
	h := &Handler{checks: map[string]*running{}, pod: pod, log: log}
	for key, c := range t {
		h.checks["/"+key] = &running{Check: c, name: Name(key), places: make(chan struct{}, atOnce)}
	}
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c := h.checks[r.URL.Path]
	if c == nil || r.Method != http.MethodGet {
		http.NotFound(w, r)
		return
	}
	select {
	case c.places <- struct{}{}:
		defer func() { <-c.places }()
	default:
		http.Error(w, "the check is under way already", http.StatusServiceUnavailable)
		return
	}
	ctx, stop := context.WithTimeout(r.Context(), c.limit())
	defer stop()
	if err := c.run(ctx, h.pod.String(), r.UserAgent()); err != nil {
		text := err.Error()
		text = text[:min(len(text), reason)]
		if r.Context().Err() == nil {
			h.told.Log(h.log, slog.LevelInfo, c.name, "a check of the application fails", "check", c.name, "error", text)
		}
		http.Error(w, text, http.StatusServiceUnavailable)
		return
	}
	io.WriteString(w, "ok\n")
}

// run does the check once.
func (c *Check) run(ctx context.Context, pod, agent string) error {
	switch {
	case c.HTTP != nil:
		return c.HTTP.run(ctx, pod, agent)
	case c.TCP != nil:
		nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", address(pod, c.TCP.Port))
		if err != nil {
			return err
		}
		return nc.Close()
	}
	return c.GRPC.run(ctx, pod, agent)
}

func address(pod string, port int32) string { return net.JoinHostPort(pod, fmt.Sprint(port)) }
