package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

func serverConfig(t testing.TB, cert *model.Certificate) *tls.Config {
	t.Helper()
	pair, err := tls.X509KeyPair([]byte(cert.Chain), []byte(cert.Key.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}
}

func tlsEcho(t testing.TB, c *tls.Config) *tcpServer {
	t.Helper()
	l, err := tls.Listen("tcp", "127.0.0.1:0", c)
	if err != nil {
		t.Fatal(err)
	}
	return serveEcho(t, l)
}

// overTLS is the endpoint at the address as st says.
func overTLS(t testing.TB, s *Set, address string, st model.ServiceTLS) *Endpoint {
	t.Helper()
	return presenting(t, s, address, st, "")
}

// presenting is the endpoint at the address as st says, where one of the client certificates is presented; "" is none.
func presenting(t testing.TB, s *Set, address string, st model.ServiceTLS, client string, certificates ...model.Certificate) *Endpoint {
	t.Helper()
	cfg := config(address)
	cfg.Services[0].TLS = &st
	cfg.Certificates = certificates
	snap, err := s.ApplyFor(cfg, model.Presented{"ns/svc:80": {client}})
	if err != nil {
		t.Fatal(err)
	}
	return snap.Service("ns/svc:80", client).Endpoints()[0]
}

func TestBackendCertificatesAreVerified(t *testing.T) {
	ca, foreign := newAuthority(t, "trusted"), newAuthority(t, "foreign")
	server := x509.ExtKeyUsageServerAuth
	spiffe := "spiffe://cluster.test/ns/shop/sa/cart"
	leaf := func(dns ...string) *model.Certificate { return ca.issue(t, "", 0, server, dns, spiffe) }
	names := func(n ...string) model.ServiceTLS {
		return model.ServiceTLS{Hostname: "sni.test", SubjectAltNames: n}
	}
	cases := []struct {
		name string
		cert *model.Certificate
		tls  model.ServiceTLS
		want TLSReason // empty: the handshake succeeds
		text string    // part of the error
	}{
		{"hostname", leaf("a.test"), model.ServiceTLS{Hostname: "a.test"}, "", ""},
		{"hostname by the certificate's wildcard", leaf("*.test"), model.ServiceTLS{Hostname: "a.test"}, "", ""},
		{"other hostname", leaf("a.test"), model.ServiceTLS{Hostname: "b.test"}, TLSWrongName, "a.test"},
		{"common name only", leaf(), model.ServiceTLS{Hostname: "leaf.test"}, TLSWrongName, ""},
		{"foreign authority", foreign.issue(t, "", 0, server, []string{"a.test"}), model.ServiceTLS{Hostname: "a.test"}, TLSUnknownAuthority, ""},
		{"expired", ca.issue(t, "", -2*time.Hour, server, []string{"a.test"}), model.ServiceTLS{Hostname: "a.test"}, TLSExpired, ""},
		{"not yet valid", ca.issue(t, "", 2*time.Hour, server, []string{"a.test"}), model.ServiceTLS{Hostname: "a.test"}, TLSExpired, ""},
		{"certificate of a client", ca.issue(t, "", 0, x509.ExtKeyUsageClientAuth, []string{"a.test"}), model.ServiceTLS{Hostname: "a.test"}, TLSBadCertificate, ""},
		{"alternative name replaces the hostname", leaf("a.test"), names("a.test"), "", ""},
		{"hostname does not count beside alternative names", leaf("sni.test"), names("a.test"), TLSWrongName, "sni.test"},
		{"one of several alternative names", leaf("b.test"), names("a.test", "b.test"), "", ""},
		{"alternative name by the certificate's wildcard", leaf("*.test"), names("a.test"), "", ""},
		{"alternative name differs in case", leaf("A.Test"), names("a.tEST"), "", ""},
		{"suffix", leaf("a.svc.test"), names("*.svc.test"), "", ""},
		{"suffix equals the certificate's wildcard", leaf("*.svc.test"), names("*.svc.test"), "", ""},
		{"suffix is one label short", leaf("b.a.svc.test"), names("*.svc.test"), TLSWrongName, ""},
		{"suffix alone", leaf("svc.test"), names("*.svc.test"), TLSWrongName, ""},
		{"suffix inside a label", leaf("evilsvc.test"), names("*.svc.test"), TLSWrongName, ""},
		{"URI", leaf(), names(spiffe), "", ""},
		{"other URI", leaf(), names("spiffe://cluster.test/ns/shop/sa/other"), TLSWrongName, spiffe},
		{"URI is not a prefix", leaf(), names("spiffe://cluster.test/ns/shop/sa/car"), TLSWrongName, ""},
		{"alternative name, foreign authority", foreign.issue(t, "", 0, server, []string{"a.test"}), names("a.test"), TLSUnknownAuthority, ""},
		{"alternative name, expired", ca.issue(t, "", -2*time.Hour, server, []string{"a.test"}), names("a.test"), TLSExpired, ""},
		{"alternative name, certificate of a client", ca.issue(t, "", 0, x509.ExtKeyUsageClientAuth, []string{"a.test"}), names("a.test"), TLSBadCertificate, ""},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			srv := tlsEcho(t, serverConfig(t, c.cert))
			c.tls.CAs = ca.pem
			e := overTLS(t, newSet(t, Options{}), srv.address(), c.tls)
			for range 2 { // the second may resume the first's session
				conn, err := e.Dial(time.Time{})
				if c.want == "" {
					if err != nil {
						t.Fatal(err)
					}
					exchange(t, conn, "over TLS")
					conn.Close()
					continue
				}
				var te *TLSError
				if !errors.As(err, &te) || te.Reason != c.want || te.Address != srv.address() || te.ServerName != c.tls.Hostname {
					t.Fatalf("got %v, want reason %s", err, c.want)
				}
				if !strings.Contains(err.Error(), c.text) {
					t.Errorf("%q does not tell %q", err, c.text)
				}
			}
			if st := e.Stats(); c.want != "" && (st.Failures != 2 || st.DialFails != 2 || st.InFlight != 0 || st.Open != 0) {
				t.Errorf("%+v", st)
			}
		})
	}
}

