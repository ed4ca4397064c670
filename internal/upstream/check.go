package upstream

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/weirmesh/weir/internal/clientaddr"
	"github.com/weirmesh/weir/internal/model"
)

// Bounds of active checks.
const (
	// checkStart bounds the random delay of the first check, so that not all checks begin together.
	checkStart = time.Second
	// checkJitter is the part of an interval by which it varies.
	checkJitter = 10
	// checkBody is how much of an answer is read in order to use the connection again.
	checkBody  = 16 << 10
	checkAgent = "weir-health-check"
)

// checker checks the health of one endpoint periodically, over its own connection. Its one goroutine runs run.
type checker struct {
	endpoint  *Endpoint
	spec      model.HealthCheck
	cancel    context.CancelFunc
	transport *http.Transport // nil for TCP
	good, bad int             // checks in a row
}

// check starts and ends checkers as the policies say. s.mu is held.
func (s *Set) check(policies map[*Endpoint]*policy) {
	for e, c := range s.checks {
		if p := policies[e]; p == nil || p.check == nil || !reflect.DeepEqual(*p.check, c.spec) {
			c.stop()
			delete(s.checks, e)
		}
	}
	for e, p := range policies {
		if p.check == nil || s.checks[e] != nil {
			continue
		}
		ctx, cancel := context.WithCancel(s.ctx)
		c := &checker{endpoint: e, spec: *p.check, cancel: cancel}
		s.checks[e] = c
		s.wg.Go(func() { c.run(ctx) })
	}
}

// stop ends the checks, without waiting, and drops their results.
func (c *checker) stop() {
	c.cancel()
	h := &c.endpoint.health
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failing.Store(false)
	h.checkErr.Store(nil)
}

// run checks until ctx ends.
func (c *checker) run(ctx context.Context) {
	defer c.cancel()
	if c.spec.Type != model.CheckTCP {
		c.transport = c.newTransport()
		defer c.transport.CloseIdleConnections()
	}
	interval := time.Duration(c.spec.Interval)
	timer := time.NewTimer(rand.N(min(interval, checkStart)))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		next := time.Now().Add(interval - interval/checkJitter + rand.N(2*interval/checkJitter+1))
		c.note(ctx, c.once(ctx))
		timer.Reset(time.Until(next))
	}
}

// once makes one check; nil is a healthy endpoint.
func (c *checker) once(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(c.spec.Timeout))
	defer cancel()
	var err error
	switch c.spec.Type {
	case model.CheckHTTP:
		err = c.http(ctx)
	case model.CheckGRPC:
		err = c.grpc(ctx)
	default:
		var nc net.Conn
		if nc, err = c.dial(ctx, "", ""); err == nil {
			nc.Close()
		}
	}
	if err != nil && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		err = fmt.Errorf("%w within %v", errCheckTime, time.Duration(c.spec.Timeout))
	}
	return err
}

var errCheckTime = errors.New("no answer")

// note draws the conclusion from a check.
func (c *checker) note(ctx context.Context, err error) {
	e, h := c.endpoint, &c.endpoint.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if ctx.Err() != nil || errors.Is(err, errCheckTime) && e.set.opt.Strained() {
		return // it may have been the end, or this process, that made it fail
	}
	if err != nil {
		text := err.Error()
		h.checked[0].Add(1)
		h.checkErr.Store(&text)
		c.good = 0
		if c.bad++; c.bad >= c.spec.Unhealthy && !h.failing.Swap(true) {
			e.set.opt.Logger.Warn("endpoint fails its health check", "endpoint", e.Address, "checks", c.bad, "error", err)
		}
		return
	}
	h.checked[1].Add(1)
	h.checkErr.Store(nil)
	c.bad = 0
	if c.good++; c.good >= c.spec.Healthy && h.failing.Swap(false) {
		e.set.opt.Logger.Info("endpoint passes its health check", "endpoint", e.Address, "checks", c.good)
	}
}

// http2 reports whether the checks speak HTTP/2.
func (c *checker) http2() bool {
	return c.spec.Type == model.CheckGRPC || c.endpoint.protocol == model.H2C
}

// newTransport makes an HTTP client with one connection. To it the connection is cleartext: TLS is done in dial.
func (c *checker) newTransport() *http.Transport {
	t := &http.Transport{
		Protocols: new(http.Protocols), DialContext: c.dial, DisableCompression: true, MaxConnsPerHost: 1, MaxResponseHeaderBytes: checkBody,
	}
	t.Protocols.SetHTTP1(!c.http2())
	t.Protocols.SetUnencryptedHTTP2(c.http2())
	return t
}

// dial connects as exchanges do, with the service's TLS, but is not counted.
func (c *checker) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	e := c.endpoint
	var config *tls.Config
	if e.tls != nil {
		if config = e.tls.http1; c.http2() {
			config = e.tls.http2
		}
	}
	nc, _, _, err := e.handshake(ctx, config, clientaddr.Pair{})
	return nc, err
}

// request makes a request to the endpoint.
func (c *checker) request(ctx context.Context, method, target string, body []byte) (*http.Request, error) {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return nil, err
	}
	u.Scheme, u.Host = "http", c.endpoint.Address
	r, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	switch {
	case c.spec.Host != "":
		r.Host = c.spec.Host
	case c.endpoint.tls != nil:
		r.Host = c.endpoint.tls.serverName
	}
	r.Header.Set("User-Agent", checkAgent)
	return r, nil
}

func (c *checker) http(ctx context.Context) error {
	r, err := c.request(ctx, http.MethodGet, c.spec.Path, nil)
	if err != nil {
		return err
	}
	resp, err := c.transport.RoundTrip(r) // a redirection is an answer
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(resp.Body, checkBody)); err != nil {
		return err
	}
	if !c.spec.Expects(resp.StatusCode) {
		return fmt.Errorf("status %d", resp.StatusCode)
	}
	return nil
}

// serving is HealthCheckResponse.ServingStatus SERVING.
const serving = 1

// grpc calls grpc.health.v1.Health/Check.
func (c *checker) grpc(ctx context.Context) error {
	var message []byte
	if c.spec.Service != "" {
		message = protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), c.spec.Service)
	}
	frame := append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message))), message...)
	r, err := c.request(ctx, http.MethodPost, "/grpc.health.v1.Health/Check", frame)
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/grpc")
	r.Header.Set("Te", "trailers")
	resp, err := c.transport.RoundTrip(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, checkBody))
	if err != nil {
		return err
	}
	code := resp.Trailer.Get("Grpc-Status")
	if code == "" {
		code = resp.Header.Get("Grpc-Status")
	}
	if resp.StatusCode != http.StatusOK || code != "0" {
		return fmt.Errorf("status %d, gRPC status %q", resp.StatusCode, code)
	}
	if status := servingStatus(body); status != serving {
		return fmt.Errorf("serving status %d", status)
	}
	return nil
}

// servingStatus reads a HealthCheckResponse after the head of its frame; -1 if it is invalid.
func servingStatus(frame []byte) int64 {
	if len(frame) < 5 || frame[0] != 0 || int64(binary.BigEndian.Uint32(frame[1:])) != int64(len(frame)-5) {
		return -1
	}
	status := int64(0) // UNKNOWN
	for b := frame[5:]; len(b) > 0; {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return -1
		}
		b = b[n:]
		if field == 1 && kind == protowire.VarintType {
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return -1
			}
			status, b = int64(v), b[n:]
			continue
		}
		if n = protowire.ConsumeFieldValue(field, kind, b); n < 0 {
			return -1
		}
		b = b[n:]
	}
	return status
}
