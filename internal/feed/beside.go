package feed

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/weirmesh/weir/internal/model"
)

// Stream is one of messages beside configurations, which it delays by nothing: gRPC lets the streams of a connection send
// by turns, and holds up each by its own reader alone. Send and Recv may be called by one goroutine each.
type Stream struct {
	messages interface {
		SendMsg(message any) error
		RecvMsg(message any) error
	}
	ctx context.Context
}

// Context ends with the stream. At a server it also ends with the session of the proxy, and with Serve.
func (s *Stream) Context() context.Context { return s.ctx }

// Send sends a message.
func (s *Stream) Send(message []byte) error { return s.messages.SendMsg(wrapperspb.Bytes(message)) }

// Recv waits for a message.
func (s *Stream) Recv() ([]byte, error) {
	m := &wrapperspb.BytesValue{}
	if err := s.messages.RecvMsg(m); err != nil {
		return nil, err
	}
	return m.Value, nil
}

// The service of streams beside configurations. A server of a release without it answers UNIMPLEMENTED, and a proxy of a
// release without it does not open any.
const (
	besideService  = "weir.v1.Taps"
	proxyMethod    = "Proxy"   // of a proxy, for the server's orders and the proxy's lines
	replicaMethod  = "Replica" // of another replica, which gives orders
	maxBeside      = 1 << 20   // bytes of a message to a proxy
	besideRetry    = time.Second
	maxBesideRetry = 30 * time.Second
)

// besides describes the service; its messages are bytes.
func besides() *grpc.ServiceDesc {
	stream := func(name string, handle func(*service, grpc.ServerStream) error) grpc.StreamDesc {
		return grpc.StreamDesc{StreamName: name, ServerStreams: true, ClientStreams: true, Handler: func(srv any, s grpc.ServerStream) error { return handle(srv.(*service), s) }}
	}
	return &grpc.ServiceDesc{ServiceName: besideService, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{
		stream(proxyMethod, (*service).besideProxy), stream(replicaMethod, (*service).besideReplica),
	}}
}

// besideProxy serves the second stream of a proxy. It belongs to the session on the same connection, and ends with it.
func (v *service) besideProxy(stream grpc.ServerStream) error {
	s := v.server
	owner, proxy, ended, err := s.identify(stream.Context())
	if err != nil {
		return err
	}
	defer ended()
	session := s.session(owner, proxy)
	if session == nil || session.by != visitorOf(stream.Context()) {
		return status.Error(codes.Unavailable, "the proxy follows no configuration on this connection")
	}
	ctx, cancel := context.WithCancel(session.ctx)
	defer cancel()
	defer context.AfterFunc(stream.Context(), cancel)()
	return besideStatus(s.Taps(&Stream{stream, ctx}, owner, proxy))
}

// besideReplica serves another replica.
func (v *service) besideReplica(stream grpc.ServerStream) error {
	s := v.server
	by := visitorOf(stream.Context())
	if !s.Replicas.at(stream.Context()) {
		if by != nil {
			by.refuse()
		}
		s.counts.refused.Add(1)
		return status.Error(codes.PermissionDenied, "not a replica of this control plane")
	}
	if by != nil {
		by.arrived()
		if err := by.prove(); err != nil {
			return status.Error(codes.Unavailable, err.Error())
		}
		defer by.ended()
	}
	ctx, cancel := context.WithCancel(v.ctx)
	defer cancel()
	defer context.AfterFunc(stream.Context(), cancel)()
	return besideStatus(s.Replicas.Serve(&Stream{stream, ctx}))
}

// besideStatus keeps gRPC from taking a context's end for an unknown error.
func besideStatus(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}

// session returns that of a proxy, nil if there is none.
func (s *Server) session(owner model.Owner, proxy string) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.feeds[owner]; f != nil {
		return f.sessions[proxy]
	}
	return nil
}

// visitorOf is the connection of a stream, nil if it came by no door.
func visitorOf(ctx context.Context) *visitor {
	if p, ok := peer.FromContext(ctx); ok {
		if c, ok := p.AuthInfo.(come); ok {
			return c.by
		}
	}
	return nil
}

// beside has the Client's Taps use a second stream until ctx ends, unless the control plane has none. It is tried again
// when it fails: nothing else depends on it.
func (c *Client) beside(ctx context.Context, conn *grpc.ClientConn) {
	for pause := besideRetry; ; pause = min(2*pause, maxBesideRetry) {
		err := c.besideOnce(ctx, conn)
		if status.Code(err) == codes.Unimplemented {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (c *Client) besideOnce(ctx context.Context, conn *grpc.ClientConn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+besideService+"/"+proxyMethod, grpc.MaxCallRecvMsgSize(maxBeside))
	if err != nil {
		return err
	}
	return c.Taps(&Stream{stream, stream.Context()}, cancel)
}
