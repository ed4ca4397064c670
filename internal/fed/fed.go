package fed

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"slices"

	"github.com/spf13/pflag"

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

// Proxy is a data plane that serves configurations from a controller's feed, as its command line says.
type Proxy struct {
	serve             dataplane.Options
	gateway           string
	controller        string
	caFile, tokenFile string
	stateDir          string
	pod               telemetry.Side
}

// New returns a Proxy with the defaults of its flags.
func New() *Proxy { return &Proxy{serve: dataplane.NewOptions()} }

// Flags adds the flags to a command.
func (o *Proxy) Flags(f *pflag.FlagSet) {
	o.serve.Exporter = otlp.Open
	o.serve.Flags(f, ":19080", "cluster", "any")
	f.StringVar(&o.gateway, "gateway", "", "`namespace/name` of the Gateway to serve")
	f.StringVar(&o.controller, "controller", "", "`host:port` of the controller's feed")
	f.StringVar(&o.caFile, "ca-file", "/var/run/weir/ca/ca.crt", "`file` with the CA certificates that sign the controller's, in PEM")
	f.StringVar(&o.tokenFile, "token-file", "/var/run/weir/token/token", "`file` with the token that identifies this proxy")
	f.StringVar(&o.stateDir, "state-dir", "", "`folder` for the last configuration, with its private keys: use one in memory; empty stores nothing")
	f.StringVar(&o.pod.Namespace, "pod-namespace", "", "`namespace` of the pod that the proxy runs in")
	f.StringVar(&o.pod.Name, "pod-name", "", "`name` of that pod, which is where its traffic is observed; without one, at the Gateway")
}

// validate fails if the command line is invalid.
func (o *Proxy) validate() error {
	if owner := model.Owner(o.gateway); !owner.Valid() || owner.Kind() != model.OwnerGateway {
		return flags.Errorf("--gateway %q: want NAMESPACE/NAME", o.gateway)
	}
	if _, _, err := net.SplitHostPort(o.controller); err != nil {
		return flags.Errorf("--controller %q: want HOST:PORT", o.controller)
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
	plane, closeLog, err := o.serve.Open(stdout, stderr, log, processLog, nil)
	if err != nil {
		return err
	}
	plane.Pages = append(plane.Pages, process.Page{
		Pattern: "GET " + telemetry.ReportPath, Index: telemetry.ReportPath, About: "what this proxy counted of its traffic with others, as /metrics has it", Open: true,
		Handler: http.HandlerFunc(plane.Metrics.ServeReport),
	})
	client := &feed.Client{
		Address: o.controller, Owner: model.Owner(o.gateway), CAFile: o.caFile, TokenFile: o.tokenFile, Logger: log, LeftOut: plane.Server.LeftOut,
	}
	if o.stateDir != "" {
		client.StateFile = filepath.Join(o.stateDir, "configuration")
	}
	client.Taps = func(s *feed.Stream, end func()) error { return tapping.Serve(s, end, plane.Metrics) }
	client.Unserved = func() (out []feed.Unserved) {
		for _, u := range plane.Unserved() {
			out = append(out, feed.Unserved{Listener: u.Listener, Reason: fmt.Sprintf("port %d: %s", u.Port, u.Reason)})
		}
		return out
	}
	drops := finding.Teller{Log: log}
	plane.OnReport = func(r dataplane.Report) {
		client.Tell()
		drops.Tell(slices.DeleteFunc(slices.Clone(r.Standing().Findings), func(f finding.Finding) bool {
			return f.Code != finding.CodeDropped && f.Code != finding.CodeFailing // the control plane reports the others
		}))
	}
	err = plane.Run(ctx, func(ctx context.Context) error {
		return client.Run(ctx, newApplied(plane).apply)
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
	report dataplane.Standing
}

func newApplied(plane *dataplane.Plane) *applied { return &applied{plane: plane} }

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
		a.plane.Began("the Gateway has no listener that can be served")
	}
	return nil
}
