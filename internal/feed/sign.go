package feed

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// The service by which pods have their identities signed. A request is in the header of its call, which is bounded, so
// that nothing else is read from whoever calls: every pod of a cluster can have a token.
const (
	identityService = "weir.v1.Identity"
	signMethod      = "Sign"
	requestKey      = "weir-request-bin"
	// signTime bounds a call, whoever makes it.
	signTime = 15 * time.Second
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = 1 << 20
)

func identities() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{ServiceName: identityService, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: signMethod, ServerStreams: true,
		Handler: func(srv any, s grpc.ServerStream) error { return srv.(*service).sign(s) },
	}}}
}

// sign answers one request.
func (v *service) sign(stream grpc.ServerStream) error {
	ctx, cancel := context.WithTimeout(stream.Context(), signTime)
	defer cancel()
	defer context.AfterFunc(v.ctx, cancel)()
	var answer func([]byte) ([]byte, error)
	ended, err := v.server.letIn(ctx, "rejecting a request for an identity", "missing token, or not that of a pod which can have an identity", func(ctx context.Context, token string) (err error) {
		answer, err = v.server.Sign(ctx, token)
		return err
	})
	if err != nil {
		return err
	}
	defer ended()
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get(requestKey)
	if len(values) != 1 {
		return status.Errorf(codes.InvalidArgument, "%d requests in the header, want one", len(values))
	}
	data, err := answer([]byte(values[0]))
	if errors.Is(err, ErrUnavailable) {
		v.server.refused.Log(v.server.Logger, slog.LevelWarn, "sign", "no identity can be signed now", "error", printable(err.Error(), maxError))
		return status.Error(codes.Unavailable, ErrUnavailable.Error())
	}
	if err != nil {
		v.server.refused.Log(v.server.Logger, slog.LevelWarn, "sign", "an identity is not signed", "error", printable(err.Error(), maxError))
		return status.Error(codes.InvalidArgument, printable(err.Error(), maxError))
	}
	return stream.SendMsg(wrapperspb.Bytes(data))
}

// Sign has the control plane answer a request for an identity, on a connection of its own. It may be called from any
// goroutine, and without Run. The error is UNIMPLEMENTED if the control plane signs none.
func (c *Client) Sign(ctx context.Context, request []byte) ([]byte, error) {
	conn, err := c.dial()
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(ctx, requestKey, string(request)), signTime)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, "/"+identityService+"/"+signMethod, grpc.MaxCallRecvMsgSize(maxAnswer))
	if err != nil {
		return nil, err
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	answer := &wrapperspb.BytesValue{}
	if err := stream.RecvMsg(answer); err != nil {
		return nil, err
	}
	return answer.Value, nil
}
