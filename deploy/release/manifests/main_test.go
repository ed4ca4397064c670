package main

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"
)

const folder = "../../chart"

func load(t *testing.T) *chart.Chart {
	t.Helper()
	c, err := loader.Load(folder)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestInstallIsTheChart(t *testing.T) {
	for _, f := range files {
		if err := run(folder, "../../manifests/"+f.name, f.about, f.values, true); err != nil {
			t.Error(err)
		}
	}
}

func TestTheChartPassesLint(t *testing.T) {
	result := lint.All(folder, nil, namespace, true)
	for _, m := range result.Messages {
		if m.Severity > support.InfoSev {
			t.Error(m)
		}
	}
}

// The definitions exist once, in deploy/crds.
func TestTheChartHasAllDefinitions(t *testing.T) {
	entries, err := os.ReadDir("../../crds")
	if err != nil {
		t.Fatal(err)
	}
	packed := map[string][]byte{}
	for _, d := range load(t).CRDObjects() {
		packed[d.Name] = d.File.Data
	}
	n := 0
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".yaml") {
			continue
		}
		n++
		text, err := os.ReadFile("../../crds/" + e.Name())
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(packed["crds/"+e.Name()], text) {
			t.Errorf("the chart does not have %s as it is", e.Name())
		}
	}
	if n == 0 || n != len(packed) {
		t.Errorf("%d definitions, %d in the chart", n, len(packed))
	}
}

// everything sets each value to something that is not its default.
const everything = `
image: {name: "example/weir@sha256:0000", pullPolicy: Always, pullSecrets: [one, two]}
proxyImage: {name: "example/slim@sha256:1111", pullPolicy: Never}
gatewayClass: {name: other}
controller:
  replicas: 1
  resources: {limits: {memory: 1Gi}}
  logLevel: debug
  logFormat: text
  nodeSelector: {pool: system}
  tolerations: [{key: a, operator: Exists}]
  affinity: {nodeAffinity: {}}
  topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone, whenUnsatisfiable: ScheduleAnyway}]
  priorityClassName: system-cluster-critical
  service: {annotations: {a: b}}
  podAnnotations: {c: d}
  podLabels: {e: f}
  env: {WEIR_SETTLE: 50ms}
proxies: {replicas: 2, service: {type: ClusterIP}, resources: {requests: {cpu: 1}}, accessLogOptions: {format: text, sample: 1/10, requestHeaders: [X-Team]}, requestID: {mode: trusted}, tracing: {endpoint: "http://collector:4318", share: 5%, rate: 100}}
namespaces: [shop]
exclusiveHostnames: true
access: {deny: all, trustDomain: corp.example}
traffic: {prometheus: {url: "https://prometheus.example", tenant: shops, tokenSecret: prometheus-reader, caConfigMap: prometheus-roots}}
networkPolicies: {proxyNamespaces: [blog], metricsFrom: [{podSelector: {matchLabels: {app: prometheus}}}], backends: [{ipBlock: {cidr: 192.0.2.0/24}}], apiServer: {cidrs: [198.51.100.1/32], ports: [8443]}, conversionFrom: [{ipBlock: {cidr: 198.51.100.2/32}}], prometheus: {to: [{podSelector: {matchLabels: {app: thanos}}}], ports: [10902]}}
admissionPolicy: {images: ["other/image:*"]}
externalNames: {allow: [api.example.com, corp.example], clusterDomain: k8s.test}
commonLabels: {team: net}
commonAnnotations: {owner: net}
`

