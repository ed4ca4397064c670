package prometheus_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const (
	grafana = "../../deploy/grafana/"
	rules   = "../../deploy/prometheus/"
)

// board is what of a board's file says what to ask.
type board struct {
	Title      string
	Panels     []boardPanel
	Templating struct {
		List []struct {
			Name, Type, Definition, Regex string
			IncludeAll                    bool
		}
	}
}

type boardPanel struct {
	Title   string
	Targets []struct{ Expr string }
	Panels  []boardPanel
}

// chosen are values of the variables of which one is chosen.
var chosen = map[string]string{"namespace": "shop", "workload": "cart"}

// unmeasured are panels of which a query may return what is no number: nothing of theirs happens to a controller whose API server
// has nothing.
var unmeasured = map[string]bool{"Translating and publishing": true}

// api asks Prometheus, and returns what is in data.
func api(t *testing.T, base, path string, q url.Values, into any) error {
	t.Helper()
	response, err := http.Get(base + path + "?" + q.Encode())
	if err != nil {
		return err
	}
	defer response.Body.Close()
	var answer struct {
		Status, Error string
		Data          json.RawMessage
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		t.Fatalf("%s %v: %s", path, q, answer.Error) // waiting does not help
	}
	return json.Unmarshal(answer.Data, into)
}

type sample struct {
	Metric map[string]string
	Value  [2]any
}

func (s sample) number(t *testing.T) float64 {
	f, err := strconv.ParseFloat(s.Value[1].(string), 64)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func vector(t *testing.T, base, query string) ([]sample, error) {
	t.Helper()
	var data struct{ Result []sample }
	err := api(t, base, "/api/v1/query", url.Values{"query": {query}}, &data)
	return data.Result, err
}

// startBoards runs a Prometheus with the rules that reads the mesh while it is called.
func startBoards(t *testing.T) (*mesh, string) {
	m := startMesh(t)
	dir := t.TempDir()
	targets := filepath.Join(dir, "targets.json")
	text, err := json.Marshal(m.targets)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(targets, text, 0o644); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(rules)
	if err != nil {
		t.Fatal(err)
	}
	job, err := os.ReadFile(rules + "scrape.yaml")
	if err != nil {
		t.Fatal(err)
	}
	const pods = "  kubernetes_sd_configs:\n  - role: pod\n" // Debian's Prometheus cannot do that
	before, after, ok := strings.Cut(string(job), pods)
	if !ok {
		t.Fatalf("%s has not %q", job, pods)
	}
	base := start(t, dir, before+found(targets)+after, filepath.Join(here, "rules.yaml"), filepath.Join(here, "flagger.yaml"))
	ctx, cancel := context.WithCancel(context.Background())
	var calling sync.WaitGroup
	calling.Go(func() { m.call(ctx) })
	t.Cleanup(func() { cancel(); calling.Wait(); http.DefaultClient.CloseIdleConnections() })
	return m, base
}

// TestBoardsAndRulesHaveData has a Prometheus read proxies in use, and asks it each query of each board as Grafana would, what
// Flagger would ask, and how the rules are.
func TestBoardsAndRulesHaveData(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes a minute: make test-prometheus")
	}
	m, base := startBoards(t)
	files, err := filepath.Glob(grafana + "*.json")
	if err != nil || len(files) != 5 {
		t.Fatalf("%d boards, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".json"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var b board
			if err := json.Unmarshal(text, &b); err != nil {
				t.Fatal(err)
			}
			interpolate := b.variables(t, base)
			n := 0
			for _, p := range b.Panels {
				for _, p := range append([]boardPanel{p}, p.Panels...) {
					for _, q := range p.Targets {
						n++
						query := interpolate(q.Expr)
						eventually(t, p.Title+": "+query, func() string { return hasData(t, base, query, unmeasured[p.Title]) })
					}
				}
			}
			t.Logf("%d queries of %s have data", n, b.Title)
		})
	}
	t.Run("flagger", func(t *testing.T) { flagger(t, m, base) })
	t.Run("rules", func(t *testing.T) { rulesWork(t, base) })
	t.Run("shares", func(t *testing.T) { sharesAreTheWeights(t, base) })
}

