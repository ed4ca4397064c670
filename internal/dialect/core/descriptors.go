package core

import "github.com/weirmesh/weir/internal/resource"

// Kinds returns those of Kubernetes itself that are read.
func Kinds() resource.Kinds { return resource.Kubernetes() }
