package proxy

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
)

var (
	// errNobodyMeant ends a redirected connection to an address that no listener has.
	errNobodyMeant = errors.New("no listener is for the address that the client meant")
	errNotOfSystem = errors.New("the connection is none of the system's")
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
