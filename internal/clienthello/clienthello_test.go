package clienthello

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"
)

// helloOf is the first flight of a client that offers the names.
func helloOf(t testing.TB, names ...string) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		tls.Client(client, &tls.Config{ServerName: "shop.example", NextProtos: names}).Handshake()
	}()
	b := make([]byte, 1<<14)
	n, err := server.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	server.Close()
	<-done
	return b[:n]
}

// split puts the message of a single record into records of random sizes.
func split(record []byte, most int) (out []byte) {
	for b := record[5:]; len(b) > 0; {
		n := min(1+rand.IntN(most), len(b))
		out = append(out, recordHandshake, 3, 1, byte(n>>8), byte(n))
		out = append(out, b[:n]...)
		b = b[n:]
	}
	return out
}

func TestANameIsFoundHoweverAHelloIsSplit(t *testing.T) {
	for _, offered := range [][]string{nil, {"h2"}, {"weir"}, {"h2", "http/1.1", "weir"}, {"weir", "h2"}, {"weird"}, {"wei"}, {"wei", "r"}, {"Weir"}} {
		want := Other
		if slices.Contains(offered, "weir") {
			want = Offered
		}
		hello := helloOf(t, offered...)
		for _, most := range []int{len(hello), 1, 2, 7, 300} {
			b := split(hello, most)
			if got := Look(b, "weir"); got != want {
				t.Errorf("%q in records of up to %d bytes: %d, want %d", offered, most, got, want)
			}
			for i := range b {
				if got := Look(b[:i], "weir"); got != More && got != want {
					t.Fatalf("%q: the first %d of %d bytes are %d", offered, i, len(b), got)
				}
			}
		}
	}
}

func TestWhatIsNoHelloIsKnownAtOnce(t *testing.T) {
	hello := helloOf(t, "weir")
	change := func(at int, to byte) []byte {
		b := bytes.Clone(hello)
		b[at] = to
		return b[:at+1]
	}
	for name, b := range map[string][]byte{
		"a request": []byte("G"), "an alert": {21}, "another version": change(1, 2), "a long record": append(change(3, 0x41), 0),
		"an empty record": {recordHandshake, 3, 1, 0, 0}, "another message": change(5, 2), "lengths that disagree": append(bytes.Clone(hello[:43]), 0, 0, 0, 0, 0xff, 0xff),
	} {
		if got := Look(b, "weir"); got != Other {
			t.Errorf("%s: %d", name, got)
		}
	}
	if n := testing.AllocsPerRun(100, func() { Look(hello, "none") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// given is a connection from which a server reads bytes, and to which it writes nothing.
type given struct {
	net.Conn
	b []byte
}

func (g *given) Read(p []byte) (int, error) {
	if len(g.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, g.b)
	g.b = g.b[n:]
	return n, nil
}

func (g *given) Write(p []byte) (int, error)      { return len(p), nil }
func (g *given) SetWriteDeadline(time.Time) error { return nil }

// offers reports what a TLS server reads from the bytes: the names that are offered, if it takes them for a whole hello.
func offers(b []byte) (names []string, whole bool) {
	stop := errors.New("seen")
	tls.Server(&given{b: b}, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		names, whole = h.SupportedProtos, true
		return nil, stop
	}}).Handshake()
	return names, whole
}

// FuzzLook holds the answer against that of crypto/tls for every hello which that accepts, and that an answer stays when
// more bytes come.
func FuzzLook(f *testing.F) {
	for _, names := range [][]string{nil, {"weir"}, {"h2", "weir"}, {"h2"}} {
		hello := helloOf(f, names...)
		f.Add(hello)
		f.Add(split(hello, 9))
	}
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		got := Look(in, "weir")
		if names, whole := offers(in); whole && (got == Offered) != slices.Contains(names, "weir") {
			t.Fatalf("found %d, and crypto/tls reads %q", got, names)
		}
		before := More
		for i := 0; i < len(in); i += 1 + len(in)/50 {
			now := Look(in[:i], "weir")
			if before != More && now != before {
				t.Fatalf("%d after %d", now, before)
			}
			before = now
		}
	})
}
