//go:build linux

package main

import (
	"bytes"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

// few scenarios have each way to generate load, and shares, once; routes are in TestRoutesAreChangedUnderLoad.
var few = []string{"split", "mirror10", "h2", "grpc", "churn-resumed", "inbound-policy", "mesh", "idle"}

// TestEveryPeerDoesTheWorkOfEveryScenario starts each proxy that is installed, with fewer routes than the comparison.
// startProxy itself checks the answer, the forwarded fields, the protocol and the cipher suite. A moment's load must then be served without a
// failure; figures are not looked at. In short mode it is a few of the scenarios.
func TestEveryPeerDoesTheWorkOfEveryScenario(t *testing.T) {
	b := newBench(t)
	b.weir = weirtest.Path(t)
	for _, s := range scenarios {
		if testing.Short() && !slices.Contains(few, s.name) {
			continue
		}
		s.setting.Routes = min(s.setting.Routes, 250)
		s.setting.Asked = min(s.setting.Asked, 250)
		for _, c := range b.contenders(s) {
			t.Run(s.name+"/"+c.label, func(t *testing.T) {
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
				if s.tool == toolIdle {
					c.setting.Idle = 300
					if _, err := b.measureIdle(c, 0); err != nil {
						t.Error(err)
					}
					return
				}
				checkShares(t, b, p)
				if s.tool == toolWrk || s.tool == toolH2 {
					return // they are not installed with the project, and take seconds
				}
				m, err := b.measure(s, p)
				if err != nil || m.failed > 0 || m.requests == 0 {
					t.Errorf("%+v, %v, want all requests answered", m, err)
				}
			})
		}
	}
}

// checkShares sends requests over one protocol that the generator speaks, and looks at what arrived where.
func checkShares(t *testing.T, b *bench, p *proxy) {
	if p.setting.TLS || p.setting.HTTP2 || p.setting.Routes > 0 {
		return
	}
	before, err := b.counts()
	if err != nil {
		t.Fatal(err)
	}
	const rate, duration, all = 2000, 400 * time.Millisecond, 800
	if p.setting.Mirror == roleSlow && p.peer == "nginx" {
		return // it serves 8 connections five times a second
	}
	r, err := b.generate(p.port, rate, duration, 0, plainRequest(), "-grace=10s")
	if err != nil {
		t.Fatal(err)
	}
	if r.OK != all || r.Requests != all {
		t.Errorf("%+v, want %d requests answered", r, all)
	}
	after, err := b.counts()
	if err != nil {
		t.Fatal(err)
	}
	share := func(r role) float64 { return float64(after[r][0]-before[r][0]) / all }
	if p.setting.Split {
		if got := share(roleSecond); math.Abs(got-0.1) > 0.05 {
			t.Errorf("%.1f %% of the requests went to the second backend, want 10", 100*got)
		}
	}
	if p.setting.Mirror == roleMirror {
		if got, want := share(roleMirror), float64(p.setting.MirrorPercent)/100; math.Abs(got-want) > 0.05 {
			t.Errorf("%.1f %% of the requests were mirrored, want %.0f", 100*got, 100*want)
		}
	}
	if cpu, err := p.cpu(); err != nil || cpu <= 0 {
		t.Errorf("processor time %v, %v", cpu, err)
	}
}

func TestAProxyThatDoesNotStartIsReportedWithWhatItSaid(t *testing.T) {
	b := newBench(t)
	b.weir = "/bin/false"
	if _, err := b.startProxy(contender{label: "weir", peer: "weir", setting: setting{Backend: roleFast}}); err == nil {
		t.Fatal("no error")
	}
	b.weir = "/bin/ls"
	_, err := b.startProxy(contender{label: "weir", peer: "weir", setting: setting{Backend: roleFast}})
	if err == nil || !bytes.Contains([]byte(fmt.Sprint(err)), []byte("ls:")) {
		t.Fatalf("error %v does not hold the process's output", err)
	}
}

// TestWeirIsBuiltFromTheTree: the other tests have the test binary for weir.
func TestWeirIsBuiltFromTheTree(t *testing.T) {
	if testing.Short() {
		t.Skip("links all of weir, as \"make build\" does: make test-all")
	}
	b := newBench(t)
	binary, err := b.build()
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(binary, "version").CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
