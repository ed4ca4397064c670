package resource_test

import (
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/resource"
)

func init() { resource.ReadAll(dialect.Kinds()) }
