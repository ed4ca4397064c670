package proxy

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"io"
	"math/big"
	"net"
	"runtime"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/peertest"
	"golang.org/x/sys/unix"
)

// BenchmarkHandshake measures the processor time of the server's side alone, as cpu-ns/op. It compares full and resumed
// handshakes.
func BenchmarkHandshake(b *testing.B) {
	ec, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	rs, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		b.Fatal(err)
	}
	for _, key := range []struct {
		name string
		crypto.Signer
	}{{"ECDSA", ec}, {"RSA", rs}} {
		config, err := listenerTLS([]*tls.Certificate{selfSigned(b, key.Signer)}, protocols, exchange.ClientAuth{})
		if err != nil {
			b.Fatal(err)
		}
		(&tickets{keys: &tls.Config{}}).bind(config, ":443", exchange.ClientAuth{})
		for name, version := range map[string]uint16{"TLS1.2": tls.VersionTLS12, "TLS1.3": tls.VersionTLS13} {
			client := &tls.Config{ServerName: "shop.example", InsecureSkipVerify: true, MinVersion: version, MaxVersion: version,
				CurvePreferences: []tls.CurveID{tls.X25519}}
			b.Run(name+"/"+key.name+"/full", func(b *testing.B) { benchmarkHandshakes(b, config, client, false) })
			resuming := client.Clone()
			resuming.ClientSessionCache = &anySession{}
			b.Run(name+"/"+key.name+"/resumed", func(b *testing.B) { benchmarkHandshakes(b, config, resuming, true) })
		}
	}
}

// BenchmarkIdentityHandshake is BenchmarkHandshake where both sides prove an identity.
func BenchmarkIdentityHandshake(b *testing.B) {
	ca := peertest.NewAuthority(b)
	source := &identities{}
	source.have(b, ca.Workload(b, cartID, nil), ca.Pool())
	s := &Server{opt: Options{Identities: source.of}}
	server := &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return s.identityTLS(workload, protocols, &proof{}) }}
	client := as(ca.Workload(b, shopID, nil))
	client.CurvePreferences = []tls.CurveID{tls.X25519}
	benchmarkHandshakes(b, server, client, false)
}

func benchmarkHandshakes(b *testing.B, server, client *tls.Config, resumed bool) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	defer ln.Close()
	handshake := func() *tls.Conn {
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c, err := tls.Dial("tcp", ln.Addr().String(), client)
			if err != nil {
				b.Error(err)
				return
			}
			_, _ = io.Copy(io.Discard, c) // with TLS 1.3, tickets arrive now
			c.Close()
		}()
		nc, err := ln.Accept()
		if err != nil {
			b.Fatal(err)
		}
		s := tls.Server(nc, server)
		if err := s.Handshake(); err != nil {
			b.Fatal(err)
		}
		s.Close()
		<-ended
		return s
	}
	handshake() // stores a session
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	before := threadTime(b)
	for b.Loop() {
		if s := handshake(); s.ConnectionState().DidResume != resumed {
			b.Fatal("resumed or not, against what is measured")
		}
	}
	b.ReportMetric(float64(threadTime(b)-before)/float64(b.N), "cpu-ns/op")
}

// threadTime is the processor time that this thread has used.
func threadTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}

func selfSigned(b *testing.B, key crypto.Signer) *tls.Certificate {
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{"shop.example"}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		b.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		b.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}