func TestEveryValueArrives(t *testing.T) {
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(everything), &values); err != nil {
		t.Fatal(err)
	}
	objects, err := render(load(t), values)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, o := range objects {
		all.WriteString(o.Content)
		var object map[string]any
		if err := yaml.UnmarshalStrict([]byte(o.Content), &object); err != nil {
			t.Errorf("%s: %v\n%s", o.Name, err, o.Content)
		}
		for _, want := range []string{"team: net", "owner: net"} {
			if !strings.Contains(o.Content, want) {
				t.Errorf("%s has no %s", o.Name, want)
			}
		}
	}
	for _, want := range []string{
		`image: "example/weir@sha256:0000"`, "imagePullPolicy: Always", "- name: one", "- name: two", "name: other", "replicas: 1", "memory: 1Gi",
		"--log-level=debug", "--log-format=text", "pool: system", "key: a", "nodeAffinity", "topologyKey: zone", "system-cluster-critical",
		"namespace: blog", "app: prometheus", "cidr: 192.0.2.0/24", `cidr: "198.51.100.1/32"`, "port: 8443", "cidr: 198.51.100.2/32",
		`[\"example/weir\",\"example/slim\"]`, `[\"other/image:*\"]`,
		"a: b", "c: d", "e: f", "WEIR_SETTLE", `value: "50ms"`, "type: ClusterIP", "parametersRef", "endpoint: http://collector:4318", "share: 5%", "cpu: 1", "--external-names=api.example.com,corp.example", "--cluster-domain=k8s.test", "- --exclusive-hostnames", "- --access-deny=all", "- --trust-domain=corp.example", "--proxy-image=example/slim@sha256:1111", "--proxy-image-pull-policy=Never",
		"- --traffic-metrics", "- --prometheus=https://prometheus.example", "- --prometheus-tenant=shops", "- --prometheus-token-file=/etc/weir/prometheus/token/token", "secretName: prometheus-reader",
		"- --prometheus-ca-file=/etc/weir/prometheus/ca/ca.crt", "configMap: {name: prometheus-roots", "app: thanos", "port: 10902",
	} {
		if !strings.Contains(all.String(), want) {
			t.Errorf("nowhere is %q", want)
		}
	}
	if strings.Contains(all.String(), "podAntiAffinity") {
		t.Error("affinity is not replaced")
	}
}

func TestValuesThatCannotBeAreRefused(t *testing.T) {
	for _, text := range []string{
		"controller: {replicas: two}", "image: {name: ''}", "image: {tag: x}", "proxyImage: {tag: x}", "proxyImage: {pullPolicy: Sometimes}", "proxies: {service: {type: ExternalName}}", "proxies: {replica: 1}",
		"controller: {logLevel: loud}", "gatewayClass: {name: UPPER}", "controller: {env: {A: 1}}", "namespaces: [Shop]", "namespaces: shop", "exclusiveHostnames: maybe", "access: {deny: some}", "access: {trustDomain: 'spiffe://a'}", "traffic: {prometheus: {url: 'prometheus:9090'}}", "traffic: {on: true}", "rollouts: {enabled: maybe}", "rollouts: {on: true}", "rollouts: {hold: Sometimes}", "rollouts: {workloads: [{group: apps, resource: replicasets, kind: ReplicaSet}]}", "rollouts: {workloads: [{group: a.k8s.io, resource: bs, kind: B}]}", "rollouts: {workloads: [{group: a.example.com, resource: services, kind: Service}]}", "rollouts: {workloads: [{group: a.example.com, resource: bs}]}", "rollouts: {workloads: [{group: '*.example.com', resource: bs, kind: B}]}", "rollouts: {workloads: [{group: a.example.com, resource: '*', kind: B}]}", "rollouts: {workloads: [{group: a.example.com, resource: bs, kind: B, label: 'a b'}]}", "rollouts: {workloads: [{group: a.example.com, resource: bs, kind: B, verbs: [create]}]}", "networkPolicies: {prometheus: {ports: []}}", "proxies: {gateways: {allow: [command]}}", "proxies: {tracing: {endpoint: 'collector:4318'}}", "proxies: {tracing: {rate: 0}}", "mesh: {sidecar: {requests: {cpu: much}}}", "mesh: {sidecar: {limits: {disk: 1Gi}}}",
	} {
		values := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &values); err != nil {
			t.Fatal(err)
		}
		if _, err := render(load(t), values); err == nil {
			t.Errorf("%s is taken", text)
		}
	}
}

