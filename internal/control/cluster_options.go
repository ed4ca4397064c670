package control

import (
	"github.com/weirmesh/weir/internal/resource"
)

// InCluster is how the objects of a cluster are understood: each Gateway has proxies of its own, and nothing else is
// served.
func InCluster() Options {
	return Options{Separate: true, Serve: []string{"none"}, Names: &resource.HostNames{}}
}
