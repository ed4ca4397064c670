package controller

import (
	corev1 "k8s.io/api/core/v1"

	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout/workload"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Options are the settings of a controller's command line.
type Options struct {
	// Dialects are the front ends; none is all of Weir's.
	Dialects dialect.List

	kube                 kube.Flags
	namespace, name, uid string
	namespaces           []string
	service, feed        string
	replica              string
	conversion           conversionFlags
	trafficMetrics       trafficFlags
	mesh                 meshFlags
	rollouts             bool
	named                []string
	released             workload.Kinds // the fixed ones, and those of named
	proxyImage           string
	pullPolicy           flags.Choice
	proxyLog             struct{ level, format string }
	elect                bool
	lease                string
	admin                string
	access               process.Access
	names                resource.HostNames
	settle, settleAtMost time.Duration
	drainDelay           time.Duration
	log                  process.LogFlags
	pathPolicy           model.PathPolicy
	exclusive            bool
	deny                 model.Deny
	trustDomain          string
}

// Flags adds them to a command.
func (o *Options) Flags(f *pflag.FlagSet) {
	o.kube.Flags(f)
	f.StringVar(&o.namespace, "namespace", "weir-system", "`namespace` of the controller's own objects")
	f.StringSliceVar(&o.namespaces, "namespaces", nil, "watch these `namespaces` (by comma) alone, and make nothing elsewhere; default: all")
	f.StringVar(&o.name, "name", "", "`name` of this replica, that of its pod (default: the host's)")
	f.StringVar(&o.uid, "pod-uid", "", "`UID` of this replica's pod, with which what it writes for other replicas is to go; without one that is left for ten minutes where the replica is killed")
	f.StringVar(&o.service, "controller-service", "weir-controller", "`name` of the Service in --namespace by which proxies reach the feed")
	f.StringVar(&o.feed, "feed-address", ":18000", "`address` to feed proxies at; the Service has the same port")
	f.StringVar(&o.replica, "replica-address", "", "`IP` address, that of the pod, at which other replicas reach this one's feed, to tap proxies that are connected here; without one they cannot")
	o.conversion.flags(f)
	o.trafficMetrics.flags(f)
	o.mesh.flags(f)
	f.BoolVar(&o.rollouts, "rollouts", false, "carry Rollouts out, unless OpenKruise's own controller does")
	f.StringSliceVar(&o.named, "rollout-workloads", nil, "further `kinds` of workloads that Rollouts may release (by comma), replaced by a partition as StatefulSets are: KIND:RESOURCE.GROUP, and behind a further colon the label of pods with their revision, if that is not controller-revision-hash")
	f.StringVar(&o.proxyImage, "proxy-image", "", "`image` of the proxies: Weir's, or that of weir-proxy alone")
	f.Var(&o.pullPolicy, "proxy-image-pull-policy", "when to pull it")
	f.StringVar(&o.proxyLog.level, "proxy-log-level", "", "--log-level of the proxies whose parameters do not say")
	f.StringVar(&o.proxyLog.format, "proxy-log-format", "", "--log-format of the proxies whose parameters do not say")
	f.BoolVar(&o.elect, "leader-elect", true, "lead only while holding the lease, as it must be with several replicas")
	f.StringVar(&o.lease, "lease", "weir-controller", "`name` of the lease in --namespace")
	f.StringVar(&o.admin, "admin", ":19081", "`address` of the admin endpoint (metrics, health, statuses), or off")
	f.StringSliceVar(&o.names.Suffixes, "external-names", nil, "`domains` under which backends may have host names (ExternalName Services, EndpointSlices of type FQDN); * is all but the cluster's own")
	f.StringVar(&o.names.ClusterDomain, "cluster-domain", resource.DefaultClusterDomain, "`domain` of the cluster's own names, which backends never have")
	f.StringVar(&o.access.TokenFile, "admin-token-file", "", "`file` with the token that all pages except metrics and health require; without one only the pod itself may see them")
	f.DurationVar(&o.settle, "settle", 30*time.Millisecond, "how long to wait for further changes before the newest state is translated")
	f.DurationVar(&o.settleAtMost, "max-settle", 300*time.Millisecond, "how long a stream of changes may put that off")
	f.DurationVar(&o.drainDelay, "drain-delay", 5*time.Second, "how long to keep feeding proxies and converting after SIGTERM or SIGINT, until others have taken over; /readyz answers 503, and another replica may lead")
	flags.PathPolicy(f, &o.pathPolicy)
	flags.ExclusiveHostnames(f, &o.exclusive)
	flags.AccessDeny(f, &o.deny)
	flags.TrustDomain(f, &o.trustDomain)
	o.log.Flags(f)
}

// validate checks the flags and fills in defaults.
func (o *Options) validate() error {
	if o.proxyImage == "" {
		return flags.Errorf("which image do the proxies run? Give --proxy-image")
	}
	for _, n := range o.namespaces {
		if problems := validation.IsDNS1123Label(n); len(problems) > 0 {
			return flags.Errorf("--namespaces: %q is not a namespace: %s", n, strings.Join(problems, "; "))
		}
	}
	slices.Sort(o.namespaces)
	o.namespaces = slices.Compact(o.namespaces)
	kinds, err := workload.Named(o.named)
	if err != nil {
		return flags.Errorf("--rollout-workloads: %w", err)
	}
	o.released = kinds
	if err := o.access.Check(); err != nil {
		return err
	}
	if o.settle < 0 || o.settleAtMost < 0 {
		return flags.Errorf("--settle and --max-settle must not be below zero")
	}
	if o.drainDelay < 0 {
		return flags.Errorf("--drain-delay must not be below zero")
	}
	if _, _, err := net.SplitHostPort(o.feed); err != nil {
		return flags.Errorf("--feed-address %q: %w", o.feed, err)
	}
	if _, err := netip.ParseAddr(o.replica); o.replica != "" && err != nil {
		return flags.Errorf("--replica-address %q: want an IP address", o.replica)
	}
	if err := o.conversion.check(); err != nil {
		return err
	}
	if err := o.trafficMetrics.check(o.conversion.on()); err != nil {
		return err
	}
	if err := o.mesh.check(); err != nil {
		return err
	}
	if s := o.sidecarSettings(); o.injects() && !strings.HasSuffix(s.Controller, ":0") { // a port that the system is to choose is known later
		if err := s.Validate(); err != nil {
			return flags.Errorf("--mesh: sidecars cannot be made: %w", err)
		}
	}
	if o.name == "" {
		name, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("--name is not given, and the host has none: %w", err)
		}
		o.name = strings.ToLower(name)
	}
	return nil
}

