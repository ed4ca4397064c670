package feed

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	rpc "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/weirmesh/weir/internal/spare"
)

// dial makes a connection, lazily. There is one for each stream, so that a proxy that connects again may reach another
// control plane behind the same address, and so that a failed attempt does not delay the next: the Client decides how
// long to wait.
func (c *Client) dial() (*grpc.ClientConn, error) {
	pem, err := os.ReadFile(c.CAFile)
	if err != nil {
		return nil, fmt.Errorf("CA: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA: %s holds no certificate", c.CAFile)
	}
	name := c.ServerName
	if name == "" {
		if name, _, err = net.SplitHostPort(c.Address); err != nil {
			return nil, fmt.Errorf("address: %w", err)
		}
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: roots, ServerName: name}
	return grpc.NewClient("passthrough:///"+c.Address,
		grpc.WithContextDialer(connect),
		grpc.WithTransportCredentials(credentials.NewTLS(config)),
		grpc.WithPerRPCCredentials(tokenFile(c.TokenFile)),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 10 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 10 * time.Second}),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
	)
}

// stream receives until the stream ends, and returns why it did.
func (r *receiver) stream(ctx context.Context) error {
	r.heard, r.answers = false, nil
	defer r.client.Destinations.lost()
	conn, err := r.client.dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(ctx)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		cancel()
		return err
	}
	responses := make(chan *discovery.DeltaDiscoveryResponse)
	ended := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { ended <- receive(ctx, stream, responses) })
	r.beside = func() {
		if r.client.Taps != nil {
			running.Go(func() { r.client.beside(ctx, conn) })
		}
	}
	defer func() {
		cancel()
		running.Wait()
	}()
	if err := stream.Send(r.hello()); err != nil {
		return reason(responses, ended)
	}
	return r.follow(ctx, stream, responses, ended)
}

type deltaStream = discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient

// receive passes responses on, one at a time.
func receive(ctx context.Context, stream deltaStream, to chan<- *discovery.DeltaDiscoveryResponse) error {
	for {
		d, err := stream.Recv()
		if err != nil {
			return err
		}
		select {
		case to <- d:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// hello is the first request: it reports what the proxy has and what it serves.
func (r *receiver) hello() *discovery.DeltaDiscoveryRequest {
	node := r.node(r.state())
	if d := r.client.Destinations; d != nil {
		list := &structpb.ListValue{}
		for _, name := range d.all() {
			list.Values = append(list.Values, structpb.NewStringValue(name))
		}
		node.Metadata.Fields[destinationsKey] = structpb.NewListValue(list)
	}
	return &discovery.DeltaDiscoveryRequest{
		Node:                    node,
		TypeUrl:                 typeURL,
		ResourceNamesSubscribe:  []string{"*"},
		InitialResourceVersions: r.has.versions(),
	}
}

// servedInPart is the code in an acknowledgement of a step that was applied except for some parts; a server that does
// not know it takes it for a refusal.
const servedInPart = int32(codes.Unimplemented)

// follow takes responses and acknowledges them.
func (r *receiver) follow(ctx context.Context, stream deltaStream, responses <-chan *discovery.DeltaDiscoveryResponse, ended <-chan error) error {
	nonce, refused := "", false
	sent := ownState{unserved: make([]Unserved, 1)} // hello's, and it is not known whether that is still so
	for {
		var refusal error
		select {
		case <-r.client.tells():
			if nonce == "" || refused {
				continue // the next acknowledgement reports it
			}
		case <-r.client.Destinations.news():
			ask := r.client.Destinations.request()
			if ask == nil {
				continue // the first response brings it up again
			}
			if err := stream.Send(ask); err != nil {
				return reason(responses, ended)
			}
			continue
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case <-r.wait():
			if !r.work() || !refused {
				continue
			}
		case d := <-responses:
			if !r.heard {
				r.heard = true
				r.client.setStatus(func(s *Status) { s.Connected = true })
				r.log.Info("connected to the control plane", "address", r.client.Address)
				r.client.Destinations.heard(d.GetControlPlane().GetIdentifier() == destinationsKey)
				r.beside()
			}
			var complete bool
			var err error
			nonce = d.Nonce
			spare.Do(func() { complete, refusal, err = r.response(d) })
			if err != nil {
				return err
			}
			if complete && refusal == nil {
				r.log.Debug("configuration is served", "version", d.SystemVersionInfo, "parts", len(r.has.parts), "changed", len(d.Resources)+len(d.RemovedResources))
			}
		}
		refused = refusal != nil
		ack := &discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResponseNonce: nonce}
		if now := r.state(); len(now.unserved) > 0 || !now.equal(sent) {
			ack.Node, sent = r.node(now), now
		}
		if refused {
			r.log.Warn("configuration not applied, the previous one stays", "error", printable(refusal.Error(), maxError))
			ack.ErrorDetail = &rpc.Status{Code: int32(codes.InvalidArgument), Message: printable(refusal.Error(), maxError)}
		} else if partly := r.partly(); partly != "" {
			ack.ErrorDetail = &rpc.Status{Code: servedInPart, Message: partly}
		}
		if err := stream.Send(ack); err != nil {
			return reason(responses, ended)
		}
	}
}

// reason is why a stream ended on which nothing can be sent: only receiving returns it.
func reason(responses <-chan *discovery.DeltaDiscoveryResponse, ended <-chan error) error {
	for {
		select {
		case err := <-ended:
			return err
		case <-responses:
		}
	}
}
