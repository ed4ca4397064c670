package kube

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// ErrNoCluster is returned by Flags.Client if neither flags nor files nor the environment name a cluster.
var ErrNoCluster = errors.New("no cluster is named")

// Flags say which cluster, and who asks it.
type Flags struct {
	file      string
	overrides clientcmd.ConfigOverrides
	set       *pflag.FlagSet
	names     []string // of these flags in set
}

// Flags adds those that say which cluster to a command.
func (k *Flags) Flags(f *pflag.FlagSet) {
	k.set = f
	f.StringVar(&k.file, "kubeconfig", "", "`file` that says how to reach the API server (default: $KUBECONFIG, ~/.kube/config, or the pod's own)")
	f.StringVar(&k.overrides.CurrentContext, "context", "", "`name` of a context in it other than the current one")
	k.names = []string{"kubeconfig", "context"}
}

// User adds to Flags those of kubectl that say who asks and how, for commands that people run, and returns their names.
func (k *Flags) User(f *pflag.FlagSet) []string {
	// Each has a usage of its own: clientcmd's name no value.
	flag := func(name, short, usage string) clientcmd.FlagInfo {
		k.names = append(k.names, name)
		return clientcmd.FlagInfo{LongName: name, ShortName: short, Description: usage}
	}
	first := len(k.names)
	clientcmd.BindOverrideFlags(&k.overrides, f, clientcmd.ConfigOverrideFlags{
		AuthOverrideFlags: clientcmd.AuthOverrideFlags{
			Impersonate:       flag("as", "", "`user` to ask in the name of, which you must be allowed to"),
			ImpersonateGroups: flag("as-group", "", "`group` of that user; repeat it for several"),
			Token:             flag("token", "", "bearer `token` to ask the API server with; others on this machine can see it"),
		},
		ClusterOverrideFlags: clientcmd.ClusterOverrideFlags{
			APIServer:             flag("server", "s", "`address` of the API server"),
			CertificateAuthority:  flag("certificate-authority", "", "`file` of the certificates by which the API server is trusted"),
			InsecureSkipTLSVerify: flag("insecure-skip-tls-verify", "", "trust any server at the API server's address; whoever answers there gets your credentials"),
		},
		Timeout: flag("request-timeout", "", "`time` that one request may take, such as 10s (default: the command's own)"),
	})
	return slices.Clone(k.names[first:])
}

// Given reports whether one of the flags is set.
func (k *Flags) Given() bool {
	return slices.ContainsFunc(k.names, func(name string) bool { return k.set.Changed(name) })
}

// Client connects to the cluster that the flags name.
func (k *Flags) Client() (*Client, error) {
	config, err := k.config()
	if err != nil && !k.Given() && clientcmd.IsEmptyConfig(errors.Unwrap(err)) {
		return nil, ErrNoCluster
	}
	if err != nil {
		return nil, err
	}
	return NewClient(config)
}

// config is how the API server is reached. Requests are not rate-limited here: their senders are bounded, and the API
// server shares its capacity fairly.
func (k *Flags) config() (*rest.Config, error) {
	if o := &k.overrides.AuthInfo; o.Impersonate == "" && len(o.ImpersonateGroups) > 0 {
		return nil, errors.New("--as-group says of which group the user of --as is: give both")
	}
	timeout := k.overrides.Timeout
	if timeout == "" {
		timeout = "0"
	}
	limit, err := clientcmd.ParseTimeout(timeout)
	if err != nil || limit < 0 {
		return nil, fmt.Errorf("--request-timeout %q is no duration, such as 10s", timeout)
	}
	config, err := k.loader().ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("no connection to a Kubernetes API server: %w", err)
	}
	config.QPS = -1
	config.UserAgent = "weir"
	k.complete(config, limit)
	return config, nil
}

// complete adds what the loader leaves out in a pod that asks with its own account.
func (k *Flags) complete(config *rest.Config, limit time.Duration) {
	if o := &k.overrides.AuthInfo; o.Impersonate != "" {
		config.Impersonate.UserName, config.Impersonate.Groups = o.Impersonate, o.ImpersonateGroups
	}
	config.Timeout = limit
}

// Namespace is the one that kubectl uses unless it is told another: the context's, in a pod the pod's, else "default".
func (k *Flags) Namespace() (string, error) {
	namespace, _, err := k.loader().Namespace()
	return namespace, err
}

func (k *Flags) loader() clientcmd.ClientConfig {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = k.file
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &k.overrides)
}
