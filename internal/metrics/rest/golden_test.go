package rest_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/metrics/rest"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/telemetry"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// store answers with rows that it has, or fails.
type store struct {
	rows []metrics.Traffic
	err  error
	// wait, if set, is closed when the Store may answer.
	wait chan struct{}
}

func (s *store) Ask(ctx context.Context, q metrics.Question) (metrics.Answer, error) {
	if s.wait != nil {
		select {
		case <-s.wait:
		case <-ctx.Done():
			return metrics.Answer{}, ctx.Err()
		}
	}
	if s.err != nil {
		return metrics.Answer{}, s.err
	}
	out := metrics.Answer{Time: time.Date(2019, 4, 8, 22, 25, 55, 0, time.UTC), Window: q.Window}
	at, with := map[telemetry.Side]bool{}, map[telemetry.Side]bool{}
	for _, s := range q.At {
		at[s] = true
	}
	for _, s := range q.With {
		with[s] = true
	}
	for _, t := range s.rows {
		if q.At == nil && q.With == nil || at[t.At] || with[t.Peer] {
			if q.Sum {
				t.EdgeLabels = telemetry.EdgeLabels{At: t.At, Out: t.Out}
			}
			out.Traffic = append(out.Traffic, t)
		}
	}
	return out, nil
}

// side reads "KIND NAMESPACE/NAME", in whose name ~ is a slash.
func side(text string) telemetry.Side {
	if text == "unknown" {
		return telemetry.Side{}
	}
	kind, rest, ok := strings.Cut(text, " ")
	if !ok {
		return telemetry.Side{Name: text}
	}
	namespace, name, _ := strings.Cut(rest, "/")
	return telemetry.Side{Kind: kind, Namespace: namespace, Name: strings.ReplaceAll(name, "~", "/")}
}

// traffic reads "SIDE to SIDE: N ok, N failed, DURATION", or from.
func traffic(t testing.TB, lines []string) (all []metrics.Traffic) {
	t.Helper()
	registry := telemetry.New()
	for _, line := range lines {
		i := strings.LastIndex(line, ": ")
		who, counts := line[:i], line[i+2:]
		at, peer, out := strings.Cut(who, " to ")
		if !out {
			at, peer, _ = strings.Cut(who, " from ")
		}
		var ok, failed int
		var text string
		if _, err := fmt.Sscanf(strings.ReplaceAll(counts, ",", ""), "%d ok %d failed %s", &ok, &failed, &text); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		d, err := time.ParseDuration(text)
		if err != nil {
			t.Fatal(err)
		}
		e := registry.Edge(telemetry.EdgeLabels{At: side(at), Out: out, Peer: side(peer)})
		for i := range ok + failed {
			e.Observe(0, i < ok, d)
		}
	}
	for _, e := range registry.Edges() {
		all = append(all, metrics.Traffic{EdgeLabels: e.EdgeLabels, Success: e.Success, Failure: e.Failure, Latency: e.Latency})
	}
	return all
}

func objects(t testing.TB) *metrics.Index {
	t.Helper()
	set, err := resource.Load(dialect.Kinds(), []string{"testdata/objects.yaml"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(set.Findings) > 0 {
		t.Fatal(set.Findings)
	}
	return metrics.NewIndex(set)
}

func handler(x *metrics.Index, s metrics.Store) *rest.Handler {
	return &rest.Handler{Index: func() *metrics.Index { return x }, Store: s}
}

func get(h http.Handler, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w
}

// golden is a golden file: a request and what was observed, and after a line of dashes the status and the answer.
type golden struct {
	Request string   `json:"request"`
	Accept  string   `json:"accept"`
	Traffic []string `json:"traffic"`
}

func TestAnswers(t *testing.T) {
	x := objects(t)
	files, err := filepath.Glob("testdata/cases/*.yaml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			in, want, ok := strings.Cut(string(text), "\n---\n")
			if !ok {
				t.Fatal("no line of dashes")
			}
			var c golden
			if err := yaml.UnmarshalStrict([]byte(in), &c); err != nil {
				t.Fatal(err)
			}
			r := httptest.NewRequest("GET", c.Request, nil)
			if c.Accept != "" {
				r.Header.Set("Accept", c.Accept)
			}
			w := httptest.NewRecorder()
			handler(x, &store{rows: traffic(t, c.Traffic)}).ServeHTTP(w, r)
			var answer map[string]any
			if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
				t.Fatal(err)
			}
			b, err := yaml.Marshal(answer)
			if err != nil {
				t.Fatal(err)
			}
			got := fmt.Sprintf("# %d\n%s", w.Code, b)
			if *update {
				if err := os.WriteFile(file, []byte(in+"\n---\n"+got), 0o666); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}
