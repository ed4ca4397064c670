//go:build unix

package main

//lint:file-ignore SA1019 the library's connections are used one by one, so that it is seen what is sent again and why

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"

	"golang.org/x/net/http2"
)

// http2Client sends requests over one connection at a time, several at once; it opens another when the server says that it takes no more.
type http2Client struct {
	s         *soak
	o         clientOptions
	transport *http2.Transport

	mu   sync.Mutex // held while connecting, too
	cc   *http2.ClientConn
	uses int
}

func newHTTP2Client(s *soak, o clientOptions) *http2Client {
	return &http2Client{s: s, o: o, transport: &http2.Transport{AllowHTTP: true, DisableCompression: true}}
}

// start starts that many senders.
func (c *http2Client) start(wg *sync.WaitGroup, senders int) {
	var mine sync.WaitGroup
	for range senders {
		mine.Add(1)
		wg.Go(func() {
			defer mine.Done()
			c.run()
		})
	}
	wg.Go(func() {
		mine.Wait()
		if c.cc != nil {
			c.cc.Close()
		}
	})
}

// get returns a connection that takes another request.
func (c *http2Client) get() (*http2.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cc != nil {
		switch {
		case c.o.uses > 0 && c.uses >= c.o.uses:
			old := c.cc
			go old.Shutdown(c.s.ctx) // GOAWAY, and the end when its streams have
		case c.cc.CanTakeNewRequest():
			c.uses++
			return c.cc, nil
		default:
			c.s.diary.note(c.o.name + ": the server said GOAWAY; another connection was opened")
			old := c.cc
			go old.Shutdown(c.s.ctx)
		}
		c.cc = nil
	}
	oldest := c.s.truth.certConfirmed.Load()
	nc, err := c.o.target.dial(c.s.ports, c.o.secure)
	if err != nil {
		return nil, err
	}
	if c.o.secure {
		t := tls.Client(nc, c.s.tls.client(c.s, "web.example", "h2"))
		t.SetDeadline(time.Now().Add(patience))
		if err := t.Handshake(); err != nil {
			nc.Close()
			return nil, fmt.Errorf("TLS handshake: %w", err)
		}
		if err := c.s.checkCertificate(oldest, t.ConnectionState()); err != nil {
			nc.Close()
			return nil, err
		}
		t.SetDeadline(time.Time{})
		nc = net.Conn(t)
	}
	c.cc, err = c.transport.NewClientConn(nc)
	c.uses = 1
	return c.cc, err
}

func (c *http2Client) run() {
	s := c.s
	r := rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	var took []uint32
	var body bytes.Buffer
	for s.more() {
		op := nextOperation(r)
		for attempt := 1; ; attempt++ {
			cc, err := c.get()
			if err != nil {
				s.sent.Add(-1)
				if errors.Is(err, errOver) {
					break
				}
				s.diary.fail(c.o.name, err)
				time.Sleep(100 * time.Millisecond)
				break
			}
			s.gate.RLock()
			begun := time.Now()
			err = c.exchange(cc, &op, &body)
			s.gate.RUnlock()
			if why := unprocessed(err); why != "" && attempt < 10 {
				s.diary.note(c.o.name + ": " + why + "; the request was sent again")
				continue
			}
			if err != nil {
				s.diary.fail(c.o.name, fmt.Errorf("%s %s, attempt %d: %w", op.method, op.path, attempt, err))
				break
			}
			took = append(took, uint32(min(time.Since(begun).Microseconds(), 1<<31)))
			break
		}
	}
	s.answers.add(c.o.name, took)
}

// unprocessed says why the server cannot have processed the request, if that is so (RFC 9113 §8.7).
func unprocessed(err error) string {
	if err == nil {
		return ""
	}
	var se http2.StreamError
	switch {
	case errors.As(err, &se) && se.Code == http2.ErrCodeRefusedStream:
		return "REFUSED_STREAM"
	// The library does not export these.
	case err.Error() == "http2: Transport received Server's graceful shutdown GOAWAY":
		return "stream above the last that GOAWAY tells of"
	case err.Error() == "http2: client conn not usable":
		return "the connection took no more requests when this one was to be sent"
	}
	return ""
}

func (c *http2Client) exchange(cc *http2.ClientConn, op *operation, body *bytes.Buffer) error {
	oldest := c.s.truth.confirmed.Load()
	scheme := "http"
	if c.o.secure {
		scheme = "https"
	}
	req := &http.Request{
		Method: op.method, URL: &url.URL{Scheme: scheme, Host: "web.example", Path: op.path}, Host: "web.example",
		Header: http.Header{fieldID: {op.id}, fieldMark: {"1"}, "User-Agent": {""}},
	}
	if op.method == "POST" {
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(op.body)), int64(len(op.body))
		if op.chunked {
			req.ContentLength = -1
		}
	}
	resp, err := cc.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body.Reset()
	if _, err := body.ReadFrom(resp.Body); err != nil {
		return fmt.Errorf("reading the answer's body: %w", err)
	}
	switch {
	case resp.StatusCode != http.StatusOK:
		return fmt.Errorf("status %d: %.200q", resp.StatusCode, body.Bytes())
	case !bytes.Equal(body.Bytes(), op.want):
		return fmt.Errorf("the body has %d bytes, %d were expected, or others", body.Len(), len(op.want))
	case op.sum && resp.Trailer.Get(fieldSum) != strconv.Itoa(len(op.want)):
		return fmt.Errorf("the trailer says %q, not %d", resp.Trailer.Get(fieldSum), len(op.want))
	}
	h := resp.Header
	return c.s.truth.judge(oldest, &answer{h.Get(fieldID), op.id, h.Get(fieldConfig), h.Get(fieldVersion), h.Get(fieldSeen)})
}
