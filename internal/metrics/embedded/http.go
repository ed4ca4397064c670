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
	// ofPod divides the bounds of a report that a pod's sidecar makes, of whom there may be thousands.
	ofPod = 4
)

// Client reads reports over HTTP. It follows no redirects, as it reaches what proxies cannot.
type Client struct {
	client *http.Client
	most   int // bytes of a report
	series int
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
		most:   maxReport,
		series: maxSeries,
		large:  make(chan struct{}, largeReaders),
	}
}

// NewPodClient is as NewClient, for reports of sidecars, which have a pod each and so are smaller.
func NewPodClient() *Client {
	c := NewClient()
	c.most, c.series = c.most/ofPod, c.series/ofPod
	return c
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
		body := &boundedBody{ctx: ctx, from: response.Body, most: c.most, large: c.large}
		defer body.release()
		report, err := telemetry.ReadReport(body, c.series)
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
	most  int
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
	if b.read > b.most {
		return 0, fmt.Errorf("the report has more than %d bytes", b.most)
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
