// Package prometheus_test holds the rules in this folder, and the boards of deploy/grafana, to the metrics there are. What they
// say when a Prometheus runs them is tested in test/prometheus.
package prometheus_test

//go:generate go test . -run TestTheOperatorHasTheSameRules -update

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "rewrite prometheusrule.yaml")

// metric is a row of docs/metrics.md.
type metric struct {
	kind   string
	labels []string
}

// sides are what a label of the table stands for.
var sides = map[string][]string{"at": {"at_kind", "at_namespace", "at_name"}, "peer": {"peer_kind", "peer_namespace", "peer_name"}}

// targets are the labels that the scrape configurations give.
var targets = []string{"instance", "job", "namespace", "pod", "component", "gateway"}

var metricRow = regexp.MustCompile("(?m)^\\| `(weir_[a-z_]+)` \\| (counter|gauge|histogram) \\| ?([a-z_, ]*)\\|")

func documented(t *testing.T) map[string]metric {
	t.Helper()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]metric{
		"up": {kind: "gauge"}, "process_resident_memory_bytes": {kind: "gauge"}, "process_cpu_seconds_total": {kind: "counter"}, // not Weir's own
	}
	for _, row := range metricRow.FindAllStringSubmatch(string(page), -1) {
		m := metric{kind: row[2]}
		for l := range strings.SplitSeq(strings.ReplaceAll(row[3], " ", ""), ",") {
			if expanded := sides[l]; expanded != nil {
				m.labels = append(m.labels, expanded...)
			} else if l != "" {
				m.labels = append(m.labels, l)
			}
		}
		if m.kind == "histogram" {
			out[row[1]+"_bucket"] = metric{kind: "counter", labels: append(m.labels, "le")}
			continue
		}
		out[row[1]] = m
	}
	if len(out) < 50 {
		t.Fatalf("docs/metrics.md has %d metrics", len(out))
	}
	return out
}

type rule struct {
	Record, Alert, Expr, For string
	Labels, Annotations      map[string]string
}

type groups struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

func read(t *testing.T, file string) (out []rule) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all groups
	if err := yaml.UnmarshalStrict(text, &all); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, g := range all.Groups {
		out = append(out, g.Rules...)
	}
	return out
}

// queries are all there are, by where they are.
func queries(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, file := range []string{"rules.yaml", "flagger.yaml"} {
		for _, r := range read(t, file) {
			out[file+" "+r.Record+r.Alert] = r.Expr
		}
	}
	boards, err := filepath.Glob("../grafana/*.json")
	if err != nil || len(boards) != 5 {
		t.Fatalf("%d boards, %v", len(boards), err)
	}
	for _, file := range boards {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var board any
		if err := json.Unmarshal(text, &board); err != nil {
			t.Fatal(err)
		}
		expressions(board, filepath.Base(file), out)
	}
	if len(out) < 150 {
		t.Fatalf("%d queries", len(out))
	}
	return out
}

// expressions finds the queries of panels and variables, wherever they are.
func expressions(in any, where string, out map[string]string) {
	switch v := in.(type) {
	case []any:
		for _, e := range v {
			expressions(e, where, out)
		}
	case map[string]any:
		if title, ok := v["title"].(string); ok {
			where += " / " + title
		}
		for _, key := range []string{"expr", "definition"} {
			if q, ok := v[key].(string); ok {
				out[where+" "+q] = q
			}
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			expressions(v[key], where, out)
		}
	}
}

