//go:build unix

package main

import (
	"bytes"
	"context"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

// block is what bodies are cut from, on both sides: an offset and a length say what a body has to be.
var block = func() []byte {
	r := rand.NewChaCha8([32]byte{'s', 'o', 'a', 'k'})
	b := make([]byte, 1<<20)
	_, _ = r.Read(b)
	return b
}()

// echoed is the largest body that is sent back; of larger ones only the length is told.
const echoed = 8 << 10

// instance is a backend of one version.
type instance struct {
	s       *soak
	version string
	port    int
	http    *http.Server
	grpc    *grpc.Server
	leaving atomic.Bool
}

// startInstance starts a backend; without gRPC it speaks HTTP/1.1 and HTTP/2.
func startInstance(s *soak, isGRPC bool, version string) (*instance, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	in := &instance{s: s, version: version, port: l.Addr().(*net.TCPAddr).Port}
	if isGRPC {
		// Connections are told to go every so often, as servers do that want their load spread.
		age := keepalive.ServerParameters{MaxConnectionAge: 5 * time.Second, MaxConnectionAgeGrace: time.Hour}
		if version == "endless" {
			age = keepalive.ServerParameters{}
		}
		in.grpc = grpc.NewServer(grpc.KeepaliveParams(age), grpc.MaxConcurrentStreams(1000))
		in.grpc.RegisterService(&soakService, in)
		go func() { _ = in.grpc.Serve(l) }()
		return in, nil
	}
	in.http = &http.Server{Handler: in, Protocols: new(http.Protocols), ReadHeaderTimeout: patience}
	in.http.Protocols.SetHTTP1(true)
	in.http.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = in.http.Serve(l) }()
	return in, nil
}

// leave makes answers say that their connection ends.
func (in *instance) leave() { in.leaving.Store(true) }

// stop ends the backend when what it has under way has ended, at the latest after limit.
func (in *instance) stop(limit time.Duration) {
	if in.grpc != nil {
		if limit > 0 {
			t := time.AfterFunc(limit, in.grpc.Stop)
			in.grpc.GracefulStop()
			t.Stop()
		}
		in.grpc.Stop()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_ = in.http.Shutdown(ctx)
	_ = in.http.Close()
}

// piece reads "offset-length" and gives that part of the block.
func piece(text string) ([]byte, bool) {
	from, length, _ := strings.Cut(text, "-")
	o, err1 := strconv.Atoi(from)
	n, err2 := strconv.Atoi(length)
	if err1 != nil || err2 != nil || o < 0 || n < 0 || o+n > len(block) {
		return nil, false
	}
	return block[o : o+n], true
}

// ServeHTTP answers /get/O-N and /chunked/O-N with a piece of the block, and takes one at /echo/O-N.
func (in *instance) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if in.version == "copies" {
		in.s.diary.copies.Add(1)
	}
	h := w.Header()
	if in.leaving.Load() && r.ProtoMajor == 1 {
		h.Set("Connection", "close")
	}
	h[http.CanonicalHeaderKey(fieldVersion)] = []string{in.version}
	h[http.CanonicalHeaderKey(fieldID)] = r.Header[http.CanonicalHeaderKey(fieldID)]
	h[http.CanonicalHeaderKey(fieldSeen)] = []string{r.Header.Get(fieldConfig) + "," + r.Header.Get(fieldMark)}
	op, what, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	want, ok := piece(what)
	switch {
	case !ok:
		http.Error(w, "no such piece", http.StatusNotFound)
	case op == "get":
		h["Content-Length"] = []string{strconv.Itoa(len(want))}
		_, _ = w.Write(want)
	case op == "chunked":
		h["Trailer"] = []string{fieldSum}
		half := len(want) / 2
		_, _ = w.Write(want[:half])
		_ = http.NewResponseController(w).Flush()
		_, _ = w.Write(want[half:])
		h.Set(fieldSum, strconv.Itoa(len(want)))
	case op == "echo":
		got, err := io.ReadAll(r.Body)
		if err != nil || !bytes.Equal(got, want) {
			http.Error(w, "the body is not the piece", http.StatusConflict)
			return
		}
		if len(got) <= echoed {
			_, _ = w.Write(got)
		} else {
			_, _ = io.WriteString(w, strconv.Itoa(len(got)))
		}
	default:
		http.Error(w, "no such operation", http.StatusNotFound)
	}
}

// soakService is the gRPC service, written by hand as there is no more to it: both methods answer with what they get.
var soakService = grpc.ServiceDesc{
	ServiceName: "soak.Soak",
	HandlerType: (*any)(nil),
	Methods: []grpc.MethodDesc{{MethodName: "Unary", Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
		m := new(wrapperspb.BytesValue)
		if err := decode(m); err != nil {
			return nil, err
		}
		in, _ := metadata.FromIncomingContext(ctx)
		header, trailer := srv.(*instance).metadata(in, len(m.Value))
		_ = grpc.SetHeader(ctx, header)
		_ = grpc.SetTrailer(ctx, trailer)
		return m, nil
	}}},
	Streams: []grpc.StreamDesc{
		{StreamName: "Stream", Handler: echoStream, ServerStreams: true, ClientStreams: true},
		{StreamName: "Endless", Handler: echoStream, ServerStreams: true, ClientStreams: true},
	},
}

func echoStream(srv any, stream grpc.ServerStream) error {
	in, _ := metadata.FromIncomingContext(stream.Context())
	header, _ := srv.(*instance).metadata(in, 0)
	if err := stream.SendHeader(header); err != nil {
		return err
	}
	total := 0
	for {
		m := new(wrapperspb.BytesValue)
		err := stream.RecvMsg(m)
		if err == io.EOF {
			stream.SetTrailer(metadata.Pairs(fieldSum, strconv.Itoa(total)))
			return nil
		}
		if err != nil {
			return err
		}
		total += len(m.Value)
		if err := stream.SendMsg(m); err != nil {
			return err
		}
	}
}

func (in *instance) metadata(asked metadata.MD, length int) (header, trailer metadata.MD) {
	seen := strings.Join(asked.Get(fieldConfig), "") + "," + strings.Join(asked.Get(fieldMark), "")
	header = metadata.Pairs(fieldVersion, in.version, fieldSeen, seen, fieldID, strings.Join(asked.Get(fieldID), ""))
	return header, metadata.Pairs(fieldSum, strconv.Itoa(length))
}
