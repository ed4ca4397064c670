package cli

import (
	"github.com/spf13/pflag"
	"github.com/weirmesh/weir/internal/kube"
)

// kubeFlags say which cluster.
type kubeFlags struct{ file, context string }

func (k *kubeFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&k.file, "kubeconfig", "", "`file` that says how to reach the API server (default: $KUBECONFIG, ~/.kube/config, or the pod's own)")
	f.StringVar(&k.context, "context", "", "`name` of a context in it other than the current one")
}

func (k *kubeFlags) client() (*kube.Client, error) {
	config, err := kube.Config(k.file, k.context)
	if err != nil {
		return nil, err
	}
	return kube.NewClient(config)
}
