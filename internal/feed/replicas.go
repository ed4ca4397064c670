package feed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/peer"
)

// Replicas is how the replicas of a control plane know each other, at the feed's port. Who calls a replica names it
// differently than proxies do. Only then it is asked for a certificate, and must have one of a replica. All fields are
// required.
type Replicas struct {
	// Name is the server name by which replicas call each other, and a name of Server.Certificate. Proxies must not use it.
	Name string
	// Roots returns the certificates that sign those of replicas, nil if there are none yet. Is reports whether a
	// certificate that they have signed is one of a replica.
	Roots func() *x509.CertPool
	Is    func(*x509.Certificate) bool
	// Certificate returns this replica's as a client.
	Certificate func() (*tls.Certificate, error)
	// Serve serves a stream of another replica until it ends. It ends when Serve returns.
	Serve func(*Stream) error
}

var errNoRoots = errors.New("feed: no certificate authority yet")

// config is that of a server for a client that calls it by the name of replicas; nil for others.
func (r *Replicas) config(hello *tls.ClientHelloInfo, server func() (*tls.Certificate, error)) (*tls.Config, error) {
	if r == nil || hello.ServerName != r.Name {
		return nil, nil
	}
	roots := r.Roots()
	if roots == nil {
		return nil, errNoRoots
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		GetCertificate:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return server() },
		ClientAuth:             tls.RequireAndVerifyClientCert,
		ClientCAs:              roots,
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if !r.proves(s) {
				return errors.New("feed: the certificate is not one of a replica")
			}
			return nil
		},
	}, nil
}

// proves reports whether a connection's other end has proved to be a replica.
func (r *Replicas) proves(s tls.ConnectionState) bool {
	return len(s.VerifiedChains) > 0 && len(s.PeerCertificates) > 0 && r.Is(s.PeerCertificates[0])
}

// at reports whether the stream of a context comes from a replica.
func (r *Replicas) at(ctx context.Context) bool {
	if r == nil {
		return false
	}
	p, ok := peer.FromContext(ctx)
	if !ok {
		return false
	}
	switch info := p.AuthInfo.(type) {
	case come:
		return r.proves(info.State)
	case credentials.TLSInfo:
		return r.proves(info.State)
	}
	return false
}

// Call opens a stream to the replica at an address, "host:port", on a connection of its own. Both end with ctx.
func (r *Replicas) Call(ctx context.Context, address string) (*Stream, error) {
	roots := r.Roots()
	if roots == nil {
		return nil, errNoRoots
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: r.Name,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return r.Certificate() },
	}
	conn, err := grpc.NewClient("passthrough:///"+address,
		grpc.WithContextDialer(connect),
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxBeside), grpc.MaxCallSendMsgSize(maxBeside)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 10 * time.Second}),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
	)
	if err != nil {
		return nil, err
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+besideService+"/"+replicaMethod)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return &Stream{stream, stream.Context()}, nil
}