var (
	quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"|'[^']*'`)
	// selected is a metric with the names in its braces.
	selected = regexp.MustCompile(`\b((?:weir|process|up)(?:_[a-z_]+)?)\b(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`([a-z_]+)\s*(?:=~|!~|!=|=)`)
	grouped  = regexp.MustCompile(`\b(?:by|on) ?\(([^)]*)\)`)
	rated    = regexp.MustCompile(`\b(?:rate|increase)\(([a-z_]+)`)
	recorded = regexp.MustCompile(`\b[a-z]+:[a-z_]+:[a-z0-9_]+\b`)
)

// TestQueriesKnowTheirMetrics holds that each metric exists, has the labels that it is chosen by, and is a counter if its
// rate is taken.
func TestQueriesKnowTheirMetrics(t *testing.T) {
	known := documented(t)
	records := map[string]bool{}
	for _, r := range read(t, "rules.yaml") {
		records[r.Record] = true
	}
	for where, query := range queries(t) {
		bare := quoted.ReplaceAllString(query, `""`)
		for _, name := range recorded.FindAllString(bare, -1) {
			if !records[name] {
				t.Errorf("%s: no rule records %s", where, name)
			}
		}
		bare = recorded.ReplaceAllString(bare, "")
		var labels []string
		for _, m := range selected.FindAllStringSubmatch(bare, -1) {
			of, ok := known[m[1]]
			if !ok {
				t.Errorf("%s: docs/metrics.md has no %s", where, m[1])
				continue
			}
			labels = append(labels, of.labels...)
			for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(of.labels, l[1]) && !slices.Contains(targets, l[1]) {
					t.Errorf("%s: %s has no label %s", where, m[1], l[1])
				}
			}
		}
		for _, m := range rated.FindAllStringSubmatch(bare, -1) {
			if known[m[1]].kind != "counter" {
				t.Errorf("%s: the rate of %s, which is no counter", where, m[1])
			}
		}
		if !strings.Contains(query, "label_replace") && !recorded.MatchString(query) { // which make labels of their own
			for _, g := range grouped.FindAllStringSubmatch(bare, -1) {
				for l := range strings.SplitSeq(strings.ReplaceAll(g[1], " ", ""), ",") {
					if !slices.Contains(labels, l) && !slices.Contains(targets, l) {
						t.Errorf("%s: no metric has the label %s", where, l)
					}
				}
			}
		}
	}
}

// TestAlertsAreWhole holds that each says what happened, what that means and how bad it is, and is explained.
func TestAlertsAreWhole(t *testing.T) {
	page, err := os.ReadFile("../../docs/dashboards.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, r := range read(t, "rules.yaml") {
		if r.Alert == "" {
			continue
		}
		if seen[r.Alert] {
			t.Errorf("%s is there twice", r.Alert)
		}
		seen[r.Alert] = true
		if !slices.Contains([]string{"critical", "warning", "info"}, r.Labels["severity"]) || r.Annotations["summary"] == "" || r.Annotations["description"] == "" {
			t.Errorf("%s has severity %q, annotations %v", r.Alert, r.Labels["severity"], r.Annotations)
		}
		if row := "\n| `" + r.Alert + "` | " + r.Labels["severity"] + " |"; !strings.Contains(string(page), row) {
			t.Errorf("docs/dashboards.md lacks the row %q", row)
		}
	}
	if n := strings.Count(string(page), "\n| `Weir"); n != len(seen) {
		t.Errorf("docs/dashboards.md has %d alerts, there are %d", n, len(seen))
	}
}

const head = `# Made of rules.yaml by "make generate". The Prometheus operator reads it in the namespaces where your Prometheus looks for rules.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: weir
  labels:
    app.kubernetes.io/name: weir
spec:
`

// TestTheOperatorHasTheSameRules makes prometheusrule.yaml of rules.yaml.
func TestTheOperatorHasTheSameRules(t *testing.T) {
	text, err := os.ReadFile("rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, rules, ok := strings.Cut(string(text), "\ngroups:\n")
	if !ok {
		t.Fatal("rules.yaml has no groups")
	}
	var want strings.Builder
	want.WriteString(head)
	for line := range strings.Lines("groups:\n" + rules) {
		if line != "\n" {
			want.WriteString("  ")
		}
		want.WriteString(line)
	}
	if *update {
		if err := os.WriteFile("prometheusrule.yaml", []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("prometheusrule.yaml")
	if err != nil || string(have) != want.String() {
		t.Errorf("prometheusrule.yaml is not made of rules.yaml (%v): run make generate", err)
	}
	var object struct {
		Spec groups `json:"spec"`
	}
	if err := yaml.Unmarshal(have, &object); err != nil || len(object.Spec.Groups) == 0 {
		t.Errorf("prometheusrule.yaml cannot be read: %v", err)
	}
}

// TestScrapingGivesTheSameLabelsEitherWay compares the job and the PodMonitor.
func TestScrapingGivesTheSameLabelsEitherWay(t *testing.T) {
	var job []struct {
		Relabel []struct {
			Target string   `json:"target_label"`
			From   []string `json:"source_labels"`
		} `json:"relabel_configs"`
	}
	var monitor struct {
		Spec struct {
			Endpoints []struct {
				Relabel []struct {
					Target string   `json:"targetLabel"`
					From   []string `json:"sourceLabels"`
					Regex  string   `json:"regex"`
				} `json:"relabelings"`
			} `json:"podMetricsEndpoints"`
		} `json:"spec"`
	}
	for file, into := range map[string]any{"scrape.yaml": &job, "podmonitor.yaml": &monitor} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(text, into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	want := map[string]string{"namespace": "__meta_kubernetes_namespace", "pod": "__meta_kubernetes_pod_name"} // the operator's own
	got, dropped := maps.Clone(want), false
	for _, r := range monitor.Spec.Endpoints[0].Relabel {
		if r.Target != "" {
			got[r.Target] = strings.Join(r.From, ",")
		}
		dropped = dropped || r.Regex == "endpoint"
	}
	want = map[string]string{}
	for _, r := range job[0].Relabel {
		if r.Target != "" {
			want[r.Target] = strings.Join(r.From, ",")
		}
	}
	if len(want) != 4 || !maps.Equal(got, want) || !dropped {
		t.Errorf("the PodMonitor gives %v, and drops endpoint: %v; the job gives %v", got, dropped, want)
	}
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"scrape.yaml", "podmonitor.yaml"} {
		if !strings.Contains(string(page), "deploy/prometheus/"+file) {
			t.Errorf("docs/kubernetes.md does not name %s", file)
		}
	}
}
