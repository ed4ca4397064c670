package resource

import "github.com/weirmesh/weir/internal/resource/rules"

func init() { CheckRules(rules.Compile) }
