package rest

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/weirmesh/weir/api/metrics"
)

// discover returns what there is: the groups, one of them, or the kinds of one.
func discover(t target) any {
	if t.group != nil && !t.whole {
		return api.Discover(t.group.String())
	}
	if t.group != nil {
		return t.group.discover()
	}
	list := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}}
	for i := range groups {
		g := groups[i].discover()
		g.TypeMeta = metav1.TypeMeta{}
		list.Groups = append(list.Groups, g)
	}
	return list
}

func (g *group) discover() metav1.APIGroup {
	version := metav1.GroupVersionForDiscovery{GroupVersion: g.String(), Version: g.version}
	return metav1.APIGroup{
		TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: g.name, Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version,
	}
}