// pod is the one of this replica; nil if it is not known to run in one.
func (o *Options) pod() *metav1.OwnerReference {
	if o.uid == "" {
		return nil
	}
	return &metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: o.name, UID: types.UID(o.uid)}
}

// scope is the part of the cluster that is read.
func (o *Options) scope() kube.Scope {
	return kube.Scope{Namespaces: o.namespaces, Own: o.namespace}
}

// collectorPercent is the GOGC of a controller: it holds all objects of a cluster, and spends little time on garbage
// collection. With Go's default of 100 it takes a fifth more memory for 10,000 routes, and is no quicker (make
// bench-control).
const collectorPercent = 70

// feedHosts are the names by which proxies reach the feed.
func (o *Options) feedHosts() []string {
	return []string{
		o.service + "." + o.namespace + ".svc",
		o.service + "." + o.namespace + ".svc.cluster.local",
		o.service + "." + o.namespace,
		o.service,
	}
}

// feedTarget is where proxies are told to go.
func (o *Options) feedTarget() string {
	_, port, _ := net.SplitHostPort(o.feed) // checked
	return net.JoinHostPort(o.feedHosts()[0], port)
}

// ownAddress is where other replicas reach this one; empty if they cannot.
func (o *Options) ownAddress() string {
	if o.replica == "" {
		return ""
	}
	_, port, _ := net.SplitHostPort(o.feed) // checked
	return net.JoinHostPort(o.replica, port)
}

// Run serves until ctx ends, or until something fails that everything needs; a *flags.Fault is a wrong command line.
func (o *Options) Run(ctx context.Context, stderr io.Writer) error {
	log, processLog, closeProcessLog := o.log.Open(stderr)
	defer closeProcessLog()
	process.IgnoreBrokenPipes()
	if err := o.validate(); err != nil {
		return err
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectorPercent)
	}
	process.CollectWithin(process.GroupMemory())
	c, err := newControlPlane(o, log, processLog)
	if err != nil {
		return err
	}
	if err := c.run(ctx); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// imagePullPolicy of the proxies.
func (o *Options) imagePullPolicy() corev1.PullPolicy {
	return corev1.PullPolicy(o.pullPolicy.Value)
}

// translation is how the controller understands the cluster's objects.
func (o *Options) translation() control.Options {
	options := control.InCluster()
	options.Names, options.PathPolicy, options.ExclusiveHostnames, options.Dialects = &o.names, o.pathPolicy, o.exclusive, o.Dialects
	options.Deny, options.TrustDomain, options.Mesh = o.deny, o.trustDomain, o.mesh.on
	options.SubjectNames, options.Excluded = o.mesh.grants, inject.ExcludedNamespaces(o.namespace)
	return options
}

// kinds are those that the controller reads.
func (o *Options) kinds() resource.Kinds { return o.translation().Kinds() }

// NewOptions returns them with their defaults.
func NewOptions() *Options {
	return &Options{log: process.NewLogFlags(), pullPolicy: flags.NewChoice("IfNotPresent", "Always", "Never")}
}
