package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/control"
	dialect "github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/dialect/tlsconfig"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/inspect"
	"github.com/weirmesh/weir/internal/resource"
)

// lookTimeout bounds the reading of a cluster.
const lookTimeout = 2 * time.Minute

// input is the source of a command that reads configuration: files, or without paths a cluster.
type input struct {
	kube    kube.Flags
	options *control.Options
	target  *flags.Choice
	// controller is the controller's namespace, for commands that look at it.
	controller string
	// workloads means that what runs in a cluster is read even if nothing there needs it.
	workloads bool
}

func newInput(s streams, cmd *cobra.Command) *input {
	i := &input{options: translation(s, cmd), target: targetFlag(cmd)}
	clusterFlags(&i.kube, cmd.Flags())
	return i
}

// clusterFlags adds the flags of commands that talk to a cluster for people. Who asks is for the command line and the
// kubeconfig alone: a variable such as WEIR_AS is for others.
func clusterFlags(k *kube.Flags, f *pflag.FlagSet) {
	k.Flags(f)
	flags.NotFromEnvironment(f, k.User(f)...)
}

// forController adds the flag for commands that look at the controller, too.
func (i *input) forController(f *pflag.FlagSet) {
	f.StringVar(&i.controller, "controller-namespace", "", "`namespace` of the controller (default: wherever one is found)")
}

// asked means that a flag names a cluster.
func (i *input) asked() bool { return i.kube.Given() || i.controller != "" }

// look is what was read, and its translation.
type look struct {
	set *resource.Set
	control.Result
	// aim is zero for a cluster.
	aim
	// trustDomain is that of the own identities.
	trustDomain string
	// client is of the cluster that was read; nil for files.
	client *kube.Client
}

// separate means that each Gateway has its own proxies.
func (l *look) proxyPerGateway() bool { return l.client != nil || l.Target == control.TargetCluster }

func (l *look) close() {
	if l.client != nil {
		l.client.Close()
	}
}

// load reads the paths, or the cluster if there are none.
func (i *input) load(ctx context.Context, paths []string, stdin io.Reader) (*look, error) {
	if len(paths) > 0 {
		if i.asked() {
			return nil, flags.Errorf("give either PATHs or a cluster (--kubeconfig, --context and the like), not both")
		}
		set, result, meant, err := load(paths, stdin, *i.options, i.target)
		return &look{set: set, Result: result, aim: meant, trustDomain: i.options.TrustDomain}, err
	}
	kube.Quiet()
	client, err := i.kube.Client()
	switch {
	case errors.Is(err, kube.ErrNoCluster) && !i.asked():
		return nil, flags.Errorf("which files, or which cluster? Give at least one PATH, - for the standard input, or --kubeconfig FILE ($KUBECONFIG, ~/.kube/config) for a cluster")
	case err != nil:
		return nil, &exitError{exitUsage, err}
	}
	l := &look{client: client}
	if err := l.again(ctx, i); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

// again reads the cluster once more.
func (l *look) again(ctx context.Context, i *input) (err error) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	scope, err := inspect.Scope(ctx, l.client, i.controller)
	if err != nil {
		return err
	}
	settings, err := inspect.ReadSettings(ctx, l.client, i.controller)
	if err != nil {
		return err
	}
	if l.set, err = kube.Load(ctx, l.client, i.options.Kinds(), dialect.ControllerName, scope, i.workloads || settings.Mesh); err != nil {
		return err
	}
	options := control.InCluster()
	options.Dialects = i.options.Dialects
	options.Names = inspect.Names(ctx, l.client, i.controller)
	if len(i.options.Serve) > 0 {
		options.Serve = i.options.Serve
	}
	options.PathPolicy, options.ExclusiveHostnames = i.options.PathPolicy, i.options.ExclusiveHostnames
	// What the controller goes by, unless a flag says otherwise.
	options.Mesh = settings.Mesh
	options.Deny = cmp.Or(i.options.Deny, settings.Deny)
	if options.TrustDomain = i.options.TrustDomain; options.TrustDomain == spiffe.DefaultTrustDomain {
		options.TrustDomain = cmp.Or(settings.TrustDomain, options.TrustDomain)
	}
	granted, _ := tlsconfig.ParseGrants(settings.SubjectNames) // the controller would not have started with others
	options.SubjectNames = slices.Concat(i.options.SubjectNames, granted)
	options.Excluded = inject.ExcludedNamespaces(scope.Own)
	l.trustDomain = options.TrustDomain
	l.Result, err = options.Translate(l.set)
	return err
}

// inspect reads what runs in the cluster. If a change is on its way, it reads once more after a moment, and that is in
// l.
func (l *look) inspect(ctx context.Context, i *input, rights bool) (*inspect.Cluster, []resource.Finding, error) {
	for last := false; ; last = true {
		c, err := inspect.Read(ctx, l.client, l.input(), inspect.Options{Kinds: i.options.Kinds(), ControllerName: dialect.ControllerName, Namespace: i.controller, Access: rights})
		if err != nil {
			return nil, nil, err
		}
		findings := c.Findings(l.input(), dialect.ControllerName)
		if last || !inspect.Passing(findings) {
			return c, findings, nil
		}
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-time.After(settleTime):
		}
		if err := l.again(ctx, i); err != nil {
			return nil, nil, err
		}
	}
}

// settleTime is how long the controller may take to bring all in line with a change.
const settleTime = 2 * time.Second

func (l *look) input() inspect.Input {
	in := inspect.Input{Set: l.set, Config: l.Config, Statuses: l.Statuses, Complete: true}
	for _, f := range l.set.Findings {
		if f.Code == resource.CodeRefused || f.Code == resource.CodeUnread {
			in.Complete = false
		}
	}
	return in
}
