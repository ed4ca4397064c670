package demo

import (
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
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

func TestTheCauseOfAProblemComesBeforeWhatFollowsFromIt(t *testing.T) {
	finding := func(s resource.Severity, message string) resource.Finding {
		return resource.Finding{Severity: s, Message: message}
	}
	got := problemsOf(control.Report{Findings: []resource.Finding{
		finding(resource.Warning, "the last good version is served"), finding(resource.Error, "a weight below zero"), finding(resource.Info, "by the way"),
		finding(resource.Info, "besides"), finding(resource.Error, "an unknown field"),
	}})
	for i, part := range []string{"below zero", "unknown field", "last good version", "and 2 more"} {
		if i >= len(got) || !strings.Contains(got[i], part) {
			t.Errorf("problem %d is not %q of %q", i, part, got)
		}
	}
	if len(problemsOf(control.Report{})) != 0 {
		t.Error("problems of nothing")
	}
}
