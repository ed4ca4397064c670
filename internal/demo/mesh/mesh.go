// Package mesh is a demo of access control: three workloads with a sidecar each, in one process, and calls between them
// that are allowed or denied. "weir demo --mesh" runs it.
package mesh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/weirmesh/weir/examples"
	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dataplane"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/dialect/access"
	"github.com/weirmesh/weir/internal/dialect/sidecar"
	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/identity/folder"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/proxy"
	"github.com/weirmesh/weir/internal/reach"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/standalone"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/toy"
	"github.com/weirmesh/weir/internal/traffic"
	"github.com/weirmesh/weir/internal/upstream"
)

const (
	namespace = "shop"
	server    = "cart"
	// podPort is the port of the server's pods, exampleInbound the one in the manifests at which its sidecar accepts connections.
	podPort        = 8080
	exampleInbound = "15102"
	// Folder is where the manifests are among the examples.
	Folder = "mesh"
	// roleFile is the manifest that the demo edits after a while.
	roleFile = "access.yaml"
	// round is how often all calls are made.
	round = 250 * time.Millisecond
)

// patience is how long after the start the role is edited.
var patience = 6 * time.Second

// clients call the server.
var clients = []string{"web", "report"}

// calls are made by every client.
var calls = []struct{ method, path string }{{"GET", "/carts/7"}, {"DELETE", "/carts/7"}, {"GET", "/carts/7/card"}}

// demo is a running demo.
type demo struct {
	dir       string // of the manifests; the trust domain is in trust below it
	trust     string
	log       *slog.Logger
	seen      func(*state)
	listeners map[string]net.Listener // opened for sidecars that take them later, by address
	sidecars  []*standing
	inbound   netip.AddrPort
	app       netip.AddrPort
	replace   *strings.Replacer   // of the manifests' ports
	traffic   *standalone.Traffic // of all sidecars; the server's tells it

	mu     sync.Mutex
	config *model.Config // of the server's sidecar
}

// standing is a sidecar in this process.
type standing struct {
	name     string
	outbound netip.AddrPort
	gateway  *standalone.Gateway
	client   *http.Client
	served   chan struct{}
	ended    chan error
}

// Run runs the demo until ctx ends or, unless length is 0, for that long. It fails if a call was answered otherwise than
// the roles say.
func Run(ctx context.Context, stdout, stderr io.Writer, length time.Duration) error {
	return run(ctx, stdout, stderr, length, func(*state) {})
}

// run is Run; seen is called after each round of calls.
func run(ctx context.Context, stdout, stderr io.Writer, length time.Duration, seen func(*state)) (err error) {
	d := &demo{seen: seen, log: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelError})), listeners: map[string]net.Listener{}}
	if d.dir, err = os.MkdirTemp("", "weir-mesh-"); err != nil {
		return err
	}
	defer os.RemoveAll(d.dir)
	d.trust = filepath.Join(d.dir, "trust")
	var background sync.WaitGroup
	defer background.Wait()
	running, stop := context.WithCancel(context.Background()) // the sidecars outlive the calls
	defer stop()
	defer d.release()
	app, err := d.prepare(&background)
	if app != nil {
		defer app.Close()
	}
	if err != nil {
		return err
	}
	for _, name := range append([]string{server}, clients...) {
		if err := d.start(running, name); err != nil {
			return err
		}
	}
	if length > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, length)
		defer cancel()
	}
	if err := d.wait(ctx); err != nil {
		return err
	}
	v := newView(stdout)
	v.intro(d)
	result := d.run(ctx, v)
	if measured, err := traffic.Overview(running, d.traffic, "deployments", screen.Of(stdout)); err == nil {
		fmt.Fprint(stdout, "\n"+measured)
	} else if result == nil {
		result = err
	}
	stop()
	for _, s := range d.sidecars {
		if e := <-s.ended; e != nil && result == nil {
			result = e
		}
		s.client.CloseIdleConnections()
	}
	return result
}

// prepare writes manifests and identities, and starts the application.
func (d *demo) prepare(background *sync.WaitGroup) (*toy.Service, error) {
	var err error
	if d.inbound, err = d.open(); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	d.app = l.Addr().(*net.TCPAddr).AddrPort()
	app := toy.New(server)
	background.Go(func() { _ = app.Serve(l, nil) })
	d.replace = strings.NewReplacer(exampleInbound, fmt.Sprint(d.inbound.Port()))
	files, err := Manifests()
	if err != nil {
		return app, err
	}
	for name, text := range files {
		if err := d.write(name, text); err != nil {
			return app, err
		}
	}
	now := time.Now()
	f, err := folder.Make(d.trust, "", access.DefaultTrustDomain, now)
	if err != nil {
		return app, err
	}
	for _, name := range append([]string{server}, clients...) {
		p := folder.Pod{Namespace: namespace, Name: name, Account: name, Owners: []claim.Owner{{Kind: "Deployment", Name: name}}}
		if _, _, err := f.Pod(p, 24*time.Hour, now); err != nil {
			return app, err
		}
	}
	return app, nil
}

