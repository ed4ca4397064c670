package resource

import (
	"maps"
	"slices"

	discoveryv1 "k8s.io/api/discovery/v1"
)

// SameBesideEndpoints reports whether another set of the same cluster has the very same objects, other than EndpointSlices, and
// what was found out about them is the same. Whoever does not read EndpointSlices finds nothing new there. It may say no though
// it is so.
func (s *Set) SameBesideEndpoints(other *Set) bool {
	if len(s.Fields)+len(other.Fields)+len(s.Drafts)+len(other.Drafts)+len(s.foreign)+len(other.foreign) > 0 {
		return false // of files
	}
	return slices.Equal(s.kinds, other.kinds) && slices.Equal(s.Unread, other.Unread) && slices.Equal(s.Watched, other.Watched) &&
		maps.Equal(s.Origins, other.Origins) && maps.Equal(s.Rejected, other.Rejected) && maps.Equal(s.Expiries, other.Expiries) &&
		maps.Equal(s.PassedOver, other.PassedOver) && maps.Equal(s.overlooked, other.overlooked) &&
		!slices.ContainsFunc(s.kinds, func(k *Kind) bool {
			return k.Objects != nil && !(k.Group == discoveryv1.GroupName && k.Name == "EndpointSlice") && !k.Objects.same(s, other)
		})
}
