package cli_test

import (
	"strings"
	"testing"
)

const websites = `
apiVersion: v1
kind: Service
metadata: {name: website}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: website-v1}
spec: {ports: [{port: 80}]}
---
`

const websiteRoute = `
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: website}
spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: website, port: 80}]}]}
---
`

const websiteSplit = `
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: canary}
spec: {service: website, backends: [{service: website-v1, weight: 1}]}
`

func TestExplainSaysWhichSplitIsLeftOut(t *testing.T) {
	t.Parallel()
	const known, unknown = "left out    TrafficSplit default/canary, which would split default/website", "left out    TrafficSplit default/canary, which may be meant for this"
	for _, c := range []struct{ written, wrong, code, says string }{
		{"weight: 1", "weight: -1", "WR201 spec.backends[0].weight", known},
		{"weight: 1", "weigth: 1", "WR116", known},
		{", weight: 1", "", "WR202", known},
		{"website,", "website.default.svc.cluster.local, matches: [{kind: HTTPRouteGroup, name: none}],", "WR611", known},
		{"alpha4", "alpha9", "WR104", known},
		{"website,", "[website],", "WR204", unknown},
		{"service: website,", "", "WR202", unknown},
		{"TrafficSplit", "TrafficSplitt", "WR115", unknown},
	} {
		split := strings.Replace(websiteSplit, c.written, c.wrong, 1)
		weir(websites+split, "explain", "-", "--", "http://website:8080/").want(t, 3, "nothing listens for http on port 8080", c.says, c.code, "fix: ")
		weir(gateway+"---\n"+websites+websiteRoute+split, "explain", "-", "--", "http://shop.example:8080/").want(t, 0, c.says, c.code, "100 %   default/website:80")
	}
	split := strings.Replace(websiteSplit, "weight: 1", "weight: -1", 1)
	weir(websites+split, "explain", "-", "--", "http://website-v1:8080/").want(t, 3, "!left out")
	weir(gateway+"---\n"+websites+strings.Replace(websiteRoute, "name: website,", "name: website-v1,", 1)+split, "explain", "-", "--", "http://shop.example:8080/").want(t, 0, "!left out")
	weir(gateway+"---\n"+websites+websiteRoute+websiteSplit, "explain", "-", "--", "http://shop.example:8080/").want(t, 0, "!left out")
	elsewhere := strings.Replace(strings.Replace(websiteSplit, "canary", "canary, namespace: shop", 1), "website,", "[website],", 1)
	weir(gateway+"---\n"+websites+websiteRoute+elsewhere, "explain", "-", "--", "http://shop.example:8080/").want(t, 0, "!left out")
	// A mirror's copies are split, too, and so are connections.
	mirrored := strings.Replace(websiteRoute, "rules: [{", "rules: [{filters: [{type: RequestMirror, requestMirror: {backendRef: {name: website, port: 80}}}], ", 1)
	mirrored = strings.Replace(mirrored, "backendRefs: [{name: website", "backendRefs: [{name: website-v1", 1)
	weir(gateway+"---\n"+websites+mirrored+split, "explain", "-", "--", "http://shop.example:8080/").want(t, 0, known)
	db := strings.Replace(websites, "port: 80", "port: 80, appProtocol: tcp", 1)
	weir(db+split, "explain", "-", "--", "tcp://127.0.0.1:80").want(t, 3, known)
	weir(db+split, "explain", "--serve", "website", "-", "--", "tcp://127.0.0.1:80").want(t, 0, known, "default/website:80")
	weir(db+split, "explain", "-", "--", "tcp://127.0.0.1:81").want(t, 3, "!left out")
}

// TestExplainSaysHowToAskManifestsWithoutAGateway checks that no cluster is blamed for files.
func TestExplainSaysHowToAskManifestsWithoutAGateway(t *testing.T) {
	t.Parallel()
	manifests := strings.ReplaceAll(websites, "spec: {", "spec: {selector: {app: website}, ") + websiteSplit
	weir(manifests, "explain", "-", "--", "http://website/").want(t, 3,
		"stderr:nothing in these files listens: they are for a cluster, as Service default/website has a selector and no EndpointSlice, and have no Gateway with a listener",
		"stderr:--target files", "stderr:--from NAMESPACE/SERVICEACCOUNT", "stderr:!the cluster has", "stderr:!error")
	weir(manifests, "explain", "--target", "files", "-", "--", "http://website/").want(t, 0, "split by TrafficSplit default/canary")
	weir(manifests, "explain", "--from", "default/web", "-", "--", "http://website/").want(t, 3, "split by TrafficSplit default/canary", "!left out")
	weir(manifests, "explain", "--gateway", "a/b", "-", "--", "http://website/").want(t, 2, "stderr:--gateway a/b: no Gateway is served")
	wrong := strings.Replace(manifests, "weight: 1", "weight: -1", 1)
	weir(wrong, "explain", "-", "--", "http://website/").want(t, 3, `stderr:"weir check" shows 1 error`)
	weir(wrong, "explain", "--from", "default/web", "-", "--", "http://website/").want(t, 3, "note: TrafficSplit default/canary is left out: WR201 spec.backends[0].weight, -1 is too small")
}
