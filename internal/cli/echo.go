package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/toy"
	"github.com/weirmesh/weir/internal/visible"
)

func newEcho(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "echo NAME=ADDRESS...",
		Short: "Run toy services to route to",
		Long: `Echo starts a small service on each address. It answers every request with its
name and the received request, as JSON. gRPC requests get their own messages
back. It prints a line for each request, so that you also see mirrored ones.

With --call it asks another service instead, and answers what that answers.`,
		Example: `  weir echo shop-v1=127.0.0.1:9001 shop-v2=127.0.0.1:9002
  weir echo flaky=127.0.0.1:9001 --fail-every 3 --delay 50ms
  weir echo web=127.0.0.1:9001 --call http://cart.shop`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return flags.Errorf("which services? Give at least one NAME=ADDRESS")
			}
			return nil
		},
	}
	var o echoOptions
	f := cmd.Flags()
	f.Int64Var(&o.failEvery, "fail-every", 0, "answer 503 to every so manieth request of a service; 0 never")
	f.StringVar(&o.call, "call", "", "send each request's method, path and body to this `URL`, and answer what it answers")
	f.DurationVar(&o.delay, "delay", 0, "wait before each answer")
	f.BoolVar(&o.hang, "hang", false, "accept requests and never answer")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "do not print requests")
	f.StringVar(&o.certFile, "tls-cert", "", "serve TLS with this certificate chain (PEM file)")
	f.StringVar(&o.keyFile, "tls-key", "", "the certificate's private key (PEM file)")
	cmd.RunE = lasting(func(ctx context.Context, args []string) error { return o.run(ctx, s, args) })
	return cmd
}

type echoOptions struct {
	failEvery         int64
	delay             time.Duration
	hang, quiet       bool
	certFile, keyFile string
	call              string
}

func (o *echoOptions) run(ctx context.Context, s streams, args []string) error {
	var certificate *tls.Certificate
	if o.certFile != "" || o.keyFile != "" {
		c, err := tls.LoadX509KeyPair(o.certFile, o.keyFile)
		if err != nil {
			return flags.Errorf("--tls-cert, --tls-key: %w", err)
		}
		certificate = &c
	}
	var call *url.URL
	if o.call != "" {
		u, err := url.Parse(o.call)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			return flags.Errorf("--call %q: want a URL such as http://cart.shop", o.call)
		}
		call = u
	}

	var toys []*toy.Service
	var listeners []net.Listener
	defer func() {
		for _, l := range listeners {
			_ = l.Close()
		}
	}()
	var mu sync.Mutex // one line at a time
	for _, arg := range args {
		name, address, ok := strings.Cut(arg, "=")
		if !ok || name == "" {
			return flags.Errorf("%q: want NAME=ADDRESS, such as shop-v1=127.0.0.1:9001", arg)
		}
		l, err := net.Listen("tcp", address)
		if err != nil {
			return fmt.Errorf("service %s: %w", name, err)
		}
		t := toy.New(name)
		t.FailEvery, t.Delay, t.Hang = o.failEvery, o.delay, o.hang
		if call != nil {
			t.Call(call)
		}
		if !o.quiet {
			t.Seen = func(service string, r *http.Request) {
				mu.Lock()
				defer mu.Unlock()
				fmt.Fprintln(s.out, visible.Text(fmt.Sprintf("%s: %s %s%s", service, r.Method, r.Host, r.URL.RequestURI())))
			}
		}
		toys, listeners = append(toys, t), append(listeners, l)
		mu.Lock()
		fmt.Fprintln(s.out, visible.Text(fmt.Sprintf("%s listens on %s", name, l.Addr())))
		mu.Unlock()
	}

	ended := make(chan error, len(toys))
	for i, t := range toys {
		go func() { ended <- t.Serve(listeners[i], certificate) }()
	}
	var err error
	running := len(toys)
	select {
	case <-ctx.Done():
	case err = <-ended:
		running--
	}
	for _, t := range toys {
		t.Close()
	}
	for ; running > 0; running-- {
		<-ended
	}
	return err
}
