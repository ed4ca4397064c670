//go:build linux

package main

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirmesh/weir/test/freeport"
)

// proxy is a proxy that serves.
type proxy struct {
	contender
	process *process
	port    int
	admin   int // weir's
	dir     string
}

// startProxy configures and starts a proxy on its processor, and waits until it serves correctly.
func (b *bench) startProxy(c contender) (*proxy, error) {
	port, err := freeport.Take()
	if err != nil {
		return nil, err
	}
	p := &proxy{contender: c, port: port}
	dir, err := os.MkdirTemp(b.dir, c.peer+"-")
	if err != nil {
		return nil, err
	}
	p.dir = dir
	var command []string
	switch c.peer {
	case "nginx":
		command, err = b.nginx(dir, c.setting, port)
	case "haproxy":
		command, err = b.haproxy(dir, c.setting, port)
	case "reverseproxy":
		command, err = b.reverseProxy(c.setting, port)
	case "weir":
		if p.admin, err = freeport.Take(); err == nil {
			command, err = b.weirCommand(dir, c, port, p.admin)
		}
	}
	if err != nil {
		return nil, err
	}
	if b.favoured {
		command = append([]string{"chrt", "--rr", "1"}, command...)
	}
	if p.process, err = b.start(c.peer, b.proxyCPU, nil, command...); err != nil {
		return nil, err
	}
	if err := b.await(p); err != nil {
		b.stop(p.process)
		return nil, err
	}
	return p, nil
}

// await returns when the proxy serves, and checks that it does the work that all are to do.
func (b *bench) await(p *proxy) error {
	client := b.client(p.setting)
	defer client.CloseIdleConnections()
	deadline := time.Now().Add(time.Minute) // ten thousand routes take a while to read
	for {
		err := b.check(client, p)
		if err == nil {
			return nil
		}
		if p.process.ended() || time.Now().After(deadline) {
			return fmt.Errorf("%s does not serve: %w\n%s", p.label, err, p.process.output())
		}
		select {
		case <-b.ctx.Done():
			return b.ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// client speaks the protocol of the setting, and trusts the CA of this run only.
func (b *bench) client(s setting) *http.Client {
	t := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: b.certificate.roots, ServerName: hostname},
		Protocols:       new(http.Protocols),
	}
	switch {
	case s.HTTP2 && s.TLS:
		t.Protocols.SetHTTP2(true)
	case s.HTTP2:
		t.Protocols.SetUnencryptedHTTP2(true)
	default:
		t.Protocols.SetHTTP1(true)
	}
	return &http.Client{Transport: t, Timeout: 5 * time.Second}
}

// check asks the backend, through the proxy, for the head it received, and then for the real answer.
func (b *bench) check(client *http.Client, p *proxy) error {
	head, _, err := b.get(client, p, "_head")
	if err != nil {
		return err
	}
	received := strings.ToLower(string(head))
	for _, want := range []string{"x-forwarded-for: 127.0.0.1", "x-forwarded-proto: " + p.scheme(), "host: "} {
		if !strings.Contains(received, "\r\n"+want) {
			return fmt.Errorf("the backend got no %q:\n%s", want, head)
		}
	}
	for _, h := range headers {
		if !strings.Contains(received, "\r\n"+strings.ToLower(h[0]+": "+h[1])) {
			return fmt.Errorf("the backend got no field %s:\n%s", h[0], head)
		}
	}
	body, resp, err := b.get(client, p, "")
	if err != nil {
		return err
	}
	if want := 1 << 10; p.setting.Backend != roleLarge && len(body) != want || p.setting.Backend == roleLarge && len(body) != 100<<10 {
		return fmt.Errorf("the answer has %d bytes", len(body))
	}
	if p.setting.HTTP2 != (resp.ProtoMajor == 2) {
		return fmt.Errorf("%s was spoken", resp.Proto)
	}
	if p.setting.TLS && (resp.TLS == nil || tls.CipherSuiteName(resp.TLS.CipherSuite) != cipher) {
		return fmt.Errorf("the cipher suite is %s, want %s", tls.CipherSuiteName(resp.TLS.CipherSuite), cipher)
	}
	return nil
}

func (p *proxy) scheme() string {
	if p.setting.TLS {
		return "https"
	}
	return "http"
}

// get requests the scenario's path, or one below the same route that the backend answers specially.
func (b *bench) get(client *http.Client, p *proxy, special string) ([]byte, *http.Response, error) {
	host, path := hostname, requestPath
	if special != "" {
		path = "/" + special
	}
	if p.setting.Routes > 0 {
		var prefix string
		host, prefix = p.setting.route(p.setting.Routes - 1)
		path = prefix + "items"
		if special != "" {
			path = prefix + special
		}
	}
	method, message := http.MethodGet, io.Reader(nil)
	if p.setting.GRPC > 0 {
		question := make([]byte, questionSize)
		binary.BigEndian.PutUint32(question[1:], questionSize-messageHead)
		method, message = http.MethodPost, bytes.NewReader(question)
		if special == "" {
			path = grpcPath
		}
	}
	req, err := http.NewRequestWithContext(b.ctx, method, fmt.Sprintf("%s://127.0.0.1:%d%s", p.scheme(), p.port, path), message)
	if err != nil {
		return nil, nil, err
	}
	if p.setting.GRPC > 0 {
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("TE", "trailers")
	}
	req.Host = host
	for _, h := range headers {
		req.Header.Set(h[0], h[1])
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	if err == nil && p.setting.GRPC > 0 {
		if status := resp.Trailer.Get("grpc-status"); status != "0" || len(body) < messageHead {
			return nil, nil, fmt.Errorf("gRPC status %q, %d bytes", status, len(body))
		}
		body = body[messageHead:]
	}
	return body, resp, err
}

// reverseProxy is the command of the tuned httputil.ReverseProxy.
func (b *bench) reverseProxy(s setting, port int) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := []string{self, "reverseproxy",
		fmt.Sprint("-port=", port), fmt.Sprint("-backend=", b.backends[s.Backend]), fmt.Sprint("-routes=", s.Routes)}
	if s.Split {
		command = append(command, fmt.Sprint("-second=", b.backends[roleSecond]))
	}
	if s.Mirror != "" {
		command = append(command, fmt.Sprint("-mirror=", b.backends[s.Mirror]), fmt.Sprint("-mirror-percent=", s.MirrorPercent))
	}
	if s.TLS {
		command = append(command, "-cert="+b.certificate.chainFile, "-key="+b.certificate.keyFile)
	}
	if s.HTTP2 {
		command = append(command, "-http2")
	}
	return command, nil
}

// writeFile writes a proxy's file, or replaces it at once, and returns its path.
func writeFile(dir, name, text string) (string, error) {
	path, draft := filepath.Join(dir, name), filepath.Join(dir, ".draft")
	return path, errors.Join(os.WriteFile(draft, []byte(text), 0o644), os.Rename(draft, path))
}
