package dataplane

import (
	"context"
	"log/slog"
	"maps"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/tracing"
)

func TestHeadersAreReadLineByLine(t *testing.T) {
	got, err := parseHeaders(strings.NewReader("# of the collector\r\nAuthorization:  Bearer a:b \n\nX-Tenant:\n"))
	if want := map[string]string{"Authorization": "Bearer a:b", "X-Tenant": ""}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for text, want := range map[string]string{
		"":                            "no header fields",
		"Authorization Bearer geheim": "line 1",
		"A B: geheim":                 "line 1",
		"A: b\nA: geheim":             "line 2: A is there twice",
		"A: ge\x00heim":               "line 1: the value of A",
		"A: geh\u00e9im":              "line 1: the value of A",
		"A: " + strings.Repeat("geheim", maxHeaders/6+1): "more than 65536 bytes",
	} {
		_, err := parseHeaders(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%.30q: the error is %v, want %q", text, err, want)
		}
	}
}

func FuzzHeaders(f *testing.F) {
	f.Add("Authorization: Bearer x\n")
	f.Fuzz(func(t *testing.T, text string) {
		fields, err := parseHeaders(strings.NewReader(text))
		for name, value := range fields {
			if err == nil && strings.ContainsAny(name+value, "\r\n\x00") {
				t.Errorf("%q: %q", name, value)
			}
		}
	})
}

// exporter keeps its options, and makes no spans.
type exporter struct {
	tracing.Export
	closed bool
}

func (e *exporter) Begin(tracing.Context, tracing.Kind, string, time.Time) tracing.Span { return nil }
func (e *exporter) Counts() tracing.Counts {
	return tracing.Counts{Exported: 1, Rejected: 4, Failed: 2, Dropped: 3}
}
func (e *exporter) Close(ctx context.Context) error {
	_, bounded := ctx.Deadline()
	e.closed = bounded
	return nil
}

func TestFlagsOfTraces(t *testing.T) {
	headers := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(headers, []byte("Authorization: Bearer x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	made := &exporter{}
	refuse := func(netip.AddrPort) string { return "is refused" }
	open := func(args ...string) (*tracing.Tracer, *telemetry.Registry, func() error, error) {
		var o traceFlags
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.flags(f)
		if err := f.Parse(args); err != nil {
			t.Fatal(err)
		}
		m := telemetry.New()
		tr, stop, err := o.open(func(e tracing.Export) (tracing.Exporter, error) { made.Export = e; return made, nil }, "shop/web", refuse, m, slog.New(slog.DiscardHandler))
		return tr, m, stop, err
	}
	if tr, _, _, err := open(); tr != nil || err != nil {
		t.Errorf("without flags there are traces: %v", err)
	}
	for _, wrong := range [][]string{{"--otlp-headers-file", headers}, {"--otlp-endpoint", "http://c", "--trace-rate", "0"}, {"--otlp-endpoint", "http://c", "--otlp-headers-file", headers + ".no"}} {
		if _, _, _, err := open(wrong...); err == nil {
			t.Errorf("%v: no error", wrong)
		}
	}
	tr, m, stop, err := open("--otlp-endpoint", "http://c", "--otlp-headers-file", headers)
	if err != nil {
		t.Fatal(err)
	}
	if made.Endpoint != "http://c" || made.Header["Authorization"] != "Bearer x" || made.Attributes["weir.gateway"] != "shop/web" || made.Refuse == nil {
		t.Errorf("the exporter has %+v", made.Export)
	}
	taken := 0
	for range 1000 {
		if tr.Sample(tracing.Context{}, time.Now()) {
			taken++
		}
	}
	if taken != 10 {
		t.Errorf("%d of 1000 requests are traced, want 10", taken)
	}
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	for _, line := range []string{`weir_trace_spans_total{result="exported"} 1`, `weir_trace_spans_total{result="rejected"} 4`, `weir_trace_spans_total{result="failed"} 2`, `weir_trace_spans_total{result="dropped"} 3`, `weir_trace_spans_total{result="limited"} 0`} {
		if !strings.Contains(w.Body.String(), line+"\n") {
			t.Errorf("metrics lack %s", line)
		}
	}
	if err := stop(); err != nil || !made.closed {
		t.Errorf("the exporter was not closed in a bounded time: %v", err)
	}
}
