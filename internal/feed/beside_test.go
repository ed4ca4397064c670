package feed

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/model"
)

// TestAStreamBesideConfigurations carries messages both ways, and ends with its connection at both ends.
func TestAStreamBesideConfigurations(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	var began, over atomic.Int64
	s.Taps = func(s *Stream, owner model.Owner, proxy string) error {
		began.Add(1)
		defer over.Add(1)
		if owner != gateway || proxy != "a" {
			t.Errorf("the stream of %s of %s", proxy, owner)
		}
		for i := 0; ; i++ {
			if err := s.Send(fmt.Append(nil, "order ", i)); err != nil {
				return err
			}
			b, err := s.Recv()
			if err != nil {
				return err
			}
			if string(b) != fmt.Sprint("line ", i) {
				t.Errorf("it said %q", b)
			}
			if i == 2 {
				<-s.Context().Done()
				return s.Context().Err()
			}
		}
	}
	address, stop := w.serve(s, "")
	c := w.client("a", address)
	var lines, ended atomic.Int64
	c.Taps = func(s *Stream, _ func()) error {
		defer ended.Add(1)
		for {
			b, err := s.Recv()
			if err != nil {
				return err
			}
			lines.Add(1)
			if err := s.Send([]byte(strings.Replace(string(b), "order", "line", 1))); err != nil {
				return err
			}
		}
	}
	p := w.run(c)
	publish(t, s, config(1, 1))
	until(t, "three orders", func() bool { return lines.Load() == 3 })
	if n := s.Stats(); n.Proxies != 1 || n.Responses != 1 {
		t.Errorf("%+v", n)
	}
	p.stop()
	until(t, "the end at the server", func() bool { return over.Load() == 1 })
	w.run(c)
	until(t, "three more", func() bool { return lines.Load() == 6 })
	stop() // which waits for the handlers
	if over.Load() != began.Load() {
		t.Errorf("%d streams began, %d ended", began.Load(), over.Load())
	}
	until(t, "the end at the proxy", func() bool { return ended.Load() == began.Load() })
}

// TestASecondStreamIsTriedAgain, as nothing else depends on it.
func TestASecondStreamIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	var began atomic.Int64
	s.Taps = func(s *Stream, _ model.Owner, _ string) error {
		if began.Add(1) == 1 {
			return status.Error(codes.Internal, "it broke")
		}
		<-s.Context().Done()
		return nil
	}
	address, _ := w.serve(s, "")
	c := w.client("a", address)
	c.Taps = func(s *Stream, _ func()) error { _, err := s.Recv(); return err }
	w.run(c)
	publish(t, s, config(1, 1))
	until(t, "a second attempt", func() bool { return began.Load() == 2 })
	if n := s.Stats().Proxies; n != 1 {
		t.Errorf("%d proxies", n)
	}
}

// TestReleasesWithoutASecondStream feed and are fed as before.
func TestReleasesWithoutASecondStream(t *testing.T) {
	for _, c := range []struct {
		what         string
		server, mine bool
	}{{"an older control plane", false, true}, {"an older proxy", true, false}} {
		t.Run(c.what, func(t *testing.T) {
			w := newWorld(t)
			s := w.server()
			if c.server {
				s.Taps = func(*Stream, model.Owner, string) error { t.Error("a stream was opened"); return nil }
			}
			address, _ := w.serve(s, "")
			client := w.client("a", address)
			refused := make(chan error, 16)
			if c.mine {
				client.Taps = func(s *Stream, _ func()) error {
					_, err := s.Recv()
					refused <- err
					return err
				}
			}
			p := w.run(client)
			first, second := config(1, 1), config(2, 2)
			publish(t, s, first)
			p.serves(first)
			if c.mine {
				if err := <-refused; status.Code(err) != codes.Unimplemented {
					t.Errorf("an older control plane says %v", err)
				}
			}
			publish(t, s, second)
			p.serves(second)
			knows(t, s, "a", second)
			if len(refused) > 0 || s.Stats().Refusals > 0 {
				t.Errorf("it was tried again; %+v", s.Stats())
			}
		})
	}
}

// TestConfigurationsDoNotWaitForLines: neither for lines that nobody reads, nor for orders.
func TestConfigurationsDoNotWaitForLines(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	message := bytes.Repeat([]byte("x"), 16<<10)
	var full atomic.Int64
	fill := func(s *Stream) error { // until the window is full
		for {
			full.Add(1)
			if err := s.Send(message); err != nil {
				return err
			}
		}
	}
	s.Taps = func(s *Stream, _ model.Owner, _ string) error {
		errs := make(chan error, 1)
		go func() { errs <- fill(s) }()
		select {
		case err := <-errs:
			return err
		case <-s.Context().Done():
			return nil
		}
	}
	address, _ := w.serve(s, "")
	c := w.client("a", address)
	c.Taps = func(s *Stream, _ func()) error { return fill(s) }
	p := w.run(c)
	publish(t, s, config(1, 1))
	until(t, "messages that nobody reads", func() bool { return full.Load() >= 6 })
	for before := int64(-1); before != full.Load(); time.Sleep(20 * time.Millisecond) {
		before = full.Load()
	}
	for i := range 20 {
		next := config(100+i, 100)
		publish(t, s, next)
		p.serves(next)
		knows(t, s, "a", next)
	}
}

// knock opens a stream to a method as anybody can who reaches the port.
func (w *world) knock(address, token, method string, own ...tls.Certificate) error {
	w.t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(w.authority.Bundle())
	name := "controller"
	if method == replicaMethod && token == "" {
		name = "replica.controller"
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: roots, ServerName: name, Certificates: own}))}
	if token != "" {
		options = append(options, grpc.WithPerRPCCredentials(tokenFile(w.write("knock.token", token))))
	}
	conn, err := grpc.NewClient("passthrough:///"+address, options...)
	if err != nil {
		w.t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(w.t.Context(), patient)
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, "/"+besideService+"/"+method)
	if err != nil {
		return err
	}
	_, err = (&Stream{stream, ctx}).Recv()
	return err
}

