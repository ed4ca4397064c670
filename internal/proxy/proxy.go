package proxy

import (
	"context"
	"net"

	"github.com/weirmesh/weir/internal/model"
)

// Server is a data plane. Apply configures it, any number of times and before or after Run has begun.
type Server struct {
	opt Options
}

// New makes a server. Run must be called once, even after an Apply that failed: it ends what the server started.
func New(opt Options) *Server {
	opt.setDefaults()
	return &Server{opt: opt}
}

// Apply replaces the configuration in one step: routes, services, certificates and listeners. Ports that are new are
// bound before, those that are gone are drained afterwards; connections to ports that stay are not disturbed, and
// each exchange ends with the configuration it began with. On error the old configuration goes on serving; a port that cannot be
// bound is a *ListenError. cfg must not be changed afterwards.
func (s *Server) Apply(cfg *model.Config) error { return nil }

// Addr is a bound port.
type Addr struct {
	// Address and Port are the listener's own words.
	Address string
	Port    int32
	TLS     bool
	// Bound is what the system gave.
	Bound net.Addr
	// Listeners are the names of the listeners that share the port.
	Listeners []string
}

// Addrs returns the ports that are bound, by number, then address.
func (s *Server) Addrs() []Addr { return nil }

// Addr returns the address that the listener of that name is bound to, nil if there is none.
func (s *Server) Addr(listener string) net.Addr { return nil }

// Run serves until ctx ends, then drains: no new connections are taken, exchanges in flight are given DrainTimeout, the
// rest is cut off. It returns when everything the server started has ended.
func (s *Server) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
