package routing

import "github.com/weirmesh/weir/internal/model"

// NormalizePath returns the one form in which paths are compared. It is model.NormalizePath, which also judges paths of
// the configuration.
func NormalizePath(raw string) (normal string, err error) { return model.NormalizePath(raw) }

// HasDotSegment is model.HasDotSegment.
func HasDotSegment(raw string) bool { return model.HasDotSegment(raw) }
