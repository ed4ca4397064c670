package rest

import (
	"strings"

	discoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/weirmesh/weir/api/metrics"
)

// kinds are those of a group, each followed by its sub-resources.
func (h *Handler) kinds(g *group) metav1.APIResourceList {
	list := api.Discover(g.String())
	if h.Tap == nil {
		return list
	}
	all := list.APIResources
	list.APIResources = nil
	for _, r := range all {
		list.APIResources = append(list.APIResources, r)
		if of, edges := strings.CutSuffix(r.Name, "/"+api.SubResource); edges {
			r.Name, r.Kind, r.Verbs = of+"/"+tapResource, tapKind, metav1.Verbs{"get", "watch"}
			list.APIResources = append(list.APIResources, r)
		}
	}
	return list
}

// discover returns what there is: the groups, one of them, or the kinds of one.
func (h *Handler) discover(t target) any {
	if t.group != nil && !t.whole {
		return h.kinds(t.group)
	}
	if t.group != nil {
		return t.group.discover()
	}
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for _, g := range h.groups() {
		g := g.discover()
		g.TypeMeta = metav1.TypeMeta{}
		list.Groups = append(list.Groups, g)
	}
	return list
}

// groups are all that are served.
func (h *Handler) groups() (all []*group) {
	for i := range groups {
		all = append(all, &groups[i])
	}
	if h.Custom != nil {
		all = append(all, &customGroup)
	}
	return all
}

func (g *group) discover() metav1.APIGroup {
	version := metav1.GroupVersionForDiscovery{GroupVersion: g.String(), Version: g.version}
	return metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: g.name, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
	}
}

// discoverAll is all groups with all their kinds, as newer clients ask for them at once. Objects have one kind, whatever
// they are of. But kubectl finds what to ask for by the kind of what it was asked for, so here only pods have that kind,
// and all others one by which they are told apart.
func (h *Handler) discoverAll() any {
	list := discoveryv2.APIGroupDiscoveryList{TypeMeta: metav1.TypeMeta{Kind: discovery.as, APIVersion: discovery.group + "/" + discovery.version}}
	for _, g := range h.groups() {
		version := discoveryv2.APIVersionDiscovery{Version: g.version, Freshness: discoveryv2.DiscoveryFreshnessCurrent}
		kinds := h.kinds(g)
		if g == &customGroup {
			kinds = discoverCustom()
		}
		for _, r := range kinds.APIResources {
			kind := &metav1.GroupVersionKind{Group: g.name, Version: g.version, Kind: r.Kind}
			scope := discoveryv2.ScopeCluster
			if r.Namespaced {
				scope = discoveryv2.ScopeNamespace
			}
			if name, sub, ok := strings.Cut(r.Name, "/"); ok { // it follows what it is of
				if n := len(version.Resources); n == 0 || version.Resources[n-1].Resource != name { // which itself is not served
					version.Resources = append(version.Resources, discoveryv2.APIResourceDiscovery{Resource: name, ResponseKind: &metav1.GroupVersionKind{}, Scope: scope})
				}
				of := &version.Resources[len(version.Resources)-1]
				of.Subresources = append(of.Subresources, discoveryv2.APISubresourceDiscovery{Subresource: sub, ResponseKind: kind, Verbs: r.Verbs})
				continue
			}
			if of := plural(r.Name); of.Kind != "Pod" {
				kind.Kind = of.Kind + kind.Kind
			}
			version.Resources = append(version.Resources, discoveryv2.APIResourceDiscovery{
				Resource: r.Name, ResponseKind: kind, Scope: scope, SingularResource: r.SingularName, Verbs: r.Verbs,
			})
		}
		list.Items = append(list.Items, discoveryv2.APIGroupDiscovery{ObjectMeta: metav1.ObjectMeta{Name: g.name}, Versions: []discoveryv2.APIVersionDiscovery{version}})
	}
	return list
}