// variables asks for the values of a board's variables, and returns what puts them into a query.
func (b *board) variables(t *testing.T, base string) func(string) string {
	values := []string{"$__rate_interval", "15s", "$__range", "1m"}
	for _, v := range b.Templating.List {
		if v.Type != "query" {
			continue
		}
		value := chosen[v.Name]
		if v.IncludeAll {
			value = ".*"
		}
		query := strings.NewReplacer(values...).Replace(v.Definition)
		eventually(t, "the variable "+v.Name, func() string {
			got := choices(t, base, query, v.Regex)
			if len(got) == 0 || !v.IncludeAll && !got[value] {
				return fmt.Sprintf("%s gives %v", query, got)
			}
			return ""
		})
		values = append(values, "$"+v.Name, value)
	}
	r := strings.NewReplacer(values...)
	return func(query string) string {
		out := r.Replace(query)
		if strings.Contains(out, "$__") {
			t.Fatalf("%s has a variable of Grafana that this test does not know", query)
		}
		return out
	}
}

var labelValues = regexp.MustCompile(`^label_values\((.+), ([a-z_]+)\)$`)

// choices asks as Grafana does.
func choices(t *testing.T, base, query, regex string) map[string]bool {
	out := map[string]bool{}
	if m := labelValues.FindStringSubmatch(query); m != nil {
		var values []string
		if err := api(t, base, "/api/v1/label/"+m[2]+"/values", url.Values{"match[]": {m[1]}}, &values); err != nil {
			return nil
		}
		for _, v := range values {
			out[v] = true
		}
		return out
	}
	inner, ok := strings.CutPrefix(query, "query_result(")
	if !ok {
		t.Fatalf("%s is no query of a variable", query)
	}
	take := regexp.MustCompile(strings.Trim(regex, "/"))
	samples, err := vector(t, base, strings.TrimSuffix(inner, ")"))
	if err != nil {
		return nil
	}
	for _, s := range samples {
		var labels []string
		for name, value := range s.Metric {
			labels = append(labels, fmt.Sprintf("%s=%q", name, value))
		}
		if m := take.FindStringSubmatch("{" + strings.Join(labels, ", ") + "}"); m != nil {
			out[m[1]] = true
		}
	}
	return out
}

func hasData(t *testing.T, base, query string, noNumber bool) string {
	samples, err := vector(t, base, query)
	if err != nil {
		return err.Error()
	}
	for _, s := range samples {
		if noNumber || !math.IsNaN(s.number(t)) {
			return ""
		}
	}
	return fmt.Sprintf("%d series without a number", len(samples))
}

// flagger asks what Flagger does, of a workload with a proxy and of one without. One in two requests to cart is denied, which is
// no failure; all of those to bad fail.
func flagger(t *testing.T, m *mesh, base string) {
	for workload, want := range map[string]float64{"cart": 100, "good": 100, "other": 100, "bad": 0} {
		of := `reporter="destination",destination_workload_namespace="shop",destination_workload=~"` + workload + `"`
		success := `sum(rate(istio_requests_total{` + of + `,response_code!~"5.*"}[15s])) / sum(rate(istio_requests_total{` + of + `}[15s])) * 100`
		if want == 0 { // no series of the numerator, with Istio too
			success = `sum(rate(istio_requests_total{` + of + `,response_code=~"5.*"}[15s])) / sum(rate(istio_requests_total{` + of + `}[15s])) * 100 - 100`
		}
		eventually(t, "success of "+workload, func() string {
			got, err := vector(t, base, success)
			if err != nil || len(got) != 1 || math.Abs(got[0].number(t)-want) > 1e-6 {
				return fmt.Sprint(got, err)
			}
			return ""
		})
		p99 := `histogram_quantile(0.99, sum(rate(istio_request_duration_milliseconds_bucket{` + of + `}[15s])) by (le))`
		ours := `1000 * histogram_quantile(0.99, sum(rate(weir_edge_request_duration_seconds_bucket{direction="from",at_name="cart-0"}[15s])) by (le))`
		eventually(t, "p99 of "+workload, func() string {
			got, err := vector(t, base, p99)
			if err != nil || len(got) != 1 || !(got[0].number(t) > 0 && got[0].number(t) <= 50_000) {
				return fmt.Sprint(got, err)
			}
			if workload != "cart" {
				return ""
			}
			same, err := vector(t, base, `abs(`+p99+` / (`+ours+`) - 1) < 0.5`) // which the rule sees a moment later
			if err != nil || len(same) != 1 {
				return fmt.Sprint("it is not that of the edges: ", err)
			}
			return ""
		})
	}
	page, err := os.ReadFile("../../docs/dashboards.md")
	if err != nil {
		t.Fatal(err)
	}
	template := regexp.MustCompile("(?s)```\n([^`]*\\{\\{ target \\}\\}[^`]*)```").FindSubmatch(page)
	if template == nil {
		t.Fatal("docs/dashboards.md has no MetricTemplate")
	}
	query := strings.NewReplacer("{{ namespace }}", "shop", "{{ target }}", "good", "{{ interval }}", "15s").Replace(string(template[1]))
	eventually(t, "the MetricTemplate", func() string {
		got, err := vector(t, base, query)
		if err != nil || len(got) != 1 || got[0].number(t) != 100 {
			return fmt.Sprint(got, err)
		}
		return ""
	})
	// Each request of a pod with a proxy is there once: as its proxy saw it.
	if got, err := vector(t, base, `count by (direction) (istio_requests_total{destination_workload="cart"})`); err != nil || len(got) != 1 || got[0].Metric["direction"] != "from" {
		t.Errorf("cart is observed by %v, %v", got, err)
	}
	if m.sent.Load() == 0 || m.denied.Load() == 0 {
		t.Errorf("%d of web's requests were answered, %d denied", m.sent.Load(), m.denied.Load())
	}
}

