package upstream

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/url"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newSet is New, closed at the test's end.
func newSet(t testing.TB, opt Options) *Set {
	t.Helper()
	s := New(opt)
	t.Cleanup(func() { s.Close() })
	return s
}

// config is one service "ns/svc:80" in cleartext.
func config(addresses ...string) *model.Config {
	return &model.Config{Services: []model.Service{service("ns/svc:80", addresses...)}}
}

func service(name string, addresses ...string) model.Service {
	s := model.Service{Name: name, Protocol: model.HTTP}
	for _, a := range addresses {
		s.Endpoints = append(s.Endpoints, model.Endpoint{Address: a})
	}
	return s
}

func apply(t testing.TB, s *Set, cfg *model.Config) *Service {
	t.Helper()
	snap, err := s.Apply(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return snap.Service("ns/svc:80", "")
}

// one is the only endpoint of a cleartext service at the address.
func one(t testing.TB, s *Set, address string) *Endpoint {
	t.Helper()
	return apply(t, s, config(address)).Endpoints()[0]
}

// tcpServer answers every line with the same line; "quit\n" makes it close the connection, "reset\n" reset it.
type tcpServer struct {
	net.Listener
	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

func echoServer(t testing.TB) *tcpServer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return serveEcho(t, l)
}

func serveEcho(t testing.TB, l net.Listener) *tcpServer {
	s := &tcpServer{Listener: l}
	s.wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.conns = append(s.conns, c)
			s.mu.Unlock()
			s.wg.Go(func() { echo(c) })
		}
	})
	t.Cleanup(s.stop)
	return s
}

func echo(c net.Conn) {
	defer c.Close()
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		switch {
		case err != nil || line == "quit\n":
			return
		case line == "reset\n":
			c.(*net.TCPConn).SetLinger(0)
			return
		}
		if _, err := io.WriteString(c, line); err != nil {
			return
		}
	}
}

func (s *tcpServer) address() string { return s.Listener.Addr().String() }

// accepted is the number of connections so far.
func (s *tcpServer) accepted() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// stop closes the listener and all connections.
func (s *tcpServer) stop() {
	s.Listener.Close()
	s.mu.Lock()
	for _, c := range s.conns {
		c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// exchange sends the line and wants it back.
func exchange(t testing.TB, c *Conn, line string) {
	t.Helper()
	if _, err := io.WriteString(c, line+"\n"); err != nil {
		t.Fatal(err)
	}
	for len(c.Buffered()) < len(line)+1 {
		if _, err := c.Fill(); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(c.Buffered()); got != line+"\n" {
		t.Fatalf("read %q, want %q", got, line+"\n")
	}
	c.Discard(len(line) + 1)
}

// awaitClosed blocks until the other side has closed the idle connection c.
func awaitClosed(t testing.TB, c *Conn) {
	t.Helper()
	if _, err := c.net.Read(make([]byte, 1)); err == nil {
		t.Fatal("read data from a connection that should be closed")
	}
}

// eventually waits for something that another goroutine will certainly do.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// refused is an address where nothing listens.
func refused(t testing.TB) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// pipes is a network of net.Pipes to echo servers, for bubbles of synctest.
type pipes struct {
	mu    sync.Mutex
	fail  map[string]error // by address
	count map[string]int   // dials by address
}

func (p *pipes) dial(_ context.Context, _, address string) (net.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.count == nil {
		p.count = map[string]int{}
	}
	p.count[address]++
	if err := p.fail[address]; err != nil {
		return nil, err
	}
	near, far := net.Pipe()
	go echo(far)
	return near, nil
}

func (p *pipes) set(address string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail == nil {
		p.fail = map[string]error{}
	}
	p.fail[address] = err
}

// authority is a certificate authority made for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t testing.TB, name string) *authority {
	t.Helper()
	a := &authority{key: peertest.Key(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return a
}

// issue makes a leaf with DNS names and URIs, valid until an hour from now plus shift.
func (a *authority) issue(t testing.TB, name string, shift time.Duration, usage x509.ExtKeyUsage, dns []string, uris ...string) *model.Certificate {
	t.Helper()
	key := peertest.Key(t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "leaf.test"}, DNSNames: dns,
		NotBefore: time.Now().Add(shift - time.Hour), NotAfter: time.Now().Add(shift + time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{usage},
	}
	for _, s := range uris {
		u, err := url.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return &model.Certificate{
		Name:  name,
		Chain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		Key:   model.Secret(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER})),
	}
}
