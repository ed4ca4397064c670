package embedded

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/weirmesh/weir/internal/telemetry"
)

const (
	// maxReport bounds the bytes of a report, and maxSeries its series: twice those that a proxy has at most.
	maxReport = 32 << 20
	maxSeries = 50_000
	// smallReport is what any number of readers may read at a time; longer ones are read by at most largeReaders.
	smallReport  = 256 << 10
	largeReaders = 4
)

// Client reads reports over HTTP. It follows no redirects, as it reaches what proxies cannot.
type Client struct {
	client *http.Client
	large  chan struct{}
}

// NewClient is a Client that opens a connection for each report: kept ones of thousands of proxies would take more memory
// than all that is known of them.
func NewClient() *Client {
	return &Client{
		client: &http.Client{
			Transport: &http.Transport{
				DialContext:            (&net.Dialer{Timeout: 2 * time.Second}).DialContext,
				DisableKeepAlives:      true,
				DisableCompression:     true,
				MaxResponseHeaderBytes: 16 << 10,
			},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		large: make(chan struct{}, largeReaders),
	}
}

// Read is a function for Source.Read that gets the report from a URL.
func (c *Client) Read(url string) func(context.Context) (telemetry.Report, error) {
	return func(ctx context.Context) (telemetry.Report, error) {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return telemetry.Report{}, err
		}
		response, err := c.client.Do(request)
		if err != nil {
			return telemetry.Report{}, err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return telemetry.Report{}, fmt.Errorf("GET %s: %s", url, response.Status)
		}
		body := &boundedBody{ctx: ctx, from: response.Body, large: c.large}
		defer body.release()
		report, err := telemetry.ReadReport(body, maxSeries)
		if err != nil {
			return telemetry.Report{}, fmt.Errorf("GET %s: %w", url, err)
		}
		return report, nil
	}
}

// boundedBody is a body of bounded size, which waits for a permit when it is large.
type boundedBody struct {
	ctx   context.Context
	from  io.Reader
	read  int
	large chan struct{}
	held  bool
}

func (b *boundedBody) Read(p []byte) (int, error) {
	if b.read >= smallReport && !b.held {
		select {
		case b.large <- struct{}{}:
			b.held = true
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
	}
	if b.read > maxReport {
		return 0, fmt.Errorf("the report has more than %d bytes", maxReport)
	}
	n, err := b.from.Read(p)
	b.read += n
	return n, err
}

func (b *boundedBody) release() {
	if b.held {
		<-b.large
	}
}
