package kube

import (
	"errors"

	"github.com/spf13/pflag"
	"k8s.io/client-go/tools/clientcmd"
)

// ErrNoCluster is returned by Flags.Client if neither flags nor files nor the environment name a cluster.
var ErrNoCluster = errors.New("no cluster is named")

// Flags say which cluster.
type Flags struct{ file, context string }

// Flags adds the flags to a command.
func (k *Flags) Flags(f *pflag.FlagSet) {
	f.StringVar(&k.file, "kubeconfig", "", "`file` that says how to reach the API server (default: $KUBECONFIG, ~/.kube/config, or the pod's own)")
	f.StringVar(&k.context, "context", "", "`name` of a context in it other than the current one")
}

// Client connects to the cluster that the flags name.
func (k *Flags) Client() (*Client, error) {
	config, err := Config(k.file, k.context)
	if err != nil && *k == (Flags{}) && clientcmd.IsEmptyConfig(errors.Unwrap(err)) {
		return nil, ErrNoCluster
	}
	if err != nil {
		return nil, err
	}
	return NewClient(config)
}

// Namespace is the one that kubectl uses unless it is told another: the context's, in a pod the pod's, else "default".
func (k *Flags) Namespace() (string, error) {
	namespace, _, err := loader(k.file, k.context).Namespace()
	return namespace, err
}
