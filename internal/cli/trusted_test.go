package cli

import (
	"strings"
	"testing"
)

const frontYAML = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, annotations: {weirmesh.github.io/proxy-protocol: "81"}}
spec:
  gatewayClassName: weir
  listeners:
  - {name: http, port: 80, protocol: HTTP}
  - {name: other, port: 81, protocol: HTTP}
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: r}
spec:
  parentRefs: [{name: edge}]
  rules:
  - backendRefs: [{name: app, port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: app, annotations: {weirmesh.github.io/proxy-protocol: v2}}
spec: {ports: [{port: 80}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: app-1, labels: {kubernetes.io/service-name: app}}
addressType: IPv4
endpoints: [{addresses: [127.0.0.1]}]
ports: [{port: 9000}]
`

func TestTrustedProxiesOfTheCommandLine(t *testing.T) {
	for _, c := range []struct {
		args       []string
		code       int
		want, none string
	}{
		{[]string{"check", "-"}, exitFailed, "WR564", ""},
		{[]string{"check", "--trusted-proxies", "10.0.0.0/8,192.0.2.1", "-"}, exitOK, "nothing to complain about", "WR564"},
		{[]string{"dump", "--trusted-proxies", "192.0.2.1", "--trusted-proxies", "10.0.0.0/8", "-"}, exitOK, `"192.0.2.1/32"`, ""},
		{[]string{"explain", "--trusted-proxies", "10.0.0.0/8", "-", "--", "http://a/", "--from", "10.0.0.1", "-H", "X-Forwarded-For: 1.1.1.1, 192.0.2.9, 10.0.0.2"}, exitOK,
			"client      192.0.2.9  (backends get X-Forwarded-For: 192.0.2.9, 10.0.0.2, 10.0.0.1)", ""},
		{[]string{"explain", "--trusted-proxies", "10.0.0.0/8", "-", "--", "http://a/", "--from", "11.0.0.1", "-H", "X-Forwarded-For: 192.0.2.9"}, exitOK,
			"client      11.0.0.1  (backends get X-Forwarded-For: 11.0.0.1)", "192.0.2.9,"},
		{[]string{"explain", "--trusted-proxies", "10.0.0.0/8", "-", "--", "http://a:81/"}, exitOK, "connections begin with a PROXY header, from trusted proxies only", "X-Forwarded-For"},
		{[]string{"explain", "-", "--", "http://a/"}, exitOK, "each connection begins with a PROXY header, version 2", "trusts"},
		{[]string{"check", "--trusted-proxies", "10.0.0.1/8", "-"}, exitUsage, "write 10.0.0.0/8", ""},
		{[]string{"run", "--trusted-proxies", "proxy.example", "-"}, exitUsage, "neither an IP address nor a network", ""},
		{[]string{"explain", "-", "--", "http://a/", "--from", "nowhere"}, exitUsage, "want the IP address", ""},
	} {
		var stdout, stderr strings.Builder
		code := Main(c.args, strings.NewReader(frontYAML), &stdout, &stderr)
		out, err := stdout.String(), stderr.String()
		if code != c.code || !strings.Contains(out+err, c.want) || c.none != "" && strings.Contains(out+err, c.none) {
			t.Errorf("weir %s: code %d, %s%s; want code %d, %q and not %q", strings.Join(c.args, " "), code, out, err, c.code, c.want, c.none)
		}
	}
}