func TestNameAndProtocolAreAnnounced(t *testing.T) {
	ca := newAuthority(t, "ca")
	sc := serverConfig(t, ca.issue(t, "", 0, x509.ExtKeyUsageServerAuth, []string{"a.test"}))
	hello := make(chan *tls.ClientHelloInfo, 1)
	sc.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		hello <- h
		return nil, nil
	}
	srv := tlsEcho(t, sc)
	e := overTLS(t, newSet(t, Options{}), srv.address(), model.ServiceTLS{Hostname: "sni.test", CAs: ca.pem, SubjectAltNames: []string{"a.test"}})
	c, err := e.Dial(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	h := <-hello
	if h.ServerName != "sni.test" || strings.Join(h.SupportedProtos, " ") != "http/1.1" {
		t.Errorf("announced %q, %v", h.ServerName, h.SupportedProtos)
	}
	if c.TCP() != nil {
		t.Error("a TLS connection gives its TCP connection away")
	}
	exchange(t, c, "x")
	if !c.Alive() {
		t.Error("not alive")
	}
}

func TestSessionsAreResumedAndStillVerified(t *testing.T) {
	ca := newAuthority(t, "ca")
	srv := tlsEcho(t, serverConfig(t, ca.issue(t, "", 0, x509.ExtKeyUsageServerAuth, []string{"a.test"})))
	e := overTLS(t, newSet(t, Options{}), srv.address(), model.ServiceTLS{Hostname: "sni.test", CAs: ca.pem, SubjectAltNames: []string{"a.test"}})
	verified := 0
	verify := e.tls.http1.VerifyConnection
	e.tls.http1.VerifyConnection = func(cs tls.ConnectionState) error {
		verified++
		return verify(cs)
	}
	for i := range 2 {
		c, err := e.Dial(time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, c, "x") // the ticket comes before the answer
		if resumed := c.net.(*tls.Conn).ConnectionState().DidResume; resumed != (i == 1) {
			t.Errorf("connection %d: resumed %t", i, resumed)
		}
		c.Close()
	}
	if verified != 2 {
		t.Errorf("verified %d of 2 connections", verified)
	}
}