// Manifests are those that the demo runs, by file name.
func Manifests() (map[string]string, error) {
	files := map[string]string{}
	err := fs.WalkDir(examples.Demo, Folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := fs.ReadFile(examples.Demo, path)
		files[d.Name()] = string(data)
		return err
	})
	return files, err
}

// write replaces a manifest in one step.
func (d *demo) write(name, text string) error {
	fresh := filepath.Join(d.dir, "."+name)
	if err := os.WriteFile(fresh, []byte(d.replace.Replace(text)), 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(d.dir, name))
}

// open opens a free port for a sidecar, which takes the socket, so that no other process can have it in between.
func (d *demo) open() (netip.AddrPort, error) {
	l, err := socket.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return netip.AddrPort{}, err
	}
	d.listeners[l.Addr().String()] = l
	return l.Addr().(*net.TCPAddr).AddrPort(), nil
}

// take returns the opened port of an address, or opens it.
func (d *demo) take(network, address string) (socket.Bound, error) {
	d.mu.Lock()
	l := d.listeners[address]
	delete(d.listeners, address)
	d.mu.Unlock()
	if l != nil {
		return socket.Bound{Stream: l}, nil
	}
	return socket.Open(network, address)
}

// release closes the ports that no sidecar has taken.
func (d *demo) release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, l := range d.listeners {
		l.Close()
	}
}

// start starts the sidecar of a workload.
func (d *demo) start(ctx context.Context, name string) error {
	source, err := folder.Open(d.trust, namespace, name, d.log)
	if err != nil {
		return err
	}
	s := &standing{name: name, served: make(chan struct{}), ended: make(chan error, 1)}
	o := sidecar.Options{Namespace: namespace, Name: name}
	if name == server {
		o.Inbound, o.App = map[int32]netip.AddrPort{podPort: d.inbound}, map[int32]netip.AddrPort{podPort: d.app}
	} else {
		if s.outbound, err = d.open(); err != nil {
			return err
		}
		o.Outbound = s.outbound
	}
	metrics := telemetry.NewRegistry(telemetry.Options{Version: process.Build().Version})
	guard := &reach.Guard{}
	plane := &dataplane.Plane{
		Metrics: metrics, Log: d.log, AdminAddress: "off", Guard: guard,
		Adjust: func(c *model.Config) *model.Config { return c.Of(o.Owner()) },
	}
	if name == server {
		plane.AdminAddress = "127.0.0.1:0"
	}
	plane.Server = proxy.New(proxy.Options{
		Options: exchange.Options{Logger: d.log, Metrics: metrics}, DrainTimeout: time.Second, DrainGrace: -1,
		Upstream: upstream.Options{Refuse: guard.Refuse}, PortsChanged: plane.Changed, Listen: d.take,
		Identities: func(string) *spiffe.Identity { return source.Identity() },
	})
	s.gateway = &standalone.Gateway{
		Plane: plane, Source: resource.NewDir(dialect.Kinds(), []string{d.dir}, d.log), Options: control.Options{Serve: []string{"none"}, Sidecar: o},
		Empty: "the manifests have no pod of the name", Reported: d.reported(s),
	}
	if name == server {
		d.traffic = standalone.NewTraffic(metrics, nil, d.log)
		s.gateway.Traffic = d.traffic
	} else {
		d.traffic.Beside(name, metrics)
	}
	through := &url.URL{Scheme: "http", Host: s.outbound.String()}
	s.client = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{Proxy: http.ProxyURL(through)}}
	d.sidecars = append(d.sidecars, s)
	go func() { s.ended <- s.gateway.Run(ctx) }()
	return nil
}

// reported notes the configuration of the server's sidecar, by which calls are judged.
func (d *demo) reported(s *standing) func(control.Report) {
	return func(r control.Report) {
		if s.name == server && r.Config != nil {
			d.mu.Lock()
			d.config = r.Config
			d.mu.Unlock()
		}
		if r.Changed && r.Generation == 1 {
			close(s.served)
		}
	}
}

// wait waits until all sidecars serve.
func (d *demo) wait(ctx context.Context) error {
	for _, s := range d.sidecars {
		select {
		case <-s.served:
		case err := <-s.ended:
			s.ended <- err
			if err == nil {
				err = errors.New("a sidecar ended")
			}
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
