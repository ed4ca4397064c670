//go:build linux

package main

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"path/filepath"
	"strings"
)

// weirCommand writes Gateway API manifests for the setting and returns the command that serves them: metrics on,
// access log off.
func (b *bench) weirCommand(dir string, c contender, at place, admin int) ([]string, error) {
	s, binary := at.setting, cmp.Or(c.binary, b.weir)
	manifests := filepath.Join(dir, "manifests")
	command := []string{binary, "run", manifests, "--admin", address(admin), "--access-log", "off", "--log-level", "warn"}
	if s.Sidecars > 0 {
		return append(command, b.sidecarFlags(at)...), b.sidecarManifests(manifests, s, cmp.Or(at.next, at.port))
	}
	command = append(command, "--address", "127.0.0.1")
	if err := b.manifests(manifests, s, at.port); err != nil {
		return nil, err
	}
	if s.Idle > 0 {
		command = append(command, "--max-connections", fmt.Sprint(s.Idle+100)) // by itself it keeps half of the descriptors for endpoints
	}
	return command, nil
}

// manifests writes a Gateway, routes and services into a folder.
func (b *bench) manifests(dir string, s setting, port int) error {
	if err := mkdir(dir); err != nil {
		return err
	}
	protocol, tls := "HTTP", ""
	if s.TLS {
		protocol, tls = "HTTPS", "\n    tls: {mode: Terminate, certificateRefs: [{name: bench}]}"
	}
	gateway := fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: bench, namespace: bench}
spec:
  gatewayClassName: weir
  listeners:
  - name: web
    port: %d
    protocol: %s%s
`, port, protocol, tls)
	if s.TLS {
		gateway += fmt.Sprintf("---\napiVersion: v1\nkind: Secret\nmetadata: {name: bench, namespace: bench}\ntype: kubernetes.io/tls\ndata:\n  tls.crt: %s\n  tls.key: %s\n",
			base64.StdEncoding.EncodeToString(b.certificate.chain), base64.StdEncoding.EncodeToString(b.certificate.key))
	}
	services := b.service("first", s.Backend) + b.service("second", roleSecond)
	if s.Mirror != "" {
		services += b.service("copies", s.Mirror)
	}
	for name, text := range map[string]string{"gateway.yaml": gateway, "services.yaml": services} {
		if _, err := writeFile(dir, name, text); err != nil {
			return err
		}
	}
	if s.Routes == 0 {
		_, err := writeFile(dir, "route.yaml", routeHead("shop", "")+s.rules())
		return err
	}
	n := 0
	return s.eachHost(func(host string, prefixes []string) error {
		var file strings.Builder
		for _, prefix := range prefixes {
			file.WriteString(routeHead(fmt.Sprintf("route-%d", n), host))
			fmt.Fprintf(&file, "  rules:\n  - matches: [{path: {type: PathPrefix, value: %s}}]\n    backendRefs: [{name: first, port: 80}]\n", strings.TrimSuffix(prefix, "/"))
			if s.Version > 0 {
				fmt.Fprintf(&file, "    timeouts: {request: %dms}\n", 60_000+s.Version)
			}
			n++
		}
		_, err := writeFile(dir, host+".yaml", file.String())
		return err
	})
}

// service is a Service and its EndpointSlice, with a port of the backend as endpoint.
func (b *bench) service(name string, r role) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: bench}
spec: {ports: [{name: web, port: 80, targetPort: %[2]d%[3]s}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: bench, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
endpoints: [{addresses: [127.0.0.1], conditions: {ready: true}}]
ports: [{name: web, port: %[2]d, protocol: TCP}]
`, name, b.backends[r], onlyIf(r == roleGRPC, ", appProtocol: kubernetes.io/h2c"))
}

// routeHead is the beginning of an HTTPRoute, for a host or for all.
func routeHead(name, host string) string {
	s := fmt.Sprintf("---\napiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {name: %s, namespace: bench}\nspec:\n  parentRefs: [{name: bench}]\n", name)
	if host != "" {
		s += fmt.Sprintf("  hostnames: [%s]\n", host)
	}
	return s
}

// rules are those of a setting with one route.
func (s setting) rules() string {
	filters := ""
	if s.Mirror != "" {
		filters = fmt.Sprintf("    filters: [{type: RequestMirror, requestMirror: {backendRef: {name: copies, port: 80}, percent: %d}}]\n", s.MirrorPercent)
	}
	rules := "  rules:\n"
	if s.Split {
		rules += fmt.Sprintf("  - matches: [{headers: [{name: %s, value: %s}]}]\n    backendRefs: [{name: first, port: 80, weight: 90}, {name: second, port: 80, weight: 10}]\n",
			splitHeader, splitValue)
	}
	return rules + "  - matches: [{path: {type: PathPrefix, value: /}}]\n" + filters + "    backendRefs: [{name: first, port: 80}]\n"
}
