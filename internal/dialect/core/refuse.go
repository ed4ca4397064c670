package core

import (
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/reach"
)

// refusals are the endpoints of a Service that may not be used. A nil one has none.
type refusals struct {
	first string // why
	at    map[endpoint]bool
}

// endpoint is a place in an EndpointSlice.
type endpoint struct {
	slice *discoveryv1.EndpointSlice
	index int
}

func (r *refusals) has(slice *discoveryv1.EndpointSlice, i int) bool {
	return r != nil && r.at[endpoint{slice, i}]
}

// refusals judges a Service's endpoints, if Names is set, and reports refused ones that are used; nil if none are
// refused.
func (t *translator) refusals(s *corev1.Service) *refusals {
	if t.Names == nil {
		return nil
	}
	r := &refusals{at: map[endpoint]bool{}}
	report := func(code string, ref model.Ref, why, fix string) {
		if r.first == "" {
			r.first = why
		}
		if t.isUsed(port{s.Namespace, s.Name, 0}) {
			t.report(code, ref, why, fix)
		}
	}
	names, _ := t.set.RefusedNames(s, t.Names)
	for _, n := range names {
		report(codeRefusedName, n.Ref, n.Why, n.Fix)
	}
	if s.Spec.Type != corev1.ServiceTypeExternalName {
		for _, slice := range t.set.EndpointSlicesOf(s.Namespace, s.Name) {
			for i, e := range slice.Endpoints {
				if len(e.Addresses) == 0 {
					continue
				}
				if slice.AddressType == discoveryv1.AddressTypeFQDN {
					if why, _ := t.Names.Refuse(e.Addresses[0]); why != "" {
						r.at[endpoint{slice, i}] = true
					}
					continue
				}
				a, err := netip.ParseAddr(e.Addresses[0])
				if err != nil {
					continue // the API server's validation admitted it, so it is dialled
				}
				if why := reach.Judge(a); why != "" {
					r.at[endpoint{slice, i}] = true
					ref := model.Ref{
						Kind: "EndpointSlice", Namespace: slice.Namespace, Name: slice.Name, Field: model.FieldAt("endpoints", i) + ".addresses[0]",
					}
					report(codeRefusedAddress, ref, fmt.Sprintf("address %s %s", a, why), "write the backend's own address")
				}
			}
		}
	}
	if r.first == "" {
		return nil
	}
	return r
}
