package kube

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/client-go/rest"
)

// Ask sends a GET for a path, for APIs that have no client, and returns any answer, whatever its status. It follows no
// redirect. The caller closes the answer's body, bounds what it reads of it, and bounds the time by the context.
func (c *Client) Ask(ctx context.Context, path string, query url.Values) (*http.Response, error) {
	u, _, err := rest.DefaultServerUrlFor(c.Config)
	if err != nil {
		return nil, err
	}
	u.Path, u.RawQuery = strings.TrimSuffix(u.Path, "/")+path, query.Encode()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	client := *c.http
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return client.Do(r)
}
