package feed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/weirmesh/weir/internal/model"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
)

const (
	// checkTime bounds how long it may take to look at a token.
	checkTime = 10 * time.Second
	// maxToken bounds a token, in bytes.
	maxToken = 16 << 10

	authorization = "authorization"
	bearer        = "Bearer "
)

// identify returns the proxy at the other end of a stream; call ended when the stream is over. Its error does not tell
// the proxy why a token is not valid.
func (s *Server) identify(ctx context.Context) (owner model.Owner, proxy string, ended func(), err error) {
	ended, err = s.letIn(ctx, "rejecting a proxy's stream", "missing token, or not the token of a proxy of this control plane", func(ctx context.Context, token string) (err error) {
		if owner, proxy, err = s.Authenticate(ctx, token); err == nil && (owner == "" || proxy == "") {
			return errors.New("the token belongs to no proxy")
		}
		return err
	})
	return owner, proxy, ended, err
}

// letIn has the token of a stream judged, and lets its connection in if it is good; call ended when the stream is over. To
// the peer, all refusals of tokens are one answer.
func (s *Server) letIn(ctx context.Context, told, answer string, judge func(ctx context.Context, token string) error) (ended func(), err error) {
	from := ""
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	v := visitorOf(ctx)
	if v != nil {
		v.arrived()
	}
	err = s.authenticate(ctx, v, judge)
	if err == nil && v != nil {
		if err = v.prove(); err != nil {
			err = fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
	switch {
	case err == nil && v != nil:
		return v.ended, nil
	case err == nil:
		return func() {}, nil
	case v != nil:
		v.refuse()
	}
	s.counts.refused.Add(1)
	s.refused.Log(s.Logger, slog.LevelWarn, "", told, "from", from, "error", printable(err.Error(), maxError))
	if errors.Is(err, ErrUnavailable) {
		return nil, status.Error(codes.Unavailable, ErrUnavailable.Error())
	}
	return nil, status.Error(codes.Unauthenticated, answer)
}

// authenticate has the token of a stream judged, within bounds of its own. Its error never holds the token.
func (s *Server) authenticate(ctx context.Context, v *visitor, judge func(ctx context.Context, token string) error) error {
	md, _ := metadata.FromIncomingContext(ctx)
	values := md.Get(authorization)
	if len(values) != 1 {
		return fmt.Errorf("want one token, not %d", len(values))
	}
	token, ok := strings.CutPrefix(values[0], bearer)
	if !ok || token == "" || len(token) > maxToken {
		return errors.New("malformed token")
	}
	ctx, cancel := context.WithTimeout(ctx, checkTime)
	defer cancel()
	done, err := s.check(ctx, v)
	if err != nil {
		return fmt.Errorf("%w: too many token checks in progress", ErrUnavailable)
	}
	defer done()
	err = judge(ctx, token)
	if err == nil {
		return nil
	}
	text := strings.ReplaceAll(err.Error(), token, "[redacted]")
	if errors.Is(err, ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %s", ErrUnavailable, text)
	}
	return errors.New(text)
}

// tokenFile is a bearer token that is read from a file for each stream.
type tokenFile string

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (f tokenFile) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	data, err := os.ReadFile(string(f))
	if err != nil {
		return nil, fmt.Errorf("token: %w", err)
	}
	token := strings.TrimSpace(string(data))
	if token == "" || len(token) > maxToken {
		return nil, fmt.Errorf("token: %s holds %d bytes", string(f), len(token))
	}
	return map[string]string{authorization: bearer + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (tokenFile) RequireTransportSecurity() bool { return true }
