package cli_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/screen"
)

// hostile is text that a terminal, a parser of lines or the runner of a CI system obeys.
var hostile = []string{
	"\n::error title=x::pwned\n",
	"x\r\n  ::set-output name=a::b\n",
	"::add-mask::e",
	"e ::add-mask::e ##[add-mask]e ##vso[task.setvariable]e",
	"\x1b[31mred\x1b]0;title\a\x1b[2J\x7f\b\x00",
	"\u009b31mC1\u0085\u202ebidi\u2066\u200bzero\ufeff\u2028line\u2029\u00ad\u3164\U000e0041",
}

// obeyed is why an output is not safe to print, by rules of its own, apart from those of what prints it.
func obeyed(out string, own bool) string {
	if own {
		for _, c := range []string{screen.Red, screen.Green, screen.Yellow, screen.Plain} {
			out = strings.ReplaceAll(out, c, "")
		}
	}
	for i, r := range out {
		switch {
		case r == '\n':
		case unicode.Is(unicode.C, r) || unicode.In(r, unicode.Zl, unicode.Zp) || r == '\u3164' || r == utf8.RuneError && !strings.HasPrefix(out[i:], "\ufffd"):
			return fmt.Sprintf("%q is printed raw", out[max(i-20, 0):min(i+20, len(out))])
		}
	}
	for line := range strings.Lines(out) {
		if strings.Contains(line, "##[") || strings.Contains(line, "##vso[") {
			return fmt.Sprintf("%q is a command", line)
		}
		if strings.HasPrefix(strings.TrimSpace(line), "::") && !ours(line) {
			return fmt.Sprintf("%q is a command of others", line)
		}
	}
	return ""
}

// ours means that a line is a command that weir writes: with a code of Weir's in its title.
func ours(line string) bool {
	level, rest, _ := strings.Cut(strings.TrimPrefix(line, "::"), " ")
	properties, _, found := strings.Cut(rest, "::")
	return found && strings.Contains(","+properties, ",title=WR") && slices.Contains([]string{"error", "warning", "notice"}, level)
}

// manifests have the text in one place of one of their objects each, and are otherwise in order.
func manifests(text string) map[string]string {
	const plain = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: shop}
spec:
  gatewayClassName: weir
  listeners: [{name: http, port: 8080, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: route, namespace: shop, labels: {a: "LABEL"}, annotations: {b: "ANNOTATION"}}
spec:
  parentRefs: [{name: edge}]
  hostnames: ["shop.example"]
  rules:
  - name: first
    matches: [{path: {type: PathPrefix, value: "/cart"}, headers: [{name: x-a, value: "HEADER"}]}]
    filters:
    - {type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-b, value: "SET"}]}}
    backendRefs: [{name: shop, port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: shop, namespace: shop, annotations: {weirmesh.github.io/max-requests: "1"}}
spec: {ports: [{name: http, port: 80, appProtocol: APP}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: shop, namespace: shop, labels: {kubernetes.io/service-name: shop}}
addressType: IPv4
ports: [{name: http, port: 80}]
endpoints: [{addresses: [127.0.0.1]}]
---
apiVersion: v1
kind: Secret
metadata: {name: secret, namespace: shop}
type: kubernetes.io/tls
data: {tls.crt: aaaa}
---
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: split, namespace: shop}
spec: {service: shop, backends: [{service: shop, weight: 1}, {service: other, weight: 2}]}
---
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {name: release, namespace: shop}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: WORKLOAD}
  strategy:
    canary:
      trafficRoutings: [{service: shop, gateway: {httpRouteName: route}, customNetworkRefs: [{apiVersion: toys/v1, kind: TOY, name: toy}, {apiVersion: networking.istio.io/v1, kind: VirtualService, name: VIRTUAL}]}]
      steps: [{replicas: 1, matches: [{headers: [{name: x-c, value: "STEP"}]}]}, {replicas: 2, traffic: 20%}]
