//go:build linux

package main

import (
	"context"
	"crypto/tls"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httputil"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

// serveReverseProxy is the subcommand "reverseproxy": the library's proxy with the tuning that one would give it:
// enough idle connections, no compression, pooled copy buffers; routes in a map; mirrors in goroutines, bounded.
func serveReverseProxy(args []string) error {
	f := flag.NewFlagSet("reverseproxy", flag.ExitOnError)
	port := f.Int("port", 0, "port to serve")
	backend := f.Int("backend", 0, "port of the backend")
	second := f.Int("second", 0, "port that gets 10 % of the requests with the split's header")
	mirror := f.Int("mirror", 0, "port that gets copies")
	percent := f.Int("mirror-percent", 100, "percent of the requests that are copied")
	routes := f.Int("routes", 0, "number of routes")
	cert := f.String("cert", "", "certificate file")
	key := f.String("key", "", "key file")
	http2 := f.Bool("http2", false, "serve HTTP/2")
	_ = f.Parse(args)
	debug.SetGCPercent(400) // its heap is small, and a collection for each few MiB costs more than the memory is worth

	transport := &http.Transport{
		DialContext:         (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
		MaxIdleConns:        4096,
		MaxIdleConnsPerHost: 1024,
		IdleConnTimeout:     5 * time.Minute,
		DisableCompression:  true,
		Protocols:           new(http.Protocols),
	}
	transport.Protocols.SetHTTP1(true)
	first, other := address(*backend), address(*second)
	handler := http.Handler(&httputil.ReverseProxy{
		Transport:  transport,
		BufferPool: new(bufferPool),
		ErrorLog:   log.New(io.Discard, "", 0),
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", first
			if *second != 0 && r.In.Header.Get(splitHeader) == splitValue && rand.IntN(10) == 0 {
				r.Out.URL.Host = other
			}
			r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
			r.SetXForwarded()
			r.Out.Host = r.In.Host
		},
	})
	if *mirror != 0 {
		handler = &copier{next: handler, transport: transport, target: address(*mirror), percent: *percent, slots: make(chan struct{}, 1024)}
	}
	if *routes > 0 {
		mux := http.NewServeMux()
		s := setting{Routes: *routes, Stride: 1}
		for i := range *routes {
			host, prefix := s.route(i)
			mux.Handle(host+prefix, handler)
		}
		handler = mux
	}
	server := &http.Server{
		Addr: address(*port), Handler: handler, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 5 * time.Minute,
		Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0),
	}
	switch {
	case !*http2:
		server.Protocols.SetHTTP1(true)
	case *cert != "":
		server.Protocols.SetHTTP2(true)
	default:
		server.Protocols.SetUnencryptedHTTP2(true)
	}
	if *cert != "" {
		// The library prefers the suite that all are to use (crypto/tls, cipher_suites.go).
		server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS13}
		return server.ListenAndServeTLS(*cert, *key)
	}
	return server.ListenAndServe()
}

func address(port int) string { return fmt.Sprint("127.0.0.1:", port) }

// bufferPool keeps the buffers that bodies are copied with.
type bufferPool struct{ pool sync.Pool }

func (p *bufferPool) Get() []byte {
	if b, ok := p.pool.Get().(*[]byte); ok {
		return *b
	}
	return make([]byte, 64<<10)
}

func (p *bufferPool) Put(b []byte) { p.pool.Put(&b) }

// copier sends copies of requests to a target without waiting for it, as many at a time as it has slots.
type copier struct {
	next      http.Handler
	transport http.RoundTripper
	target    string
	percent   int
	slots     chan struct{}
}

func (c *copier) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if c.percent >= 100 || rand.IntN(100) < c.percent {
		select {
		case c.slots <- struct{}{}:
			go c.send(r.Clone(context.WithoutCancel(r.Context())))
		default:
		}
	}
	c.next.ServeHTTP(w, r)
}

func (c *copier) send(r *http.Request) {
	defer func() { <-c.slots }()
	r.RequestURI, r.Body, r.ContentLength = "", nil, 0
	r.URL.Scheme, r.URL.Host = "http", c.target
	if ip, _, err := net.SplitHostPort(r.RemoteAddr); err == nil {
		r.Header.Set("X-Forwarded-For", strings.Join(append(r.Header["X-Forwarded-For"], ip), ", "))
	}
	ctx, cancel := context.WithTimeout(r.Context(), 5*time.Second)
	defer cancel()
	resp, err := c.transport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
}
