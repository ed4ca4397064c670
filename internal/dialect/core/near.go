package core

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/weirmesh/weir/internal/model"
)

// isNodeLocal reports whether clients within the cluster reach a Service at their own node alone (KEP-2086).
func isNodeLocal(s *corev1.Service) bool {
	p := s.Spec.InternalTrafficPolicy
	return p != nil && *p == corev1.ServiceInternalTrafficPolicyLocal
}

// meantFor are the nodes and zones for whose clients an endpoint is meant, as model.Endpoint has them. Which they are is
// decided by who makes the slices, for trafficDistribution (KEP-4444, KEP-3015) or an annotation (KEP-2433).
func meantFor(s *corev1.Service, e *discoveryv1.Endpoint) (nodes, zones string) {
	if isNodeLocal(s) {
		if e.NodeName != nil {
			nodes = names(*e.NodeName)
		}
		return nodes, ""
	}
	if e.Hints == nil {
		return "", ""
	}
	of := make([]string, 0, max(len(e.Hints.ForNodes), len(e.Hints.ForZones)))
	for _, n := range e.Hints.ForNodes {
		of = append(of, n.Name)
	}
	nodes, of = names(of...), of[:0]
	for _, z := range e.Hints.ForZones {
		of = append(of, z.Name)
	}
	return nodes, names(of...)
}

// names joins names; those that no node or zone can have are left out.
func names(all ...string) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._"
	all = slices.DeleteFunc(all, func(n string) bool { return n == "" || len(n) > maxName || strings.Trim(n, letters) != "" })
	return strings.Join(all, ",")
}

// agree leaves hints out that not all endpoints have, as kube-proxy does: they are being changed, or the controller that
// writes them found that they would load some endpoints too much.
func agree(all []model.Endpoint, local bool) {
	without := func(of func(*model.Endpoint) *string) bool {
		return slices.ContainsFunc(all, func(e model.Endpoint) bool { return *of(&e) == "" })
	}
	for _, of := range []func(*model.Endpoint) *string{func(e *model.Endpoint) *string { return &e.Nodes }, func(e *model.Endpoint) *string { return &e.Zones }} {
		if local || !without(of) {
			continue
		}
		for i := range all {
			*of(&all[i]) = ""
		}
	}
}
