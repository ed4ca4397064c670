//go:build linux

package main

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestWrkReportIsRead(t *testing.T) {
	const out = `Running 1s test @ http://127.0.0.1:42851/cart/items?id=42
  1 threads and 64 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     0.88ms  305.01us   5.18ms   78.88%
    Req/Sec    72.44k     2.45k   75.04k    72.73%
  Latency Distribution
     50%  825.00us
     75%    0.99ms
     90%    1.16ms
     99%    2.27ms
  79172 requests in 1.10s, 92.49MB read
  Socket errors: connect 0, read 1, write 2, timeout 3
  Non-2xx or 3xx responses: 172
Requests/sec:  71906.33
Transfer/sec:     84.00MB
`
	m, err := parseWrk(out)
	want := measured{requests: 79000, failed: 178, elapsed: 1100 * time.Millisecond, p50: 825 * time.Microsecond, p99: 2270 * time.Microsecond}
	if err != nil || m != want {
		t.Errorf("got %+v, %v, want %+v", m, err, want)
	}
	if _, err := parseWrk("unable to connect to 127.0.0.1:1 Connection refused"); err == nil {
		t.Error("a report without requests gave no error")
	}
}

func TestH2loadLogIsRead(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := "1000000\t200\t100\n1000050\t200\t300\n1000060\t503\t10\n1000070\t-1\t10\n1000100\t200\t200\n1000200\t20"
	if _, err := io.WriteString(f, lines); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	m, err := parseH2load(f)
	want := measured{requests: 3, failed: 2, elapsed: 350 * time.Microsecond, p50: 200 * time.Microsecond, p99: 300 * time.Microsecond}
	if err != nil || m != want {
		t.Errorf("got %+v, %v, want %+v", m, err, want)
	}
}

func TestRatioIsTheMedianOfTheRounds(t *testing.T) {
	cpu := func(values ...float64) (s []sample) {
		for _, v := range values {
			s = append(s, sample{cost: v})
		}
		return s
	}
	// The machine was twice as slow in the second round: that is not the proxy's doing.
	if got, ok := ratio(cpu(9, 18, 9.9), cpu(10, 20, 10), costOf); !ok || got != 0.9 {
		t.Errorf("ratio %v, %v, want 0.9", got, ok)
	}
	if _, ok := ratio(cpu(1), nil, costOf); ok {
		t.Error("a ratio to nothing")
	}
	if got := medianOf(cpu(4, 1, 3, 2), costOf); got != 2.5 {
		t.Errorf("median %v", got)
	}
}

func TestReportGoesBetweenTheMarkersOfThePage(t *testing.T) {
	page := filepath.Join(t.TempDir(), "performance.md")
	b := &bench{output: page}
	if err := os.WriteFile(page, []byte("# Title\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	report := func(text string) error { return b.report("bench", func(string) string { return text }) }
	if err := report("first"); err == nil {
		t.Error("a page without markers was overwritten")
	}
	if err := os.WriteFile(page, []byte("# Title\n<!-- bench:begin -->\nold\n<!-- bench:end -->\nrest\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := report("new"); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if want := "# Title\n<!-- bench:begin -->\n\nnew\n<!-- bench:end -->\nrest\n"; err != nil || string(got) != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
}

func TestAPartThatIsMeasuredAgainKeepsTheRestOfTheReport(t *testing.T) {
	b := &bench{output: filepath.Join(t.TempDir(), "performance.md"), rounds: 1, conns: 64}
	var all []result
	for _, s := range scenarios {
		all = append(all, result{s, []*series{{contender: contender{label: "nginx"}, samples: []sample{{cost: 1}}}}})
	}
	write := func(results []result) string {
		t.Helper()
		if err := b.report("bench", func(old string) string { return b.comparison(results, old) }); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(b.output)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	first := write(all)
	for _, s := range scenarios {
		if !strings.Contains(first, "\n| "+s.title+" | 1.0 |") || !strings.Contains(first, "\n**"+s.title+"** (`"+s.name+"`)\n") {
			t.Fatalf("%s is missing from\n%s", s.name, first)
		}
	}
	if again := write(all); again != first {
		t.Errorf("the same figures gave another report:\n%s", again)
	}
	all[3].series[0].samples[0].cost = 7
	second := write(all[3:4])
	if !strings.Contains(second, "| "+scenarios[3].title+" | 7.0 |") || strings.Count(second, "Measured apart") != 1 {
		t.Errorf("what was measured again is not in\n%s", second)
	}
	changed := strings.NewReplacer("| 7.0 |", "| 1.0 |", "\nMeasured apart: `go run ./test/bench "+strings.Join(withoutOutput(os.Args[1:]), " ")+"`\n", "").Replace(second)
	if changed != first {
		t.Errorf("the rest has changed:\n%s", second)
	}
}

func TestOutputIsNotPartOfTheCommandThatIsShown(t *testing.T) {
	got := withoutOutput([]string{"-rounds", "3", "-o", "x.md", "-weir=/tmp/weir", "-mirror", "--o=y"})
	if want := []string{"-rounds", "3", "-mirror"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestAFailureIsNeverRoundedAway(t *testing.T) {
	if got := percent(10_000_000, 10_000_000); got != "100 %" {
		t.Errorf("got %s", got)
	}
	if got := percent(9_999_999, 10_000_000); strings.HasPrefix(got, "100 %") || !strings.Contains(got, "1 failed") {
		t.Errorf("got %s", got)
	}
}
