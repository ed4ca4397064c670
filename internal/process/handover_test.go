//go:build unix

package process

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/socket"
)

// handoverVariable makes a process of this test's binary one that serves, see served.
const handoverVariable = "WEIR_TEST_HANDOVER"

func TestMain(m *testing.M) {
	if path := os.Getenv(handoverVariable); path != "" {
		if err := served(path); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// both are the names of the sockets that served opens: one for connections and one for datagrams, of one address.
var both = []socket.Name{{Network: "tcp", Address: "127.0.0.1:0"}, {Network: "udp", Address: "127.0.0.1:0"}}

// served is a process that has two sockets and hands them over. It writes lines about what happens, and receives a datagram, of which it
// writes a line, for each line that it reads. It ends when another process has taken over, or with its input.
func served(path string) error {
	h, err := NewHandover(path, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	if err != nil {
		return err
	}
	defer h.Close()
	var sockets []socket.Bound
	for _, n := range both {
		b, err := h.Listen(socket.Open)(n.Network, n.Address)
		if err != nil {
			return err
		}
		defer b.Close()
		sockets = append(sockets, b)
	}
	if err := h.Serving(); err != nil {
		return err
	}
	fmt.Println("serving", sockets[0].Addr(), sockets[1].Addr())
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		defer cancel()
		buf := make([]byte, 100)
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			sockets[1].Packet.SetReadDeadline(time.Now().Add(20 * time.Second))
			n, _, err := sockets[1].Packet.ReadFrom(buf)
			fmt.Println("received", string(buf[:n]), err)
		}
	}()
	if err := h.Offer(ctx, pass(sockets)); err != nil {
		return err
	}
	fmt.Println("taken", h.Taken())
	return nil
}

// pass hands over sockets that have the names of both.
func pass(sockets []socket.Bound) Sockets {
	return func(pass func(socket.Name, socket.Bound) error) error {
		for i, b := range sockets {
			if err := pass(both[i], b); err != nil {
				return err
			}
		}
		return nil
	}
}

// child is a process that runs served.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startChild(t *testing.T, path string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), handoverVariable+"="+path)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return &child{t, cmd, in, bufio.NewScanner(out)}
}

func (c *child) line() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatal("the process has ended")
	}
	return c.out.Text()
}

func send(t *testing.T, address, text string) {
	t.Helper()
	c, err := net.Dial("udp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, text); err != nil {
		t.Fatal(err)
	}
}