func TestClientCertificatesArePresented(t *testing.T) {
	ca, clients := newAuthority(t, "ca"), newAuthority(t, "clients")
	sc := serverConfig(t, ca.issue(t, "", 0, x509.ExtKeyUsageServerAuth, []string{"a.test"}))
	sc.ClientAuth = tls.RequireAndVerifyClientCert
	sc.ClientCAs = x509.NewCertPool()
	sc.ClientCAs.AppendCertsFromPEM([]byte(clients.pem))
	good := clients.issue(t, "ns/client", 0, x509.ExtKeyUsageClientAuth, nil)
	wrong := ca.issue(t, "ns/client", 0, x509.ExtKeyUsageClientAuth, nil)
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		sc := sc.Clone()
		sc.MaxVersion = version
		srv := tlsEcho(t, sc)
		st := model.ServiceTLS{Hostname: "a.test", CAs: ca.pem}
		c, err := presenting(t, newSet(t, Options{}), srv.address(), st, "ns/client", *good).Dial(time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		exchange(t, c, "known")
		c.Close()

		refuse := func(client string, certificates ...model.Certificate) {
			c, err := presenting(t, newSet(t, Options{}), srv.address(), st, client, certificates...).Dial(time.Time{})
			if err == nil { // TLS 1.3: the server says so later
				_, err = c.Fill()
				c.Close()
			}
			var te *TLSError
			if !errors.As(err, &te) || te.Reason != TLSRefused {
				t.Errorf("%s: %v", tls.VersionName(version), err)
			}
		}
		refuse("ns/client", *wrong)
		refuse("")
	}
}

func TestUnusableTLSIdentitiesAreNamed(t *testing.T) {
	ca := newAuthority(t, "ca")
	srv := tlsEcho(t, serverConfig(t, ca.issue(t, "", 0, x509.ExtKeyUsageServerAuth, []string{"a.test"})))
	broken := model.Certificate{Name: "ns/client", Chain: "no PEM", Key: "secret text"}
	for _, c := range []struct {
		name         string
		tls          model.ServiceTLS
		client, text string
	}{
		{"bundle without certificates", model.ServiceTLS{Hostname: "a.test", CAs: "no PEM"}, "", "CA bundle"},
		{"client certificate that does not exist", model.ServiceTLS{Hostname: "a.test", CAs: ca.pem}, "ns/gone", "ns/gone"},
		{"client certificate that is none", model.ServiceTLS{Hostname: "a.test", CAs: ca.pem}, "ns/client", "ns/client"},
		{"nothing to check", model.ServiceTLS{CAs: ca.pem}, "", "neither"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := presenting(t, newSet(t, Options{}), srv.address(), c.tls, c.client, broken)
			_, err := e.Dial(time.Time{})
			var te *TLSError
			if !errors.As(err, &te) || te.Reason != TLSConfig || !strings.Contains(err.Error(), c.text) || strings.Contains(err.Error(), "secret text") {
				t.Errorf("%v", err)
			}
		})
	}
	if srv.accepted() != 0 {
		t.Error("connected without a usable identity")
	}
}

func TestHandshakesThatFailAreNamed(t *testing.T) {
	ca := newAuthority(t, "ca")
	answer := func(do func(net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			c, err := l.Accept()
			if err != nil {
				return
			}
			do(c)
			c.Close()
		}()
		t.Cleanup(func() {
			l.Close()
			<-done
		})
		return l.Addr().String()
	}
	sc := serverConfig(t, ca.issue(t, "", 0, x509.ExtKeyUsageServerAuth, []string{"a.test"}))
	sc.NextProtos = []string{"imap"}
	for _, c := range []struct {
		name    string
		address string
		want    TLSReason
	}{
		{"plaintext", answer(func(c net.Conn) {
			c.Read(make([]byte, 1024))
			io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
			io.Copy(io.Discard, c)
		}), TLSNotTLS},
		{"closes", answer(func(c net.Conn) { c.Read(make([]byte, 1024)) }), TLSFailed},
		{"silent", answer(func(c net.Conn) { io.Copy(io.Discard, c) }), TLSTimedOut},
		{"no common protocol", tlsEcho(t, sc).address(), TLSRefused},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := overTLS(t, newSet(t, Options{ConnectTimeout: 500 * time.Millisecond}), c.address, model.ServiceTLS{Hostname: "a.test", CAs: ca.pem})
			_, err := e.Dial(time.Time{})
			var te *TLSError
			if !errors.As(err, &te) || te.Reason != c.want {
				t.Errorf("%v, want reason %s", err, c.want)
			}
		})
	}
	t.Run("system authorities", func(t *testing.T) {
		srv := tlsEcho(t, serverConfig(t, ca.issue(t, "", 0, x509.ExtKeyUsageServerAuth, []string{"a.test"})))
		for _, sans := range [][]string{nil, {"a.test"}} {
			_, err := overTLS(t, newSet(t, Options{}), srv.address(), model.ServiceTLS{Hostname: "a.test", SubjectAltNames: sans}).Dial(time.Time{})
			var te *TLSError
			if !errors.As(err, &te) || te.Reason != TLSUnknownAuthority {
				t.Errorf("%v", err)
			}
		}
	})
}
