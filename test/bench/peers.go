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
	"slices"
	"strings"
	"time"

	"github.com/weirmesh/weir/test/freeport"
)

// proxy is a proxy that serves, or two in a row.
type proxy struct {
	contender
	places    []place // in the order in which a request passes
	processes []*process
	port      int    // of the first
	admin     int    // weir's, of the first
	dir       string // of the first
}

// startProxy configures and starts a proxy on its processor, and waits until it serves correctly.
func (b *bench) startProxy(c contender) (p *proxy, err error) {
	p = &proxy{contender: c}
	if p.places, err = c.setting.places(); err != nil {
		return nil, err
	}
	p.port = p.places[0].port
	for _, at := range slices.Backward(p.places) { // what is behind serves first
		if err := b.startPlace(p, at); err != nil {
			b.stop(p.processes...)
			return nil, err
		}
	}
	if err := b.await(p); err != nil {
		b.stop(p.processes...)
		return nil, err
	}
	return p, nil
}

// places are those of the proxies that serve a setting.
func (s setting) places() ([]place, error) {
	port, err1 := freeport.Take()
	if s.Sidecars < 2 {
		return []place{{setting: s, port: port}}, err1
	}
	next, err2 := freeport.Take()
	behind := s
	behind.Sidecars, behind.TLS = 1, true
	return []place{{s, port, next}, {behind, next, 0}}, errors.Join(err1, err2)
}

// startPlace starts one of a proxy's processes.
func (b *bench) startPlace(p *proxy, at place) error {
	dir, err := os.MkdirTemp(b.dir, p.peer+"-")
	if err != nil {
		return err
	}
	p.dir = dir
	var command []string
	switch p.peer {
	case "nginx":
		command, err = b.nginx(dir, at)
	case "haproxy":
		command, err = b.haproxy(dir, at)
	case "reverseproxy":
		command, err = b.reverseProxy(at.setting, at.port)
	case "weir":
		if p.admin, err = freeport.Take(); err == nil {
			command, err = b.weirCommand(dir, p.contender, at, p.admin)
		}
	}
	if err != nil {
		return err
	}
	if b.favoured {
		command = append([]string{"chrt", "--rr", "1"}, command...)
	}
	process, err := b.start(p.peer, b.proxyCPU, nil, command...)
	if err == nil {
		p.processes = append(p.processes, process)
	}
	return err
}

// times are the processor time of the proxy's processes together, and how long their threads were ready to run and had no processor.
func (p *proxy) times() (used, waited time.Duration, err error) {
	for _, one := range p.processes {
		u, w, err := one.times()
		if err != nil {
			return 0, 0, err
		}
		used, waited = used+u, waited+w
	}
	return used, waited, nil
}

// cpu is the processor time that the proxy's processes have used together.
func (p *proxy) cpu() (time.Duration, error) {
	used, _, err := p.times()
	return used, err
}

// output is the end of what the processes wrote.
func (p *proxy) output() string {
	var all []string
	for _, one := range p.processes {
		all = append(all, one.output())
	}
	return strings.Join(all, "\n")
}

// ended reports whether one of the processes is gone.
func (p *proxy) ended() bool { return slices.ContainsFunc(p.processes, (*process).ended) }

// await returns when the proxy serves, and checks that it does the work that all are to do.
func (b *bench) await(p *proxy) error {
	client, err := b.client(p.setting)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	deadline := time.Now().Add(time.Minute) // ten thousand routes take a while to read
	for {
		err := b.check(client, p)
		if err == nil && p.setting.Sidecars > 0 {
			if err := b.checkSidecars(p); err != nil {
				return fmt.Errorf("%s: %w\n%s", p.label, err, p.output())
			}
		}
		if err == nil {
			return nil
		}
		if p.ended() || time.Now().After(deadline) {
			return fmt.Errorf("%s does not serve: %w\n%s", p.label, err, p.output())
		}
		select {
		case <-b.ctx.Done():
			return b.ctx.Err()
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// client speaks the protocol of the setting, and trusts the CA of this run only. To a sidecar it is the caller.
func (b *bench) client(s setting) (*http.Client, error) {
	t := &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: b.certificate.roots, ServerName: hostname},
		Protocols:       new(http.Protocols),
	}
	if s.Sidecars > 0 {
		var err error
		if t.TLSClientConfig, err = b.trust.clientTLS(b.trust.client); err != nil {
			return nil, err
		}
	}
	switch {
	case s.HTTP2 && s.TLS:
		t.Protocols.SetHTTP2(true)
	case s.HTTP2:
		t.Protocols.SetUnencryptedHTTP2(true)
	default:
		t.Protocols.SetHTTP1(true)
	}
	return &http.Client{Transport: t, Timeout: 5 * time.Second}, nil
}

// check asks the backend, through the proxy, for the head it received, and then for the real answer.
func (b *bench) check(client *http.Client, p *proxy) error {
	head, _, err := b.get(client, p, "_head")
	if err != nil {
		return err
	}
	received := strings.ToLower(string(head))
	for _, want := range []string{"x-forwarded-for: 127.0.0.1", "x-forwarded-proto: " + p.places[len(p.places)-1].scheme(), "host: "} {
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
	if p.setting.TLS {
		return checkCipher(resp)
	}
	return nil
}

// checkCipher checks that an answer came over TLS, with the one cipher suite.
func checkCipher(resp *http.Response) error {
	if resp.TLS == nil {
		return errors.New("the answer came without TLS")
	}
	if got := tls.CipherSuiteName(resp.TLS.CipherSuite); got != cipher {
		return fmt.Errorf("the cipher suite is %s, want %s", got, cipher)
	}
	return nil
}

// scheme is what the clients of a place speak.
func (p place) scheme() string {
	if p.setting.TLS {
		return "https"
	}
	return "http"
}

func (p *proxy) scheme() string { return p.places[0].scheme() }

// get requests the scenario's path, or one below the same route that the backend answers specially.
func (b *bench) get(client *http.Client, p *proxy, special string) ([]byte, *http.Response, error) {
	host, path := hostname, requestPath
	if special != "" {
		path = "/" + special
		if p.setting.Rules > 0 {
			path = "/cart/" + special // which a rule allows
		}
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
