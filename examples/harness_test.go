package examples_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

func TestMain(m *testing.M) { weirtest.Main(m) }

// received is a request as a service saw it.
type received struct {
	method, target, host string
	header               http.Header
	body                 string
}

// service is a stand-in for one service of an example; it answers with its name.
type service struct {
	name string
	// handle, if set, answers instead.
	handle http.HandlerFunc

	mu   sync.Mutex
	got  []received
	news chan struct{} // closed and replaced at each request
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	s.got = append(s.got, received{r.Method, r.RequestURI, r.Host, r.Header.Clone(), string(body)})
	close(s.news)
	s.news = make(chan struct{})
	s.mu.Unlock()
	if s.handle != nil {
		s.handle(w, r)
		return
	}
	w.Header().Set("x-service", s.name)
	fmt.Fprint(w, s.name)
}

func (s *service) requests() []received {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.got
}

// wait returns when the service has had n requests.
func (s *service) wait(t *testing.T, n int) {
	t.Helper()
	deadline := time.NewTimer(30 * time.Second)
	defer deadline.Stop()
	for {
		s.mu.Lock()
		have, news := len(s.got), s.news
		s.mu.Unlock()
		if have >= n {
			return
		}
		select {
		case <-news:
		case <-deadline.C:
			t.Fatalf("%s got %d requests, want %d", s.name, have, n)
		}
	}
}

// setup is an example being served.
type setup struct {
	t        *testing.T
	ports    weirtest.Ports
	services map[string]*service
	weir     *weirtest.Process
	client   *http.Client
}

// listen starts a service on the port that the example gives it.
func (s *setup) listen(name string, port int, options ...func(*service, *http.Server)) {
	s.t.Helper()
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ports.Of(s.t, port))))
	if err != nil {
		s.t.Fatal(err)
	}
	svc := &service{name: name, news: make(chan struct{})}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: svc, Protocols: &protocols, ErrorLog: log.New(io.Discard, "", 0)}
	for _, o := range options {
		o(svc, server)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if server.TLSConfig != nil {
			_ = server.ServeTLS(l, "", "")
		} else {
			_ = server.Serve(l)
		}
	}()
	s.t.Cleanup(func() { _ = server.Close(); <-done })
	s.services[name] = svc
}

// example starts the services, each "name:port", and weir on the example's folder.
func example(t *testing.T, dir string, services ...string) *setup {
	t.Helper()
	s := newSetup(t)
	for _, svc := range services {
		name, port, _ := strings.Cut(svc, ":")
		n, err := strconv.Atoi(port)
		if err != nil {
			t.Fatal(err)
		}
		s.listen(name, n)
	}
	s.run(dir)
	return s
}

func newSetup(t *testing.T) *setup {
	s := &setup{t: t, services: map[string]*service{}}
	s.client = &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport:     &http.Transport{MaxIdleConnsPerHost: 8},
		Timeout:       30 * time.Second,
	}
	t.Cleanup(s.client.CloseIdleConnections)
	return s
}

func (s *setup) run(dir string) {
	s.t.Helper()
	s.weir = weirtest.Run(s.t, "--address", "127.0.0.1", s.ports.Copy(s.t, dir))
}

func (s *setup) address(port int) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.ports.Of(s.t, port)))
}

// answer is a response with its body read.
type answer struct {
	*http.Response
	body string
}

// do sends a request to port 8080. Options are "name: value" header fields.
func (s *setup) do(method, host, target, body string, headers ...string) answer {
	s.t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, "http://"+s.address(8080)+target, bytes.NewBufferString(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Host = host
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	return s.send(s.client, req)
}

func (s *setup) get(host, target string, headers ...string) answer {
	s.t.Helper()
	return s.do(http.MethodGet, host, target, "", headers...)
}

func (s *setup) send(c *http.Client, req *http.Request) answer {
	s.t.Helper()
	resp, err := c.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	return answer{resp, string(data)}
}

// served checks which service answered.
func (s *setup) served(a answer, by string) {
	s.t.Helper()
	if a.StatusCode != http.StatusOK || a.body != by {
		s.t.Errorf("%s %s: %d %q, want 200 from %s", a.Request.Method, a.Request.URL, a.StatusCode, a.body, by)
	}
}

// count sends n requests over a few connections and returns how often each service answered.
func (s *setup) count(n int, host, target string) map[string]int {
	s.t.Helper()
	const workers = 4
	counts := make([]map[string]int, workers)
	var wg sync.WaitGroup
	for w := range workers {
		counts[w] = map[string]int{}
		wg.Go(func() {
			for i := w; i < n; i += workers {
				req, _ := http.NewRequest(http.MethodGet, "http://"+s.address(8080)+target, nil)
				req.Host = host
				resp, err := s.client.Do(req)
				if err != nil {
					counts[w][err.Error()]++
					continue
				}
				body, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				counts[w][string(body)]++
			}
		})
	}
	wg.Wait()
	sum := map[string]int{}
	for _, c := range counts {
		for k, v := range c {
			sum[k] += v
		}
	}
	return sum
}

// serveTLS makes a service speak TLS with a certificate.
func serveTLS(certFile, keyFile string) func(*service, *http.Server) {
	return func(_ *service, server *http.Server) {
		c, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			panic(err)
		}
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{c}}
	}
}

func handle(h http.HandlerFunc) func(*service, *http.Server) {
	return func(s *service, _ *http.Server) { s.handle = h }
}
