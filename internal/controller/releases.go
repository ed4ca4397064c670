package controller

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout/provider"
)

// newReleases makes what carries Rollouts out; nil if nothing is to.
func newReleases(c *controlPlane) *release.Controller {
	if !c.rollouts {
		return nil
	}
	return &release.Controller{
		Client: c.client, Namespaces: c.namespaces, Providers: provider.All(), Proxied: c.proxied, Instance: c.name, Logger: c.log.With("for", "rollouts"),
	}
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
