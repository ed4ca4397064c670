package controller

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/provider"
	"github.com/weirmesh/weir/internal/telemetry"
)

// newReleases makes what carries Rollouts out; nil if nothing is to.
func newReleases(c *controlPlane) *release.Controller {
	if !c.rollouts {
		return nil
	}
	r := &release.Controller{
		Client: c.client, Namespaces: c.namespaces, Providers: provider.All(), Proxied: c.proxied, Instance: c.name, Logger: c.log.With("for", "rollouts"),
	}
	if c.traffic != nil {
		r.Counted = c.counted
	}
	return r
}

// carryOut is the task that carries Rollouts out.
func (c *controlPlane) carryOut(ctx context.Context) error { return c.releases.Run(ctx) }

// wakeReleases has those go on that wait for proxies.
func (c *controlPlane) wakeReleases() {
	if c.releases != nil {
		c.releases.Wake()
	}
}

// proxied reports whether the proxies of the Gateways that objects concern run a configuration that was made of the objects
// as they are, and otherwise what is awaited.
func (c *controlPlane) proxied(objects []*unstructured.Unstructured) (ok bool, awaited string) {
	r := c.latest.Load()
	if r == nil || r.Set == nil {
		return false, "the configuration of proxies is not known yet"
	}
	gateways := map[model.Owner]bool{}
	served := false
	for _, u := range objects {
		gvk := u.GroupVersionKind()
		if r.Set.Kinds().Find(gvk.Group, gvk.Kind) == nil {
			continue // proxies do not route by it
		}
		found := r.Set.Object(resource.Key{Group: gvk.Group, Kind: gvk.Kind, Namespace: u.GetNamespace(), Name: u.GetName()})
		if found == nil || found.GetUID() != u.GetUID() || found.GetGeneration() < u.GetGeneration() {
			return false, fmt.Sprintf("%s %s is not read yet as it is now", gvk.Kind, u.GetName())
		}
		if gvk.Kind != "EndpointSlice" {
			served = true
			parents(u, gateways)
		}
	}
	if accounts := c.accounts.Load(); served && accounts != nil {
		for _, owner := range *accounts {
			if len(gateways) > 0 && !gateways[owner] {
				continue
			}
			version := c.feeds.Version(owner)
			for _, p := range replica.Newest(c.feeds.Running(owner), c.board.Others(owner)) {
				if p.Version != version {
					return false, fmt.Sprintf("proxy %s does not run the configuration yet", p.Name)
				}
			}
		}
	}
	return true, ""
}

// counted counts requests by Traffic Metrics; nil if no proxy here serves the objects.
func (c *controlPlane) counted(ctx context.Context, count release.Count) (*rollout.Shared, error) {
	gateways := map[model.Owner]bool{}
	routes := map[string]bool{}
	split := false
	for _, u := range count.Objects {
		parents(u, gateways)
		routes[u.GetNamespace()+"/"+u.GetName()] = true
		split = split || u.GetKind() == "TrafficSplit"
	}
	if len(count.Objects) == 0 || !c.serves(gateways) {
		return nil, nil
	}
	// A reading that is up to half an interval off begins after the step.
	window := min(time.Since(count.Since)-countLead, countMost)
	if window < countLeast {
		return &rollout.Shared{}, nil
	}
	q := metrics.Question{Window: window, With: make([]telemetry.Side, len(count.Pods))}
	for i, pod := range count.Pods {
		q.With[i] = telemetry.Side{Kind: "Pod", Namespace: count.Namespace, Name: pod}
	}
	answer, err := c.traffic.store.Ask(ctx, q)
	if err != nil {
		return nil, err
	}
	if answer.Time.Add(-answer.Window).Before(count.Since) {
		return &rollout.Shared{Unknown: "what proxies reported begins before the step"}, nil
	}
	s := &rollout.Shared{Window: answer.Window}
	for _, t := range answer.Traffic {
		if !t.Out || !split && !routes[t.Route] {
			continue
		}
		switch backend, _, _ := strings.Cut(t.Backend, ":"); backend {
		case count.Namespace + "/" + count.Stable:
			s.Stable += t.Success + t.Failure
		case count.Namespace + "/" + count.Canary:
			s.Canary += t.Success + t.Failure
		}
	}
	return s, nil
}

// serves reports whether there are proxies of one of these Gateways; of any if there are none.
func (c *controlPlane) serves(gateways map[model.Owner]bool) bool {
	if accounts := c.accounts.Load(); accounts != nil {
		for _, owner := range *accounts {
			if len(gateways) == 0 || gateways[owner] {
				return true
			}
		}
	}
	return false
}

const (
	// countLead is how long after a step the requests of its share are counted from: proxies are read every five seconds.
	countLead = 2500 * time.Millisecond
	// countLeast is the shortest time that a share is counted in, and countMost the longest: what began before the step, such
	// as a stream, does not count for ever.
	countLeast, countMost = 5 * time.Second, time.Minute
)

// parents adds the Gateways that a route names as parents; all, which is none, if it names another kind.
func parents(u *unstructured.Unstructured, gateways map[model.Owner]bool) {
	refs, _, _ := unstructured.NestedSlice(u.Object, "spec", "parentRefs")
	for _, ref := range refs {
		p, _ := ref.(map[string]any)
		kind, _ := p["kind"].(string)
		group, grouped := p["group"].(string)
		name, _ := p["name"].(string)
		namespace, _ := p["namespace"].(string)
		if namespace == "" {
			namespace = u.GetNamespace()
		}
		if (kind == "" || kind == "Gateway") && (!grouped || strings.EqualFold(group, gatewayv1.GroupName)) {
			gateways[model.GatewayOwner(namespace, name)] = true
		}
	}
}
