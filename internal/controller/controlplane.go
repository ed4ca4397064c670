package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/control"
	dialect "github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/conversion"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/telemetry"
)

// controlPlane is one replica of the controller. Every replica translates and feeds proxies; the leader's own work is
// in leader.
type controlPlane struct {
	*Options
	log    *slog.Logger
	client *kube.Client

	source       *kube.Source
	statusWriter *kube.StatusWriter
	recorder     *kube.Recorder
	classes      *kube.Classes
	feeds        *feed.Server
	tokens       *replica.Tokens
	authority    *replica.Authority
	board        *replica.Board
	lease        *replica.Lease
	conversions  *conversion.Handler
	metrics      *controllerMetrics
	tell         *control.Teller

	latest    atomic.Pointer[control.Report]
	accounts  atomic.Pointer[map[string]model.GatewayKey] // Gateways by the ServiceAccount of their proxies
	parts     map[model.GatewayKey]*model.Config          // of the newest configuration, by Gateway; used only by the Loop's goroutine, like published
	published map[model.GatewayKey]*model.Config          // what proxies got
	synced    chan struct{}                               // closed when the first set has been published
	lead      atomic.Pointer[leader]                      // nil: another replica leads
	leads     atomic.Pointer[string]                      // identity of the leader
	feeding   atomic.Bool
	// converting means that conversions are answered; rebundled has a value when the authority's certificates have
	// changed.
	converting atomic.Bool
	rebundled  chan struct{}
}

func newControlPlane(o *Options, log *slog.Logger, processLog *telemetry.Lines) (*controlPlane, error) {
	kube.SetLogger(log)
	client, err := o.kube.Client()
	if err != nil {
		return nil, err
	}
	leases, err := replica.Leases(client.Config)
	if err != nil {
		return nil, err
	}
	c := &controlPlane{
		Options: o, log: log, client: client, synced: make(chan struct{}), rebundled: make(chan struct{}, 1), tell: control.NewTeller(log, true),
		source: kube.NewSource(client, kube.SourceOptions{Controller: dialect.ControllerName, Scope: o.scope(), Logger: log}),
	}
	c.statusWriter = kube.NewStatusWriter(client, c.source, dialect.ControllerName, log)
	c.recorder = kube.NewRecorder(client, c.source, dialect.ControllerName, o.name, log)
	c.classes = kube.NewClasses(client, c.source, dialect.ControllerName, log)
	c.conversions = &conversion.Handler{Kinds: conversionKinds()}
	c.authority = &replica.Authority{
		Client: client, Namespace: o.namespace, Hosts: append(o.feedHosts(), o.conversion.hosts()...), Changed: c.authorityChanged, Logger: log,
	}
	c.tokens = &replica.Tokens{Client: client, Audience: infra.Audience, GatewayOf: c.gatewayOf}
	c.feeds = &feed.Server{
		Certificate: c.authority.Certificate, Authenticate: c.authenticate, OnChange: c.proxyChanged, Logger: log,
	}
	boardData, err := replica.BoardCache(client.Config, o.namespace)
	if err != nil {
		return nil, err
	}
	c.board = &replica.Board{
		Client: client, Cache: boardData, Namespace: o.namespace, Name: "weir-proxies-" + o.name,
		Running: c.running, Changed: c.wakeLeader, Logger: log,
	}
	c.lease = &replica.Lease{
		Leases: leases, Namespace: o.namespace, Name: o.lease, Identity: o.name, Logger: log, Leader: func(who string) { c.leads.Store(&who) },
	}
	c.metrics = newControllerMetrics(c, processLog)
	return c, nil
}

// run blocks until asked ends, which is no error, or something that all else needs fails.
func (c *controlPlane) run(asked context.Context) error {
	ctx, cancel := context.WithCancel(asked)
	defer cancel()
	listener, err := net.Listen("tcp", c.feed)
	if err != nil {
		return fmt.Errorf("--feed-address: %w", err)
	}
	defer listener.Close()
	var conversions net.Listener
	if c.conversion.on() {
		if conversions, err = net.Listen("tcp", c.conversion.address); err != nil {
			return fmt.Errorf("--conversion-address: %w", err)
		}
		defer conversions.Close()
	}

	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	part := func(f func(context.Context) error) {
		wg.Go(func() {
			if err := f(ctx); err != nil {
				mu.Lock()
				failed = append(failed, err)
				mu.Unlock()
				cancel() // a new process may succeed where this replica fails
			}
		})
	}
	if c.admin != "off" {
		a, err := process.ListenAdmin(net.Listen, c.admin, c.adminHandler(asked))
		if err != nil {
			return err
		}
		part(a.Run)
	}
	loop := control.Loop{
		Source: c.source, Options: c.translation(), Publish: c.publish, Report: c.report, Logger: c.log,
		Settle: c.settle, MaxSettle: c.settleAtMost,
	}
	part(loop.Run)
	part(c.authority.Run)
	part(func(ctx context.Context) error { return c.serveFeed(ctx, listener) })
	if conversions != nil {
		part(func(ctx context.Context) error { return c.serveConversions(ctx, asked, conversions) })
	}
	part(c.board.Cache.Start)
	part(c.board.Run)
	if c.elect {
		part(func(ctx context.Context) error { return c.lease.Run(ctx, c.leading) })
	} else {
		part(func(ctx context.Context) error { c.leading(ctx); return nil })
	}
	wg.Wait()
	return errors.Join(failed...)
}

