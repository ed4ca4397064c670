package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/control"
	dialect "github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/admission"
	"github.com/weirmesh/weir/internal/kube/conversion"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/kube/webhook"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/task"
	"github.com/weirmesh/weir/internal/telemetry"
)

// controlPlane is one replica of the controller. Every replica translates and feeds proxies; what only the leader does is leader's. All that runs is in
// the list of its tasks.
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
	identities   *identities     // nil if none are signed
	sidecars     *sidecars       // nil if none are fed
	pods         *admission.Pods // nil if there are no sidecars
	board        *replica.Board
	lease        *replica.Lease
	conversions  *conversion.Handler
	judge        *admission.Rollouts // nil if nothing is judged at admission, as are the next two
	workloads    *admission.Workloads
	known        *admission.Known
	reviews      *webhook.Reviews
	traffic      *traffic            // nil if Traffic Metrics are not served
	releases     *release.Controller // nil if Rollouts are not carried out
	metrics      *controllerMetrics
	tell         *control.Teller

	latest   atomic.Pointer[control.Report]
	accounts atomic.Pointer[map[string]model.Owner] // owners by the ServiceAccount of their proxies
	synced   chan struct{}                          // closed when the first set has been published
	leader   *leader
	leads    atomic.Pointer[string] // who leads
	group    *task.Group            // of the tasks
	feeding  atomic.Bool
	// converting says that conversions are answered; rebundled has a value when the authority's certificates have changed.
	converting atomic.Bool
	rebundled  chan struct{}
	// entrusted and selecting have one when these have, or namespaces may ask for sidecars that did not.
	entrusted, selecting chan struct{}
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
		Options: o, log: log, client: client, synced: make(chan struct{}), rebundled: make(chan struct{}, 1), entrusted: make(chan struct{}, 1), selecting: make(chan struct{}, 1), tell: control.NewTeller(log, true),
		source: kube.NewSource(client, kube.SourceOptions{Kinds: o.kinds(), Controller: dialect.ControllerName, Scope: o.scope(), Pods: o.mesh.on, Logger: log}),
	}
	c.statusWriter = kube.NewStatusWriter(client, c.source, dialect.ControllerName, log)
	c.recorder = kube.NewRecorder(client, c.source, dialect.ControllerName, o.name, log)
	c.classes = kube.NewClasses(client, c.source, dialect.ControllerName, log)
	c.conversions = &conversion.Handler{Kinds: o.kinds().Conversions()}
	c.reviews = &webhook.Reviews{Paths: map[string]webhook.Answer{conversion.Path: c.conversions.Answer}}
	if o.judges() {
		list, err := admission.NewLister(client.Config)
		if err != nil {
			return nil, err
		}
		c.judge = &admission.Rollouts{List: list.List, Find: list.Find, Kinds: o.released}
		c.known = &admission.Known{
			Client: client, Namespaces: o.namespaces, Logger: log.With("for", "admission"),
			Obstacle: func(ctx context.Context) (string, error) {
				why, err := release.FindObstacle(ctx, client)
				return why.String(), err
			},
		}
		c.workloads = &admission.Workloads{Kinds: o.released, Unfit: (&release.Definitions{Client: client}).Unfit, Rollouts: c.known.Rollouts}
		c.reviews.Paths[admission.RolloutsPath], c.reviews.Paths[admission.WorkloadsPath] = c.judge.Answer, c.workloads.Answer
	}
	c.authority = &replica.Authority{
		Client: client, Namespace: o.namespace, Hosts: slices.Concat(o.feedHosts(), []string{o.replicaHost()}, o.conversion.hosts()), Changed: c.authorityChanged, Logger: log,
	}
	c.tokens = &replica.Tokens{Client: client, Audience: infra.Audience, OwnerOf: c.ownerOf}
	c.feeds = &feed.Server{
		Certificate: c.authority.Certificate, Authenticate: c.authenticate, OnChange: c.proxyChanged, Logger: log,
	}
	c.identities = newIdentities(c)
	c.sidecars = newSidecars(c)
	if c.pods, err = newPods(c); err != nil {
		return nil, err
	}
	boardData, err := replica.BoardCache(client.Config, o.namespace)
	if err != nil {
		return nil, err
	}
	c.board = &replica.Board{
		Client: client, Cache: boardData, Namespace: o.namespace, Name: "weir-proxies-" + o.name, Address: o.ownAddress(),
		Pod:     o.pod(),
		Running: c.running, Sidecars: c.runningSidecars, Changed: func() { c.leader.wake(); c.wakeReleases() }, Logger: log,
	}
	if c.sidecars != nil {
		c.board.Answer = c.answer
	}
	c.lease = &replica.Lease{
		Leases: leases, Namespace: o.namespace, Name: o.lease, Identity: o.name, Logger: log, Leader: func(who string) { c.leads.Store(&who) },
	}
	if c.traffic, err = newTraffic(c, log); err != nil {
		return nil, err
	}
	c.releases = newReleases(c)
	c.leader = newLeader(c)
	c.metrics = newControllerMetrics(c, processLog)
	return c, nil
}

