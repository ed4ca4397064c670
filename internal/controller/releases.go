package controller

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
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
		Client: c.client, Namespaces: c.namespaces, Providers: provider.All(), Workloads: c.released, Proxied: c.proxied, Instance: c.name, Logger: c.log.With("for", "rollouts"),
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
	if c.board != nil {
		c.board.AnswerAgain() // the Rollouts of another replica may wait
	}
}

// proxied reports whether the proxies that objects concern, those of Gateways and sidecars, run a configuration that was made of the
// objects as they are, and otherwise what is awaited.
func (c *controlPlane) proxied(objects []*unstructured.Unstructured) (ok bool, awaited string) {
	r := c.latest.Load()
	if r == nil || r.Set == nil {
		return false, "the configuration of proxies is not known yet"
	}
	var of concerned
	var read []replica.Object
	for _, u := range objects {
		gvk := u.GroupVersionKind()
		if r.Set.Kinds().Find(gvk.Group, gvk.Kind) == nil {
			continue // proxies do not route by it
		}
		o := replica.Object{Group: gvk.Group, Kind: gvk.Kind, Namespace: u.GetNamespace(), Name: u.GetName(), UID: string(u.GetUID()), Generation: u.GetGeneration()}
		if awaited := unread(r.Set, &o); awaited != "" {
			return false, awaited
		}
		read = append(read, o)
		of.add(u)
	}
	if accounts := c.accounts.Load(); accounts != nil {
		for _, owner := range *accounts {
			if !of.gateway(owner) {
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
	if c.sidecars != nil && len(of.services) > 0 {
		if awaited := c.sidecars.lagging(r.Sidecars, of.services); awaited != "" {
			return false, awaited
		}
		if awaited := c.board.Ask(replica.NewQuestion(read, of.services)); awaited != "" {
			return false, awaited
		}
	}
	return true, ""
}

// unread says that an object is not in a set as it is stored, or as it was later; empty if it is.
func unread(set *resource.Set, o *replica.Object) string {
	found := set.Object(resource.Key{Group: o.Group, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name})
	if found == nil || string(found.GetUID()) != o.UID || found.GetGeneration() < o.Generation {
		return fmt.Sprintf("%s %s is not read yet as it is now", o.Kind, o.Name)
	}
	return ""
}

// answer answers the leader, whose Rollouts wait: what the sidecars that are connected to this replica await.
func (c *controlPlane) answer(q replica.Question) (awaited string) {
	r := c.latest.Load()
	if r == nil || r.Set == nil {
		return "the configuration of proxies is not known yet"
	}
	services := map[string]bool{}
	for _, s := range q.Services {
		services[s] = true
	}
	for i := range q.Objects {
		if awaited := unread(r.Set, &q.Objects[i]); awaited != "" {
			return awaited
		}
	}
	return c.sidecars.lagging(r.Sidecars, services)
}

// concerned are those who route by some objects.
type concerned struct {
	// gateways are those that routes name as parents; every means that something concerns all of them.
	gateways map[model.Owner]bool
	every    bool
	// services are those whose clients may have sidecars, "namespace/name".
	services map[string]bool
}

// add adds those who route by an object: a route, a TrafficSplit or an EndpointSlice.
func (o *concerned) add(u *unstructured.Unstructured) {
	if o.gateways == nil {
		o.gateways, o.services = map[model.Owner]bool{}, map[string]bool{}
	}
	switch u.GetKind() {
	case "EndpointSlice": // its Service is reached by what the other objects concern
		o.services[u.GetNamespace()+"/"+u.GetLabels()[discoveryv1.LabelServiceName]] = true
		return
	case "TrafficSplit":
		root, _, _ := unstructured.NestedString(u.Object, "spec", "service")
		name, _, _ := strings.Cut(root, ".")
		o.every, o.services[u.GetNamespace()+"/"+name] = true, true
		return
	}
	refs, _, _ := unstructured.NestedSlice(u.Object, "spec", "parentRefs")
	o.every = o.every || len(refs) == 0
	for _, ref := range refs {
		p, _ := ref.(map[string]any)
		kind, _ := p["kind"].(string)
		group, grouped := p["group"].(string)
		name, _ := p["name"].(string)
		namespace, _ := p["namespace"].(string)
		namespace = cmp.Or(namespace, u.GetNamespace())
		switch {
		case (kind == "" || kind == "Gateway") && (!grouped || strings.EqualFold(group, gatewayv1.GroupName)):
			o.gateways[model.GatewayOwner(namespace, name)] = true
		case kind == model.KindService && grouped && group == "":
			o.services[namespace+"/"+name] = true
		default:
			o.every = true // a ListenerSet, whose Gateway it does not say
		}
	}
}

// gateway reports whether a Gateway is concerned.
func (o *concerned) gateway(g model.Owner) bool { return o.every || o.gateways[g] }

// counted counts requests by Traffic Metrics; nil if no proxy here serves the objects.
func (c *controlPlane) counted(ctx context.Context, count release.Count) (*rollout.Shared, error) {
	var of concerned
	routes := map[string]bool{}
	split := false
	for _, u := range count.Objects {
		of.add(u)
		routes[u.GetNamespace()+"/"+u.GetName()] = true
		split = split || u.GetKind() == "TrafficSplit"
	}
	if len(count.Objects) == 0 || !c.serves(&of) {
		return nil, nil
	}
	q := metrics.Question{With: make([]telemetry.Side, len(count.Pods))}
	for i, pod := range count.Pods {
		q.With[i] = telemetry.Side{Kind: "Pod", Namespace: count.Namespace, Name: pod}
	}
	var answer metrics.Answer
	// The first lead is enough if proxies are read as often as they should. Where they could not be, the next reading begins after the
	// step, however late it was.
	elapsed := min(time.Since(count.Since), countLead+countMost)
	for lead := countLead; ; lead *= 2 {
		if q.Window = elapsed - lead; q.Window < countLeast {
			if lead == countLead {
				return &rollout.Shared{}, nil
			}
			return &rollout.Shared{Unknown: "what proxies reported begins before the step"}, nil
		}
		var err error
		if answer, err = c.traffic.store.Ask(ctx, q); err != nil {
			return nil, err
		}
		if !answer.Time.Add(-answer.Window).Before(count.Since) {
			break
		}
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

// serves reports whether there are proxies that are concerned.
func (c *controlPlane) serves(of *concerned) bool {
	if c.sidecars != nil && len(of.services) > 0 {
		return true
	}
	if accounts := c.accounts.Load(); accounts != nil {
		return slices.ContainsFunc(slices.Collect(maps.Values(*accounts)), of.gateway)
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
