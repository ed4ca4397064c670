package cli

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
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
name their Gateway there, and --gateway prints what one Gateway's proxies get,
--pod what the sidecar of one pod gets.`,
		Example: `  weir dump routes/
  weir dump routes/ | jq '.services[].endpoints'
  weir dump --gateway shop/edge                what its proxies get, in a cluster
  weir dump --pod shop/cart-5b48b5fb9c-7rw27   what its sidecar gets, in a cluster`,
	}
	in := newInput(s, cmd)
	gateway := gatewayFlag(cmd)
	pod := cmd.Flags().String("pod", "", "`namespace/name` of the pod whose sidecar it is for, in a cluster")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *gateway != "" && *pod != "" {
			return flags.Errorf("give either --gateway or --pod: a Gateway's proxies and a pod's sidecar have configurations of their own")
		}
		l, err := in.load(cmd.Context(), args, s.in)
		if err != nil {
			return err
		}
		defer l.close()
		if r := newCheckReport(l.set, l.Findings); r.Errors+r.Warnings > 0 {
			fmt.Fprintf(s.err, "weir: %s; \"weir check\" shows them\n", r.summary())
		}
		cfg := l.Config
		if *gateway != "" {
			if cfg, err = l.served().Part(model.Owner(*gateway)); err != nil {
				return gatewayFault(err)
			}
		}
		if *pod != "" {
			if cfg, err = l.ofSidecar(*pod); err != nil {
				return err
			}
		}
		return process.WriteJSON(s.out, cfg)
	}
	return cmd
}

// ofSidecar is what the controller has for the sidecar of a pod, "namespace/name".
func (l *look) ofSidecar(pod string) (*model.Config, error) {
	namespace, name, ok := strings.Cut(pod, "/")
	switch {
	case !ok || !model.WorkloadOwner(namespace, name).Valid():
		return nil, flags.Errorf("--pod %q: want NAMESPACE/NAME", pod)
	case l.client == nil:
		return nil, flags.Errorf("--pod is for a cluster, which gives each sidecar its configuration; of files, \"weir run --as\" makes that of one")
	case l.Sidecars == nil:
		return nil, errors.New("the cluster's controller makes no sidecars: --mesh (the chart's mesh.enabled) is not set, or you may not read its Deployment")
	}
	for _, p := range workload.PodList.In(l.set) {
		if p.Namespace != namespace || p.Name != name {
			continue
		}
		if !p.Sidecar {
			return nil, fmt.Errorf("pod %s has no sidecar", pod)
		}
		if cfg := l.Sidecars.Whole(namespace, name); cfg != nil {
			return cfg, nil
		}
		return nil, fmt.Errorf("pod %s has no address yet, so nothing can be served for it", pod)
	}
	return nil, &exitError{exitNoMatch, fmt.Errorf("there is no pod %s, or you may not read it", pod)}
}
