package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/gateway-api/pkg/consts"

	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/access"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

// DefaultNamespace, DefaultName and DefaultLease are the controller's namespace, name and lease unless others are
// given.
const (
	DefaultNamespace = "weir-system"
	DefaultName      = "weir-controller"
	DefaultLease     = "weir-controller"
)

// Release of the Gateway API that Weir is built for.
const Release = consts.BundleVersion

// Options select what to inspect.
type Options struct {
	// Kinds are those that the controller reads.
	Kinds resource.Kinds
	// ControllerName is that of the GatewayClasses that are ours.
	ControllerName string
	// Namespace of the controller; empty looks for it.
	Namespace string
	// Access also checks the controller's rights, which takes a hundred small requests, and the rules of all roles.
	Access bool
}

// Input is the objects of a cluster, and their translation.
type Input struct {
	Set      *resource.Set
	Config   *model.Config
	Statuses []resource.Status
	// Complete means that everything could be read that the controller reads. Otherwise it is not known what proxies
	// should run.
	Complete bool
}

// Cluster is what exists of Weir.
type Cluster struct {
	Definitions []Definition
	// Controller is nil if there is none.
	Controller *Controller
	// Missing are the rights that the controller's ServiceAccount lacks.
	Missing []Missing
	// Unwatched are the Gateways of our classes, "namespace/name", in namespaces that the controller does not watch, sorted.
	Unwatched []model.Owner
	// Gateways that are ours, by "namespace/name".
	Gateways map[model.Owner]*Gateway
	// Seen means that the Gateways' objects in the cluster could be read, so that they can be judged.
	Seen bool
	// Conversions are how versions are converted, of the definitions that there are and may be read.
	Conversions []Conversion
	// APIServices are those of Traffic Metrics that exist, whoever answers them; APIServicesSeen says that they could be
	// read.
	APIServices     []APIService
	APIServicesSeen bool
	// Obstacle keeps a controller from carrying Rollouts out that is to.
	Obstacle release.Obstacle
	// Rollouts is what is wrong with those that the controller carries out.
	Rollouts []resource.Finding
	// Sidecars is what there is of sidecars; nil if the controller makes none.
	Sidecars *Sidecars
	// Roles is what is wrong with rules about Traffic Metrics.
	Roles []resource.Finding
	// NotSeen is what may not be read, with the reason.
	NotSeen []NotSeen
}

// Missing is something that the controller may not do in a namespace, or in all if that is empty.
type Missing struct {
	access.Verb
	Namespace string
}

// Definition is a kind that has a custom resource definition.
type Definition struct {
	kube.Installed
	// There means that the definition exists, in whatever versions.
	There bool
	// Release and Channel are those in the definition; empty if it does not have them, or may not be read.
	Release, Channel string
}

// Controller is the Deployment of the control plane.
type Controller struct {
	Namespace, Name, ServiceAccount, Image string
	Replicas, Ready                        int32
	// Elects means that a leader is elected by the lease Lease, which Leader holds; Leader is empty if nobody does.
	Elects        bool
	Lease, Leader string
	// Service is the name of that by which it is reached.
	Service string
	// Namespaces are the namespaces that it watches, sorted; none means all.
	Namespaces []string
	// TrafficMetrics says that it serves them. Prometheus is the one that it asks; empty if it reads proxies itself.
	TrafficMetrics bool
	Prometheus     string
	// Rollouts says that it is to carry Rollouts out, of these kinds of workloads.
	Rollouts  bool
	Workloads workload.Kinds
	// Sidecars are the settings of those that it puts into pods; nil if it does not. Authority is the Secret whose
	// authority signs their identities; empty if it is the controller's own.
	Sidecars  *inject.Settings
	Authority string
	meshed    bool
}

// mesh reads an argument of the controller about sidecars.
func (c *Controller) mesh(arg string) {
	c.meshed = c.meshed || arg == "--mesh" || arg == "--mesh=true"
	if name, ok := strings.CutPrefix(arg, "--mesh-authority-secret="); ok {
		c.Authority = name
	}
	if image, ok := strings.CutPrefix(arg, "--proxy-image="); ok {
		c.Sidecars.Image = image
	}
	for flag, amounts := range map[string]*inject.Amounts{"--sidecar-requests=": &c.Sidecars.Requests, "--sidecar-limits=": &c.Sidecars.Limits} {
		if text, ok := strings.CutPrefix(arg, flag); ok {
			_ = amounts.Set(text) // the controller would not have started with another
		}
	}
}

