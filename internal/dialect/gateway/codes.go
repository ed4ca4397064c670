package gateway

import (
	"slices"

	"github.com/weirmesh/weir/internal/resource"
)

var codes = []resource.Code{}

// Codes documents the codes of this package's findings.
func Codes() []resource.Code { return slices.Clone(codes) }
