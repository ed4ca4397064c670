package upstream

import (
	"bufio"
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/hex"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

// sealer is an endpoint of TLS 1.3 that makes its records itself: such as the library never sends.
type sealer struct {
	t      testing.TB
	c      net.Conn
	lines  chan string // that came
	secret []byte
	aead   cipher.AEAD
	iv     []byte
	next   uint64 // record
}

// newSealer is an endpoint and a connection to it.
func newSealer(t testing.TB) (*sealer, *Endpoint, *Conn) {
	t.Helper()
	ca := newAuthority(t, "ca")
	sc := serverConfig(t, ca.issue(t, "", 0, x509.ExtKeyUsageServerAuth, []string{"a.test"}))
	var keys bytes.Buffer
	sc.MinVersion, sc.SessionTicketsDisabled, sc.KeyLogWriter = tls.VersionTLS13, true, &keys
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &sealer{t: t, lines: make(chan string, 100)}
	shaken, ended := make(chan error, 1), make(chan struct{})
	go func() {
		defer close(ended)
		defer close(s.lines)
		c, err := l.Accept()
		if err != nil {
			shaken <- err
			return
		}
		defer c.Close()
		s.c = c
		tc := tls.Server(c, sc)
		err = tc.Handshake()
		if state := tc.ConnectionState(); err == nil && state.CipherSuite != tls.TLS_AES_128_GCM_SHA256 {
			t.Errorf("the cipher suite is %x", state.CipherSuite)
		}
		shaken <- err
		for r := bufio.NewReader(tc); err == nil; {
			var line string
			if line, err = r.ReadString('\n'); err == nil {
				s.lines <- line
			}
		}
	}()
	e := overTLS(t, newSet(t, Options{}), l.Addr().String(), model.ServiceTLS{Hostname: "a.test", CAs: ca.pem})
	c, err := e.Dial(time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		l.Close()
		<-ended
	})
	if err := <-shaken; err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(keys.String()) {
		if f := strings.Fields(line); f[0] == "SERVER_TRAFFIC_SECRET_0" {
			secret, err := hex.DecodeString(f[2])
			if err != nil {
				t.Fatal(err)
			}
			s.use(secret)
		}
	}
	return s, e, c
}

