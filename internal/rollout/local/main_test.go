package local

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/resource/rules"
)

func init() { resource.CheckRules(rules.Compile) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
