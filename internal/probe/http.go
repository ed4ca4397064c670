package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"golang.org/x/net/http/httpguts"
)

const (
	// redirects is how many redirects of one host are followed, as by the kubelet.
	redirects = 10
	// body is how much of an answer is read, as by the kubelet.
	body = 10 << 10
)

var errRedirects = errors.New("stopped after 10 redirects")

// request makes the request as the kubelet does (its pkg/probe/http): headers that the user set, else its own agent and
// "*/*"; a Host among them for the request's host. A path that is no URL counts as it is.
func (h *HTTP) request(pod, agent string) (*http.Request, error) {
	u, err := url.Parse(h.Path)
	if err != nil {
		u = &url.URL{Path: h.Path}
	}
	u.Scheme, u.Host = "http", address(pod, h.Port)
	if h.Secure {
		u.Scheme = "https"
	}
	r := &http.Request{Method: http.MethodGet, URL: u, Header: http.Header{}}
	for i, f := range h.Fields {
		if !httpguts.ValidHeaderFieldName(f.Name) || !httpguts.ValidHeaderFieldValue(f.Value) {
			return nil, fmt.Errorf("http.fields[%d]: %q is no field of a request", i, f.Name)
		}
		r.Header.Add(f.Name, f.Value)
	}
	if r.Host = r.Header.Get("Host"); r.Host != "" && !httpguts.ValidHostHeader(r.Host) {
		return nil, fmt.Errorf("http.fields: %q is no host", r.Host)
	}
	if _, ok := r.Header["User-Agent"]; !ok {
		r.Header.Set("User-Agent", agent)
	}
	switch accept, ok := r.Header["Accept"]; {
	case !ok:
		r.Header.Set("Accept", "*/*")
	case accept[0] == "":
		delete(r.Header, "Accept") // the user wants none
	}
	return r, nil
}

// run sends the request. An answer below 400 is success, and so is a redirect to another host, which is not followed.
func (h *HTTP) run(ctx context.Context, pod, agent string) error {
	r, err := h.request(pod, agent)
	if err != nil {
		return err
	}
	host := r.URL.Hostname()
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // the kubelet checks no certificate either
		DisableKeepAlives: true, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
	}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, CheckRedirect: func(next *http.Request, via []*http.Request) error {
		switch {
		case next.URL.Hostname() != host:
			return http.ErrUseLastResponse
		case len(via) >= redirects:
			return errRedirects
		}
		return nil
	}}
	answer, err := client.Do(r.WithContext(ctx))
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, body))
	switch {
	case answer.StatusCode >= 400:
		return fmt.Errorf("status %d: %s", answer.StatusCode, strings.TrimSpace(string(text)))
	case err != nil:
		return fmt.Errorf("status %d, and then: %w", answer.StatusCode, err)
	}
	return nil
}
