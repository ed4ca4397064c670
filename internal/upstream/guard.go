package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
)

// forbiddenError is an address that may not be dialled.
type forbiddenError struct {
	address string
	why     string
}

func (e *forbiddenError) Error() string { return fmt.Sprintf("address %s %s", e.address, e.why) }

// guarded dials the addresses that Options.Refuse and Options.Isolated allow. It judges the address to which the socket
// is about to be connected, so that a name server cannot return one address for the check and another for the dial.
func (o Options) guarded(d *net.Dialer) func(ctx context.Context, network, address string) (net.Conn, error) {
	if refuse := o.Refuse; refuse != nil {
		d.ControlContext = func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil {
				return &forbiddenError{address, "is not one that can be judged"}
			}
			if why := refuse(to); why != "" {
				return &forbiddenError{address, why}
			}
			return nil
		}
	}
	if !o.Isolated {
		return d.DialContext
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := d.DialContext(ctx, network, absolute(address))
		if err != nil {
			return nil, err
		}
		local, remote := ipOf(nc.LocalAddr()), ipOf(nc.RemoteAddr())
		if remote.IsValid() && local == remote {
			nc.Close()
			return nil, &forbiddenError{nc.RemoteAddr().String(), "is this machine's own"}
		}
		return nc, nil
	}
}

// absolute ends a host name with a dot, so that it is looked up as it is.
func absolute(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || strings.HasSuffix(host, ".") {
		return address
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return address
	}
	return net.JoinHostPort(host+".", port)
}

func ipOf(a net.Addr) netip.Addr {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.AddrPort().Addr().Unmap().WithZone("")
	}
	return netip.Addr{}
}

// tellForbidden logs that the endpoint's address is refused, once as long as the endpoint is in use.
func (e *Endpoint) tellForbidden(err error) {
	var ce *ConnectError
	if errors.As(err, &ce) && ce.Reason == ConnectForbidden && !e.forbidden.Swap(true) {
		e.set.opt.Logger.Warn("endpoint is refused; give its Service endpoints with addresses of their own", "endpoint", e.Address, "error", ce.Err)
	}
}
