package fed

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/weirmesh/weir/internal/dataplane"
	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/identity/workload"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/probe"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/proxy"
	"github.com/weirmesh/weir/internal/redirect"
	"github.com/weirmesh/weir/internal/tapping"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/tracing/otlp"
)

// Sidecar is a data plane beside the containers of a pod. It has the pod's identity signed and renewed by a controller,
// serves what the controller's feed has for the pod, at the sockets of the pod's redirect, and does the kubelet's probes.
type Sidecar struct {
	serve             dataplane.Options
	link              link
	trustDomain       string
	stateDir          string
	pod               telemetry.Side
	podIPs            []string
	inbound, outbound string
	permissive        bool
	probePort         uint16
	probes            string

	addresses []netip.Addr  // podIPs
	plan      redirect.Plan // of which the ports count
	table     probe.Table   // probes
	original  func(net.Conn) (netip.AddrPort, error)
	secured   atomic.Bool // requiresTLS of the configuration
}

// NewSidecar returns a Sidecar with the defaults of its flags.
func NewSidecar() *Sidecar {
	return &Sidecar{serve: dataplane.NewOptions(), original: proxy.Original}
}

// SidecarUsage says what the command does.
const SidecarUsage = `Sidecar is the data plane beside the containers of one pod, whose connections a
redirect brings ("weir redirect"). It proves by the pod's token which pod it is,
has the pod's identity signed by the controller, renews it, and serves the
configuration that the controller has for the pod. It does the kubelet's probes
and HTTP hooks in the kubelet's place (--probes). Without a controller it serves
what it has, also after a restart (--state-dir), and asks again; its log has errors
before its certificate ends.
/readyz is 200 once there is an identity and a configuration is served. SIGTERM
or SIGINT drains as "weir run" does; both directions are served until then.`

// asIfNotThere are the defaults of flags by which applications meet as they would without sidecars: these add no field but
// the one that detects loops, of which a request that visits a pod again is none, and end nothing for being slow or silent.
var asIfNotThere = map[string]string{
	"via": "off", "request-id": "off", "max-passes": "4", "max-hops": "40", "idle-timeout": "1h0m0s", "stream-timeout": "24h0m0s", "min-body-rate": "0",
}

// Flags adds the flags to a command.
func (o *Sidecar) Flags(f *pflag.FlagSet) {
	o.serve.Exporter = otlp.Open
	o.serve.Flags(f, ":15021")
	flags.Defaults(f, asIfNotThere)
	o.link.flags(f)
	ports := redirect.Default()
	flags.TrustDomain(f, &o.trustDomain)
	f.StringVar(&o.stateDir, "state-dir", "", "`folder` for the identity with its key and the last configuration: use one in memory; empty stores nothing")
	f.StringVar(&o.pod.Namespace, "pod-namespace", "", "`namespace` of the pod")
	f.StringVar(&o.pod.Name, "pod-name", "", "`name` of the pod")
	f.StringSliceVar(&o.podIPs, "pod-ips", nil, "`addresses` of the pod (by comma); probes go to the first")
	f.StringVar(&o.inbound, "inbound-ports", ports.Inbound.String(), "`ports` at which the redirect brings connections to the pod")
	f.StringVar(&o.outbound, "outbound-ports", ports.Outbound.String(), "`ports` at which the redirect brings connections from the pod, on loopback")
	f.BoolVar(&o.permissive, "permissive", false, "serve clients without TLS, too, where the controller says so: as nobody, for the time until all clients have an identity")
	f.Uint16Var(&o.probePort, "probe-port", 15020, "`port` at which the kubelet asks for --probes")
	f.StringVar(&o.probes, "probes", "", "probes and HTTP hooks of the pod's containers, as `JSON`; without any, nothing listens at --probe-port")
}

// validate reads the command line further; it fails if that is not valid.
func (o *Sidecar) validate() (err error) {
	if !model.WorkloadOwner(o.pod.Namespace, o.pod.Name).Valid() {
		return flags.Errorf("--pod-namespace %q and --pod-name %q: want both", o.pod.Namespace, o.pod.Name)
	}
	o.pod.Kind = model.KindPod
	if err := o.link.check(); err != nil {
		return err
	}
	for _, text := range o.podIPs {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" {
			return flags.Errorf("--pod-ips: %q is not an IP address", text)
		}
		o.addresses = append(o.addresses, a.Unmap())
	}
	if len(o.addresses) == 0 {
		return flags.Errorf("--pod-ips: want at least one address of the pod")
	}
	o.plan, err = redirect.ParseSettings(map[string]string{redirect.InboundPorts: o.inbound, redirect.OutboundPorts: o.outbound}, redirect.Default())
	if wrong := (*redirect.Error)(nil); errors.As(err, &wrong) {
		wrong.Name = map[string]string{redirect.InboundPorts: "--inbound-ports", redirect.OutboundPorts: "--outbound-ports"}[wrong.Name]
		return flags.Errorf("%w", wrong)
	}
	if o.probes == "" {
		return nil
	}
	if o.table, err = probe.Parse([]byte(o.probes)); err != nil {
		return flags.Errorf("--probes: %w", err)
	}
	if o.probePort == 0 || o.plan.Inbound.Has(o.probePort) || o.plan.Outbound.Has(o.probePort) {
		return flags.Errorf("--probe-port %d: want a port that is none of the redirect's", o.probePort)
	}
	return nil
}

