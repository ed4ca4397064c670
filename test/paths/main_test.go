package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirmesh/weir/test/weirtest"
)

func TestMain(m *testing.M) { weirtest.Main(m) }

// usual are the servers that a test asks; with PATHS=full it asks all that are installed.
var usual = []string{"nginx", "Go ServeMux", "Go URL.Path", "Node files", "Node files, Windows", "Express", "Tomcat", "HAProxy"}

// running starts servers, each for the test.
func running(t *testing.T) (all []*server, addresses []string) {
	t.Helper()
	dir := t.TempDir()
	for _, s := range servers() {
		if os.Getenv("PATHS") != "full" && !slices.Contains(usual, s.name) {
			continue
		}
		if missing := s.missing(); missing != "" {
			t.Logf("%s is left out: there is no %s", s.name, missing)
			continue
		}
		all = append(all, s)
	}
	addresses = make([]string, len(all))
	var starting sync.WaitGroup
	for i, s := range all {
		starting.Go(func() {
			address, stop, err := s.start(context.Background(), dir)
			if err != nil {
				t.Errorf("%s: %v", s.name, err)
				return
			}
			t.Cleanup(stop)
			addresses[i] = address
		})
	}
	if starting.Wait(); t.Failed() {
		t.FailNow()
	}
	return all, addresses
}

// routes is a Gateway behind which each backend has all paths of a host of its own but those of /admin, which are redirected.
func routes(port int, gateway, admin string, backends []string) string {
	var b strings.Builder
	annotations := func(policy string) string {
		if policy == "" {
			return "{}"
		}
		return "{weirmesh.github.io/path-policy: " + policy + "}"
	}
	fmt.Fprintf(&b, `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, annotations: %s}
spec:
  gatewayClassName: weir
  addresses: [{value: 127.0.0.1}]
  listeners: [{name: http, port: %d, protocol: HTTP}]
`, annotations(gateway), port)
	for i, address := range backends {
		_, p, _ := net.SplitHostPort(address)
		fmt.Fprintf(&b, `---
apiVersion: v1
kind: Service
metadata: {name: b%[1]d}
spec: {ports: [{port: %[2]s}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: b%[1]d, labels: {kubernetes.io/service-name: b%[1]d}}
addressType: IPv4
ports: [{port: %[2]s}]
endpoints: [{addresses: [127.0.0.1]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: all%[1]d}
spec:
  parentRefs: [{name: edge}]
  hostnames: [b%[1]d.example]
  rules: [{backendRefs: [{name: b%[1]d, port: %[2]s}], filters: [{type: URLRewrite, urlRewrite: {hostname: localhost}}]}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: admin%[1]d, annotations: %[3]s}
spec:
  parentRefs: [{name: edge}]
  hostnames: [b%[1]d.example]
  rules:
  - matches: [{path: {type: PathPrefix, value: /admin}}]
    filters: [{type: RequestRedirect, requestRedirect: {path: {type: ReplaceFullPath, replaceFullPath: /denied}}}]
`, i, p, annotations(admin))
	}
	return b.String()
}

// around counts the variants that reach a server's /admin through weir, although a rule has it, and those that reach the server at all.
func around(t *testing.T, s *server, port int, host string, variants []string) (bypasses []string, served int) {
	c := &client{address: fmt.Sprintf("127.0.0.1:%d", port), host: host}
	defer c.close()
	for _, v := range variants {
		a, err := c.get(v)
		switch {
		case err != nil:
			t.Errorf("%s: %s: %v", host, v, err)
			return bypasses, served
		case a.reads == "admin" && !(s.name == "Rails" && strings.HasPrefix(v, "/admin.")):
			bypasses = append(bypasses, v) // Rails' formats are for rules to name (docs/paths.md)
		case a.reads != "":
			served++
		}
	}
	return bypasses, served
}

// every nth of some.
func every(n int, all []string) (some []string) {
	for i := 0; i < len(all); i += n {
		some = append(some, all[i])
	}
	return some
}

func TestNoServerIsReachedAroundARuleUnderStrict(t *testing.T) {
	all, addresses := running(t)
	variants := variants()
	if len(variants) < 5000 {
		t.Fatalf("only %d variants", len(variants))
	}
	if testing.Short() {
		variants = every(7, variants)
	}
	for _, c := range []struct {
		name, gateway, admin string
		strict               bool
	}{
		{"as-written", "", "", false},
		{"strict on the Gateway", "strict", "", true},
		{"strict on the route that is protected", "", "strict", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			port := weirtest.FreePort(t)
			file := filepath.Join(t.TempDir(), "routes.yaml")
			if err := os.WriteFile(file, []byte(routes(port, c.gateway, c.admin, addresses)), 0o600); err != nil {
				t.Fatal(err)
			}
			weirtest.Run(t, file)
			var wg sync.WaitGroup
			places := make(chan struct{}, 2)
			for i, s := range all {
				wg.Go(func() {
					places <- struct{}{}
					defer func() { <-places }()
					bypasses, served := around(t, s, port, fmt.Sprintf("b%d.example", i), variants)
					t.Logf("%s: %d of %d variants reach /admin, %d something else, such as %q", s.name, len(bypasses), len(variants), served, bypasses[:min(3, len(bypasses))])
					switch {
					case c.strict && len(bypasses) > 0:
						t.Errorf("%s: %d ways around the rule: %q", s.name, len(bypasses), bypasses[:min(10, len(bypasses))])
					case !c.strict && len(bypasses) == 0 && !slices.Contains(asWritten, s.name):
						t.Errorf("%s: no way around the rule as written: the variants do not test it", s.name)
					case served < 100:
						t.Errorf("%s: only %d variants were served: too little is tested", s.name, served)
					}
				})
			}
			wg.Wait()
		})
	}
}

// asWritten are the servers that read no path in another way than weir does where that leads to /admin.
var asWritten = []string{"HAProxy", "Apache httpd", "Go ServeMux", "Node URL", "Rack (Puma)", "Rails"}

// The table in docs/paths.md is what these servers do.
func TestServersReadPathsAsTheTableSays(t *testing.T) {
	all, addresses := running(t)
	page, err := os.ReadFile("../../docs/paths.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	var columns []string
	for line := range strings.Lines(string(page)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if len(cells) < 2 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		if cells[0] == "path" {
			columns = cells
			continue
		}
		if strings.HasPrefix(cells[0], "`/") {
			for i := range min(len(cells), len(columns)) {
				rows[strings.Trim(cells[0], "`")+" "+columns[i]] = cells[i]
			}
		}
	}
	for i, s := range all {
		c := &client{address: addresses[i]}
		for _, k := range kinds {
			want, ok := rows[k.target+" "+s.name]
			a, err := c.get(k.target)
			got := "closed"
			if err == nil {
				got = a.cell()
			}
			if !ok || got != want {
				t.Errorf("%s: %s: %s, the table has %q", s.name, k.target, got, want)
			}
		}
		c.close()
	}
}
