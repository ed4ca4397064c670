package smi

// clusterDomain is the usual domain of a cluster.
const clusterDomain = "cluster.local"

// hostnames are those that clients call a Service by; short says whether the bare name is among them.
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
