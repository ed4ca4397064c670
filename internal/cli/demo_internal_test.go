package cli

import (
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/telemetry"
)

func TestAShareOfNothingIsADash(t *testing.T) {
	cfg := &model.Config{Routes: []model.Route{{Rules: []model.Rule{{Name: "all",
		Backends: []model.Backend{{Service: "default/v1:80"}, {Service: "default/v2:80"}},
		Filters:  model.Filters{Mirrors: []model.Mirror{{Service: "default/shadow:80", Numerator: 1, Denominator: 2}}},
	}}}}}
	o := observation{}
	o.rows(cfg, telemetry.Snapshot{})
	for _, text := range []string{tables(screen.Screen{}, o), line(o)} {
		if strings.Contains(text, "100.00%") || strings.Contains(text, " 0.00%") || !strings.Contains(text, "-") {
			t.Errorf("no weight, no request, and yet a share:\n%s", text)
		}
	}
}
