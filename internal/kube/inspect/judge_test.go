package inspect

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/access"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/resource/rules"
)

func init() { resource.CheckRules(rules.Compile) }

var update = flag.Bool("update", false, "rewrite the golden files")

const controllerName = "weirmesh.github.io/gateway-controller"

// objects of a cluster.
const objects = `
apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: weir}
spec: {controllerName: weirmesh.github.io/gateway-controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  gatewayClassName: weir
  listeners: [{name: http, port: 80, protocol: HTTP}]
`

func isTrue(kind, reason string) resource.Condition {
	return resource.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason}
}

// input is what the objects mean by themselves.
func input(t *testing.T) Input {
	t.Helper()
	set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(objects))
	if err != nil || len(set.Gateways) != 1 {
		t.Fatalf("%v: %v", err, set.Findings)
	}
	written := func(kind string) metav1.Condition { return metav1.Condition{Type: kind, Status: "True", Reason: kind} }
	class, gateway := set.GatewayClasses[0], set.Gateways[0]
	class.Status.Conditions = []metav1.Condition{written("Accepted")}
	gateway.Status.Conditions = []metav1.Condition{written("Accepted"), written("Programmed")}
	gateway.Status.Addresses = []gatewayv1.GatewayStatusAddress{{Value: "10.0.0.1"}}
	return Input{Set: set, Config: &model.Config{}, Complete: true, Statuses: []resource.Status{
		{Ref: model.Ref{Kind: "Gateway", Namespace: "shop", Name: "edge"}, Conditions: []resource.Condition{
			isTrue("Accepted", "Accepted"), isTrue("Programmed", "Programmed"),
		}},
		{Ref: model.Ref{Kind: "GatewayClass", Name: "weir"}, Conditions: []resource.Condition{isTrue("Accepted", "Accepted")}},
	}}
}

func definitions(release, channel string) (all []Definition) {
	for _, k := range dialect.Kinds().InCluster() {
		if k.Custom() {
			d := Definition{There: true}
			d.Installed = kube.Installed{Kind: k, Definition: strings.ToLower(k.Name) + "." + k.Group, Version: k.Versions[0]}
			if k.Group == "gateway.networking.k8s.io" {
				d.Release, d.Channel = release, channel
			}
			all = append(all, d)
		}
	}
	return all
}

// authority makes one at a time and returns its bundle.
func authority(at time.Time) []byte {
	a, err := identity.New(at)
	if err != nil {
		panic(err)
	}
	return a.Bundle()
}

// good1 is the bundle of an authority, ended that of one of long ago.
var good1, ended = authority(time.Now()), authority(time.Now().Add(-2 * identity.RootLife))

// conversion edits that of the good cluster.
func conversion(edit func(*Conversion)) func(*Cluster, *Input) {
	return func(c *Cluster, _ *Input) { edit(&c.Conversions[0]) }
}

// good is a cluster in which all is well.
func good() *Cluster {
	two := int32(2)
	return &Cluster{
		Definitions: definitions(Release, "experimental"), Seen: true,
		Conversions: []Conversion{{
			Definition: "trafficsplits.split.smi-spec.io", Converted: []string{"v1alpha1"}, Webhook: true, Service: "weir-system/weir-controller", Endpoints: 2,
			Bundle: append(slices.Clone(ended), good1...), Authority: good1,
		}},
		Controller: &Controller{Namespace: "weir-system", Name: "weir-controller", Service: "weir-controller", ServiceAccount: "weir-controller", Replicas: 2, Ready: 2, Elects: true, Lease: "weir-controller", Leader: "a"},
		Gateways: map[model.Owner]*Gateway{"shop/edge": {
			Version: "0123456789", Proxies: []feed.Proxy{{Name: "shop/a", Version: "0123456789", Since: time.Unix(0, 0)}, {Name: "shop/b", Version: "0123456789"}},
			Found: infra.Found{
				Deployment: &appsv1.Deployment{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge-weir"}, Spec: appsv1.DeploymentSpec{Replicas: &two}, Status: appsv1.DeploymentStatus{ReadyReplicas: 2, AvailableReplicas: 2},
				},
				Services: map[string]*corev1.Service{"edge-weir": {
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge-weir"}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer},
					Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "10.0.0.1"}}}},
				}},
			},
		}},
	}
}

