package proxy

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"

	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
)

var (
	// errNobodyMeant ends a redirected connection to an address that no listener has.
	errNobodyMeant = errors.New("no listener is for the address that the client meant")
	errNotOfSystem = errors.New("the connection is none of the system's")
	// errNothingInbound ends a connection of the pod to itself.
	errNothingInbound = errors.New("nothing is served for the pod yet")
)

// Original returns the address that the client of a connection meant, without zone and unmapped, as Options.Original does.
func Original(nc net.Conn) (to netip.AddrPort, err error) {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return to, errNotOfSystem
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return to, err
	}
	if failed := raw.Control(func(fd uintptr) { to, err = socket.OriginalDestination(fd) }); failed != nil {
		return to, failed
	}
	return netip.AddrPortFrom(to.Addr().Unmap().WithZone(""), to.Port()), err
}

// own are the connections under way from this process to listeners of its own redirect: the address that each means, by
// that from which it comes.
type own struct{ meant sync.Map }

// ownKey is how a connection's other end names where it comes from.
func ownKey(a net.Addr) (netip.AddrPort, bool) {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}, false
	}
	at := tcp.AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port()), true
}

// meant returns the address that a redirected connection's client meant.
func (s *Server) meant(nc net.Conn) (netip.AddrPort, error) {
	if from, ok := ownKey(nc.RemoteAddr()); ok && from.Addr().IsLoopback() {
		if to, ok := s.own.meant.LoadAndDelete(from); ok {
			return to.(netip.AddrPort), nil
		}
	}
	return s.opt.Original(nc)
}

// dialOwn is upstream.Options.Own: an address of the pod is reached by way of what is served for its other clients, be it
// that a Service led there or that the application dialled itself. The network would lead past that.
func (s *Server) dialOwn(ctx context.Context, to netip.AddrPort) (net.Conn, error) {
	to = netip.AddrPortFrom(to.Addr().Unmap(), to.Port())
	if !slices.Contains(s.opt.Pod, to.Addr()) {
		return nil, nil
	}
	var at net.Addr
	if snap := s.state.Load(); snap != nil {
		for b := range snap.ports {
			if b.redirect == model.RedirectInbound {
				at = b.ln.Addr()
			}
		}
	}
	tcp, ok := at.(*net.TCPAddr)
	if !ok {
		return nil, errNothingInbound
	}
	var from netip.AddrPort
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) {
			if from, err = socket.BindLoopback(fd); err == nil {
				s.own.meant.Store(from, to)
			}
		})
		return cmp.Or(failed, err)
	}}
	nc, err := d.DialContext(ctx, "tcp4", net.JoinHostPort("127.0.0.1", strconv.Itoa(tcp.Port)))
	if err != nil {
		s.own.meant.Delete(from)
		return nil, err
	}
	return nc, nil
}

// lost resets a redirected connection that nobody is to serve.
func (b *bind) lost(nc net.Conn, shard uint32, why error) {
	s := b.srv
	s.opt.Metrics.Unrouted().Fail(shard, telemetry.NoRoute)
	if suppressed, ok := s.strangers.Allow("redirect"); ok {
		s.log.Warn("a redirected connection is not served", loglimit.Args(suppressed, "redirect", b.redirect, "client", nc.RemoteAddr().String(), "error", why)...)
	}
	reset(nc)
}

// portOf is the port that a client meant, as text.
func (b *bind) portOf(to netip.AddrPort) string {
	if b.redirect == "" {
		return b.port
	}
	return strconv.Itoa(int(to.Port()))
}