// TestTheProxysImageFollowsTheControllers gives values that name one image, both, and others for the class.
func TestTheProxysImageFollowsTheControllers(t *testing.T) {
	for _, c := range []struct{ values, proxies, policy, repositories string }{
		{"{}", "weir-proxy:dev", "IfNotPresent", `["weir","weir-proxy"]`},
		{"image: {name: 'weir:v1', pullPolicy: Always}", "weir-proxy:v1", "Always", `["weir","weir-proxy"]`},
		{"image: {name: weir}", "weir-proxy", "IfNotPresent", `["weir","weir-proxy"]`},
		{"image: {name: 'registry.example:5000/team/weir:v1'}", "registry.example:5000/team/weir-proxy:v1", "IfNotPresent",
			`["registry.example:5000/team/weir","registry.example:5000/team/weir-proxy"]`},
		{"image: {name: 'registry.example:5000/weir'}", "registry.example:5000/weir-proxy", "IfNotPresent",
			`["registry.example:5000/weir","registry.example:5000/weir-proxy"]`},
		// No name follows from a digest: the controller's image serves, too.
		{"image: {name: 'a/weir@sha256:00'}", "a/weir@sha256:00", "IfNotPresent", `["a/weir"]`},
		{"image: {name: 'a/weir:v1@sha256:00'}", "a/weir:v1@sha256:00", "IfNotPresent", `["a/weir"]`},
		{"{image: {name: 'a/weir:v1'}, proxyImage: {name: 'b/slim:v2', pullPolicy: Never}}", "b/slim:v2", "Never", `["a/weir","b/slim"]`},
		{"{image: {name: 'a/weir:v1'}, proxyImage: {name: 'a/weir:v1'}}", "a/weir:v1", "IfNotPresent", `["a/weir"]`},
		{"{image: {name: 'a/weir:v1'}, proxies: {image: 'c/own:v3'}}", "a/weir-proxy:v1", "IfNotPresent", `["a/weir","a/weir-proxy","c/own"]`},
		{"proxyImage: null", "weir-proxy:dev", "IfNotPresent", `["weir","weir-proxy"]`}, // as with --reuse-values of an older chart
	} {
		values := map[string]any{}
		if err := yaml.Unmarshal([]byte(c.values), &values); err != nil {
			t.Fatal(err)
		}
		manifests, err := render(load(t), values)
		if err != nil {
			t.Fatalf("%s: %v", c.values, err)
		}
		var text strings.Builder
		for _, o := range manifests {
			text.WriteString("---\n" + o.Content + "\n")
		}
		all := objects(t, []byte(text.String()))
		_, proxies, allowed := images(t, all)
		if proxies != c.proxies || allowed["expression"] != c.repositories || !strings.Contains(text.String(), "--proxy-image-pull-policy="+c.policy+"\n") {
			t.Errorf("%s: proxies run %s, and may run %s", c.values, proxies, allowed["expression"])
		}
	}
}

var update = flag.Bool("update", false, "rewrite golden files")

// TestModes writes down what is installed where the controller watches named namespaces alone, and where it signs identities
// besides. internal/kube/access holds the roles in it to what is used.
func TestModes(t *testing.T) {
	for name, c := range map[string]struct {
		values  map[string]any
		written string
		args    []string
	}{
		"namespaces": {map[string]any{"namespaces": []any{"shop", "blog"}}, "namespaces [shop, blog]", []string{"--namespaces=shop,blog"}},
		"mesh": {
			map[string]any{"namespaces": []any{"shop"}, "mesh": map[string]any{"enabled": true, "authoritySecret": "mine"}}, "namespaces [shop] and an authority for identities in the Secret mine",
			[]string{"--namespaces=shop", "--mesh", "--mesh-authority-secret=mine"},
		},
		"sidecars": {
			map[string]any{"mesh": map[string]any{"enabled": true, "sidecar": map[string]any{"requests": map[string]any{"cpu": "50m", "memory": nil}, "limits": map[string]any{"cpu": 4}}}},
			"sidecars in all namespaces", []string{"--mesh", "--sidecar-requests=cpu=50m,memory=none,ephemeral-storage=none", "--sidecar-limits=cpu=4,memory=128Mi,ephemeral-storage=none"},
		},
		"workloads": {
			map[string]any{"rollouts": map[string]any{"enabled": true, "workloads": []any{
				map[string]any{"group": "apps.example.com", "resource": "gamestatefulsets", "kind": "GameStatefulSet"},
				map[string]any{"group": "games.example.com", "resource": "fleets", "kind": "Fleet", "label": "games.example.com/revision"},
			}}},
			"Rollouts of two further kinds of workloads",
			[]string{"--rollout-workloads=GameStatefulSet:gamestatefulsets.apps.example.com", "--rollout-workloads=Fleet:fleets.games.example.com:games.example.com/revision"},
		},
	} {
		objects, err := render(load(t), c.values)
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		b.WriteString("# The chart with " + c.written + ", of TestModes.\n")
		for _, o := range objects {
			b.WriteString("---\n" + strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(o.Content), "---")) + "\n")
		}
		file := "testdata/" + name + ".yaml"
		if *update {
			if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), want) {
			t.Errorf("%s differs: run go test -update here", file)
		}
		for _, arg := range c.args {
			if !strings.Contains(b.String(), "- "+arg+"\n") {
				t.Errorf("%s: the controller is not given %s", name, arg)
			}
		}
	}
}