// rulesWork holds that all rules can be evaluated, that the recorded ones have data, and that the route with failures has an
// alert on its way.
func rulesWork(t *testing.T, base string) {
	var all struct {
		Groups []struct {
			Rules []struct {
				Name, Type, Health, LastError, State string
				Alerts                               []struct{ Annotations map[string]string }
			}
		}
	}
	want := map[string]string{
		"WeirRequestsFail": "pending", "WeirMirrorLosesCopies": "pending", "WeirProxyUnreachable": "inactive", "WeirConfigurationRefused": "inactive",
		"WeirOverloaded": "inactive", "WeirCertificateExpired": "inactive", "WeirNoController": "inactive", "WeirFault": "inactive",
	}
	eventually(t, "all rules are evaluated", func() string {
		if err := api(t, base, "/api/v1/rules", nil, &all); err != nil {
			return err.Error()
		}
		for _, g := range all.Groups {
			for _, r := range g.Rules {
				if state := want[r.Name]; r.Health != "ok" || state != "" && state != r.State {
					return fmt.Sprintf("%s is %s and %s: %s", r.Name, r.Health, r.State, r.LastError)
				}
			}
		}
		return ""
	})
	n := 0
	for _, g := range all.Groups {
		for _, r := range g.Rules {
			if r.Type == "recording" {
				eventually(t, r.Name, func() string { return hasData(t, base, r.Name, false) })
			}
			for _, a := range r.Alerts {
				n++
				for _, text := range a.Annotations {
					if strings.Contains(text, "<no value>") || strings.Contains(text, "<error") {
						t.Errorf("%s says %q", r.Name, text)
					}
				}
			}
		}
	}
	if n < 2 {
		t.Errorf("%d alerts are on their way", n)
	}
}

// sharesAreTheWeights compares what backends are to get with what they get.
func sharesAreTheWeights(t *testing.T, base string) {
	const counted = `sum by (rule, backend) (weir_requests_total{route="shop/web",backend!=""})`
	eventually(t, "shares", func() string {
		off, err := vector(t, base, `abs(`+counted+` / on (rule) group_left sum by (rule) (`+counted+`) - on (rule, backend) sum by (rule, backend) (weir_backend_weight_ratio{route="shop/web"})) < 0.02`)
		if err != nil || len(off) < 6 {
			return fmt.Sprint(off, err)
		}
		return ""
	})
}

// TestRulesByExample runs promtool's unit tests of rules.
func TestRulesByExample(t *testing.T) {
	tool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("prometheus is not installed: scripts/setup.sh prometheus")
	}
	for _, args := range [][]string{
		{"check", "rules", "--lint=all", "--lint-fatal", rules + "rules.yaml", rules + "flagger.yaml"},
		{"test", "rules", "testdata/rules.yaml", "testdata/flagger.yaml"},
	} {
		if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}
