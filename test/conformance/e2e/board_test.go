package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/weirmesh/weir/test/conformance/install"
)

// selector is one of PromQL: a metric, and what its labels have to be.
var selector = regexp.MustCompile(`(weir_controller_rollout[a-z_]*)(\{[^}]*\})?`)

// equal is a label that has to have a value.
var equal = regexp.MustCompile(`([a-z_]+)="([^"]*)"`)

// boardHasData holds that the leading replica of the controller has data for each query of the board of Rollouts, about the Rollout of
// this world where they are about one.
func (w *world) boardHasData() {
	w.Helper()
	leader := w.kubectl("", "--namespace", install.Namespace, "get", "lease", "weir-controller", "--output=jsonpath={.spec.holderIdentity}")
	address := w.kubectl("", "--namespace", install.Namespace, "get", "pod", leader, "--output=jsonpath={.status.podIP}")
	response, err := http.Get("http://" + address + ":19081/metrics")
	if err != nil {
		w.Fatal(err)
	}
	defer response.Body.Close()
	metrics, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		w.Fatalf("%s: %v", response.Status, err)
	}
	text, err := os.ReadFile(filepath.Join(top, "deploy/grafana/rollouts.json"))
	if err != nil {
		w.Fatal(err)
	}
	var board struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		w.Fatal(err)
	}
	n := 0
	for _, p := range board.Panels {
		for _, q := range p.Targets {
			found := selector.FindAllStringSubmatch(q.Expr, -1)
			if len(found) == 0 {
				w.Errorf("%s: %s asks for nothing of the controller", p.Title, q.Expr)
			}
			for _, s := range found {
				n++
				want := []string{s[1]}
				for _, label := range equal.FindAllStringSubmatch(s[2], -1) {
					want = append(want, label[0])
				}
				if strings.Contains(s[2], "$rollout") {
					want = append(want, fmt.Sprintf(`rollout="%s/web"`, w.namespace))
				}
				if !hasSample(string(metrics), want) {
					w.Errorf("%s: the leader has no %s, which %s asks for", p.Title, want, q.Expr)
				}
			}
		}
	}
	if n < 20 {
		w.Errorf("the board has %d selectors", n)
	}
}

// hasSample reports whether metrics have a sample of a name, the first text, with all labels.
func hasSample(metrics string, want []string) bool {
samples:
	for line := range strings.Lines(metrics) {
		name, rest, _ := strings.Cut(line, " ")
		name, labels, _ := strings.Cut(name, "{")
		if name != want[0] || strings.TrimSpace(rest) == "NaN" {
			continue
		}
		for _, label := range want[1:] {
			if !strings.Contains(labels, label) {
				continue samples
			}
		}
		return true
	}
	return false
}
