package smi

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// clusterDomain is the usual domain of a cluster.
const clusterDomain = "cluster.local"

// localName returns the name of the Service that the text names in a namespace: a bare name, or one with the namespace,
// "svc" and the cluster's domain, which is also returned. If it is not such a name, why is not empty.
func localName(text, namespace string) (name, domain, why string) {
	parts := strings.SplitN(strings.ToLower(strings.TrimSuffix(text, ".")), ".", 4)
	if len(validation.IsDNS1123Label(parts[0])) > 0 {
		return "", "", fmt.Sprintf("%q is not the name of a Service", text)
	}
	switch {
	case len(parts) > 2 && parts[2] != "svc":
		return "", "", fmt.Sprintf("%q is not the name of a Service: after name and namespace comes svc", text)
	case len(parts) > 1 && parts[1] != namespace:
		return "", "", fmt.Sprintf("%q is in the namespace %s, but a split and its Services are in one namespace, here %s", text, parts[1], namespace)
	case len(parts) > 3:
		domain = parts[3]
	}
	return parts[0], domain, ""
}

// hostnames are the names by which clients call a Service; short includes the bare name.
func hostnames(at key, short bool, domains ...string) []string {
	full := at.name + "." + at.namespace
	all := []string{full, full + ".svc"}
	if short {
		all = append(all, at.name)
	}
	for _, d := range append(domains, clusterDomain) {
		if d != "" {
			all = append(all, full+".svc."+d)
		}
	}
	return all
}
