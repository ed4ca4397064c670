package access

import (
	"slices"

	"github.com/weirmesh/weir/internal/resource"
)

// The codes of this package's findings are WR10xx.
var codes []resource.Code

// Codes documents the codes of this package's findings.
func Codes() []resource.Code { return slices.Clone(codes) }
