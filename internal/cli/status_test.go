package cli_test

import (
	"encoding/json"
	"path/filepath"
	"testing"
)

func TestStatusShowsFilesAndWhatIsWrongWithThem(t *testing.T) {
	weir("", "status", examples+"canary").want(t, 0, "default/edge", "HTTP:8080", "default/shop", "shop.example", "1 Gateway, 1 route: nothing is wrong", "!PROXIES", "!\x1b")
	weir(gateway+wrongRoute, "status", "-").want(t, 0, "default/shop", "WR301", "spec.rules[0].filters[0].requestMirror.percent", "fix: ", "1 error")
	weir(gateway+wrongRoute, "status", "-o", "wide", "-").want(t, 0, "http HTTP:8080 (1)", "from -:")
	weir(gateway+wrongRoute, "status", "-o", "yaml", "-").want(t, 0, "kind: HTTPRoute", "code: WR301")
	weir(gateway+wrongRoute+elsewhere, "status", "-n", "elsewhere", "-").want(t, 0, "0 Gateways, 0 routes: nothing is wrong")
}

func TestStatusAsJSON(t *testing.T) {
	r := weir(gateway+wrongRoute, "status", "-o", "json", "-")
	r.want(t, 0)
	var report struct {
		Objects []struct {
			Kind, Name, Accepted, Programmed string
			Routes                           int
			Problems                         []struct{ Severity, Code string }
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Objects) != 2 || report.Objects[0].Kind != "Gateway" || report.Objects[0].Routes != 1 || report.Objects[1].Problems[0].Code != "WR301" {
		t.Errorf("report = %+v", report)
	}
}

func TestStatusShowsSplitsOfFiles(t *testing.T) {
	weir("", "status", examples+"split-canary").want(t, 0, "TRAFFICSPLIT", "website-v1 90 (90 %), website-v2 10 (10 %)", "1 split: nothing is wrong")
	weir("", "status", examples+"split-ab-test").want(t, 0, "website-v1 0 (0 %), website-v2 100 (100 %)", "ab-test")
	const broken = `
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: s}
spec: {service: web, backends: [{service: a, weight: 2}, {service: b, weight: 1}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: a}
spec: {ports: [{port: 80}]}
`
	weir(broken, "status", "-").want(t, 0, "default/s", "a 2 (66.67 %), b 1 (33.33 %)", "WR604", "fix: create it", "1 error")
	weir(broken+elsewhere, "status", "-n", "elsewhere", "-").want(t, 0, "!TRAFFICSPLIT", "!split")
	r := weir(broken, "status", "-o", "json", "-")
	r.want(t, 0)
	var report struct {
		Objects []struct {
			Kind, Name, Accepted, Resolved string
			Split                          struct {
				Root   string
				Leaves []struct {
					Service       string
					Weight, Share float64
				}
			}
			Problems []struct{ Code string }
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &report); err != nil {
		t.Fatal(err)
	}
	if len(report.Objects) != 1 {
		t.Fatalf("report = %+v", report)
	}
	o := report.Objects[0]
	if s := o.Split; o.Kind != "TrafficSplit" || o.Accepted != "True" || o.Resolved != "False" || s.Root != "web" || s.Leaves[0].Weight != 2 || s.Leaves[0].Share != 2./3 || o.Problems[0].Code != "WR604" {
		t.Errorf("object = %+v", o)
	}
}

// TestWithoutPathsAndClusterTheErrorNamesBoth runs where there is no kubeconfig.
func TestWithoutPathsAndClusterTheErrorNamesBoth(t *testing.T) {
	t.Setenv("KUBECONFIG", filepath.Join(t.TempDir(), "none"))
	t.Setenv("HOME", t.TempDir())
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	for _, args := range [][]string{{"check"}, {"status"}, {"dump"}, {"explain", "--", "http://a/"}} {
		weir("", args...).want(t, 2, "stderr:PATH", "stderr:--kubeconfig")
	}
	weir("", "check", "--kubeconfig", "/nowhere").want(t, 2, "stderr:/nowhere")
	weir("", "check", "--context", "prod", "x.yaml").want(t, 2, "stderr:not both")
	weir("", "dump", "--gateway", "a/b", examples+"canary").want(t, 2, "stderr:--gateway")
}

func TestProxyAndControllerCheckTheirFlags(t *testing.T) {
	weir("", "proxy", "--gateway", "edge", "--controller", "a:1").want(t, 2, `stderr:--gateway "edge": want NAMESPACE/NAME`)
	weir("", "proxy", "--gateway", "a/edge", "--controller", "a").want(t, 2, `stderr:--controller "a": want HOST:PORT`)
	weir("", "controller").want(t, 2, "stderr:--proxy-image")
	weir("", "controller", "--proxy-image", "weir", "--feed-address", "18000").want(t, 2, "stderr:--feed-address")
	weir("", "controller", "--proxy-image", "weir", "--conversion-address", "18443").want(t, 2, "stderr:--conversion-address")
	weir("", "controller", "--proxy-image", "weir", "--drain-delay", "-1s").want(t, 2, "stderr:--drain-delay")
	for _, url := range []string{"http://weir.example/convert", "https:///convert", "https://weir.example/other", "https://u@weir.example/convert", "https://weir.example/convert?a", "::"} {
		weir("", "controller", "--proxy-image", "weir", "--conversion-url", url).want(t, 2, "stderr:must be https://HOST:PORT/convert")
	}
}

const elsewhere = `---
apiVersion: v1
kind: Namespace
metadata: {name: elsewhere}
`
