package upstream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

// askPair is a connection and its other side, both over a real socket.
func askPair(t *testing.T) (*Conn, *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	s := New(Options{})
	c := newConn(newEndpoint(s, ln.Addr().String(), model.HTTP, nil), nc, nc)
	t.Cleanup(func() {
		nc.Close()
		peer.Close()
		s.Close()
	})
	return c, peer.(*net.TCPConn)
}

func TestAskWritesAndReads(t *testing.T) {
	c, peer := askPair(t)
	go func() {
		buf := make([]byte, 100)
		for {
			n, err := peer.Read(buf)
			if err != nil {
				return
			}
			peer.Write(bytes.ToUpper(buf[:n]))
		}
	}()
	for range 100 {
		n, err := c.Ask([]byte("hello"))
		if n != 5 || err != nil || string(c.Buffered()) != "HELLO" {
			t.Fatalf("%d, %v, %q", n, err, c.Buffered())
		}
		c.Discard(5)
	}
}

func TestAskOfMoreThanTheSocketTakes(t *testing.T) {
	c, peer := askPair(t)
	p := bytes.Repeat([]byte("0123456789"), 1<<20)
	go func() {
		if n, err := io.CopyN(io.Discard, peer, int64(len(p))); err != nil {
			t.Errorf("%d bytes arrived: %v", n, err)
		}
		io.WriteString(peer, "thanks")
	}()
	n, err := c.Ask(p)
	if n != len(p) || err != nil || string(c.Buffered()) != "thanks" {
		t.Errorf("%d, %v, %q", n, err, c.Buffered())
	}
}

func TestAskNoticesTheOtherSidesEnd(t *testing.T) {
	for name, end := range map[string]func(*net.TCPConn){
		"closed before":     func(p *net.TCPConn) { p.Close() },
		"half closed after": func(p *net.TCPConn) { p.Read(make([]byte, 10)); p.CloseWrite() },
		"reset": func(p *net.TCPConn) {
			p.Read(make([]byte, 10))
			p.SetLinger(0)
			p.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, peer := askPair(t)
			done := make(chan struct{})
			if name == "closed before" {
				end(peer)
				close(done)
			} else {
				go func() {
					defer close(done)
					end(peer)
				}()
			}
			c.ReadBy(time.Now().Add(10*time.Second), 0)
			n, err := c.Ask([]byte("hello"))
			if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("%d, %v", n, err)
			}
			<-done
			if _, err := c.Fill(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("the next read: %v", err)
			}
		})
	}
}

func TestNothingIsWrittenWhereSomethingUnaskedCame(t *testing.T) {
	for name, write := range map[string]func(*Conn, []byte) (int, error){"ask": (*Conn).Ask, "write": (*Conn).Write} {
		for came, say := range map[string]func(*net.TCPConn){
			"an answer":   func(p *net.TCPConn) { io.WriteString(p, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") },
			"a byte":      func(p *net.TCPConn) { io.WriteString(p, "H") },
			"the end":     func(p *net.TCPConn) { p.CloseWrite() },
			"what it was": nil,
		} {
			t.Run(name+" behind "+came, func(t *testing.T) {
				c, peer := askPair(t)
				c.unchecked = true // as Get hands out a reused one
				if say == nil {
					go func() {
						peer.Read(make([]byte, 10))
						io.WriteString(peer, "yes")
					}()
				} else {
					say(peer)
					for c.Alive() { // until it has come
						time.Sleep(time.Millisecond)
					}
				}
				n, err := write(c, []byte("hello"))
				if say == nil {
					if n != 5 || err != nil {
						t.Fatalf("%d, %v", n, err)
					}
					return
				}
				if n != 0 || err == nil || len(c.Buffered()) != 0 {
					t.Errorf("%d, %v, %q", n, err, c.Buffered())
				}
				c.net.Close()
				if n, _ := peer.Read(make([]byte, 10)); n != 0 {
					t.Errorf("%d bytes were written", n)
				}
			})
		}
	}
}

func TestAskKeepsToTheReadDeadline(t *testing.T) {
	c, peer := askPair(t)
	c.ReadBy(time.Now().Add(20*time.Millisecond), 0)
	n, err := c.Ask([]byte("hello"))
	if n != 5 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%d, %v", n, err)
	}
	io.WriteString(peer, "late")
	c.ReadBy(time.Time{}, 0)
	if _, err := c.Fill(); err != nil || string(c.Buffered()) != "late" {
		t.Errorf("%q, %v", c.Buffered(), err)
	}
}
