package dataplane

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/proxy"
	"github.com/weirmesh/weir/internal/reach"
	"github.com/weirmesh/weir/internal/socket"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/tracing"
)

// Options are the settings of a data plane's command line.
type Options struct {
	admin             string
	access            process.Access
	reach             flags.Choice
	node, zone        string
	drain, drainDelay time.Duration
	Log               process.LogFlags
	accessLog         accessLogFlags
	fields            fieldFlags
	client            clientFlags
	load              loadFlags
	mirror            mirrorFlags
	traces            traceFlags
	// Exporter sends traces; nil: there are none, nor flags for them. Set it before Flags.
	Exporter func(tracing.Export) (tracing.Exporter, error)
	// Gateway is the Gateway that is served, if it is one, for traces.
	Gateway string
	// At is the pod that the data plane runs in, which observes its traffic; see exchange.Options.
	At telemetry.Side
	// Identities returns the identity of a name as it is now, nil if there is none; it may be nil itself.
	Identities func(name string) *spiffe.Identity
	// Pod are the addresses of the pod beside whose containers the process serves; none if there is no such pod. Then requests
	// are told nothing of it (exchange.Options.Beside), and no endpoint is hurried.
	Pod []netip.Addr
	// Listen and Original, if set, are those of proxy.Options.
	Listen   socket.Opener
	Original func(net.Conn) (netip.AddrPort, error)
	// Unknown, if set, is that of proxy.Options.
	Unknown func(ctx context.Context, to netip.AddrPort) error
}

// unhurried is how long an endpoint may take to answer where the application itself decides what is too long.
const unhurried = 24 * time.Hour

// NewOptions returns them with their defaults.
func NewOptions() Options {
	return Options{Log: process.NewLogFlags(), accessLog: newAccessLogFlags(), fields: newFieldFlags()}
}

// Flags adds them to a command, with the address of the admin endpoint and the allowed reaches; the first is the
// default. Without one, endpoints may have any address.
func (o *Options) Flags(f *pflag.FlagSet, admin string, reach ...string) {
	f.StringVar(&o.admin, "admin", admin, "`address` of the admin endpoint (metrics, health, configuration), or off")
	f.StringVar(&o.access.TokenFile, "admin-token-file", "", "`file` with the token required for all pages except metrics and health; without it, only this machine may read them")
	if len(reach) > 0 {
		o.reach = flags.NewChoice(reach...)
		f.Var(&o.reach, "reach", "which addresses endpoints may have: any, or cluster to exclude loopback, link-local, cloud metadata and this machine's own")
	}
	f.StringVar(&o.node, "node", "", "`name` of the Kubernetes node that the process runs on: what EndpointSlices mean for its clients is used there")
	f.StringVar(&o.zone, "zone", "", "`name` of that node's zone (topology.kubernetes.io/zone), in the same way")
	f.DurationVar(&o.drain, "drain-timeout", 30*time.Second, "timeout for requests in flight when the process ends")
	f.DurationVar(&o.drainDelay, "drain-delay", 0, "how long to keep accepting connections after SIGTERM, while /readyz answers 503")
	o.Log.Flags(f)
	o.accessLog.flags(f)
	o.fields.flags(f)
	o.client.flags(f)
	o.load.flags(f)
	o.mirror.flags(f)
	if o.Exporter != nil {
		o.traces.flags(f)
	}
}

// Open makes the data plane, which logs to log. Call the last function when it has ended.
func (o *Options) Open(stdout, stderr io.Writer, log *slog.Logger, processLog *telemetry.Lines, handover *process.Handover) (*Plane, func() error, error) {
	if err := o.access.Check(); err != nil {
		return nil, nil, err
	}
	mirror, err := o.mirror.options()
	if err != nil {
		return nil, nil, err
	}
	options := proxy.Options{Mirror: mirror, DrainTimeout: o.drain, Identities: o.Identities, Original: o.Original, Unknown: o.Unknown}
	options.Logger, options.At = log, o.At
	if options.Pod = o.Pod; len(o.Pod) > 0 {
		options.Beside, options.ResponseTimeout = true, unhurried
	}
	guard := &reach.Guard{Cluster: o.reach.Value == "cluster"}
	options.Upstream.Refuse, options.Upstream.Isolated = guard.Refuse, guard.Cluster
	options.Upstream.Node, options.Upstream.Zone = o.node, o.zone
	if err := o.client.apply(&options); err != nil {
		return nil, nil, err
	}
	if err := o.fields.apply(&options); err != nil {
		return nil, nil, err
	}
	machine := process.ThisMachine()
	process.CollectWithin(process.GroupMemory())
	if err := o.load.apply(&options, machine, log); err != nil {
		return nil, nil, err
	}
	accessLog, closeLog, err := o.openAccessLog(stdout, stderr, log, boundsOf(machine).lines)
	if err != nil {
		return nil, nil, err
	}
	metrics := telemetry.NewRegistry(telemetry.Options{Version: process.Build().Version})
	metrics.WatchAccessLog(accessLog)
	metrics.WatchProcessLog(processLog)
	tracer, closeTraces, err := o.traces.open(o.Exporter, o.Gateway, guard.Refuse, metrics, log)
	if err != nil {
		return nil, nil, errors.Join(err, closeLog())
	}
	options.Tracer = tracer
	open := socket.Open
	if o.Listen != nil {
		open = o.Listen
	}
	options.Metrics, options.AccessLog, options.Listen = metrics, accessLog, handover.Listen(open)
	d := &Plane{
		Metrics: metrics, Log: log, AdminAddress: o.admin, access: o.access, Guard: guard,
		drainDelay: o.drainDelay, mirror: &o.mirror, handover: handover,
	}
	options.PortsChanged, options.DropsChanged = d.Changed, d.Changed
	d.Server = proxy.New(options)
	guard.Relays = d.Server.Relays
	return d, func() error { return errors.Join(closeTraces(), closeLog()) }, nil
}

// openAccessLog returns nil for "off"; lines is how many bytes of lines may wait.
func (o *Options) openAccessLog(stdout, stderr io.Writer, log *slog.Logger, lines int) (*telemetry.AccessLog, func() error, error) {
	options, err := o.accessLog.options()
	if err != nil {
		return nil, nil, err
	}
	var w io.Writer
	closeFile, renamed := func() error { return nil }, func() {}
	switch o.accessLog.where {
	case "", "off":
		stop := process.OnRotate(renamed)
		return nil, func() error { stop(); return nil }, nil
	case "stdout":
		w = stdout
	case "stderr":
		w = stderr
	default:
		file, err := telemetry.OpenLogFile(o.accessLog.where, log)
		if err != nil {
			return nil, nil, fmt.Errorf("--access-log: %w", err)
		}
		w, closeFile, renamed = file, file.Close, file.Follow
	}
	stop := process.OnRotate(renamed)
	options.QueueBytes, options.Logger = lines, log
	l := telemetry.NewAccessLog(w, options)
	return l, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		stop()
		err := l.Close(ctx)
		if e := closeFile(); err == nil {
			err = e
		}
		return err
	}, nil
}
