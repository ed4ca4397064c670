package prometheus

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
)

// transport bounds answers, and adds what says who asks.
type transport struct {
	options Options
	next    *http.Transport
}

func newTransport(o Options) (*transport, error) {
	t := &transport{o, &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: o.Timeout}).DialContext,
		ForceAttemptHTTP2:      true,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        30 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
	}}
	if o.CAFile == "" {
		return t, nil
	}
	pem, err := readSmall(o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("the authorities of Prometheus: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(pem)) {
		return nil, fmt.Errorf("the authorities of Prometheus: %s has no certificate as PEM", o.CAFile)
	}
	t.next.TLSClientConfig = &tls.Config{RootCAs: pool}
	return t, nil
}

// RoundTrip implements http.RoundTripper.
func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	if t.options.Tenant != "" {
		r.Header.Set("X-Scope-OrgID", t.options.Tenant)
	}
	if t.options.Username != "" {
		password, err := readSmall(t.options.PasswordFile)
		if err != nil {
			return nil, fmt.Errorf("the password: %w", err)
		}
		r.SetBasicAuth(t.options.Username, strings.TrimRight(password, "\r\n"))
	}
	if t.options.TokenFile != "" {
		token, err := readSmall(t.options.TokenFile)
		if err != nil {
			return nil, fmt.Errorf("the token: %w", err)
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(token))
	}
	response, err := t.next.RoundTrip(r)
	if err == nil {
		response.Body = &boundedBody{response.Body, t.options.MaxBytes, t.options.MaxBytes}
	}
	return response, err
}

// CloseIdleConnections closes those that are kept for the next question.
func (t *transport) CloseIdleConnections() { t.next.CloseIdleConnections() }

// readSmall reads a file of at most 1 MiB.
func readSmall(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, 1<<20))
	return string(b), err
}

// boundedBody fails when there is more than allowed.
type boundedBody struct {
	io.ReadCloser
	left, most int64
}

func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, tooLongError(b.most)
	}
	return n, err
}

type tooLongError int64

func (e tooLongError) Error() string {
	return fmt.Sprintf("the answer has more than %d bytes: ask about fewer resources", int64(e))
}

// exchange remembers the status of an answer.
type exchange struct {
	api.Client
	status int
}

// Do implements api.Client.
func (x *exchange) Do(ctx context.Context, r *http.Request) (*http.Response, []byte, error) {
	response, body, err := x.Client.Do(ctx, r)
	if response != nil {
		x.status = response.StatusCode
	}
	return response, body, err
}

// explain says what went wrong, and what to do.
func (s *Store) explain(ctx context.Context, err error, status int) error {
	var answered *v1.Error
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("the Prometheus at %s: %w", s.where, context.Cause(ctx))
	case !errors.As(err, &answered):
		return fmt.Errorf("the Prometheus at %s: %s", s.where, shortened(err.Error()))
	}
	text := answered.Msg
	if answered.Detail != "" && answered.Type != v1.ErrBadResponse {
		text += ": " + answered.Detail
	}
	advice := map[int]string{
		http.StatusUnauthorized: "; see that the user, the password or the token is right",
		http.StatusForbidden:    "; see that the user, the password or the token is right",
		http.StatusNotFound:     "; see whether /api/v1/query has a path before it there, such as /prometheus",
	}[status]
	switch {
	case status/100 == 3:
		advice = "; it redirects to another place, whose URL is to be given"
	case strings.Contains(text, "org id"):
		advice = "; it wants a tenant"
	case strings.Contains(text, "too many"):
		advice = "; ask about fewer resources or a shorter window, or raise its limit"
	}
	return fmt.Errorf("the Prometheus at %s answered %d: %s%s", s.where, status, shortened(text), advice)
}

// shortened is a text of others, as one short line.
func shortened(text string) string {
	const most = 200
	text = strings.Join(strings.Fields(strings.ToValidUTF8(text, "\ufffd")), " ")
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
