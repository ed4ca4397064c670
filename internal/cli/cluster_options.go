package cli

import (
	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/resource"
)

// clusterTranslation is how the objects of a cluster are understood: each Gateway has proxies of its own, and nothing else is
// served.
var clusterTranslation = control.Options{Separate: true, Serve: []string{"none"}, Names: &resource.HostNames{}}