// Run serves until ctx ends and everything is drained, or until an error occurs; that a controller cannot be reached is
// none. A *flags.Fault is an invalid command line.
func (o *Sidecar) Run(ctx context.Context, stdout, stderr io.Writer) error {
	log, processLog, closeProcessLog := o.serve.Log.Open(stderr)
	defer closeProcessLog()
	process.IgnoreBrokenPipes()
	if err := o.validate(); err != nil {
		return err
	}
	own := newIdentities(o.trustDomain, o.pod.Namespace, "pod", log)
	o.serve.At, o.serve.Pod, o.serve.Listen, o.serve.Original = o.pod, o.addresses, o.open, o.meant
	destinations := &feed.Destinations{}
	o.serve.Unknown = o.unknown(destinations)
	o.serve.Identities = own.named
	plane, closeLog, err := o.serve.Open(stdout, stderr, log, processLog, nil)
	if err != nil {
		return err
	}
	plane.Waits = func() string {
		if own.current() == nil {
			return "no identity yet"
		}
		return ""
	}
	err = o.run(ctx, plane, own, destinations, log)
	if e := closeLog(); err == nil {
		err = e
	}
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// run serves with all that is to be open at the beginning.
func (o *Sidecar) run(ctx context.Context, plane *dataplane.Plane, own *identities, destinations *feed.Destinations, log *slog.Logger) error {
	probes, err := o.listenProbes(log)
	if err != nil {
		return err
	}
	if probes != nil {
		defer probes.socket.Close()
		plane.Guard.Protect(probes.at)
	}
	client := o.link.client(model.WorkloadOwner(o.pod.Namespace, o.pod.Name), plane, log)
	own.signedBy(client)
	if o.stateDir != "" {
		client.StateFile, own.source.File = filepath.Join(o.stateDir, "configuration"), filepath.Join(o.stateDir, "identity")
	}
	client.Destinations = destinations
	destinations.Used = plane.Server.Used
	client.Taps = func(s *feed.Stream, end func()) error { return tapping.Serve(s, end, plane.Metrics) }
	applied := &applied{plane: plane, none: "the pod has no port that can be served"}
	began := make(chan struct{})
	begin := sync.OnceFunc(func() { close(began) })
	return plane.Run(ctx, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.Go(func() error { return own.source.Run(ctx) })
		group.Go(func() error {
			return client.Run(ctx, func(c *model.Config) error {
				if is := c.Issued(model.WorkloadIdentity); is != nil {
					own.source.Expect(workload.Issued{Names: is.Names, Roots: is.Roots})
				}
				if err := applied.apply(o.strict(c)); err != nil {
					return err
				}
				o.secured.Store(requiresTLS(c))
				begin()
				return nil
			})
		})
		group.Go(func() error { return forget(ctx, destinations, plane.Server.Used, plane.Server.Release) })
		group.Go(func() error { return settle(ctx, began, log) })
		if probes != nil {
			group.Go(func() error { return probes.run(ctx) })
		}
		return group.Wait()
	})
}

// settleAfter is when the start is over, after the first configuration.
const settleAfter = 5 * time.Second

// settle gives memory back once the start is over: there is a sidecar beside each pod, and most have little to do.
func settle(ctx context.Context, began <-chan struct{}, log *slog.Logger) error {
	select {
	case <-ctx.Done():
		return nil
	case <-began:
	}
	select {
	case <-ctx.Done():
	case <-time.After(settleAfter):
		if err := process.Settle(); err != nil {
			log.Debug("pages of the program are not given back", "error", err)
		}
	}
	return nil
}

// strict is the configuration with mutual TLS wherever the pod has it, unless clients without TLS are served (--permissive).
func (o *Sidecar) strict(c *model.Config) *model.Config {
	plain := func(l model.Listener) bool { return l.TLS != nil && l.TLS.Plain }
	if o.permissive || !slices.ContainsFunc(c.Listeners, plain) {
		return c
	}
	out := *c
	out.Listeners = slices.Clone(c.Listeners)
	for i := range out.Listeners {
		if l := &out.Listeners[i]; plain(*l) {
			own := *l.TLS
			own.Plain = false
			l.TLS = &own
		}
	}
	return &out
}
