package fed

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"sync"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/weirmesh/weir/internal/dataplane"
	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/tapping"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/tracing/otlp"
)

// Proxy is a data plane that serves configurations from a controller's feed, as its command line says. Once one of them
// leads to pods that are known by identities, it has an identity of its own signed by the controller, and renews it. What
// needs none is served without waiting for that.
type Proxy struct {
	serve       dataplane.Options
	gateway     string
	link        link
	trustDomain string
	stateDir    string
	pod         telemetry.Side
}

// New returns a Proxy with the defaults of its flags.
func New() *Proxy { return &Proxy{serve: dataplane.NewOptions()} }

// Flags adds the flags to a command.
func (o *Proxy) Flags(f *pflag.FlagSet) {
	o.serve.Exporter = otlp.Open
	o.serve.Flags(f, ":19080", "cluster", "any")
	f.StringVar(&o.gateway, "gateway", "", "`namespace/name` of the Gateway to serve")
	o.link.flags(f)
	flags.TrustDomain(f, &o.trustDomain)
	f.StringVar(&o.stateDir, "state-dir", "", "`folder` for the last configuration, with its private keys: use one in memory; empty stores nothing")
	f.StringVar(&o.pod.Namespace, "pod-namespace", "", "`namespace` of the pod that the proxy runs in")
	f.StringVar(&o.pod.Name, "pod-name", "", "`name` of that pod, which is where its traffic is observed; without one, at the Gateway")
}

// validate fails if the command line is invalid.
func (o *Proxy) validate() error {
	if owner := model.Owner(o.gateway); !owner.Valid() || owner.Kind() != model.OwnerGateway {
		return flags.Errorf("--gateway %q: want NAMESPACE/NAME", o.gateway)
	}
	if err := o.link.check(); err != nil {
		return err
	}
	if o.pod != (telemetry.Side{}) {
		if !model.WorkloadOwner(o.pod.Namespace, o.pod.Name).Valid() {
			return flags.Errorf("--pod-namespace %q and --pod-name %q: want both, or neither", o.pod.Namespace, o.pod.Name)
		}
		o.pod.Kind = model.KindPod
	}
	return nil
}

// Run serves until ctx ends and everything is drained, or until an error occurs. A *flags.Fault is an invalid command
// line.
func (o *Proxy) Run(ctx context.Context, stdout, stderr io.Writer) error {
	log, processLog, closeProcessLog := o.serve.Log.Open(stderr)
	defer closeProcessLog()
	process.IgnoreBrokenPipes()
	if err := o.validate(); err != nil {
		return err
	}
	o.serve.Gateway, o.serve.At = o.gateway, o.pod
	own := newIdentities(o.trustDomain, model.Owner(o.gateway).Namespace(), "Gateway", log)
	o.serve.Identities = own.named
	plane, closeLog, err := o.serve.Open(stdout, stderr, log, processLog, nil)
	if err != nil {
		return err
	}
	client := o.link.client(model.Owner(o.gateway), plane, log)
	if o.stateDir != "" {
		client.StateFile = filepath.Join(o.stateDir, "configuration")
	}
	own.signedBy(client)
	client.Taps = func(s *feed.Stream, end func()) error { return tapping.Serve(s, end, plane.Metrics) }
	err = plane.Run(ctx, func(ctx context.Context) error {
		applied := &applied{plane: plane, none: "the Gateway has no listener that can be served"}
		needed := make(chan struct{})
		need := sync.OnceFunc(func() { close(needed) })
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error {
			select {
			case <-ctx.Done():
				return nil
			case <-needed:
				return own.source.Run(ctx)
			}
		})
		group.Go(func() error {
			return client.Run(ctx, func(c *model.Config) error {
				if slices.ContainsFunc(c.Services, func(s model.Service) bool { return s.TLS != nil && s.TLS.Identity() != "" }) {
					need()
				}
				return applied.apply(c)
			})
		})
		return group.Wait()
	})
	if e := closeLog(); err == nil {
		err = e
	}
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// applied counts the configurations that a feed delivers to a data plane.
type applied struct {
	plane  *dataplane.Plane
	none   string // why there may be no listener
	report dataplane.Standing
}

// apply serves a configuration. If it fails, the old one stays in force.
func (a *applied) apply(cfg *model.Config) error {
	err := a.plane.Apply(cfg)
	if a.report.Changed, a.report.Err = err == nil, nil; err != nil {
		a.report.Err = fmt.Errorf("configuration not applied: %w", err)
		a.plane.Note(a.report)
		return err
	}
	a.report.Generation++
	a.report.Config = cfg
	a.report.Findings = finding.LeftOut(a.plane.Server.LeftOut(), nil)
	a.plane.Note(a.report)
	if a.report.Generation == 1 {
		a.plane.Began(a.none)
	}
	return nil
}
