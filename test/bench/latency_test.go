//go:build linux

package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

func TestLatencyFlagsAreRead(t *testing.T) {
	parse := func(args ...string) (latencyOptions, error) {
		f := flag.NewFlagSet("bench", flag.ContinueOnError)
		read := latencyFlags(f)
		if err := f.Parse(args); err != nil {
			t.Fatal(err)
		}
		return read()
	}
	got, err := parse()
	if want := (latencyOptions{rates: []int{2000, 5000, 10000}, processors: []int{1, 2}, stolen: 0.05, others: 0.02}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("by default %+v, %v, want %+v", got, err, want)
	}
	got, err = parse("-rates=7", "-processors=2", "-stolen=10", "-others=20", "-before=/bin/weir")
	if want := (latencyOptions{rates: []int{7}, processors: []int{2}, stolen: 0.1, others: 0.2, before: "/bin/weir"}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
	for _, bad := range []string{"-rates=", "-rates=-1", "-rates=1,,2", "-rates=many", "-processors=3", "-processors=0", "-reload=-1"} {
		name, _, _ := strings.Cut(bad, "=")
		if got, err := parse(bad); err == nil || !strings.HasPrefix(err.Error(), name+": ") {
			t.Errorf("%s gives %+v, %v", bad, got, err)
		}
	}
}

// ofLatency is a scenario whose latencies can be compared.
func ofLatency(t *testing.T, name string) scenario {
	t.Helper()
	s, err := latencyScenario(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestLatenciesAreComparedInOneScenario(t *testing.T) {
	for name, want := range map[string]string{"": "plain", "tls": "tls", "inbound": "inbound", "inbound-policy": "inbound-policy", "mesh": "mesh"} {
		if s := ofLatency(t, name); s.name != want {
			t.Errorf("%q is %q", name, s.name)
		}
	}
	for _, name := range []string{"plain,tls", "h2", "grpc", "idle", "churn", "routes", "mirror10", "body100k", "unknown"} {
		if s, err := latencyScenario(name, 0); err == nil || !strings.HasPrefix(err.Error(), "-scenarios: ") {
			t.Errorf("%q is %q, %v", name, s.name, err)
		}
	}
	if _, err := latencyScenario("plain", 10); err != nil {
		t.Error(err)
	}
	if _, err := latencyScenario("mesh", 10); err == nil {
		t.Error("routes of sidecars can be changed")
	}
}

func TestDefaultsYieldToWhatIsGiven(t *testing.T) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	rounds := f.Int("rounds", 5, "")
	duration := f.Duration("duration", time.Second, "")
	if err := f.Parse([]string{"-rounds", "5"}); err != nil {
		t.Fatal(err)
	}
	setUnlessGiven(f, "rounds", rounds, 7)
	setUnlessGiven(f, "duration", duration, time.Minute)
	if *rounds != 5 || *duration != time.Minute {
		t.Errorf("got %d rounds of %v", *rounds, *duration)
	}
}

// TestDisturbedRoundsAreRepeatedThenLeftOut measures really, with bounds that every round or none keeps to.
func TestDisturbedRoundsAreRepeatedThenLeftOut(t *testing.T) {
	b := newBench(t)
	b.duration = 100 * time.Millisecond
	const rate = 200
	s := &latencySeries{label: direct, processors: 1, rate: rate}
	for _, o := range []latencyOptions{{stolen: -1, others: 10}, {stolen: 10, others: -1}} {
		if err := b.latencyRound(o, s, 0); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.kept) != 0 || len(s.thrown) != 2*tries {
		t.Fatalf("%d rounds kept, %d thrown away", len(s.kept), len(s.thrown))
	}
	if row := s.row(); !strings.HasSuffix(row, fmt.Sprintf("| 0, %d thrown away |", 2*tries)) || strings.Count(row, " - |") != 11 {
		t.Errorf("the row is %s", row)
	}
	if err := b.latencyRound(latencyOptions{stolen: 10, others: 10}, s, 0); err != nil {
		t.Fatal(err)
	}
	if len(s.kept) != 1 || s.kept[0].OK != rate/10 || s.kept[0].Latencies.count() != rate/10 || s.kept[0].Lateness.count() != rate/10 {
		t.Errorf("kept %+v", s.kept)
	}
}

func TestEveryPeerUsesTheProcessorsItIsGiven(t *testing.T) {
	b := newBench(t)
	b.weir = weirtest.Path(t)
	o := latencyOptions{scenario: ofLatency(t, ""), before: b.weir, stolen: 100, others: 100}
	if err := b.share(true); err != nil {
		t.Fatal(err)
	}
	var labels []string
	for _, c := range b.latencyContenders(o, 2) {
		labels = append(labels, c.label)
		t.Run(c.label, func(t *testing.T) {
			if _, ok := debian[c.peer]; ok {
				if _, err := lookPath(c.peer); err != nil {
					t.Skip(c.peer, "is not installed")
				}
			}
			p, err := b.startProxy(c)
			if err != nil {
				t.Fatal(err)
			}
			defer b.stop(p.processes...)
			pids, err := family(p.processes[0].cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*", pids[0]))
			if c.peer == "nginx" && len(pids) != 3 || c.peer == "haproxy" && len(threads) != 2 {
				t.Errorf("%d processes, the first of %d threads", len(pids), len(threads))
			}
			s := &latencySeries{label: c.label, processors: 2, rate: 200, proxy: p}
			if err := b.latencyRound(o, s, 0); err != nil || len(s.kept) != 1 || s.kept[0].OK != s.kept[0].Requests || s.kept[0].cpu <= 0 {
				t.Errorf("kept %+v, %v", s.kept, err)
			}
		})
	}
	if want := []string{"nginx", "haproxy", "weir, before", "weir"}; !reflect.DeepEqual(labels, want) {
		t.Errorf("contenders are %q, want %q", labels, want)
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^Cpus_allowed_list:\s+\d+$`).Match(status) {
		t.Errorf("the harness is not kept to its processors:\n%s", status)
	}
}

// TestRoutesAreChangedUnderLoad looks at what is served afterwards: Weir tells it, nginx has other workers.
func TestRoutesAreChangedUnderLoad(t *testing.T) {
	b := newBench(t)
	b.weir = weirtest.Path(t)
	o := latencyOptions{scenario: ofLatency(t, ""), reload: 150, stolen: 100, others: 100}
	b.duration = 1300 * time.Millisecond // one change at least
	for _, c := range b.latencyContenders(o, 1) {
		if c.peer == "haproxy" {
			t.Error("HAProxy takes part")
		}
		t.Run(c.label, func(t *testing.T) {
			if _, err := lookPath("nginx"); c.peer == "nginx" && err != nil {
				t.Skip("nginx is not installed")
			}
			p, err := b.startProxy(c)
			if err != nil {
				t.Fatal(err)
			}
			defer b.stop(p.processes...)
			before, err := family(p.processes[0].cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			s := &latencySeries{label: c.label, processors: 1, rate: 200, proxy: p}
			if err := b.latencyRound(o, s, 0); err != nil || len(s.kept) != 1 || s.kept[0].OK == 0 {
				t.Fatalf("kept %+v, %v", s.kept, err)
			}
			if p.setting.Version == 0 {
				t.Error("nothing was changed")
			}
			after, err := family(p.processes[0].cmd.Process.Pid)
			if err != nil {
				t.Fatal(err)
			}
			if c.peer == "nginx" && reflect.DeepEqual(before, after) {
				t.Errorf("the processes of nginx are still %v", after)
			}
			if c.peer == "weir" {
				if s.kept[0].OK != s.kept[0].Requests {
					t.Errorf("%d of %d requests were answered", s.kept[0].OK, s.kept[0].Requests)
				}
				served(t, p, (time.Minute + time.Duration(p.setting.Version)*time.Millisecond).String())
			}
		})
	}
}

// served waits until weir says that it serves a configuration with some text in it.
func served(t *testing.T, p *proxy, want string) {
	t.Helper()
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		resp, err := client.Get("http://" + address(p.admin) + "/config")
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte(want)) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%q is not in %.2000s", want, text)
		}
	}
}

func TestLatencyReportPutsRoundsTogether(t *testing.T) {
	of := func(values ...int64) loadResult {
		r := loadResult{Requests: len(values), OK: len(values), Latencies: histogram{}, Lateness: histogram{}}
		for _, us := range values {
			r.Latencies.add(us * 1000)
			r.Lateness.add(us * 10)
			r.Max = max(r.Max, us*1000)
		}
		return r
	}
	series := func(label string, rounds ...latencySample) *latencySeries {
		s := &latencySeries{label: label, processors: 2, rate: 2000, kept: rounds}
		if label != direct {
			s.proxy = &proxy{}
		}
		return s
	}
	round := func(values ...int64) latencySample {
		return latencySample{loadResult: of(values...), cpu: 80 * time.Microsecond, waited: 8 * time.Microsecond, disturbance: disturbance{0.01, 0.02}}
	}
	weir := series("weir", round(50, 100, 100, 100), round(100, 100, 100, 400))
	weir.thrown = []disturbance{{}}
	weir.kept[1].OK--
	weir.kept[1].Stolen = 0.04
	all := []*latencySeries{
		series(direct, round(10, 10, 10, 10)),
		series("nginx", round(200, 200, 200, 200)),
		series("haproxy"),
		weir,
	}
	b := &bench{rounds: 2, conns: 64, realtime: true}
	o := latencyOptions{scenario: ofLatency(t, ""), stolen: 0.05, others: 0.02}
	report := b.latencyReport(o, all)
	for _, want := range []string{
		"Rounds with more than 5 % stolen or more than 2 % for others were thrown away, and measured again up to 3 times. Load and backend have real-time priority",
		"\n| 2 | 2000 | 200, 200, 200 | - | 100, 400, 400 | 0.50, 2.00, 2.00 | - |\n",
		"\n**Two processors**",
		"\n| 2000 | direct | 10 | 10 | 10 | 10 | 10 to 10 | 0 | - | - | 0 | 1.0 % | 2.0 % | 1 |\n",
		"\n| 2000 | haproxy | - |",
		"| 0 |\n",
		"\n| 2000 | weir | 100 | 400 | 400 | 400 | 100 to 401 | 4 | 20.0 | 2.0 | 1 | 4.0 % | 2.0 % | 2, 1 thrown away |\n",
	} {
		if !strings.Contains(report, want) {
			t.Errorf("%q is not in\n%s", want, report)
		}
	}
	if !strings.HasPrefix(report, "Measured on ") {
		t.Errorf("the plain scenario is named in\n%s", report)
	}
	o.scenario = ofLatency(t, "mesh")
	if report := b.latencyReport(o, all); !strings.HasPrefix(report, "two sidecars in a row (`mesh`):\n\nMeasured on ") {
		t.Errorf("the scenario is not named in\n%s", report)
	}
	b.favoured = true
	if report := b.latencyReport(latencyOptions{}, all); !strings.Contains(report, "Load, backend and proxies have real-time priority") {
		t.Errorf("it is not said that the proxies had priority:\n%s", report)
	}
	b.realtime, b.favoured = false, false
	if report := b.latencyReport(latencyOptions{}, all); !strings.Contains(report, "no real-time priority") {
		t.Errorf("it is not said that there was no priority:\n%s", report)
	}
}

func TestContendersThatFailAreAnError(t *testing.T) {
	b := newBench(t)
	b.weir, b.peers = "/bin/false", []string{"weir"}
	if err := b.runLatency(latencyOptions{scenario: ofLatency(t, ""), rates: []int{100}, processors: []int{1}}); err == nil || !strings.Contains(err.Error(), "weir does not serve") {
		t.Errorf("a proxy that does not start gives %v", err)
	}
}