// TestDatagramsSurviveAHandover has one that waits in the socket's queue while the process that opened the socket hands over and ends.
func TestDatagramsSurviveAHandover(t *testing.T) {
	path := filepath.Join(t.TempDir(), "handover")
	old := startChild(t, path)
	serving := old.line()
	addresses := strings.Fields(serving)
	if len(addresses) != 3 {
		t.Fatal(serving)
	}
	send(t, addresses[2], "first")
	fmt.Fprintln(old.in)
	if got := old.line(); got != "received first <nil>" {
		t.Fatal(got)
	}
	send(t, addresses[2], "queued")
	next := startChild(t, path)
	if got := next.line(); got != serving {
		t.Fatalf("the next process says %q, want %q", got, serving)
	}
	if got := old.line(); got != "taken [127.0.0.1:0 udp/127.0.0.1:0]" {
		t.Error(got)
	}
	if err := old.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(next.in)
	if got := next.line(); got != "received queued <nil>" {
		t.Errorf("the next process says %q, want the datagram that was queued", got)
	}
	c, err := net.Dial("tcp", addresses[1])
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// offering is a handover that offers two sockets at path until the test ends. What Offer returns comes from the channel.
func offering(t *testing.T, only ...string) (path string, h *Handover, sockets []socket.Bound, done chan error) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "handover")
	h, err := NewHandover(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range both {
		b, err := socket.Open(n.Network, n.Address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		sockets = append(sockets, b)
	}
	if err := h.Serving(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done = make(chan error, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		done <- h.Offer(ctx, func(give func(socket.Name, socket.Bound) error) error {
			return pass(sockets)(func(n socket.Name, b socket.Bound) error {
				if len(only) > 0 && !slices.Contains(only, n.Network) {
					return nil
				}
				return give(n, b)
			})
		})
	}()
	t.Cleanup(func() { cancel(); <-ended })
	return path, h, sockets, done
}

// TestAnOlderReleaseTakesOverWhatItKnows answers as a newcomer does that knows no sockets for datagrams.
func TestAnOlderReleaseTakesOverWhatItKnows(t *testing.T) {
	path, h, sockets, done := offering(t)
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	for _, want := range []string{`["127.0.0.1:0"]`, `[]`} {
		line, got, err := receiveSockets(nc.(*net.UnixConn))
		if err != nil || string(line) != want {
			t.Fatalf("message %q, %v, want %q", line, err, want)
		}
		for _, b := range got {
			defer b.Close()
			if b.Stream == nil || b.Addr().String() != sockets[0].Addr().String() {
				t.Errorf("socket %v", b.Addr())
			}
		}
		io.WriteString(nc, "\n")
	}
	io.WriteString(nc, `["127.0.0.1:0"]`+"\n")
	if err := <-done; err != nil || !slices.Equal(h.Taken(), both[:1]) {
		t.Errorf("taken %v, %v", h.Taken(), err)
	}
}

// TestSocketsForDatagramsAloneAreHandedOver has nothing that a newcomer could answer before they come.
func TestSocketsForDatagramsAloneAreHandedOver(t *testing.T) {
	path, h, sockets, done := offering(t, "udp")
	next, err := NewHandover(path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer next.Close()
	open := next.Listen(func(network, address string) (socket.Bound, error) {
		return socket.Bound{}, fmt.Errorf("%s %s is not inherited", network, address)
	})
	if b, err := open("tcp", both[1].Address); err == nil {
		t.Errorf("%v is taken for a socket for connections", b.Addr())
	}
	b, err := open(both[1].Network, both[1].Address)
	if err != nil || b.Packet == nil || b.Addr().String() != sockets[1].Addr().String() {
		t.Fatalf("inherited %+v, %v", b, err)
	}
	defer b.Close()
	if b, err := open(both[1].Network, both[1].Address); err == nil {
		t.Errorf("%v is inherited twice", b.Addr())
	}
	if err := next.Serving(); err != nil {
		t.Fatal(err)
	}
	defer next.listener.Close()
	if err := <-done; err != nil || !slices.Equal(h.Taken(), both[1:]) {
		t.Errorf("taken %v, %v", h.Taken(), err)
	}
}

// TestWhatAnOlderReleaseHandsOverIsTaken is an older process, and one that confuses the networks.
func TestWhatAnOlderReleaseHandsOverIsTaken(t *testing.T) {
	for _, test := range []struct {
		names, want string
	}{
		{`[":80"]`, ""},
		{`["udp/:80"]`, "the socket \"udp/:80\" is of the network tcp"},
		{`["sctp/:80"]`, "the socket \"sctp/:80\" is of the network tcp"},
		{`[":80",":81"]`, "1 sockets came with the message"},
	} {
		path := filepath.Join(t.TempDir(), "handover")
		l, err := net.Listen("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := socket.Open("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			nc, err := l.Accept()
			if err != nil {
				return
			}
			defer nc.Close()
			in := bufio.NewReader(nc)
			sendSockets(nc.(*net.UnixConn), []byte(test.names+"\n"), []socket.Bound{b})
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
			sendSockets(nc.(*net.UnixConn), []byte("[]\n"), nil)
			in.ReadString('\n')
		}()
		h, err := NewHandover(path, slog.New(slog.DiscardHandler))
		if test.want == "" {
			if err != nil {
				t.Fatal(err)
			}
			got, ok := h.inherit(socket.Name{Network: "tcp", Address: ":80"})
			if !ok || got.Addr().String() != b.Addr().String() {
				t.Errorf("inherited %+v", got)
			}
			got.Close()
			h.Close()
		} else if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.names, err, test.want)
		}
		<-done
		b.Close()
		l.Close()
	}
}