// run blocks until drainDelay after asked ends, which is no error, or something that all else needs fails. In that time another replica may lead, and all else
// goes on: proxies and API servers may not know yet that this replica ends, and its successor may not be ready.
func (c *controlPlane) run(asked context.Context) error {
	s, err := c.listen(c.adminHandler(asked))
	if err != nil {
		return err
	}
	defer s.close()
	c.group = task.NewGroup(c.log, c.tasks(asked, s)...)
	ctx, end := after(asked, c.drainDelay)
	defer end()
	return c.group.Run(ctx)
}

// after returns a context that ends d after asked, or by the returned function.
func after(asked context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancel(context.WithoutCancel(asked))
	context.AfterFunc(asked, func() {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			end()
		case <-ctx.Done():
		}
	})
	return ctx, end
}

// publish gives proxies what they are to have. What those of one owner cannot be sent keeps no other from its own.
func (c *controlPlane) publish(configs map[model.Owner]*model.Config) map[model.Owner]error {
	errs := c.feeds.Publish(configs)
	for owner, err := range errs {
		errs[owner] = control.Final(fmt.Errorf("the configuration cannot be sent to the proxies, which keep the previous one: %w", err))
	}
	if len(errs) > 0 {
		c.metrics.failed.Inc()
	}
	return errs
}

// report is called after each set.
func (c *controlPlane) report(r control.Report) {
	accounts := accountsOf(r.Gateways)
	c.accounts.Store(&accounts)
	if r.Changed {
		c.metrics.publish.Observe(r.PublishTime.Seconds())
	}
	c.latest.Store(&r)
	c.metrics.report(r)
	if c.sidecars != nil {
		c.sidecars.know(r.Sidecars)
	}
	if !c.group.Leading() { // the leader tells for all
		c.tell.Tell(r.Findings, nil)
	}
	if r.Changed && r.Generation == 1 {
		close(c.synced)
	}
	tellOnce(c.entrusted)
	tellOnce(c.selecting)
	c.leader.wake()
	c.wakeReleases()
}

// accountsOf returns which of the Gateways the ServiceAccounts of their proxies belong to. Two whose names and classes make one name ("a-b" of class "c",
// "a" of class "b-c") have one between them: it is the older one's, for which infra made it.
func accountsOf(all []*gatewayv1.Gateway) map[string]model.Owner {
	accounts := map[string]model.Owner{}
	holders := map[string]*gatewayv1.Gateway{}
	for _, g := range all {
		name := model.GatewayOwner(g.Namespace, g.Name)
		account := g.Namespace + "/" + infra.Name(g.Name, string(g.Spec.GatewayClassName))
		if first := holders[account]; first == nil || g.CreationTimestamp.Before(&first.CreationTimestamp) {
			holders[account], accounts[account] = g, name
		}
	}
	return accounts
}

// ownerOf implements replica.Tokens.OwnerOf: infra makes a ServiceAccount of that name for each Gateway and for
// nothing else. Other users who may create one may also run a pod as the one that infra made.
func (c *controlPlane) ownerOf(namespace, serviceAccount string) model.Owner {
	if accounts := c.accounts.Load(); accounts != nil {
		return (*accounts)[namespace+"/"+serviceAccount]
	}
	return ""
}

func (c *controlPlane) authenticate(ctx context.Context, token string) (owner model.Owner, proxy string, err error) {
	owner, proxy, err = c.tokens.Authenticate(ctx, token)
	if err != nil && !errors.Is(err, replica.ErrToken) {
		err = fmt.Errorf("%w: %w", feed.ErrUnavailable, err)
	}
	return owner, proxy, err
}

// running returns the proxies connected to this replica and what they run.
func (c *controlPlane) running() map[model.Owner][]feed.Proxy {
	out := map[model.Owner][]feed.Proxy{}
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

func (c *controlPlane) proxyChanged(owner model.Owner) {
	if c.sidecars != nil && owner.Kind() == model.OwnerWorkload { // no statuses depend on it
		c.sidecars.changed(owner)
		c.board.TellSidecars()
		c.wakeReleases()
		return
	}
	c.board.Tell()
	c.leader.wake()
	c.wakeReleases()
}

func (c *controlPlane) authorityChanged() {
	tellOnce(c.rebundled)
	tellOnce(c.entrusted)
	tellOnce(c.selecting)
	c.leader.wake()
}

// tellOnce puts a value into a channel that has room for one.
func tellOnce(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
