package weir_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirmesh/weir/internal/telemetry"
)

var (
	fqName           = regexp.MustCompile(`fqName: "([^"]+)"`)
	controllerMetric = regexp.MustCompile(`"(weir_controller_\w+)"`)
	reasonConst      = regexp.MustCompile(`(?m)^\t[A-Z]\w+ +Reason = "(\w+)"`)
)

// TestMetricsPageNamesEverything holds docs/metrics.md to the metrics, outcomes and reasons there are.
func TestMetricsPageNamesEverything(t *testing.T) {
	if testing.Short() {
		t.Skip("rows may follow what they describe: make test-full")
	}
	data, err := os.ReadFile("docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(data)
	var names []string
	descs := make(chan *prometheus.Desc, 1000)
	telemetry.New().Describe(descs)
	close(descs)
	for d := range descs {
		names = append(names, fqName.FindStringSubmatch(d.String())[1])
	}
	for o := telemetry.MirrorSent; o.String() != "unknown"; o++ {
		names = append(names, o.String())
	}
	source, err := os.ReadFile("internal/telemetry/reason.go")
	if err != nil {
		t.Fatal(err)
	}
	reasons := reasonConst.FindAllStringSubmatch(string(source), -1)
	if len(reasons) < 20 {
		t.Fatalf("%d reasons found in reason.go", len(reasons))
	}
	for _, m := range reasons {
		names = append(names, m[1])
	}
	source, err = os.ReadFile("internal/controller/metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	controller := controllerMetric.FindAllStringSubmatch(string(source), -1)
	if len(controller) < 15 {
		t.Fatalf("%d metrics found in controller_metrics.go", len(controller))
	}
	for _, m := range controller {
		names = append(names, m[1])
	}
	for _, n := range names {
		if !strings.Contains(page, "\n| `"+n+"` |") {
			t.Errorf("docs/metrics.md has no row for %s", n)
		}
	}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|").FindAllStringSubmatch(page, -1) {
		if !strings.Contains("\n"+strings.Join(names, "\n")+"\n", "\n"+row[1]+"\n") {
			t.Errorf("docs/metrics.md has a row for %s, which does not exist", row[1])
		}
	}
}
