package control

import (
	"github.com/weirmesh/weir/internal/resource"
)

// InCluster returns the options for a cluster: each Gateway has its own proxies, and nothing else is served.
func InCluster() Options {
	return Options{ProxyPerGateway: true, Serve: []string{"none"}, Names: &resource.HostNames{}}
}
