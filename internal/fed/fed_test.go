package fed_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/fed"
	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/test/freeport"
)

// TestAProxyReportsWhatItCountedAtItsPod runs a proxy of a controller, and reads its report as a scraper does: from
// nowhere special, and without a token.
func TestAProxyReportsWhatItCountedAtItsPod(t *testing.T) {
	for _, c := range []struct {
		args []string
		want telemetry.Side
	}{
		{[]string{"--pod-namespace=shop", "--pod-name=edge-7d9-x"}, telemetry.Side{Kind: "Pod", Namespace: "shop", Name: "edge-7d9-x"}},
		{nil, telemetry.Side{Kind: "Gateway", Namespace: "shop", Name: "edge"}},
	} {
		p := start(t, c.args...)
		const requests = 3
		for range requests {
			if got := p.get(p.listener, "/"); got != http.StatusNotFound {
				t.Fatalf("the proxy answers %d", got)
			}
		}
		// A request counts when its answer is over, which its client may know first.
		var report telemetry.Report
		for report = p.report(); len(report.Edges) == 0 || report.Edges[0].Success < requests; report = p.report() {
			time.Sleep(10 * time.Millisecond)
		}
		if len(report.Edges) != 1 || report.Edges[0].At != c.want || report.Edges[0].Success != requests {
			t.Errorf("%v: the report is %+v, want %d requests at %v", c.args, report.Edges, requests, c.want)
		}
		if got := p.get(p.admin, "/config"); got != http.StatusUnauthorized {
			t.Errorf("/config answers %d without the token", got)
		}
		p.stop()
	}
}

func TestAPodHasANamespaceAndAName(t *testing.T) {
	for _, args := range [][]string{{"--pod-name=x"}, {"--pod-namespace=x"}, {"--pod-namespace=x", "--pod-name=a/b"}} {
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		p := fed.New()
		p.Flags(f)
		if err := f.Parse(append(args, "--gateway=shop/edge", "--controller=localhost:1")); err != nil {
			t.Fatal(err)
		}
		if err := p.Run(t.Context(), io.Discard, io.Discard); err == nil || !strings.Contains(err.Error(), "--pod-name") {
			t.Errorf("%v: %v", args, err)
		}
	}
}

// proxy is one that runs, and serves a listener without routes.
type proxy struct {
	t               *testing.T
	listener, admin string
	stop            func()
}

func start(t *testing.T, args ...string) *proxy {
	t.Helper()
	authority, err := identity.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own := &identity.Server{Subject: identity.Subject{DNSNames: []string{"localhost"}}}
	own.Use(authority)
	server := &feed.Server{
		Certificate:  own.Certificate,
		Authenticate: func(context.Context, string) (model.Owner, string, error) { return "shop/edge", "shop/edge-7d9-x", nil },
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free(t)
	if errs := server.Publish(map[model.Owner]*model.Config{"shop/edge": {Listeners: []model.Listener{{
		Name: "shop/edge/http", Ref: model.Ref{Kind: "Gateway", Namespace: "shop", Name: "edge"}, Owner: "shop/edge", Port: int32(port), Protocol: model.HTTP,
	}}}}); len(errs) > 0 {
		t.Fatal(errs)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	p := &proxy{t: t, listener: fmt.Sprintf("http://127.0.0.1:%d", port)}
	p.stop = sync.OnceFunc(func() { cancel(); all.Wait() })
	t.Cleanup(p.stop)
	all.Go(func() {
		if err := server.Serve(ctx, l); err != nil {
			t.Error(err)
		}
	})
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	run := fed.New()
	run.Flags(f)
	if err := f.Parse(append(args, "--gateway=shop/edge", fmt.Sprintf("--controller=localhost:%d", l.Addr().(*net.TCPAddr).Port), "--admin=127.0.0.1:0",
		"--ca-file="+write("ca", string(authority.Bundle())), "--token-file="+write("token", "x"), "--admin-token-file="+write("admin", "secret"), "--log-format=text")); err != nil {
		t.Fatal(err)
	}
	log := &peertest.Log{}
	all.Go(func() {
		if err := run.Run(ctx, io.Discard, log); err != nil {
			t.Errorf("%v\n%s", err, log)
		}
	})
	p.admin = log.Await(t, serving)[1]
	return p
}

// serving is what a proxy says once it serves, with the address of the admin endpoint.
var serving = regexp.MustCompile(`msg=serving admin=(http://[0-9.:]+)/`)

// free is a port that nobody has.
func free(t *testing.T) int {
	t.Helper()
	port, err := freeport.Take()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (p *proxy) get(base, path string) int {
	p.t.Helper()
	response, err := http.Get(base + path)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

func (p *proxy) report() telemetry.Report {
	p.t.Helper()
	response, err := http.Get(p.admin + telemetry.ReportPath)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		p.t.Fatalf("%s answers %s", telemetry.ReportPath, response.Status)
	}
	report, err := telemetry.ReadReport(response.Body, 10)
	if err != nil {
		p.t.Fatal(err)
	}
	return report
}
