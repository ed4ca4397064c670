package kube

import (
	"testing"

	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/resource/rules"
	"go.uber.org/goleak"
)

func init() { resource.CheckRules(rules.Compile) }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
