package feed

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"

	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/model"
)

const (
	// maxMessage bounds one gRPC message in either direction, in bytes: a part, or the names and versions of all parts,
	// with which a proxy that comes back says what it has.
	maxMessage = maxPart + 4<<20
	// streamWindow and connectionWindow bound the unread bytes from a peer.
	streamWindow, connectionWindow = 64 << 10, 128 << 10
	// stopTime is how long Serve waits for streams to end on their own when it is stopped.
	stopTime = 2 * time.Second
)

// Server gives proxies the configurations of their owners. Certificate and Authenticate are required, the other
// fields may be zero; no field may be changed once a method was called. The methods may be called from any goroutine,
// also before Serve.
type Server struct {
	// Certificate returns the certificate to present; it is asked at each handshake.
	Certificate func() (*tls.Certificate, error)
	// Authenticate returns who a token belongs to: a proxy, by a name that no other has at the same time, and its owner.
	// It is called for each new stream, for a few at the same time, with a deadline. An error that wraps ErrUnavailable
	// says nothing about the token.
	Authenticate func(ctx context.Context, token string) (owner model.Owner, proxy string, err error)
	// OnChange, if set, is called when the result of Running for an owner may have changed. It must not block.
	OnChange func(owner model.Owner)
	// MaxAge is how long a stream may last before the proxy must connect again. This spreads the proxies over the
	// control planes, and verifies their tokens again. Each stream gets between this and a fifth more. Default 30
	// minutes.
	MaxAge time.Duration
	// Linger is how long a proxy that has disconnected is still reported as running. Default 15 s.
	Linger time.Duration
	// Destinations lets proxies ask for destinations, which Direct answers, beside what Set gives their owners. Those that
	// ask get nothing before the first Direct.
	Destinations bool
	// Taps, if set, serves a second stream of each proxy, which has orders for taps of requests and lines of them, until it
	// ends. It ends with the proxy's session, or when Taps returns.
	Taps func(s *Stream, owner model.Owner, proxy string) error
	// Replicas, if set besides Taps, lets other replicas of the control plane in.
	Replicas *Replicas
	// Sign, if set, lets pods have identities signed. For the holder of a token it returns what answers a request, which
	// is called once, with its answer. It is called for each request, with a deadline, and its errors are as those of
	// Authenticate; what it returns fails for a request that is not valid, or with an error that wraps ErrUnavailable.
	Sign func(ctx context.Context, token string) (answer func(request []byte) ([]byte, error), err error)
	// Logger, if set, logs proxies that come and go, and their refusals.
	Logger *slog.Logger

	publishing sync.Mutex // held by Publish; guards contents of parts, but those of feeds that are alone
	setting    sync.Mutex // held by Set; guards contents of the parts of these

	mu    sync.Mutex
	feeds map[model.Owner]*feed // by owner

	directory directory

	once       sync.Once
	checks     chan struct{} // one place for each token being looked at
	refused    loglimit.Limiter
	complaints loglimit.Limiter // see complain
	door       *door
	counts     counters
}

// ErrUnavailable is wrapped by errors of Authenticate that say nothing about the token: it could not be verified.
var ErrUnavailable = errors.New("the token cannot be checked now")

// feed is the state of one owner.
type feed struct {
	current  atomic.Pointer[snapshot] // nil before its first configuration
	retired  bool                     // published no more; guarded by Server.mu
	alone    bool                     // its configurations come by Set; guarded by Server.mu
	own      *snapshot                // what of current is not common, if it is alone; guarded by Server.setting
	sessions map[string]*session      // by proxy; guarded by Server.mu
	proxies  map[string]*record       // by name; guarded by Server.mu
	given    *model.Config            // the one that was given to Publish last, nil for none; guarded by Server.mu
	unsent   error                    // why that is not current; guarded by Server.mu
}

// init gives zero fields their defaults.
func (s *Server) init() {
	s.once.Do(func() {
		s.checks = make(chan struct{}, maxChecks)
		s.door = newDoor()
		if s.Logger == nil {
			s.Logger = slog.New(slog.DiscardHandler)
		}
		s.MaxAge = cmp.Or(s.MaxAge, 30*time.Minute)
		s.Linger = cmp.Or(s.Linger, 15*time.Second)
		s.complaints.Every = time.Second
	})
}

// feed returns that of an owner. s.mu is held.
func (s *Server) feed(owner model.Owner) *feed {
	f := s.feeds[owner]
	if f == nil {
		if s.feeds == nil {
			s.feeds = map[model.Owner]*feed{}
		}
		f = &feed{sessions: map[string]*session{}, proxies: map[string]*record{}}
		s.feeds[owner] = f
	}
	return f
}

// Publish makes the given configurations, by owner, those that proxies get, and returns before they have them. They may
// not be changed afterwards: one that is the same as was given before, by its address, has not changed, and of others what
// did not change is found by comparing with what was published before.
//
// A missing owner gets an empty configuration if it had one before, so that a revoked configuration is no longer
// served. Proxies of an owner that this server has not published yet keep what they have and wait: another server may
// have known more. To revoke what an earlier process published, publish an empty configuration.
//
// It returns why configurations cannot be sent, by owner: their proxies keep the one before, and the same configuration
// meets the same error. Others are not affected. So are owners whose configurations come by Set.
func (s *Server) Publish(configs map[model.Owner]*model.Config) map[model.Owner]error {
	s.init()
	s.publishing.Lock()
	defer s.publishing.Unlock()
	s.mu.Lock()
	owners := make([]model.Owner, 0, len(s.feeds)+len(configs))
	for owner, f := range s.feeds {
		if !f.alone {
			owners = append(owners, owner)
		}
	}
	s.mu.Unlock()
	for owner := range configs {
		owners = append(owners, owner)
	}
	slices.Sort(owners)
	errs := map[model.Owner]error{}
	for _, owner := range slices.Compact(owners) {
		if err := s.publish(owner, configs[owner]); err != nil {
			errs[owner] = err
		}
	}
	return errs
}