// Gateway is what exists of one Gateway.
type Gateway struct {
	infra.Found
	// Missing are the objects that should be there, as "Kind name".
	Missing []string
	// Version is that of the configuration which its proxies should run; empty if it is not known.
	Version string
	// Proxies that are connected to the controller.
	Proxies []feed.Proxy
}

// NotSeen is something that may not be looked at.
type NotSeen struct {
	What, Reason string
}

// Read inspects the cluster. The error is for an API server that does not answer; what may not be read is left out.
func Read(ctx context.Context, c *kube.Client, in Input, o Options) (*Cluster, error) {
	r := &reader{client: c, Options: o, out: &Cluster{Gateways: map[model.Owner]*Gateway{}, Seen: true}}
	if err := r.definitions(ctx); err != nil {
		return nil, err
	}
	if err := r.controller(ctx); err != nil {
		return nil, err
	}
	if o.Access {
		if r.out.Controller != nil {
			if err := r.access(ctx); err != nil {
				return nil, err
			}
		}
		if err := r.roles(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.sidecars(ctx, in.Set); err != nil {
		return nil, err
	}
	if err := r.gateways(ctx, in); err != nil {
		return nil, err
	}
	if err := r.conversions(ctx); err != nil {
		return nil, err
	}
	if r.out.Controller != nil {
		if err := r.apiServices(ctx); err != nil {
			return nil, err
		}
	}
	if err := r.rollouts(ctx); err != nil {
		return nil, err
	}
	if err := r.unwatched(ctx, in); err != nil {
		return nil, err
	}
	return r.out, nil
}

type reader struct {
	client *kube.Client
	Options
	out *Cluster
	// trust is the ConfigMap of a Gateway with the controller's certificates; its name is empty if there is none.
	trust client.ObjectKey
}

// refused notes what may not be read, and reports whether err means that.
func (r *reader) refused(what string, err error) bool {
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		return false
	}
	r.out.NotSeen = append(r.out.NotSeen, NotSeen{what, err.Error()})
	return true
}

func (r *reader) definitions(ctx context.Context) error {
	installed, err := r.client.Installed(ctx, r.Kinds)
	if err != nil {
		return err
	}
	blind := false
	for _, i := range installed {
		d := Definition{Installed: i, There: i.Version != ""}
		if !blind {
			var m metav1.PartialObjectMetadata
			m.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"})
			err := r.client.Get(ctx, client.ObjectKey{Name: i.Definition}, &m)
			switch {
			case err == nil:
				d.There = true
				d.Release, d.Channel = m.Annotations[consts.BundleVersionAnnotation], m.Annotations[consts.ChannelAnnotation]
			case r.refused("custom resource definitions (of which release they are)", err):
				blind = true
			case !apierrors.IsNotFound(err):
				return fmt.Errorf("custom resource definition %s: %w", i.Definition, err)
			}
		}
		r.out.Definitions = append(r.out.Definitions, d)
	}
	return nil
}

// controllerLabels are the labels of the controller's Deployment.
var controllerLabels = client.MatchingLabels{"app.kubernetes.io/name": "weir", "app.kubernetes.io/component": "controller"}

func (r *reader) controller(ctx context.Context) error {
	d, err := r.deployment(ctx)
	if d == nil || err != nil {
		return err
	}
	r.out.Controller = describe(d)
	return r.lease(ctx, r.out.Controller)
}

// describe describes a Deployment of the controller.
func describe(d *appsv1.Deployment) *Controller {
	c := &Controller{
		Namespace: d.Namespace, Name: d.Name, Replicas: 1, Ready: d.Status.ReadyReplicas, Elects: true, Lease: DefaultLease, Service: DefaultName,
		ServiceAccount: d.Spec.Template.Spec.ServiceAccountName, Sidecars: inject.NewSettings(),
	}
	c.Sidecars.Namespace = d.Namespace
	if d.Spec.Replicas != nil {
		c.Replicas = *d.Spec.Replicas
	}
	var named []string
	for _, container := range d.Spec.Template.Spec.Containers {
		if !slices.Contains(container.Args, "controller") {
			continue
		}
		c.Image = container.Image
		for _, arg := range container.Args {
			if name, ok := strings.CutPrefix(arg, "--lease="); ok {
				c.Lease = name
			}
			if name, ok := strings.CutPrefix(arg, "--controller-service="); ok {
				c.Service = name
			}
			if url, ok := strings.CutPrefix(arg, "--prometheus="); ok {
				c.Prometheus = url
			}
			c.mesh(arg)
			c.TrafficMetrics = c.TrafficMetrics || arg == "--traffic-metrics" || arg == "--traffic-metrics=true"
			c.Rollouts = c.Rollouts || arg == "--rollouts" || arg == "--rollouts=true"
			if kinds, ok := strings.CutPrefix(arg, "--rollout-workloads="); ok {
				named = append(named, strings.Split(kinds, ",")...)
			}
			c.Elects = c.Elects && arg != "--leader-elect=false"
			if names, ok := strings.CutPrefix(arg, "--namespaces="); ok {
				c.Namespaces = append(c.Namespaces, strings.Split(names, ",")...)
			}
		}
		for _, e := range container.Env {
			if e.Name == "WEIR_NAMESPACES" && e.Value != "" && len(c.Namespaces) == 0 {
				c.Namespaces = strings.Split(e.Value, ",")
			}
		}
	}
	slices.Sort(c.Namespaces)
	c.Namespaces = slices.Compact(c.Namespaces)
	c.Workloads, _ = workload.Named(named) // the controller would not have started with others
	if !c.meshed {
		c.Sidecars = nil
	}
	return c
}

// Scope is what the controller of a cluster reads: everything, if there is none or it may not be read.
func Scope(ctx context.Context, c *kube.Client, namespace string) (kube.Scope, error) {
	r := &reader{client: c, Options: Options{Namespace: namespace}, out: &Cluster{}}
	d, err := r.deployment(ctx)
	if d == nil || err != nil {
		return kube.Scope{}, err
	}
	return kube.Scope{Namespaces: describe(d).Namespaces, Own: d.Namespace}, nil
}

// deployment is the controller's; nil if there is none, or it may not be read.
func (r *reader) deployment(ctx context.Context) (*appsv1.Deployment, error) {
	var list appsv1.DeploymentList
	err := r.client.List(ctx, &list, client.InNamespace(r.Namespace), controllerLabels)
	if apierrors.IsForbidden(err) && r.Namespace == "" {
		err = r.client.List(ctx, &list, client.InNamespace(DefaultNamespace), controllerLabels)
	}
	switch {
	case r.refused("the controller's Deployment", err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("the controller's Deployment: %w", err)
	case len(list.Items) == 0:
		return nil, nil
	}
	return &list.Items[0], nil
}

func (r *reader) lease(ctx context.Context, c *Controller) error {
	if !c.Elects {
		return nil
	}
	var lease coordinationv1.Lease
	err := r.client.Get(ctx, client.ObjectKey{Namespace: c.Namespace, Name: c.Lease}, &lease)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case r.refused("the controller's lease", err):
		c.Elects = false // not known
		return nil
	case err != nil:
		return fmt.Errorf("the controller's lease: %w", err)
	}
	if s := lease.Spec; s.HolderIdentity != nil && s.RenewTime != nil && s.LeaseDurationSeconds != nil &&
		time.Since(s.RenewTime.Time) <= time.Duration(*s.LeaseDurationSeconds)*time.Second {
		c.Leader = *s.HolderIdentity
	}
	return nil
}

// gateways reads the objects of Gateways, a list for each kind.
func (r *reader) gateways(ctx context.Context, in Input) error {
	versions := in.Config.ByOwner()
	plans := infra.Options{Controller: "controller:1", Image: "image", CA: "none"}.Plans(in.Set, r.ControllerName, in.Config, in.Statuses)
	made, err := r.made(ctx)
	if err != nil {
		return err
	}
	running := map[model.Owner][]feed.Proxy{}
	if c := r.out.Controller; c != nil {
		running, err = replica.ReadBoard(ctx, r.client, c.Namespace)
		if r.refused("what proxies run (ConfigMaps of namespace "+c.Namespace+")", err) {
			r.out.Seen = false
		} else if err != nil {
			return fmt.Errorf("what proxies run: %w", err)
		}
	}
	for _, p := range plans {
		if g := in.Set.Gateway(p.Gateway.Namespace(), p.Gateway.Name()); g == nil || in.Set.OwnerOf(r.ControllerName, g) != resource.Ours {
			continue
		}
		g := &Gateway{Proxies: running[p.Gateway], Found: infra.Found{Services: map[string]*corev1.Service{}}}
		r.out.Gateways[p.Gateway] = g
		if cfg := versions[p.Gateway]; in.Complete && cfg != nil {
			g.Version = feed.Version(cfg)
		} else if in.Complete {
			g.Version = feed.Version(&model.Config{})
		}
		namespace := p.Gateway.Namespace()
		for _, o := range p.Objects {
			found, there := made[object{o.GetKind(), namespace, o.GetName()}]
			switch f := found.(type) {
			case *appsv1.Deployment:
				g.Deployment = f
			case *corev1.Service:
				g.Services[f.Name] = f
			}
			if there && o.GetKind() == "ConfigMap" && r.trust.Name == "" {
				r.trust = client.ObjectKey{Namespace: namespace, Name: o.GetName()}
			}
			if !there && r.out.Seen && !p.Keep {
				g.Missing = append(g.Missing, o.GetKind()+" "+o.GetName())
			}
		}
	}
	return nil
}

// unwatched looks for Gateways of our classes where the controller does not.
func (r *reader) unwatched(ctx context.Context, in Input) error {
	c := r.out.Controller
	if c == nil || len(c.Namespaces) == 0 {
		return nil
	}
	var list gatewayv1.GatewayList
	if err := r.client.List(ctx, &list); r.refused("Gateways of namespaces that the controller does not watch", err) || meta.IsNoMatchError(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("the Gateways of all namespaces: %w", err)
	}
	for i := range list.Items {
		g := &list.Items[i]
		if in.Set.OwnerOf(r.ControllerName, g) == resource.Ours && !slices.Contains(c.Namespaces, g.Namespace) {
			r.out.Unwatched = append(r.out.Unwatched, model.GatewayOwner(g.Namespace, g.Name))
		}
	}
	slices.Sort(r.out.Unwatched)
	return nil
}

type object struct{ kind, namespace, name string }

// made are the objects that infra created, of all Gateways. They are typed if more than their names is needed.
func (r *reader) made(ctx context.Context) (map[object]client.Object, error) {
	out := map[object]client.Object{}
	labels := client.MatchingLabels{"app.kubernetes.io/managed-by": infra.ManagedBy}
	var deployments appsv1.DeploymentList
	var services corev1.ServiceList
	for _, list := range []struct {
		of    string
		items client.ObjectList
	}{{"Deployments", &deployments}, {"Services", &services}} {
		if err := r.client.List(ctx, list.items, labels); r.refused(list.of+" of Gateways", err) {
			r.out.Seen = false
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", list.of, err)
		}
	}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		out[object{"Deployment", d.Namespace, d.Name}] = d
	}
	for i := range services.Items {
		s := &services.Items[i]
		out[object{"Service", s.Namespace, s.Name}] = s
	}
	for _, gvk := range []schema.GroupVersionKind{
		{Version: "v1", Kind: "ServiceAccount"}, {Version: "v1", Kind: "ConfigMap"}, {Group: "policy", Version: "v1", Kind: "PodDisruptionBudget"},
	} {
		var list metav1.PartialObjectMetadataList
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		if err := r.client.List(ctx, &list, labels); r.refused(gvk.Kind+"s of Gateways", err) {
			r.out.Seen = false
		} else if err != nil {
			return nil, fmt.Errorf("%ss: %w", gvk.Kind, err)
		}
		for i := range list.Items {
			m := &list.Items[i]
			out[object{gvk.Kind, m.Namespace, m.Name}] = m
		}
	}
	return out, nil
}
