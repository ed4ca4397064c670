package core

import "github.com/weirmesh/weir/internal/resource"

// Kinds returns the kinds of Kubernetes itself that Weir reads.
func Kinds() resource.Kinds { return resource.Kubernetes() }
