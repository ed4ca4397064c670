// Package access is the front end of SMI's access control: TrafficRole and its relatives of the specification's first
// draft, TrafficTarget and IdentityBinding.
//
// It is pure: it reads a resource.Set, which it does not change, and nothing else.
package access

import (
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Options are settings that are not part of a set.
type Options struct {
	// Partial says that the set is a part of a cluster's objects, as manifests are.
	Partial bool
}

// Translate makes nothing of the objects yet: they are read and judged by themselves, and not enforced.
func Translate(*resource.Set, Options) (model.Config, []resource.Status, []resource.Finding) {
	return model.Config{}, nil, nil
}
