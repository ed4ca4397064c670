//go:build unix

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// grpcClient is a channel with calls and streams on it.
type grpcClient struct {
	s  *soak
	o  clientOptions
	cc *grpc.ClientConn
}

func newGRPCClient(s *soak, o clientOptions) *grpcClient { return &grpcClient{s: s, o: o} }

// run makes calls, streams and endless streams, so many at a time.
func (c *grpcClient) run(calls, streams, endless int) {
	security := insecure.NewCredentials()
	if c.o.secure {
		config := c.s.tls.client(c.s, "grpc.example")
		config.VerifyConnection = func(state tls.ConnectionState) error { return c.s.checkCertificate(1, state) }
		security = credentials.NewTLS(config)
	}
	var err error
	c.cc, err = grpc.NewClient("passthrough:///soak", grpc.WithTransportCredentials(security), grpc.WithAuthority("grpc.example"),
		grpc.WithStatsHandler(c), grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			return c.o.target.dial(c.s.ports, c.o.secure)
		}))
	if err != nil {
		c.s.diary.fail(c.o.name, err)
		return
	}
	defer c.cc.Close()
	var wg sync.WaitGroup
	for range calls {
		wg.Go(c.call)
	}
	for range streams {
		wg.Go(c.stream)
	}
	if _, ok := c.o.target.(fixed); ok {
		for range endless {
			wg.Go(c.endless)
		}
	}
	wg.Wait()
}

// HandleRPC, with the methods below, makes the client a stats.Handler: it counts what the library sends again.
func (c *grpcClient) HandleRPC(_ context.Context, e stats.RPCStats) {
	if b, ok := e.(*stats.Begin); ok && b.IsTransparentRetryAttempt {
		c.s.diary.note(c.o.name + ": the library sent an unprocessed call again")
	}
}

func (c *grpcClient) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (c *grpcClient) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (c *grpcClient) HandleConn(_ context.Context, e stats.ConnStats) {
	if _, ok := e.(*stats.ConnBegin); ok {
		c.s.diary.note(c.o.name + ": connections opened")
	}
}

// call makes one call after the other.
func (c *grpcClient) call() {
	s := c.s
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	var took []uint32
	for s.more() {
		s.gate.RLock()
		begun := time.Now()
		err := c.unary(r)
		s.gate.RUnlock()
		if err != nil {
			s.diary.fail(c.o.name, fmt.Errorf("call: %w", err))
			continue
		}
		took = append(took, uint32(min(time.Since(begun).Microseconds(), 1<<31)))
	}
	s.answers.add(c.o.name+" calls", took)
}

// outgoing is a context with the metadata that the backend answers with.
func (c *grpcClient) outgoing(r *rand.Rand) (ctx context.Context, cancel context.CancelFunc, id string) {
	id = strconv.FormatUint(r.Uint64(), 36)
	ctx, cancel = context.WithTimeout(c.s.ctx, patience)
	return metadata.AppendToOutgoingContext(ctx, fieldID, id, fieldMark, "1"), cancel, id
}

func one(md metadata.MD, name string) string { return strings.Join(md.Get(name), " and ") }

func (c *grpcClient) unary(r *rand.Rand) error {
	oldest := c.s.truth.confirmed.Load()
	ctx, cancel, id := c.outgoing(r)
	defer cancel()
	n := sizes[r.IntN(len(sizes))]
	o := r.IntN(len(block) - n)
	in, out := wrapperspb.Bytes(block[o:o+n]), new(wrapperspb.BytesValue)
	var h, t metadata.MD
	if err := c.cc.Invoke(ctx, "/soak.Soak/Unary", in, out, grpc.Header(&h), grpc.Trailer(&t)); err != nil {
		return err
	}
	if !bytes.Equal(in.Value, out.Value) {
		return fmt.Errorf("%d bytes came back for %d, or others", len(out.Value), n)
	}
	if one(t, fieldSum) != strconv.Itoa(n) {
		return fmt.Errorf("the trailer says %q, not %d", one(t, fieldSum), n)
	}
	return c.s.truth.judge(oldest, &answer{one(h, fieldID), id, one(h, fieldConfig), one(h, fieldVersion), one(h, fieldSeen)})
}