// TestTheChartConvertsTheVersionsOfItsDefinitions holds the Service, its port and the names in the roles to what the definitions say.
func TestTheChartConvertsTheVersionsOfItsDefinitions(t *testing.T) {
	c := load(t)
	objects, err := render(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	var ports, all strings.Builder
	for _, o := range objects {
		all.WriteString(o.Content)
		if o.Head.Kind == "Service" {
			ports.WriteString(o.Content)
		}
	}
	n := 0
	for _, d := range c.CRDObjects() {
		var crd struct {
			Metadata struct{ Name string }
			Spec     struct {
				Conversion struct {
					Strategy string
					Webhook  struct {
						ClientConfig struct {
							Service struct {
								Namespace, Name, Path string
								Port                  int
							}
						}
					}
				}
			}
		}
		if err := yaml.Unmarshal(d.File.Data, &crd); err != nil {
			t.Fatal(err)
		}
		named := strings.Count(all.String(), crd.Metadata.Name)
		if crd.Spec.Conversion.Strategy != "Webhook" {
			if named != 0 {
				t.Errorf("%s is named, and not converted", crd.Metadata.Name)
			}
			continue
		}
		n++
		if named < 2 {
			t.Errorf("%s is missing in the roles or the admission policy", crd.Metadata.Name)
		}
		if s := crd.Spec.Conversion.Webhook.ClientConfig.Service; s.Namespace != namespace || s.Name != "weir-controller" || s.Path != "/convert" || s.Port != 443 {
			t.Errorf("%s is converted at %+v", crd.Metadata.Name, s)
		}
	}
	if n != 5 || !strings.Contains(ports.String(), "name: conversion\n    port: 443\n    targetPort: conversion\n") || !strings.Contains(all.String(), "- --conversion-address=:18443\n") {
		t.Errorf("%d definitions, and the Service\n%s", n, ports.String())
	}
}

// TestTrafficMetricsMayBeLeftOut, the whole or what has the API server ask for them.
func TestTrafficMetricsMayBeLeftOut(t *testing.T) {
	for text, want := range map[string]struct{ reads, registers, serves bool }{
		"{}":                             {true, true, true},
		"{traffic: {apiService: false}}": {true, false, true},
		"{traffic: {enabled: false}}":    {},
	} {
		values := map[string]any{}
		if err := yaml.Unmarshal([]byte(text), &values); err != nil {
			t.Fatal(err)
		}
		objects, err := render(load(t), values)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var all strings.Builder
		registered := 0
		for _, o := range objects {
			all.WriteString(o.Content + "\n")
			if o.Head.Kind == "APIService" {
				registered++
			}
		}
		for what, want := range map[string]bool{"subjectaccessreviews": want.serves, "extension-apiserver-authentication-reader": want.serves, "--traffic-metrics": want.reads, "--replica-address=$(WEIR_POD_IP)": want.reads, "fieldPath: status.podIP": want.reads} {
			if strings.Contains(all.String(), what) != want {
				t.Errorf("%s: %s is there: %t", text, what, !want)
			}
		}
		if want := map[bool]int{true: 3}[want.registers]; registered != want {
			t.Errorf("%s: %d APIServices, want %d", text, registered, want)
		}
	}
}
