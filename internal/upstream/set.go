package upstream

import (
	"context"
	"iter"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

// Options are a Set's limits; the zero value is usable.
type Options struct {
	// ConnectTimeout bounds resolving, connecting and the TLS handshake together; 0 means 5 s.
	ConnectTimeout time.Duration
	// IdleTimeout is how long an unused connection is kept; 0 means 60 s. Connections are closed at most a quarter of it later.
	IdleTimeout time.Duration
	// MaxIdlePerEndpoint bounds the idle connections of one endpoint; 0 means 1024, less than 0 none.
	MaxIdlePerEndpoint int
	// ReadBuffer is the size of a connection's read buffer; 0 means 4 KiB.
	ReadBuffer int
	// MaxHTTP2Connections bounds the HTTP/2 connections to one endpoint; 0 means 4. One is used until its streams are all taken.
	MaxHTTP2Connections int
	// MaxHeaderBytes bounds the header list of a response over HTTP/2; 0 means 64 KiB.
	MaxHeaderBytes uint32
	// EjectAfter is the number of consecutive failures that ejects an endpoint; 0 means 3, less than 0 never.
	EjectAfter int
	// Logger is told of ejections, recoveries and unusable services; nil discards.
	Logger *slog.Logger

	// dial replaces the network in tests.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Set owns the endpoints' state of a process. Its methods may be called at the same time.
type Set struct {
	opt Options

	mu        sync.Mutex // serialises Apply and Close
	endpoints map[key]*Endpoint
	closed    bool

	start  time.Time
	epoch  atomic.Uint32
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
}

// key is an endpoint's identity.
type key struct {
	address  string
	protocol model.Protocol
	tls      string // digest of the TLS identity; empty for cleartext
}

// New starts a Set. Close it.
func New(opt Options) *Set { panic("not built yet") }

// Close closes every connection, idle or not, and waits for all that the Set started. Get fails with ErrClosed afterwards.
func (s *Set) Close() error { return nil }

// Apply makes a snapshot of the configuration's services. Endpoints whose address, protocol and TLS identity stay keep their state, across
// services and configurations; those that are in no service any more are drained: idle connections are closed now, used ones when their
// exchange ends. A service whose TLS identity cannot be used keeps its endpoints, each attempt fails with a *TLSError of reason TLSConfig.
// An error (the Set is closed) leaves everything as it was.
func (s *Set) Apply(cfg *model.Config) (*Snapshot, error) { return nil, nil }

// Endpoints iterates over all endpoints of the last Apply, for metrics; in no order.
func (s *Set) Endpoints() iter.Seq[*Endpoint] { return nil }

// Snapshot is the services of one configuration. It never changes.
type Snapshot struct {
	services map[string]*Service
}

// Service returns the service named "namespace/name:port", nil if there is none.
func (s *Snapshot) Service(name string) *Service { return s.services[name] }
