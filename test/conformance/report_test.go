package conformance

import (
	"fmt"
	"os"
	"strings"

	confv1 "sigs.k8s.io/gateway-api/conformance/apis/v1"
	"sigs.k8s.io/gateway-api/conformance/tests"
	"sigs.k8s.io/gateway-api/conformance/utils/suite"
	"sigs.k8s.io/yaml"
)

// whole says what a report lacks: every test of every one of the profiles passed, none skipped.
func whole(file string, profiles []suite.ConformanceProfile) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var report confv1.ConformanceReport
	if err := yaml.Unmarshal(text, &report); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	var lacks []string
	for _, p := range profiles {
		lacks = append(lacks, missing(report, p)...)
	}
	if lacks != nil {
		return fmt.Errorf("%s: %s", file, strings.Join(lacks, "; "))
	}
	return nil
}

func missing(report confv1.ConformanceReport, p suite.ConformanceProfile) (lacks []string) {
	for _, got := range report.ProfileReports {
		if got.Name != string(p.Name) {
			continue
		}
		passed := got.Core.Statistics.Passed
		if e := got.Extended; e == nil {
			if extended(p, tests.ConformanceTests) {
				lacks = append(lacks, got.Name+" has no extended features")
			}
		} else {
			passed += e.Statistics.Passed
			if e.Result != confv1.Success || len(e.UnsupportedFeatures) > 0 {
				lacks = append(lacks, fmt.Sprintf("%s: extended features: %s, unsupported %v, skipped %v, failed %v", got.Name, e.Result, e.UnsupportedFeatures, e.SkippedTests, e.FailedTests))
			}
		}
		if c := got.Core; c.Result != confv1.Success {
			lacks = append(lacks, fmt.Sprintf("%s: core features: %s, skipped %v, failed %v", got.Name, c.Result, c.SkippedTests, c.FailedTests))
		}
		if all := len(testsOf(p, tests.ConformanceTests)); int(passed) != all {
			lacks = append(lacks, fmt.Sprintf("%s: %d of %d tests passed", got.Name, passed, all))
		}
		return lacks
	}
	return []string{"no profile " + string(p.Name)}
}
