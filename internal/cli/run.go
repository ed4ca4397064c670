package cli

import (
	"context"
	"io"
	"log/slog"
	"os"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dataplane"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout/local"
	"github.com/weirmesh/weir/internal/rollout/provider"
	"github.com/weirmesh/weir/internal/standalone"
	"github.com/weirmesh/weir/internal/tracing/otlp"
)

func newRun(s streams) *cobra.Command {
	o := runOptions{serve: dataplane.NewOptions()}
	cmd := &cobra.Command{
		Use:   "run PATH...",
		Short: "Serve files and folders; changes to them apply at once",
		Long: `Run reads Gateway API and SMI YAML or JSON from files and folders (or once from
the standard input, with -) and serves traffic by it. Files are watched: what
changes is applied without dropping a request, what is broken is reported and
the last good version stays. SIGHUP reads everything once more, SIGUSR1 opens
the access log's file anew. SIGTERM or SIGINT drains: listeners close, requests in flight finish. A second one ends
the process at once. A second process with the same --handover takes over the
ports, and the first one drains once it serves: no connection is refused or
lost in between. Rollouts are carried out step by step on the routes that they
name; the files stay as they are.

With --as it serves as the sidecar of a pod in the files, which needs an
identity ("weir identity"): in front of the pod's ports it requires mutual TLS
and passes what TrafficRoles and TrafficTargets allow, and it calls other pods
for the application, as the pod.`,
		Example: `  weir run routes/
  weir run --port-offset 8000 routes/          port 80 becomes 8080, for a try without root
  weir run --access-log stdout routes/
  kustomize build . | weir run -
  weir run --as shop/web-1 --identity trust/ --inbound 8080=127.0.0.1:15001 --app 8080=127.0.0.1:9001 shop/`,
		Args: atLeastOnePath,
	}
	f := cmd.Flags()
	o.serve.Exporter = otlp.Open
	o.serve.Flags(f, "127.0.0.1:15000", "any", "cluster")
	f.StringVar(&o.address, "address", "", "IP `address` to listen on instead of the Gateways' own")
	f.IntVar(&o.portOffset, "port-offset", 0, "`number` to add to each listener's port")
	f.StringVar(&o.handover, "handover", "", "`path` of a Unix socket by which a second process takes over the ports of a first")
	f.StringArrayVar(&o.trafficFrom, "traffic-from", nil, "`URL` of the admin endpoint of another weir run, whose traffic is told with this one's (weir traffic); may be repeated")
	o.sidecar.flags(f)
	f.StringVar(&o.rollouts, "rollout-state", "", "`file` that keeps over a restart how far Rollouts are, or off (default: in $STATE_DIRECTORY, or in $XDG_STATE_HOME/weir)")
	o.translation = translation(s, cmd)
	fromEnvironment(cmd)
	cmd.RunE = lasting(func(ctx context.Context, args []string) error { return o.run(ctx, s, args) })
	return cmd
}

type runOptions struct {
	serve       dataplane.Options
	address     string
	portOffset  int
	handover    string
	rollouts    string
	trafficFrom []string
	sidecar     sidecarOptions
	translation *control.Options
}

func (o *runOptions) run(ctx context.Context, s streams, paths []string) error {
	log, processLog, closeProcessLog := o.serve.Log.Open(s.err)
	defer closeProcessLog()
	process.IgnoreBrokenPipes()
	for _, p := range o.translation.TrustedProxies {
		if p.Bits() == 0 {
			log.Warn("everybody is trusted to say who their client is", "trusted-proxies", p.String(), "fix", "name the addresses of what is in front")
		}
	}
	adjust, err := standalone.Relocate(o.address, o.portOffset)
	if err != nil {
		return err
	}
	empty := ""
	if o.sidecar.as != "" {
		if adjust != nil {
			return flags.Errorf("--as: a sidecar listens where --inbound, --outbound and --forward say; leave out --address and --port-offset")
		}
		if adjust, err = o.sidecar.apply(o.translation, &o.serve, log); err != nil {
			return err
		}
		empty = "the files hold no pod of the name, or it has no address"
	}
	source, err := openSource(o.translation.Kinds(), paths, s.in, process.Hangups(ctx), log)
	if err != nil {
		return err
	}
	var handover *process.Handover
	if o.handover != "" {
		if handover, err = process.NewHandover(o.handover, log); err != nil {
			return err
		}
		defer handover.Close()
	}
	plane, closeLog, err := o.serve.Open(s.out, s.err, log, processLog, handover)
	if err != nil {
		return err
	}
	plane.Adjust = adjust
	rollouts := local.New(source, provider.All(), o.store(paths, log), log)
	rollouts.Requests = func(route, service string) uint64 { return plane.Metrics.RequestsTo(route, service) }
	plane.Pages = rollouts.Pages()
	g := &standalone.Gateway{Plane: plane, Empty: empty, Source: rollouts, Options: *o.translation, Own: rollouts.Statuses, Traffic: standalone.NewTraffic(plane.Metrics, o.trafficFrom, log), Reported: func(r control.Report) {
		if r.Err == nil {
			rollouts.Applied(r.Set)
		}
	}}
	err = g.Run(ctx)
	if e := closeLog(); err == nil {
		err = e
	}
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// store is where it is kept how far Rollouts are; nil keeps nothing.
func (o *runOptions) store(paths []string, log *slog.Logger) *local.Store {
	switch path := o.rollouts; path {
	case "off":
		return nil
	case "":
		path, err := local.DefaultPath(paths)
		if err != nil {
			log.Warn("what is known of Rollouts is not kept over a restart", "error", err, "fix", "name a file with --rollout-state")
			return nil
		}
		return &local.Store{Path: path}
	default:
		return &local.Store{Path: path}
	}
}

// openSource watches the paths; the standard input, if among them, is read once. A receive from again makes it look at
// once.
func openSource(kinds resource.Kinds, paths []string, stdin io.Reader, again <-chan struct{}, log *slog.Logger) (resource.Source, error) {
	for _, p := range paths {
		if p == "-" {
			continue
		}
		if _, err := os.Stat(p); err != nil {
			return nil, &exitError{exitUsage, err}
		}
	}
	dir := resource.NewDir(kinds, paths, log)
	dir.Stdin, dir.Again = stdin, again
	return dir, nil
}
