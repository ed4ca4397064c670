package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
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

func newClient(endpoint string, header map[string]string) (*client, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return nil, errors.New("want a URL such as http://collector:4318") // it may have a password
	}
	if u.Path == "" || u.Path == "/" {
		u.Path = "/v1/traces"
	}
	t := &http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConns: 1, IdleConnTimeout: time.Minute, MaxResponseHeaderBytes: maxAnswer, ForceAttemptHTTP2: true}
	return &client{url: u.String(), header: header, pause: time.Second, http: http.Client{
		Transport:     t,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // the header may be secret
	}}, nil
}

// Start implements otlptrace.Client.
func (c *client) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *client) Stop(context.Context) error {
	c.http.CloseIdleConnections()
	return nil
}

// UploadTraces implements otlptrace.Client.
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
	_, _ = io.Copy(io.Discard, io.LimitReader(a.Body, maxAnswer))
	switch code := a.StatusCode; {
	case code >= 200 && code < 300:
		return false, nil
	case code == http.StatusTooManyRequests, code == http.StatusBadGateway, code == http.StatusServiceUnavailable, code == http.StatusGatewayTimeout:
		return true, fmt.Errorf("the answer is %s", a.Status)
	default:
		return false, fmt.Errorf("the answer is %s", a.Status)
	}
}
