package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/kube"
)

// place is what a command asks: a run's admin endpoint, or a cluster.
type place struct {
	admin
	plugin    bool // called by kubectl
	kube      kube.Flags
	inCluster bool
	client    *kube.Client // of a cluster; nil for a run
	usual     string       // a cluster's namespace without a flag
}

// where adds the flags that name a run or a cluster. Those of the command line count before the environment's.
func (a *place) where(cmd *cobra.Command) {
	f := cmd.Flags()
	a.admin.flags(f)
	clusterFlags(&a.kube, f)
	fromEnvironment(cmd)
	read := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		named := func() (run, cluster bool) {
			return f.Changed("admin"), a.kube.Given()
		}
		run, cluster := named()
		if err := read(cmd, args); err != nil {
			return err
		}
		if !run && !cluster {
			run, cluster = named()
		}
		if run && cluster {
			return flags.Errorf("give either a run (--admin) or a cluster (--kubeconfig, --context and the like), not both")
		}
		a.inCluster = cluster || a.plugin && !run
		return nil
	}
}

// connect makes the client of the cluster that the flags name.
func (a *place) connect() (err error) {
	kube.Quiet()
	a.client, err = a.kube.Client()
	switch {
	case errors.Is(err, kube.ErrNoCluster):
		return &exitError{exitUsage, errors.New("which cluster? Give --kubeconfig FILE ($KUBECONFIG, ~/.kube/config), or --admin ADDRESS of a weir run")}
	case err != nil:
		return &exitError{exitUsage, err}
	}
	if a.usual, err = a.kube.Namespace(); err != nil {
		return &exitError{exitUsage, err}
	}
	return nil
}

func (a *place) close() {
	if a.client != nil {
		a.client.Close()
	}
}

// checkNamespace fails if the namespace of a flag would be another part of a path.
func checkNamespace(namespace string) error {
	if faults := content.IsPathSegmentName(namespace); len(faults) > 0 {
		return flags.Errorf("--namespace %q %s", namespace, strings.Join(faults, ", "))
	}
	return nil
}