// serveFeed lets proxies come once there is something to tell them, and a certificate to show.
func (c *controlPlane) serveFeed(ctx context.Context, l net.Listener) error {
	for _, ready := range []<-chan struct{}{c.synced, c.authority.Ready()} {
		select {
		case <-ctx.Done():
			return nil
		case <-ready:
		}
	}
	c.log.Info("feeding proxies", "address", l.Addr().String())
	c.feeding.Store(true)
	defer c.feeding.Store(false)
	return c.feeds.Serve(ctx, l)
}

// publish takes each Gateway's part. report sends it, as it knows the Gateways without listeners too.
func (c *controlPlane) publish(cfg *model.Config) error {
	c.parts = cfg.Split()
	return nil
}

// report is called after each set.
func (c *controlPlane) report(r control.Report) {
	gateways, accounts := ours(r.Set)
	c.accounts.Store(&accounts)
	if next := partsFor(gateways, c.parts, c.published, r.Invalid); c.parts != nil && (r.Changed || !maps.Equal(next, c.published)) {
		began := time.Now()
		c.published = next
		c.send()
		r.PublishTime += time.Since(began)
		c.metrics.publish.Observe(r.PublishTime.Seconds())
	}
	c.latest.Store(&r)
	c.metrics.report(r)
	if c.lead.Load() == nil { // the leader tells for all
		c.tell.Tell(r.Findings, nil)
	}
	if r.Changed && r.Generation == 1 {
		close(c.synced)
	}
	c.wakeLeader()
}

// nothing is the configuration of a Gateway without listeners: its proxies must stop serving what they served before.
var nothing = &model.Config{}

// partsFor returns the configuration for each Gateway's proxies: its part of the configuration; what they had if that
// is invalid; nothing if there is none.
func partsFor(gateways []model.GatewayKey, parts, before map[model.GatewayKey]*model.Config, invalid map[model.GatewayKey]error) map[model.GatewayKey]*model.Config {
	next := make(map[model.GatewayKey]*model.Config, len(gateways))
	maps.Copy(next, parts)
	for _, g := range gateways {
		switch {
		case next[g] != nil:
		case invalid[g] == nil:
			next[g] = nothing
		case before[g] != nil:
			next[g] = before[g]
		}
	}
	return next
}

// send gives the proxies their configurations. A failure for one Gateway is reported and does not affect others.
func (c *controlPlane) send() {
	if err := c.feeds.Publish(c.published); err != nil {
		c.metrics.failed.Inc()
		c.log.Error("proxies keep the configuration before, as the new one cannot be sent", "error", err)
	}
}

// ours returns the Gateways of our classes, sorted, and the Gateway to which each ServiceAccount of proxies belongs.
// Two Gateways whose names and classes make one name ("a-b" of class "c", "a" of class "b-c") share a ServiceAccount:
// it belongs to the older one, for which infra made it.
func ours(set *resource.Set) (gateways []model.GatewayKey, accounts map[string]model.GatewayKey) {
	accounts = map[string]model.GatewayKey{}
	holders := map[string]*gatewayv1.Gateway{}
	for _, g := range set.Gateways {
		class := set.GatewayClass(string(g.Spec.GatewayClassName))
		if class == nil || class.Spec.ControllerName != dialect.ControllerName {
			continue
		}
		name := model.GatewayOf(g.Namespace, g.Name)
		gateways = append(gateways, name)
		account := g.Namespace + "/" + infra.Name(g.Name, class.Name)
		if first := holders[account]; first == nil || g.CreationTimestamp.Before(&first.CreationTimestamp) {
			holders[account], accounts[account] = g, name
		}
	}
	return gateways, accounts
}

// gatewayOf implements replica.Tokens.GatewayOf: infra makes a ServiceAccount of that name for each Gateway and for
// nothing else. Other users who may create one may also run a pod as the one that infra made.
func (c *controlPlane) gatewayOf(namespace, serviceAccount string) model.GatewayKey {
	if accounts := c.accounts.Load(); accounts != nil {
		return (*accounts)[namespace+"/"+serviceAccount]
	}
	return ""
}

func (c *controlPlane) authenticate(ctx context.Context, token string) (gateway model.GatewayKey, proxy string, err error) {
	gateway, proxy, err = c.tokens.Authenticate(ctx, token)
	if err != nil && !errors.Is(err, replica.ErrToken) {
		err = fmt.Errorf("%w: %w", feed.ErrUnavailable, err)
	}
	return gateway, proxy, err
}

// running returns the proxies connected to this replica and what they run.
func (c *controlPlane) running() map[model.GatewayKey][]feed.Proxy {
	out := map[model.GatewayKey][]feed.Proxy{}
	accounts := c.accounts.Load()
	if accounts == nil {
		return out
	}
	for _, g := range slices.Sorted(maps.Values(*accounts)) {
		if proxies := c.feeds.Running(g); len(proxies) > 0 {
			out[g] = proxies
		}
	}
	return out
}

func (c *controlPlane) proxyChanged(model.GatewayKey) {
	c.board.Tell()
	c.wakeLeader()
}

func (c *controlPlane) authorityChanged() {
	select {
	case c.rebundled <- struct{}{}:
	default:
	}
	c.wakeLeader()
}

func (c *controlPlane) wakeLeader() {
	if l := c.lead.Load(); l != nil {
		l.wake()
	}
}