---
apiVersion: networking.istio.io/v1
kind: VirtualService
metadata: {name: VIRTUAL, namespace: shop}
spec: {hosts: [HOST], http: [{route: [{destination: {host: shop}}], "KEY": 1}]}
---
apiVersion: v1
kind: Service
metadata: {name: api, namespace: shop}
spec: {selector: {app: "APP"}, ports: [{port: 80, targetPort: web}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: api, namespace: shop}
spec: {template: {metadata: {labels: {app: "APP"}}, spec: {serviceAccountName: ACCOUNT, containers: [{ports: [{name: web, containerPort: 8080}]}]}}}
---
apiVersion: access.smi-spec.io/v1beta1
kind: TrafficRole
metadata: {name: reads, namespace: shop}
rules: [{resources: [{kind: Deployment, name: api}], methods: [METHOD, GET], paths: ["/ROLE"]}]
---
apiVersion: access.smi-spec.io/v1beta1
kind: TrafficRoleBinding
metadata: {name: bound, namespace: shop}
subjects: [{kind: ServiceAccount, name: subject}, {kind: Node, name: "*"}]
roleRef: {kind: TrafficRole, name: reads}
---
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: {name: group, namespace: shop}
spec: {matches: [{name: all, headers: [{x-user: "USER"}]}]}
---
apiVersion: access.smi-spec.io/v1alpha4
kind: TrafficTarget
metadata: {name: calls, namespace: shop}
spec: {destination: {kind: ServiceAccount, name: ACCOUNT}, rules: [{kind: HTTPRouteGroup, name: group}], sources: [{kind: ServiceAccount, name: subject}]}
`
	quoted := yamlQuoted(text)
	out := map[string]string{"plain": plain}
	for name, edit := range map[string][2]string{
		"kind": {"kind: HTTPRoute", "kind: " + quoted}, "version": {"apiVersion: v1", "apiVersion: " + quoted}, "name": {"name: route", "name: " + quoted},
		"service name": {"name: shop, namespace: shop", "name: " + quoted + ", namespace: shop"}, "namespace": {"namespace: shop, labels", "namespace: " + quoted + ", labels"},
		"label": {`"LABEL"`, quoted}, "label key": {`{a: "LABEL"`, "{" + quoted + ": b"}, "annotation": {`"ANNOTATION"`, quoted}, "hostname": {`"shop.example"`, quoted},
		"listener": {"name: http, port: 8080", "name: " + quoted + ", port: 8080"}, "protocol": {"protocol: HTTP", "protocol: " + quoted},
		"port": {"port: 8080", "port: " + quoted}, "class": {"gatewayClassName: weir", "gatewayClassName: " + quoted},
		"path": {`"/cart"`, quoted}, "path with a slash": {`"/cart"`, yamlQuoted("/" + text)}, "path type": {"PathPrefix", quoted},
		"pattern": {`PathPrefix, value: "/cart"`, "RegularExpression, value: " + yamlQuoted("/("+text)}, "good pattern": {`PathPrefix, value: "/cart"`, "RegularExpression, value: " + yamlQuoted("/"+strings.ReplaceAll(text, "[", ""))},
		"header": {`"HEADER"`, quoted}, "header name": {"name: x-a", "name: " + quoted}, "set": {`"SET"`, quoted}, "set name": {"name: x-b", "name: " + quoted},
		"filter": {"type: RequestHeaderModifier", "type: " + quoted}, "rule": {"name: first", "name: " + quoted}, "backend": {"backendRefs: [{name: shop", "backendRefs: [{name: " + quoted},
		"backend kind": {"backendRefs: [{name: shop", "backendRefs: [{kind: " + quoted + ", name: shop"}, "parent": {"parentRefs: [{name: edge", "parentRefs: [{name: " + quoted},
		"section": {"parentRefs: [{name: edge", "parentRefs: [{name: edge, sectionName: " + quoted}, "field": {"hostnames:", quoted + ":"}, "deep field": {"port: 80}]\n---", "port: 80, " + quoted + ": 1}]\n---"},
		"limit": {`"1"`, quoted}, "protocol of a port": {"APP", quoted}, "address": {"127.0.0.1", quoted}, "address type": {"IPv4", quoted}, "certificate": {"aaaa", quoted}, "secret type": {"kubernetes.io/tls", quoted},
		"root": {"{service: shop, backends", "{service: " + quoted + ", backends"}, "leaf": {"service: other", "service: " + quoted}, "weight": {"weight: 2", "weight: " + quoted},
		"workload": {"WORKLOAD", quoted}, "target kind": {"TOY", quoted}, "target": {"VIRTUAL", quoted}, "step": {`"STEP"`, quoted}, "step's header": {"name: x-c", "name: " + quoted}, "virtual host": {"HOST", quoted},
		"label of pods": {`"APP"`, quoted}, "account": {"ACCOUNT", quoted}, "port of pods": {"targetPort: web", "targetPort: " + quoted}, "role": {"name: reads", "name: " + quoted}, "binding": {"name: bound", "name: " + quoted},
		"resource": {"Deployment, name: api}]", "Deployment, name: " + quoted + "}]"}, "method": {"METHOD", quoted}, "path of a role": {`"/ROLE"`, quoted}, "pattern of a role": {`"/ROLE"`, yamlQuoted("/" + strings.ReplaceAll(text, "[", ""))},
		"subject": {"name: subject", "name: " + quoted}, "user": {`"USER"`, yamlQuoted(strings.ReplaceAll(text, "[", ""))}, "name of a match": {"name: all", "name: " + quoted}, "access target": {"name: calls", "name: " + quoted},
		"foreign key": {`"KEY"`, quoted}, "percentage": {"20%", quoted}, "rollout": {"name: release", "name: " + quoted}, "routed service": {"[{service: shop, gateway", "[{service: " + quoted + ", gateway"},
		"not YAML": {"kind: Service", "kind: Service: " + text}, "duplicate": {"kind: Service", "kind: Service\n" + quoted + ": 1\n" + quoted + ": 1"},
	} {
		if !strings.Contains(plain, edit[0]) {
			panic(name)
		}
		out[name] = strings.ReplaceAll(plain, edit[0], edit[1])
	}
	return out
}

// yamlQuoted is text as a double-quoted scalar, in ASCII.
func yamlQuoted(text string) string {
	text = strconv.QuoteToASCII(text)
	return strings.ReplaceAll(strings.ReplaceAll(text, `\a`, `\x07`), `\x00`, `\0`)
}

func TestNothingOfOthersIsObeyed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain.yaml")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(plain, manifests("")["plain"])
	try := func(what string, stdin string, args ...string) {
		t.Helper()
		r := weir(stdin, args...)
		if why := obeyed(r.stdout, false); why != "" {
			t.Errorf("%s, weir %q: %s", what, args, why)
		}
		if why := obeyed(r.err, false); why != "" {
			t.Errorf("%s, weir %q, stderr: %s", what, args, why)
		}
		format := ""
		if i := slices.Index(args, "-o"); i >= 0 {
			format = args[i+1]
		} else if args[0] == "dump" {
			format = "json"
		}
		var into any
		switch {
		case r.stdout == "":
		case format == "json" || format == "sarif":
			if err := json.Unmarshal([]byte(r.stdout), &into); err != nil {
				t.Errorf("%s, weir %q: %v", what, args, err)
			}
		case format == "yaml" || args[0] == "convert":
			for document := range strings.SplitSeq(r.stdout, "\n---\n") {
				if err := yaml.Unmarshal([]byte(document), &into); err != nil {
					t.Errorf("%s, weir %q: %v", what, args, err)
				}
			}
		}
	}
	n := 0
	for i, text := range hostile {
		of := manifests(text)
		for _, name := range slices.Sorted(maps.Keys(of)) {
			n++
			file := filepath.Join(dir, fmt.Sprintf("%d.yaml", n))
			write(file, of[name])
			what := fmt.Sprintf("%s, text %d", name, i)
			commands := [][]string{
				{"check"}, {"check", "-o", "json"}, {"check", "-o", "github"}, {"check", "-o", "sarif"}, {"check", "--target", "files"},
				{"status"}, {"status", "-o", "wide"}, {"status", "-o", "yaml"}, {"status", "-o", "json"}, {"dump"}, {"convert"},
				{"explain", "GET http://shop.example:8080/cart -H 'x-a: HEADER'"}, {"explain", "-o", "json", "GET http://shop.example:8080/cart"},
				{"explain", "--from", "serviceaccount/shop/subject", "GET http://api.shop/ROLE"}, {"explain", "--from", "node/n", "-o", "json", "http://api.shop/x"}, {"access"}, {"access", "-o", "json"}, {"access", "-o", "dot"},
				{"diff"}, {"diff", "-o", "markdown"}, {"diff", "-o", "json"},
				{"rollout", "plan"}, {"rollout", "plan", "-o", "yaml"}, {"rollout", "plan", "-o", "json"},
			}
			for k, c := range commands {
				if testing.Short() && (k+n)%47 != 0 { // one command of every other manifest
					continue
				}
				switch c[0] {
				case "explain":
					c = append(append(slices.Clone(c[:len(c)-1]), file, "--"), c[len(c)-1])
				case "diff":
					c = append(c, plain, file)
				default:
					c = append(c, file)
				}
				try(what, "", c...)
			}
			os.Remove(file)
		}
		for k, args := range [][]string{
			{"explain", plain, "--", "http://" + text + "/"}, {"explain", plain, "--", "http://shop.example:8080/" + text}, {"explain", plain, "--", "GET", "http://shop.example:8080/cart", "-H", "x-a: " + text},
			{"explain", plain, "--", text, "http://shop.example:8080/"}, {"explain", plain, "--", "curl", "--" + text, "http://shop.example:8080/"}, {"explain", plain, "--", "curl", "-A", text, "http://shop.example:8080/"},
			{"explain", plain, "--", "curl", "http://shop.example:8080/", "--resolve", text}, {"explain", "-o", "json", plain, "--", "http://shop.example:8080/" + text}, {"explain", "--gateway", text, plain, "--", "http://shop.example:8080/"},
			{"explain", "--target", "cluster", "--gateway", text, plain, "--", "http://shop.example:8080/"}, {"explain", plain, "--", "http://shop.example:8080/", "--from", text},
			{"explain", "--from", text, plain, "--", "http://api.shop/"}, {"explain", "--from", "shop/" + text, plain, "--", "http://api.shop/"}, {"explain", "--from", "node/n", plain, "--", "http://" + text + ".shop/"},
			{"explain", "--from", "node/n", plain, "--", text, "http://api.shop/" + text}, {"access", "--to", text, plain}, {"access", "--to", "shop/" + text, plain}, {"access", "--from", text, plain}, {"access", "-n", text, plain}, {"check", "--trust-domain", text, plain}, {"check", "--access-deny", text, plain},
			{text}, {"help", text}, {"--" + text}, {"check", "--" + text}, {"check", "-o", text, plain}, {"check", "--fail-on", text, plain}, {"check", "-n", text, plain}, {"status", "-n", text, plain},
			{"check", "--serve", text, plain}, {"check", "--trusted-proxies", text, plain}, {"dump", "--gateway", text, plain}, {"run", "--path-policy", text, plain}, {"demo", text}, {"echo", text}, {"version", text}, {"completion", text},
			{"check", "--kubeconfig", text}, {"check", filepath.Join(dir, "absent"+text)}, {"diff", filepath.Join(dir, text), filepath.Join(dir, "absent"+text)}, {"convert", filepath.Join(dir, text)}, {"status", "absent" + text, "absent2" + text},
			{"rollout", text}, {"rollout", "plan", "--rollout", text, plain}, {"rollout", "plan", "--step", text, plain}, {"rollout", "plan", filepath.Join(dir, "absent"+text)},
			{"controller", "--namespaces", text}, {"proxy", "--gateway", text},
		} {
			if testing.Short() && (k+i)%3 != 0 { // each with two of the texts
				continue
			}
			try(fmt.Sprintf("text %d", i), "", args...)
		}
		try(fmt.Sprintf("text %d", i), "curl 'http://shop.example:8080/"+text+"' --"+text, "explain", plain, "--", "-")
		if name := strings.NewReplacer("/", "", "\x00", "").Replace(text) + ".yaml"; true {
			file := filepath.Join(dir, name+"d", name)
			os.Mkdir(filepath.Dir(file), 0o700)
			write(file, manifests(text)["hostname"]+"---\nkind: [\n")
			for k, args := range [][]string{{"check"}, {"check", "-o", "json"}, {"check", "-o", "github"}, {"check", "-o", "sarif"}, {"status"}, {"status", "-o", "wide"}, {"status", "-o", "yaml"}, {"convert"}, {"dump"}, {"diff", plain}, {"rollout", "plan"}, {"rollout", "plan", "-o", "yaml"}, {"rollout", "plan", "-o", "json"}} {
				if testing.Short() && (k+i)%3 != 0 {
					continue
				}
				try("the name of a file", "", append(args, file)...)
				try("the name of a folder", "", append(args, filepath.Dir(file))...)
			}
		}
	}
	try("bytes", "kind: \"\xff\xfe\"\n\x80: 1\n", "check", "-")
	try("bytes", "", "explain", plain, "--", "http://shop.example:8080/\xff\xc2")
	try("bytes", "", "check", filepath.Join(dir, "\xff\x9b"))
}