// stream keeps a stream open for a while, then ends it and opens the next.
func (c *grpcClient) stream() {
	s := c.s
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	var took []uint32
	for s.more() {
		begun := time.Now()
		life := s.streamLife/4 + rand.N(s.streamLife*3/4)
		if err := c.talk(r, life); err != nil {
			s.diary.fail(c.o.name, fmt.Errorf("stream, after %v of %v: %w", time.Since(begun).Round(time.Millisecond), life.Round(time.Millisecond), err))
		} else {
			took = append(took, uint32(min(time.Since(begun).Microseconds(), 1<<31)))
		}
		s.diary.streams.Add(1)
	}
	s.answers.add(c.o.name+" streams", took)
}

func (c *grpcClient) talk(r *rand.Rand, life time.Duration) error {
	oldest := c.s.truth.confirmed.Load()
	ctx, cancel, id := c.outgoing(r)
	defer cancel()
	stream, err := c.cc.NewStream(ctx, &soakService.Streams[0], "/soak.Soak/Stream")
	if err != nil {
		return err
	}
	total := 0
	for until := time.Now().Add(life); time.Now().Before(until); {
		n, err := c.turn(stream, r)
		if err != nil {
			return err
		}
		total += n
		time.Sleep(time.Millisecond + rand.N(20*time.Millisecond))
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if err := stream.RecvMsg(new(wrapperspb.BytesValue)); err != io.EOF {
		return fmt.Errorf("at the end: %w", errors.Join(err, errors.New("a message more")))
	}
	if sum := one(stream.Trailer(), fieldSum); sum != strconv.Itoa(total) {
		return fmt.Errorf("the trailer says %q, not %d", sum, total)
	}
	h, err := stream.Header()
	if err != nil {
		return err
	}
	return c.s.truth.judge(oldest, &answer{one(h, fieldID), id, one(h, fieldConfig), one(h, fieldVersion), one(h, fieldSeen)})
}

// turn sends a message and gets it back.
func (c *grpcClient) turn(stream grpc.ClientStream, r *rand.Rand) (int, error) {
	c.s.gate.RLock()
	defer c.s.gate.RUnlock()
	n := r.IntN(2000)
	o := r.IntN(len(block) - n)
	if err := stream.SendMsg(wrapperspb.Bytes(block[o : o+n])); err != nil {
		if err == io.EOF { // the status tells
			err = stream.RecvMsg(new(wrapperspb.BytesValue))
		}
		return 0, err
	}
	m := new(wrapperspb.BytesValue)
	if err := stream.RecvMsg(m); err != nil {
		return 0, err
	}
	if !bytes.Equal(m.Value, block[o:o+n]) {
		return 0, fmt.Errorf("%d bytes came back for %d, or others", len(m.Value), n)
	}
	c.s.diary.messages.Add(1)
	return n, nil
}

// endless keeps a stream that no drain waits for: when the drain's time is over it is cut off, and opened anew.
func (c *grpcClient) endless() {
	s := c.s
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	for s.ctx.Err() == nil && (s.acting.Load() || s.sent.Load() < int64(s.requests)) {
		if err := c.forever(r); err != nil {
			// Whether the stream is reset before its connection is closed is a race that either may win.
			cut := status.Code(err) == codes.Unavailable || status.Code(err) == codes.Internal
			if !cut || !s.fleet.drainedLately() {
				s.diary.fail(c.o.name, fmt.Errorf("endless stream: %w", err))
			}
			s.diary.note(c.o.name + ": an endless stream was cut off at the end of a drain, and opened anew")
		}
	}
}

func (c *grpcClient) forever(r *rand.Rand) error {
	ctx, cancel := context.WithCancel(c.s.ctx)
	defer cancel()
	stream, err := c.cc.NewStream(ctx, &soakService.Streams[1], "/soak.Soak/Endless")
	if err != nil {
		return err
	}
	for c.s.acting.Load() {
		if _, err := c.turn(stream, r); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
	}
	if err := stream.CloseSend(); err != nil {
		return err
	}
	if err := stream.RecvMsg(new(wrapperspb.BytesValue)); err != io.EOF {
		return fmt.Errorf("at the end: %w", errors.Join(err, errors.New("a message more")))
	}
	return nil
}
