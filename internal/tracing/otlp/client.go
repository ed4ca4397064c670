package otlp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"syscall"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/weirmesh/weir/internal/tracing"
)

// client implements otlptrace.Client over HTTP. The SDK's own client brings all of gRPC into the program, though it
// does not use it.
type client struct {
	url    string
	header map[string]string
	http   http.Client
	pause  time.Duration // before the second try; twice as long before the third
}

const (
	// tries is how often a message is sent, if the collector may take it later.
	tries = 3
	// maxAnswer is how much of an answer is read.
	maxAnswer = 64 << 10
)

func newClient(o tracing.Export) (*client, error) {
	to, err := tracing.Endpoint(o.Endpoint)
	if err != nil {
		return nil, err
	}
	d := &net.Dialer{KeepAlive: 15 * time.Second}
	if o.Refuse != nil {
		d.Control = judged(o.Refuse)
	}
	t := &http.Transport{DialContext: d.DialContext, Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute,
		MaxResponseHeaderBytes: maxAnswer, ForceAttemptHTTP2: true}
	return &client{url: to, header: o.Header, pause: time.Second, http: http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the header may be secret
	}}, nil
}

// judged refuses addresses when a socket is about to be connected to them, after names were resolved.
func judged(refuse func(netip.AddrPort) string) func(network, address string, _ syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		if why := refuse(to); why != "" {
			return fmt.Errorf("address %s %s", address, why)
		}
		return nil
	}
}

// Start implements otlptrace.Client.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client. Its error is a *partial if the collector accepted the message, but not all of
// its spans.
func (c *client) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// It has the form of an ExportTraceServiceRequest, whose package needs gRPC.
	message, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return err
	}
	for try := 1; ; try++ {
		again, err := c.post(ctx, message)
		if err == nil || !again || try == tries {
			return err
		}
		t := time.NewTimer(c.pause << (try - 1))
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return err
		}
	}
}

// post sends a message; again means that the error may pass.
func (c *client) post(ctx context.Context, message []byte) (again bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(message))
	if err != nil {
		return false, err
	}
	r.Header.Set("Content-Type", "application/x-protobuf")
	r.Header.Set("User-Agent", "weir")
	for name, value := range c.header {
		r.Header.Set(name, value)
	}
	a, err := c.http.Do(r)
	if err != nil {
		return ctx.Err() == nil, err
	}
	defer a.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(a.Body, maxAnswer))
	switch code := a.StatusCode; {
	case code >= 200 && code < 300:
		if p := readPartial(answer); err == nil && p != nil {
			return false, p
		}
		return false, nil
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		return true, fmt.Errorf("the answer is %s", a.Status)
	default:
		return false, fmt.Errorf("the answer is %s", a.Status)
	}
}