// replicas makes a server's replicas those of the world's authority.
func (w *world) replicas(s *Server, serve func(*Stream) error) {
	own := &identity.Server{Subject: identity.Subject{DNSNames: []string{"controller", "replica.controller"}}}
	own.Use(w.authority)
	mine := &identity.Server{Replica: true}
	mine.Use(w.authority)
	s.Certificate = own.Certificate
	s.Replicas = &Replicas{
		Name: "replica.controller", Is: identity.IsReplica, Certificate: mine.Certificate, Serve: serve,
		Roots: func() *x509.CertPool {
			p := x509.NewCertPool()
			p.AppendCertsFromPEM(w.authority.Bundle())
			return p
		},
	}
}

func TestReplicasCallEachOther(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	s.Taps = func(*Stream, model.Owner, string) error { return nil }
	ended := make(chan error, 1)
	w.replicas(s, func(s *Stream) error {
		for {
			b, err := s.Recv()
			if err == nil {
				err = s.Send(append(b, '!'))
			}
			if err != nil {
				ended <- err
				return err
			}
		}
	})
	address, stop := w.serve(s, "")
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := s.Replicas.Call(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := stream.Send([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		if b, err := stream.Recv(); err != nil || string(b) != "hello!" {
			t.Fatalf("%q, %v", b, err)
		}
	}
	cancel()
	<-ended
	until(t, "the connection's end", func() bool {
		s.door.mu.Lock()
		defer s.door.mu.Unlock()
		return s.door.known+s.door.strangers == 0
	})
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	if stream, err = s.Replicas.Call(ctx, address); err != nil {
		t.Fatal(err)
	}
	_ = stream.Send([]byte("hello"))
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	stop()
	if _, err := stream.Recv(); err == nil {
		t.Error("the stream outlasts the server")
	}
}

// TestNobodyElseGetsAStream beside configurations: without a token, with another one, with a certificate that is not a replica's.
func TestNobodyElseGetsAStream(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	s.Taps = func(*Stream, model.Owner, string) error { t.Error("a proxy's stream is served"); return nil }
	w.replicas(s, func(*Stream) error { t.Error("a replica's stream is served"); return nil })
	address, _ := w.serve(s, "")
	p := w.run(w.client("a", address))
	c := config(1, 1)
	publish(t, s, c)
	p.serves(c)

	server := &identity.Server{Subject: identity.Subject{DNSNames: []string{"controller"}}}
	server.Use(w.authority)
	serving, err := server.Certificate()
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := identity.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	foreigner, err := foreign.Replica(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	workload := func(id string) tls.Certificate {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		der, err := w.authority.Workload(identity.Workload{ID: id, Life: time.Hour}, key.Public(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return tls.Certificate{Certificate: der, PrivateKey: key}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.authority.Workload(identity.Workload{ID: "weir://replica", Life: time.Hour}, key.Public(), time.Now()); err == nil {
		t.Error("a workload's certificate can say that it is a replica's")
	}
	replica, err := w.authority.Replica(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what, token, method string
		own                 []tls.Certificate
		code                codes.Code
		says                string
	}{
		{"no token", "", proxyMethod, nil, codes.Unauthenticated, "missing token"},
		{"another token", "bad", proxyMethod, nil, codes.Unauthenticated, "not the token of a proxy"},
		{"a proxy on another connection", "good:" + gateway + ":a", proxyMethod, nil, codes.Unavailable, "follows no configuration on this connection"},
		{"a proxy without a session", "good:" + gateway + ":b", proxyMethod, nil, codes.Unavailable, "follows no configuration"},
		{"a replica's certificate in place of a token", "", proxyMethod, []tls.Certificate{*replica}, codes.Unauthenticated, "missing token"},
		{"a proxy's token", "good:" + gateway + ":a", replicaMethod, nil, codes.PermissionDenied, "not a replica"},
		{"a proxy's token and a replica's certificate, for which it is not asked", "good:" + gateway + ":a", replicaMethod, []tls.Certificate{*replica}, codes.PermissionDenied, "not a replica"},
		{"no certificate", "", replicaMethod, nil, codes.Unavailable, ""},
		{"a server's certificate", "", replicaMethod, []tls.Certificate{*serving}, codes.Unavailable, ""},
		{"another authority's", "", replicaMethod, []tls.Certificate{*foreigner}, codes.Unavailable, ""},
		{"a workload's", "", replicaMethod, []tls.Certificate{workload("spiffe://cluster.local/ns/weir-system/sa/weir-controller")}, codes.Unavailable, ""},
	} {
		err := w.knock(address, c.token, c.method, c.own...)
		if status.Code(err) != c.code || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: %v, want %v with %q", c.what, err, c.code, c.says)
		}
	}
	if ok := p.client.Status(); !ok.Connected {
		t.Errorf("the proxy lost its stream: %+v", ok)
	}
	// A server that is no replica of this release is not called, as it has not the name.
	plain := w.server()
	plain.Taps = func(*Stream, model.Owner, string) error { return nil }
	other, _ := w.serve(plain, "")
	stream, err := s.Replicas.Call(t.Context(), other)
	if err == nil {
		_, err = stream.Recv()
	}
	if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "replica.controller") {
		t.Errorf("a server without the name: %v", err)
	}
	if err := w.knock(other, "good:"+gateway+":a", replicaMethod); status.Code(err) != codes.PermissionDenied {
		t.Errorf("a server without replicas: %v", err)
	}
}