func (s *Server) publish(owner model.Owner, c *model.Config) error {
	given, retired := c, c == nil
	s.mu.Lock()
	f := s.feed(owner)
	if f.alone && c == nil { // since just now
		s.mu.Unlock()
		return nil
	}
	if c != nil && c == f.given && !f.retired {
		err := f.unsent
		s.mu.Unlock()
		return err
	}
	f.retired, f.given = retired, c
	before := f.current.Load()
	if retired {
		s.drop(owner)
	}
	gone := s.feeds[owner] == nil
	s.mu.Unlock()
	if retired {
		if before == nil || gone {
			return nil
		}
		c = &model.Config{}
	}
	next, err := newSnapshot(c, before)
	s.mu.Lock()
	f.unsent = err
	s.mu.Unlock()
	if err != nil || before != nil && before.version == next.version {
		return err
	}
	s.mu.Lock()
	f = s.feed(owner) // it may have been let go of in the meantime
	f.retired, f.given = retired, given
	s.mu.Unlock()
	s.install(f, next)
	return nil
}

// install makes a snapshot the current one, and sends it.
func (s *Server) install(f *feed, next *snapshot) {
	s.mu.Lock()
	f.current.Store(next)
	sessions := slices.Collect(maps.Values(f.sessions))
	s.mu.Unlock()
	for _, session := range sessions {
		session.wake()
	}
}

// Version is the version of what was last published for an owner, "" if nothing was.
func (s *Server) Version(owner model.Owner) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.feeds[owner]; f != nil {
		if c := f.current.Load(); c != nil {
			return c.version
		}
	}
	return ""
}

// Serve serves proxies on a listener until ctx ends, which is no error, and closes the listener. When it ends, streams
// are closed, so that proxies go to another control plane, and it returns within seconds.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	s.init()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := grpc.NewServer(s.options()...)
	v := &service{server: s, ctx: ctx}
	discovery.RegisterAggregatedDiscoveryServiceServer(server, v)
	if s.Taps != nil {
		server.RegisterService(besides(), v)
	}
	if s.Sign != nil {
		server.RegisterService(identities(), v)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		stop := time.AfterFunc(stopTime, server.Stop)
		defer stop.Stop()
		server.GracefulStop()
	}()
	var turned loglimit.Limiter
	err := server.Serve(&watched{Listener: l, door: s.door, told: func(from net.Addr) {
		turned.Log(s.Logger, slog.LevelWarn, "", "rejecting a connection to the feed: too many or too frequent connections from its address", "from", from.String())
	}})
	ended := ctx.Err() != nil
	cancel()
	<-stopped
	s.forgetAll()
	if ended || errors.Is(err, grpc.ErrServerStopped) {
		return nil
	}
	return err
}

func (s *Server) options() []grpc.ServerOption {
	config := &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.Certificate() },
		GetConfigForClient: func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			return s.Replicas.config(hello, s.Certificate)
		},
	}
	return []grpc.ServerOption{
		grpc.Creds(newDoorTLS(config)),
		grpc.MaxRecvMsgSize(maxMessage),
		grpc.MaxSendMsgSize(maxMessage),
		grpc.MaxConcurrentStreams(2),
		grpc.InitialWindowSize(streamWindow),
		grpc.InitialConnWindowSize(connectionWindow),
		grpc.MaxHeaderListSize(32 << 10),
		grpc.ConnectionTimeout(strangerTime),
		grpc.WaitForHandlers(true),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			MaxConnectionIdle: 30 * time.Second,
			// Streams end by themselves at MaxAge. This is for a peer that reads nothing and so keeps its stream.
			MaxConnectionAge:      2 * s.MaxAge,
			MaxConnectionAgeGrace: 30 * time.Second,
			Time:                  20 * time.Second,
			Timeout:               10 * time.Second,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second}),
		grpc.StatsHandler(&s.counts),
	}
}

// service is the gRPC service during one Serve.
type service struct {
	discovery.UnimplementedAggregatedDiscoveryServiceServer
	server *Server
	ctx    context.Context // ends with Serve
}

// DeltaAggregatedResources implements the only method of the service.
func (v *service) DeltaAggregatedResources(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	s := v.server
	owner, proxy, ended, err := s.identify(stream.Context())
	if err != nil {
		return err
	}
	defer ended()
	age := s.MaxAge + rand.N(s.MaxAge/5+1)
	ctx, cancel := context.WithTimeout(v.ctx, age)
	defer cancel()
	session := s.open(ctx, owner, proxy, visitorOf(stream.Context()), cancel)
	defer s.close(session)
	err = session.serve(stream)
	if err != nil && status.Code(err) == codes.InvalidArgument {
		s.complain(owner, proxy, "protocol error from a proxy", "error", err)
	}
	return err
}
