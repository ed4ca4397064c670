package cli

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/dialect/sidecar"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/workload"
)

func newDump(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dump [PATH...]",
		Short: "Print the routing model the files compile to",
		Long: `Dump prints as JSON what the proxy would be given: listeners, routes, services
and certificates with everything resolved, in a fixed order. Private keys are
redacted. How many findings there are goes to stderr; "weir check" shows them.
Without PATHs it reads a Kubernetes cluster, as the controller would; listeners
name their Gateway there, and --gateway prints what one Gateway's proxies get.
--pod prints what the sidecar of one pod gets. Of files that is what "weir run
--as" serves: the pod's ports, and what the pod sends to Services by their
names, with the routes of which these are parents.`,
		Example: `  weir dump routes/
  weir dump routes/ | jq '.services[].endpoints'
  weir dump --gateway shop/edge                what its proxies get, in a cluster
  weir dump --pod shop/cart-5b48b5fb9c-7rw27   what its sidecar gets, in a cluster
  weir dump --pod shop/cart routes/            what one gets of pods that a Deployment runs`,
	}
	in := newInput(s, cmd)
	gateway := gatewayFlag(cmd)
	pod := cmd.Flags().String("pod", "", "`namespace/name` of the pod whose sidecar it is for; of files also that of what runs it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *gateway != "" && *pod != "" {
			return flags.Errorf("give either --gateway or --pod: a Gateway's proxies and a pod's sidecar have configurations of their own")
		}
		var beside sidecar.Options
		if *pod != "" {
			var err error
			if beside, err = besidePod(*pod); err != nil {
				return err
			}
			if len(args) > 0 {
				in.options.Sidecar = beside
			}
		}
		l, err := in.load(cmd.Context(), args, s.in)
		if err != nil {
			return err
		}
		defer l.close()
		cfg := l.Config
		if *gateway != "" {
			if cfg, err = l.served().Part(model.Owner(*gateway)); err != nil {
				return l.gatewayFault(err)
			}
		}
		if *pod != "" {
			if cfg, err = l.ofSidecar(&beside); err != nil {
				return err
			}
		}
		if r := newCheckReport(l.set, l.Findings); r.Errors+r.Warnings > 0 {
			fmt.Fprintf(s.err, "weir: %s; \"weir check\" shows them\n", r.summary())
		}
		return process.WriteJSON(s.out, cfg)
	}
	return cmd
}

// besidePod reads "namespace/name".
func besidePod(pod string) (sidecar.Options, error) {
	namespace, name, _ := strings.Cut(pod, "/")
	if !model.WorkloadOwner(namespace, name).Valid() {
		return sidecar.Options{}, flags.Errorf("--pod %q: want NAMESPACE/NAME", pod)
	}
	return sidecar.Options{Namespace: namespace, Name: name, Outbound: netip.MustParseAddrPort("127.0.0.1:15001")}, nil
}

// ofSidecar is what the controller has for the sidecar of a pod, or what "weir run" serves of files.
func (l *look) ofSidecar(o *sidecar.Options) (*model.Config, error) {
	switch {
	case l.client == nil && o.Pod(l.set) == nil:
		return nil, &exitError{exitNoMatch, fmt.Errorf("the files have no Pod %s/%s, nor what runs pods under this name", o.Namespace, o.Name)}
	case l.client == nil:
		return l.Config.Of(o.Owner()), nil
	case l.Sidecars == nil:
		return nil, errors.New("the cluster's controller makes no sidecars: --mesh (the chart's mesh.enabled) is not set, or you may not read its Deployment")
	}
	for _, p := range workload.PodList.In(l.set) {
		if p.Namespace != o.Namespace || p.Name != o.Name {
			continue
		}
		if !p.Sidecar {
			return nil, fmt.Errorf("pod %s/%s has no sidecar", p.Namespace, p.Name)
		}
		if cfg := l.Sidecars.Whole(p.Namespace, p.Name); cfg != nil {
			return cfg, nil
		}
		return nil, fmt.Errorf("pod %s/%s has no address yet, so nothing can be served for it", p.Namespace, p.Name)
	}
	return nil, &exitError{exitNoMatch, fmt.Errorf("there is no pod %s/%s, or you may not read it", o.Namespace, o.Name)}
}
