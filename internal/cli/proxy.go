package cli

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

func newProxy(s streams) *cobra.Command {
	o := proxyOptions{serve: newServeFlags()}
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Serve a Gateway of a Kubernetes cluster as the controller says",
		Long: `Proxy is the data plane of one Gateway: it connects to a controller, serves what
that sends, and tells what it runs. "weir controller" starts it for each Gateway.
It proves who it is by the token of its pod, and keeps its last configuration in
--state-dir, from which it serves while no controller can be reached, also after
a start of its own. /readyz is 200 once a configuration is served. SIGTERM or
SIGINT drains as "weir run" does.`,
		Example: `  weir proxy --gateway shop/edge --controller weir-controller.weir-system.svc:18000 --state-dir /var/lib/weir`,
		Args:    noArgs,
	}
	f := cmd.Flags()
	o.serve.flags(f, ":19080", "cluster", "any")
	f.StringVar(&o.gateway, "gateway", "", "`namespace/name` of the Gateway to serve")
	f.StringVar(&o.controller, "controller", "", "`host:port` of the controller's feed")
	f.StringVar(&o.caFile, "ca-file", "/var/run/weir/ca/ca.crt", "`file` with the certificates that vouch for the controller, in PEM")
	f.StringVar(&o.tokenFile, "token-file", "/var/run/weir/token/token", "`file` with the token that says who this proxy is")
	f.StringVar(&o.stateDir, "state-dir", "", "`folder` for the last configuration, with its private keys: it belongs on memory; empty keeps none")
	fromEnvironment(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signalContext(cmd.Context())
		defer stop()
		return o.run(ctx, s)
	}
	return cmd
}

type proxyOptions struct {
	serve             serveFlags
	gateway           string
	controller        string
	caFile, tokenFile string
	stateDir          string
}

func (o *proxyOptions) validate() error {
	if namespace, name, ok := strings.Cut(o.gateway, "/"); !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return usageError("--gateway %q: want NAMESPACE/NAME", o.gateway)
	}
	if _, _, err := net.SplitHostPort(o.controller); err != nil {
		return usageError("--controller %q: want HOST:PORT", o.controller)
	}
	return nil
}

func (o *proxyOptions) run(ctx context.Context, s streams) error {
	log, processLog, closeProcessLog := o.serve.log.open(s.err)
	defer closeProcessLog()
	ignoreBrokenPipes()
	if err := o.validate(); err != nil {
		return err
	}
	plane, closeLog, err := o.serve.open(s, log, processLog, nil)
	if err != nil {
		return err
	}
	client := &feed.Client{
		Address: o.controller, Gateway: o.gateway, CAFile: o.caFile, TokenFile: o.tokenFile, Logger: log, LeftOut: plane.server.LeftOut,
	}
	if o.stateDir != "" {
		client.StateFile = filepath.Join(o.stateDir, "configuration")
	}
	client.Unserved = func() (out []feed.Unserved) {
		for _, u := range plane.unserved() {
			out = append(out, feed.Unserved{Listener: u.Listener, Reason: fmt.Sprintf("port %d: %s", u.Port, u.Reason)})
		}
		return out
	}
	drops := newTeller(log)
	plane.told = func(r control.Report) {
		client.Tell()
		drops.tellFindings(slices.DeleteFunc(slices.Clone(r.Findings), func(f resource.Finding) bool {
			return f.Code != control.CodeDropped && f.Code != control.CodeFailing // the control plane tells of the others
		}))
	}
	err = plane.run(ctx, func(ctx context.Context) error {
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

// applied counts the configurations that a feed brings to a data plane.
type applied struct {
	plane  *dataPlane
	report control.Report
}

func newApplied(plane *dataPlane) *applied { return &applied{plane: plane} }

// apply serves a configuration, or fails and leaves the old one alone.
func (a *applied) apply(cfg *model.Config) error {
	err := a.plane.publish(cfg)
	if a.report.Changed, a.report.Err = err == nil, nil; err != nil {
		a.report.Err = fmt.Errorf("configuration not applied: %w", err)
		a.plane.note(a.report)
		return err
	}
	a.report.Generation++
	a.report.Config = cfg
	a.report.Findings = control.LeftOut(a.plane.server.LeftOut(), nil)
	a.plane.note(a.report)
	if a.report.Generation == 1 {
		a.plane.began("the Gateway has none that could be served")
	}
	return nil
}
