package cli_test

import (
	"encoding/json"
	"testing"
)

func TestExplainShowsTheSplitItsMatchAndItsLeaves(t *testing.T) {
	weir("", "explain", examples+"split-canary", "--", "http://website:8080/").want(t, 0,
		"100 %   default/website:8080, split by TrafficSplit default/canary", "split.yaml:5",
		"  90 %    default/website-v1:8080  at 127.0.0.1:9001", "  10 %    default/website-v2:8080  at 127.0.0.1:9002")
	weir("", "explain", examples+"split-ab-test", "--", "http://website:8080/", "-H", "user-agent: Firefox").want(t, 0,
		"split by TrafficSplit default/ab-test", "as HTTPRouteGroup default/ab-test spec.matches[0] matches: header user-agent ~ .*Firefox.*",
		"  100 %   default/website-v2:8080")
	weir("", "explain", examples+"split-ab-test", "--", "http://website:8080/", "-H", "user-agent: curl").want(t, 0,
		"not split by TrafficSplit default/ab-test", `header "user-agent" is "curl", wanted regex ".*Firefox.*"`,
		"100 %   default/website:8080  at 127.0.0.1:9001", "!website-v2")
	weir("", "explain", examples+"split-route", "--", "http://shop.example:8080/").want(t, 0,
		`HTTPRoute default/shop`, "  66.67 % default/website-v1:8080", "  33.33 % default/website-v2:8080")
}

func TestExplainPrintsSplitsAsJSON(t *testing.T) {
	r := weir("", "explain", "-o", "json", examples+"split-canary", "--", "http://website:8080/a?b")
	r.want(t, 0)
	var e struct {
		Backends []struct {
			Splits []struct {
				Split struct{ Name string }
				Takes bool
			}
			Leaves []struct {
				Service           string
				Probability       float64
				Weight, WeightSum int
				Forwarded         struct{ Target string }
			}
		}
	}
	if err := json.Unmarshal([]byte(r.stdout), &e); err != nil {
		t.Fatal(err)
	}
	b := e.Backends[0]
	if len(b.Splits) != 1 || b.Splits[0].Split.Name != "canary" || !b.Splits[0].Takes {
		t.Errorf("splits %+v", b.Splits)
	}
	if len(b.Leaves) != 2 || b.Leaves[1].Probability != 0.1 || b.Leaves[1].Weight != 1 || b.Leaves[1].WeightSum != 10 || b.Leaves[1].Forwarded.Target != "/a?b" {
		t.Errorf("leaves %+v", b.Leaves)
	}
}

func TestServeNamesTheServicesToServeByHostName(t *testing.T) {
	weir("", "dump", "--serve", "website-v1,website", examples+"split-canary").want(t, 0, `"website-v1.default.svc.cluster.local"`, `"website.default.svc.cluster.local"`)
	weir("", "dump", "--serve", "none", examples+"split-canary").want(t, 0, "!hostnames")
	weir("", "check", "--serve", "website-v3", examples+"split-canary").want(t, 1, "WR620", "Service default/website-v3")
	weir("", "check", examples+"split-route").want(t, 0)
	weir("", "explain", "--serve", "website", examples+"split-route", "--", "http://website:8080/").want(t, 0, "split by TrafficSplit default/website")
	weir("", "explain", examples+"split-route", "--", "http://website:8080/").want(t, 3)
}

func TestConvertPrintsRoutesForMeshes(t *testing.T) {
	r := weir("", "convert", examples+"split-ab-test")
	r.want(t, 0, "kind: HTTPRoute", "group: \"\"\n    kind: Service\n    name: website\n    port: 8080", "value: .*Firefox.*", "# ", "stderr:1 route from 1 split")
	weir(r.stdout, "check", "-", examples+"split-ab-test/services.yaml").want(t, 0)
	weir("", "convert", examples+"split-birds").want(t, 0, "name: birds-8080", "---\n", "name: birds-9090")
	weir("{kind: TrafficSplit, metadata: {name: s}, spec: {service: gone, backends: [{service: a, weight: 1}]}}", "convert", "-").want(t, 1,
		"stderr:WR601", "stderr:Service default/gone does not exist", "!HTTPRoute")
}
