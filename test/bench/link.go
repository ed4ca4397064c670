//go:build linux

package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// link is a connection of a loop: a socket, or TLS over it.
type link struct {
	fd     int
	tls    *tls.Conn
	sealed []byte // written by TLS, not yet by the socket
	at     int    // how much of it was
	waits  bool   // reads wait: the handshake, whose errors are final
}

// errWait is how a socket without anything to read looks to TLS, which lets a temporary error pass.
type errWait struct{}

func (errWait) Error() string   { return "nothing to read now" }
func (errWait) Timeout() bool   { return true }
func (errWait) Temporary() bool { return true }

// connectLink is dial; with a configuration it also sets up TLS.
func connectLink(port, source int, config *tls.Config) (*link, error) {
	fd, err := dial(port, source)
	if err != nil {
		return nil, err
	}
	l := &link{fd: fd}
	if config == nil {
		return l, nil
	}
	l.tls, l.waits = tls.Client((*sealedConn)(l), config), true
	if err := l.tls.Handshake(); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("TLS handshake: %w", err)
	}
	l.waits = false
	return l, nil
}

func (l *link) close() { unix.Close(l.fd) }

// read returns 0 bytes and no error when there is nothing to read now.
func (l *link) read(b []byte) (n int, eof bool, err error) {
	if l.tls == nil {
		return read(l.fd, b)
	}
	n, err = l.tls.Read(b)
	if _, ok := err.(errWait); ok {
		err = nil
	}
	return n, false, err
}

// wait returns when there is something to read.
func (l *link) wait() error {
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(l.fd), Events: unix.POLLIN}}, 5000); n == 0 && err == nil {
		return errors.New("nothing came for 5 s")
	}
	return nil
}

// write returns 0 bytes and no error when nothing can be written now. TLS takes all; flush has to follow until nothing is pending.
func (l *link) write(b []byte) (int, error) {
	if l.tls == nil {
		return write(l.fd, b)
	}
	return l.tls.Write(b)
}

// flush writes what TLS left.
func (l *link) flush() error {
	for l.at < len(l.sealed) {
		n, err := write(l.fd, l.sealed[l.at:])
		if err != nil {
			return err
		}
		if n == 0 {
			return nil
		}
		l.at += n
	}
	l.sealed, l.at = l.sealed[:0], 0
	return nil
}

// loadTLS is the configuration of clients that load a proxy. The proxy's certificate was checked before, and the key exchange is the one that
// all proxies know.
func loadTLS(protocols ...string) *tls.Config {
	return &tls.Config{
		ServerName: hostname, InsecureSkipVerify: true, NextProtos: protocols,
		MinVersion: tls.VersionTLS13, CurvePreferences: []tls.CurveID{tls.X25519},
	}
}

// sealedConn is the socket as TLS sees it: reads do not wait, and writes take everything.
type sealedConn link

func (c *sealedConn) Read(b []byte) (int, error) {
	for {
		n, eof, err := read(c.fd, b)
		switch {
		case err != nil:
			return 0, err
		case eof:
			return 0, net.ErrClosed
		case n > 0:
			return n, nil
		case !c.waits:
			return 0, errWait{}
		}
		if err := (*link)(c).wait(); err != nil {
			return 0, err
		}
	}
}

func (c *sealedConn) Write(b []byte) (int, error) {
	c.sealed = append(c.sealed, b...)
	return len(b), (*link)(c).flush()
}

func (c *sealedConn) Close() error                     { return nil }
func (c *sealedConn) LocalAddr() net.Addr              { return nil }
func (c *sealedConn) RemoteAddr() net.Addr             { return nil }
func (c *sealedConn) SetDeadline(time.Time) error      { return nil }
func (c *sealedConn) SetReadDeadline(time.Time) error  { return nil }
func (c *sealedConn) SetWriteDeadline(time.Time) error { return nil }