// TestFindings compares the findings about each fault with golden files; without a fault there are none.
func TestFindings(t *testing.T) {
	missing := func(names ...string) func(*Cluster, *Input) {
		return func(c *Cluster, _ *Input) {
			for i := range c.Definitions {
				for _, n := range names {
					if c.Definitions[i].Name == n {
						c.Definitions[i].Version, c.Definitions[i].There = "", n == "ListenerSet"
					}
				}
			}
		}
	}
	gateway := func(edit func(*Gateway)) func(*Cluster, *Input) {
		return func(c *Cluster, _ *Input) { edit(c.Gateways["shop/edge"]) }
	}
	cases := map[string]func(*Cluster, *Input){
		"good":          func(*Cluster, *Input) {},
		"kinds":         missing("GatewayClass", "ListenerSet", "TrafficSplit"),
		"older":         func(c *Cluster, _ *Input) { c.Definitions = definitions("v1.4.0", "standard") },
		"newer":         func(c *Cluster, _ *Input) { c.Definitions = definitions("v1.9.0", "experimental") },
		"standard":      func(c *Cluster, _ *Input) { c.Definitions = definitions(Release, "standard") },
		"no controller": func(c *Cluster, _ *Input) { c.Controller = nil },
		"controller":    func(c *Cluster, _ *Input) { c.Controller.Ready, c.Controller.Leader = 1, "" },
		"crashed":       func(c *Cluster, _ *Input) { c.Controller.Ready = 0 },
		"permissions": func(c *Cluster, _ *Input) {
			for _, v := range []access.Verb{{Resource: "secrets", Verb: "get"}, {Resource: "secrets", Verb: "list"}, {Resource: "secrets", Verb: "update", Name: "weir-authority"}} {
				c.Missing = append(c.Missing, Missing{Verb: v})
			}
		},
		"namespaces": func(c *Cluster, _ *Input) {
			c.Controller.Namespaces, c.Unwatched = []string{"blog", "shop"}, []model.Owner{"other/edge"}
			for _, v := range []access.Verb{{Resource: "secrets", Verb: "get"}, {Resource: "secrets", Verb: "list"}} {
				c.Missing = append(c.Missing, Missing{v, "shop"})
			}
			c.Missing = append(c.Missing, Missing{access.Verb{Resource: "namespaces", Verb: "list", Name: "shop"}, ""})
		},
		"conversion without strategy": conversion(func(c *Conversion) { c.Webhook = false }),
		"conversion without bundle":   conversion(func(c *Conversion) { c.Bundle = nil }),
		"conversion by another":       conversion(func(c *Conversion) { c.Service = "mesh/webhook" }),
		"conversion ended":            conversion(func(c *Conversion) { c.Bundle = ended }),
		"conversion stale":            conversion(func(c *Conversion) { c.Bundle = authority(time.Now()) }),
		"conversion without service":  conversion(func(c *Conversion) { c.NoService, c.Endpoints = true, -1 }),
		"conversion without pods":     conversion(func(c *Conversion) { c.Endpoints = 0 }),
		"conversion fails": conversion(func(c *Conversion) {
			c.Failure = `conversion webhook for split.smi-spec.io/v1alpha4, Kind=TrafficSplit failed: Post "https://...": i/o timeout`
		}),
		"conversion unserved": conversion(func(c *Conversion) {
			c.Converted, c.Unserved, c.Webhook, c.Bundle = nil, []string{"v1alpha1"}, false, nil
		}),
		"rollouts good": func(c *Cluster, _ *Input) { c.Controller.Rollouts = true },
		"rollouts of OpenKruise": func(c *Cluster, _ *Input) {
			c.Controller.Rollouts, c.Obstacle = true, release.OpenKruise
		},
		"rollouts undefined": func(c *Cluster, _ *Input) { c.Controller.Rollouts, c.Obstacle = true, release.Undefined },
		"no class":           func(_ *Cluster, in *Input) { in.Set.GatewayClasses, in.Statuses = nil, in.Statuses[:1] },
		"class ends": func(_ *Cluster, in *Input) {
			in.Set.GatewayClasses[0].DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
		},
		"objects": gateway(func(g *Gateway) { g.Missing = []string{"PodDisruptionBudget edge-weir"} }),
		"no proxies": gateway(func(g *Gateway) {
			g.Deployment.Status = appsv1.DeploymentStatus{}
			g.Proxies = nil
		}),
		"half": gateway(func(g *Gateway) { g.Deployment.Status.ReadyReplicas, g.Proxies = 1, g.Proxies[:1] }),
		"lost": gateway(func(g *Gateway) { g.Proxies = g.Proxies[:1] }),
		"behind": gateway(func(g *Gateway) {
			g.Proxies[0].Version = "9876543210"
			g.Proxies[1].Version, g.Proxies[1].Err = "", "no"
		}),
		"no address": gateway(func(g *Gateway) { g.Services["edge-weir"].Status = corev1.ServiceStatus{} }),
		"status": func(_ *Cluster, in *Input) {
			in.Set.GatewayClasses[0].Status.Conditions = nil
			in.Set.Gateways[0].Status.Conditions[0].ObservedGeneration = 3
		},
		"not seen": func(c *Cluster, in *Input) {
			c.Controller, c.Seen, in.Complete = nil, false, false
			c.NotSeen = []NotSeen{{"the controller's Deployment", "deployments is forbidden"}, {"Services of Gateways", "services is forbidden"}}
		},
	}
	maps.Copy(cases, trafficCases)
	maps.Copy(cases, sidecarCases)
	for name, edit := range cases {
		t.Run(name, func(t *testing.T) {
			c, in := good(), input(t)
			edit(c, &in)
			var got strings.Builder
			for _, f := range c.Findings(in, controllerName) {
				got.WriteString(f.String() + "\n")
			}
			if name == "good" && got.Len() > 0 {
				t.Errorf("found:\n%s", &got)
			}
			golden(t, filepath.Join("testdata", strings.ReplaceAll(name, " ", "-")+".txt"), got.String())
		})
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}