// expand is HKDF-Expand-Label (RFC 8446 §7.1).
func expand(t testing.TB, secret []byte, label string, size int) []byte {
	label = "tls13 " + label
	info := append([]byte{byte(size >> 8), byte(size), byte(len(label))}, label...)
	out, err := hkdf.Expand(sha256.New, secret, string(append(info, 0)), size)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func (s *sealer) use(secret []byte) {
	block, err := aes.NewCipher(expand(s.t, secret, "key", 16))
	if err != nil {
		s.t.Fatal(err)
	}
	if s.aead, err = cipher.NewGCM(block); err != nil {
		s.t.Fatal(err)
	}
	s.secret, s.iv, s.next = secret, expand(s.t, secret, "iv", 12), 0
}

// record is a record of a type, padded.
func (s *sealer) record(kind byte, content string, padding int) []byte {
	text := append(append([]byte(content), kind), make([]byte, padding)...)
	head := []byte{23, 3, 3, 0, 0}
	binary.BigEndian.PutUint16(head[3:], uint16(len(text)+s.aead.Overhead()))
	nonce := bytes.Clone(s.iv)
	for i := range 8 {
		nonce[4+i] ^= byte(s.next >> (56 - 8*i))
	}
	s.next++
	return s.aead.Seal(bytes.Clone(head), nonce, text, head)
}

func (s *sealer) data(content string) []byte { return s.record(23, content, 0) }

// ticketMessage is a NewSessionTicket (RFC 8446 §4.6.1).
const ticketMessage = "\x04\x00\x00\x10" + "\x00\x00\x0e\x10" + "abcd" + "\x01n" + "\x00\x02tt" + "\x00\x00"

func (s *sealer) ticket() []byte { return s.record(22, ticketMessage, 0) }

// update is KeyUpdate (RFC 8446 §4.6.3); what follows is under the new key.
func (s *sealer) update(request bool) []byte {
	content := "\x18\x00\x00\x01\x00"
	if request {
		content = "\x18\x00\x00\x01\x01"
	}
	p := s.record(22, content, 0)
	s.use(expand(s.t, s.secret, "traffic upd", 32))
	return p
}

func (s *sealer) send(records ...[]byte) {
	s.t.Helper()
	if len(records) == 0 {
		return
	}
	if _, err := s.c.Write(bytes.Join(records, nil)); err != nil {
		s.t.Fatal(err)
	}
}

// answer has the connection ask and sends the records when the question came. The answer is "yes\n".
func (s *sealer) answer(c *Conn, records ...[]byte) {
	s.t.Helper()
	if _, err := io.WriteString(c, "question\n"); err != nil {
		s.t.Fatal(err)
	}
	if line := <-s.lines; line != "question\n" {
		s.t.Fatalf("the endpoint read %q", line)
	}
	s.send(records...)
	for len(c.Buffered()) < 4 {
		if _, err := c.Fill(); err != nil {
			s.t.Fatal(err)
		}
	}
	if got := string(c.Buffered()[:4]); got != "yes\n" {
		s.t.Fatalf("read %q", got)
	}
	c.Discard(4)
}

func TestWhatTLSItselfSaysEndsNoConnection(t *testing.T) {
	// Records that arrive with an answer, and on the idle connection.
	for name, test := range map[string]func(s *sealer) (with, idle [][]byte){
		"nothing":        func(s *sealer) (with, idle [][]byte) { return nil, nil },
		"a ticket":       func(s *sealer) (with, idle [][]byte) { return [][]byte{s.ticket()}, nil },
		"tickets, later": func(s *sealer) (with, idle [][]byte) { return nil, [][]byte{s.ticket(), s.ticket()} },
		"both":           func(s *sealer) (with, idle [][]byte) { return [][]byte{s.ticket()}, [][]byte{s.ticket()} },
		"a new key":      func(s *sealer) (with, idle [][]byte) { return [][]byte{s.update(false)}, nil },
		"a new key, later": func(s *sealer) (with, idle [][]byte) {
			return nil, [][]byte{s.update(false), s.ticket()}
		},
		"a new key for both sides":        func(s *sealer) (with, idle [][]byte) { return [][]byte{s.update(true)}, nil },
		"a new key for both sides, later": func(s *sealer) (with, idle [][]byte) { return nil, [][]byte{s.update(true)} },
		"an empty record":                 func(s *sealer) (with, idle [][]byte) { return [][]byte{s.data("")}, [][]byte{s.data("")} },
		"padding alone":                   func(s *sealer) (with, idle [][]byte) { return [][]byte{s.record(23, "", 300)}, nil },
		"a ticket in two records": func(s *sealer) (with, idle [][]byte) {
			return [][]byte{s.record(22, ticketMessage[:7], 0)}, [][]byte{s.record(22, ticketMessage[7:], 0)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, e, c := newSealer(t)
			for round := range 3 {
				yes := s.record(23, "yes\n", round)
				with, idle := test(s)
				s.answer(c, append([][]byte{yes}, with...)...)
				e.Put(c)
				s.send(idle...)
				if again := get(t, e, true); again != c {
					t.Fatalf("round %d: another connection", round)
				}
			}
			s.answer(c, s.data("yes\n"))
		})
	}
}

func TestWhatTLSHoldsEndsItsConnection(t *testing.T) {
	for name, test := range map[string]func(s *sealer) (with, idle [][]byte){
		"behind it in the record":     func(s *sealer) (with, idle [][]byte) { return [][]byte{s.data("yes\nno\n")}, nil },
		"a record":                    func(s *sealer) (with, idle [][]byte) { return [][]byte{s.data("yes\n"), s.data("no\n")}, nil },
		"an octet":                    func(s *sealer) (with, idle [][]byte) { return [][]byte{s.data("yes\n"), s.data("n")}, nil },
		"an octet in a padded record": func(s *sealer) (with, idle [][]byte) { return [][]byte{s.data("yes\n"), s.record(23, "n", 99)}, nil },
		"behind padding":              func(s *sealer) (with, idle [][]byte) { return [][]byte{s.record(23, "yes\n", 9), s.data("no\n")}, nil },
		"behind a ticket": func(s *sealer) (with, idle [][]byte) {
			return [][]byte{s.data("yes\n"), s.ticket(), s.data("no\n")}, nil
		},
		"behind a new key": func(s *sealer) (with, idle [][]byte) {
			return [][]byte{s.data("yes\n"), s.update(true), s.data("no\n")}, nil
		},
		"a header":                  func(s *sealer) (with, idle [][]byte) { return [][]byte{s.data("yes\n"), s.data("no\n")[:5]}, nil },
		"a header in part":          func(s *sealer) (with, idle [][]byte) { return [][]byte{s.data("yes\n"), s.data("no\n")[:1]}, nil },
		"a record in part":          func(s *sealer) (with, idle [][]byte) { return [][]byte{s.data("yes\n"), s.data("no\n")[:9]}, nil },
		"a ticket's record in part": func(s *sealer) (with, idle [][]byte) { return [][]byte{s.data("yes\n"), s.ticket()[:9]}, nil },
		"the end": func(s *sealer) (with, idle [][]byte) {
			return [][]byte{s.data("yes\n"), s.record(21, "\x01\x00", 0)}, nil
		},
		"a record, later":         func(s *sealer) (with, idle [][]byte) { return [][]byte{s.data("yes\n")}, [][]byte{s.data("no\n")} },
		"a record in part, later": func(s *sealer) (with, idle [][]byte) { return [][]byte{s.data("yes\n")}, [][]byte{s.data("no\n")[:8]} },
		"an octet, later":         func(s *sealer) (with, idle [][]byte) { return [][]byte{s.data("yes\n")}, [][]byte{s.data("no\n")[:1]} },
		"behind a ticket, later": func(s *sealer) (with, idle [][]byte) {
			return [][]byte{s.data("yes\n")}, [][]byte{s.ticket(), s.data("no\n")}
		},
		"half behind a ticket, later": func(s *sealer) (with, idle [][]byte) {
			return [][]byte{s.data("yes\n")}, [][]byte{s.ticket(), s.data("no\n")[:3]}
		},
		"the end, later": func(s *sealer) (with, idle [][]byte) {
			return [][]byte{s.data("yes\n")}, [][]byte{s.record(21, "\x01\x00", 0)}
		},
		"what does not decrypt, later": func(s *sealer) (with, idle [][]byte) { return [][]byte{s.data("yes\n")}, [][]byte{make([]byte, 50)} },
		"tickets without end, later": func(s *sealer) (with, idle [][]byte) {
			with = [][]byte{s.data("yes\n")}
			for range 100 {
				idle = append(idle, s.ticket())
			}
			return with, idle
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, e, c := newSealer(t)
			s.answer(c, s.data("yes\n"))
			e.Put(c)
			if again := get(t, e, true); again != c {
				t.Fatal("another connection")
			}
			with, idle := test(s)
			s.answer(c, with...)
			e.Put(c)
			s.send(idle...)
			e.mu.Lock()
			kept := len(e.idle) == 1
			e.mu.Unlock()
			if kept != (idle != nil) {
				t.Errorf("kept with its answer: %t", kept)
			}
			if kept && c.Alive() {
				t.Error("it is alive")
			}
		})
	}
}

