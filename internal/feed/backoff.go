package feed

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

const (
	// firstDelay and lastDelay bound the time between two attempts to connect, which doubles; of each, a random part of
	// at least a half is waited. A control plane that comes back may be missed for at most lastDelay.
	firstDelay = 100 * time.Millisecond
	lastDelay  = 2 * time.Second
	// refusedDelay replaces lastDelay if a control plane answers that the token is not valid: each attempt costs it a
	// handshake and a verification, and the answer will seldom change.
	refusedDelay = 10 * time.Second
	// dialTime bounds an attempt to reach one address. It may be that of a pod that is gone, to which the attempt stays
	// bound while the Service has others by now.
	dialTime = 2 * time.Second
)

// pauses are how long to wait between attempts to connect. The zero value is before the first.
type pauses struct{ delay time.Duration }

// reset is for a connection that was good.
func (p *pauses) reset() { p.delay = 0 }

// next is how long to wait after an attempt that ended with err.
func (p *pauses) next(err error) time.Duration {
	most := lastDelay
	if status.Code(err) == codes.Unauthenticated {
		most = refusedDelay
	}
	p.delay = min(max(2*p.delay, firstDelay), most)
	return p.delay/2 + rand.N(p.delay/2)
}

// connect looks the host up, without caching, and connects to the first address that answers.
func connect(ctx context.Context, address string) (net.Conn, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("address: %w", err)
	}
	addresses, err := net.DefaultResolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	dialer := net.Dialer{Timeout: dialTime}
	for _, a := range addresses {
		var conn net.Conn
		if conn, err = dialer.DialContext(ctx, "tcp", net.JoinHostPort(a, port)); err == nil {
			return conn, nil
		}
	}
	return nil, err
}
