package fed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/weirmesh/weir/internal/probe"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/redirect"
	"github.com/weirmesh/weir/internal/socket"
)

// The addresses by which a data plane asks for the sockets of a redirect.
const (
	inboundSocket  = "redirect/inbound"
	outboundSocket = "redirect/outbound"
)

// open opens the sockets of the redirect; a sidecar has no others. Connections to the pod come to all its addresses, as
// the redirect keeps the interface's; those from it come to loopback, where nobody else reaches them.
func (o *Sidecar) open(network, address string) (socket.Bound, error) {
	switch {
	case network == "tcp" && address == inboundSocket:
		return openAll(o.plan.Inbound, "")
	case network == "tcp" && address == outboundSocket:
		return openAll(o.plan.Outbound, "127.0.0.1", "::1")
	}
	return socket.Bound{}, fmt.Errorf("a sidecar opens no socket %q: it has those of the pod's redirect alone", address)
}

// openAll listens at ports of several hosts. A host without its family of addresses is left out, if another one is there.
func openAll(ports redirect.Ports, hosts ...string) (socket.Bound, error) {
	var all []net.Listener
	var without error
	for _, host := range hosts {
		for port := int(ports.First); port <= int(ports.Last); port++ {
			l, err := socket.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
			switch {
			case errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT):
				without = err
				continue
			case err != nil:
				for _, l := range all {
					_ = l.Close()
				}
				return socket.Bound{}, err
			}
			all = append(all, l)
		}
	}
	if len(all) == 0 {
		return socket.Bound{}, without
	}
	return socket.Bound{Stream: socket.Merge(all...)}, nil
}

// meant returns the address that a client meant. It fails for the sidecar's own ports, so that the connection is reset:
// passed on, it would come back.
func (o *Sidecar) meant(nc net.Conn) (netip.AddrPort, error) {
	to, err := o.original(nc)
	if err == nil && o.plan.Own(to, func(a netip.Addr) bool { return slices.Contains(o.addresses, a) }) {
		err = fmt.Errorf("%s is a port of the sidecar itself, which serves what a redirect brings alone", to)
	}
	return to, err
}

// probes serve the kubelet.
type probes struct {
	at     netip.AddrPort
	socket net.Listener
	server *http.Server
}

// listenProbes opens the socket for the pod's probes and hooks; nil if the pod has none.
func (o *Sidecar) listenProbes(log *slog.Logger) (*probes, error) {
	if len(o.table) == 0 {
		return nil, nil
	}
	l, err := net.Listen("tcp", net.JoinHostPort("", strconv.Itoa(int(o.probePort))))
	if err != nil {
		return nil, fmt.Errorf("--probe-port: %w", err)
	}
	return &probes{
		at: l.Addr().(*net.TCPAddr).AddrPort(), socket: process.Bounded(l),
		server: &http.Server{
			// An answer takes as long as the application's does: a hook may last for the pod's whole grace period.
			Handler: probe.New(o.table, o.addresses[0], log), ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
			ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		},
	}, nil
}

// run serves until ctx ends, and ends the checks that are under way then.
func (p *probes) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = p.server.Close() })()
	if err := p.server.Serve(p.socket); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("probes: %w", err)
	}
	return nil
}