func TestPuttingBackATLSConnectionAllocatesNothing(t *testing.T) {
	ca := newAuthority(t, "ca")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		for _, suite := range CipherSuites {
			sc := serverConfig(t, ca.issue(t, "", 0, x509.ExtKeyUsageServerAuth, []string{"a.test"}))
			sc.MaxVersion, sc.CipherSuites = version, []uint16{suite}
			srv := tlsEcho(t, sc)
			e := overTLS(t, newSet(t, Options{}), srv.address(), model.ServiceTLS{Hostname: "a.test", CAs: ca.pem})
			c, err := e.Dial(time.Time{})
			if err != nil {
				continue // the certificate is of the other kind
			}
			for range 3 {
				exchange(t, c, strings.Repeat("x", 100))
				if r := c.records; !c.settled() || r.most != c.given {
					t.Errorf("%x, %x: at most %d bytes came, %d were given", version, suite, r.most, c.given)
				}
			}
			exchange(t, c, "x")
			if c.records.most != c.given {
				t.Errorf("%x, %x: an exchange leaves TLS to be asked", version, suite)
			}
			if n := testing.AllocsPerRun(100, func() {
				if !c.settled() || !c.Alive() {
					t.Error("not alive")
				}
			}); n != 0 {
				t.Errorf("%x, %x: %v allocations", version, suite, n)
			}
			c.Close()
		}
	}
}
