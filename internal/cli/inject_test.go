package cli_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/fed"
)

const shopManifests = `# a comment
apiVersion: v1
kind: ConfigMap   # as it was
metadata: {name: settings}
--- # a Deployment
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, generation: 9007199254740993}
spec:
  later: {a: 1}
  template:
    metadata: {annotations: {weirmesh.github.io/skip-users: "7"}}
    spec: {containers: [{name: web, image: web, livenessProbe: {tcpSocket: {port: 80}}}]}
...
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, namespace: shop}
spec: {jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: job, image: job}]}}}}}
--- {apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent}, spec: {template: {spec: {hostNetwork: true, containers: []}}}}
---
apiVersion: v1
kind: List
items:
- {apiVersion: v1, kind: Pod, metadata: {name: one, namespace: kube-system}, spec: {containers: [{name: a}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: two, labels: {weirmesh.github.io/inject: disabled}}, spec: {containers: [{name: a}]}}
- {apiVersion: v1, kind: Pod, metadata: {name: three}, spec: {containers: [{name: a}]}}
- {apiVersion: example.com/v1, kind: Pod, metadata: {name: of-others}, spec: {containers: [{name: a}]}}
`

func TestInjectPrintsManifestsWithSidecars(t *testing.T) {
	r := weir(shopManifests, "inject", "--image", "weir-proxy:v1", "-")
	r.want(t, 0, "kind: ConfigMap   # as it was\n", "generation: 9007199254740993", "later:\n    a: 1", "--skip-users=7",
		"kind: DaemonSet, metadata: {name: agent}", // as it was
		"stderr:weir: Deployment shop/web: injected\n", "stderr:weir: CronJob shop/nightly: injected\n", "stderr:weir: Pod three: injected\n",
		"stderr:weir: DaemonSet agent: not injected: spec.hostNetwork: the redirect would be that of the node\n", "stderr:weir: Pod kube-system/one: not injected: namespace kube-system",
		"stderr:weir: Pod two: not injected: its label weirmesh.github.io/inject is disabled", "stderr:!of-others", "stderr:weir: 3 objects injected, 3 not\n")
	if n := strings.Count(r.stdout, "name: weir-sidecar\n"); n != 3 || strings.Count(r.stdout, "\n---\n") != 4 {
		t.Errorf("%d sidecars in\n%s", n, r.stdout)
	}
	// What was printed can be injected again, and stays.
	weir(r.stdout, "inject", "--image", "weir-proxy:v1", "-").want(t, 0, "stderr:weir: 3 objects injected, 3 not\n")
	if again := weir(r.stdout, "inject", "--image", "weir-proxy:v1", "-"); again.stdout != r.stdout {
		t.Errorf("again:\n%s", again.stdout)
	}
	weir(r.stdout, "inject", "--image", "weir-proxy:v2", "-").want(t, 0, "image: weir-proxy:v2", "!image: weir-proxy:v1")
}

// TestInjectPrintsNothingIfSomethingCannotBeInjected, so that a pipe applies all or nothing.
func TestInjectPrintsNothingIfSomethingCannotBeInjected(t *testing.T) {
	const good = "{apiVersion: v1, kind: Pod, metadata: {name: good}, spec: {containers: [{name: a}]}}\n---\n"
	for text, c := range map[string]struct {
		code  int
		words []string
	}{
		"{apiVersion: v1, kind: Pod, metadata: {name: bad, annotations: {weirmesh.github.io/plain-text: never}}}": {1, []string{`stderr:weir: Pod bad: cannot be injected: annotation weirmesh.github.io/plain-text "never"`, "stderr:1 object cannot be injected, so nothing was printed"}},
		"{apiVersion: v1, kind: Pod, spec: []}":                                                {1, []string{"stderr:-: document 2: Pod ...: not a pod"}},
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: bare}}":                      {1, []string{"stderr:-: document 2: Deployment bare: spec.template: want an object"}},
		"{apiVersion: apps/v1, kind: Deployment, metadata: {name: bare}, spec: {template: 7}}": {1, []string{"stderr:template: want an object"}},
		"a: [":       {1, []string{"stderr:-: document 2: "}},
		"a: 1\na: 2": {1, []string{`stderr:"a" already set in map`}},
		"- a":        {1, []string{"stderr:-: document 2: it is no object"}},
	} {
		r := weir(good+text, "inject", "--image", "weir-proxy:v1", "-")
		if r.want(t, c.code, c.words...); r.stdout != "" {
			t.Errorf("%s: printed %s", text, r.stdout)
		}
	}
	weir("", "inject", "-").want(t, 2, "stderr:which image do the sidecars run? Give --image")
	weir("", "inject", "--image", "a").want(t, 2, "stderr:which files?")
	weir("", "inject", "--image", "a", "--controller", "here", "-").want(t, 2, `stderr:the controller's address "here": want HOST:PORT`)
	weir("", "inject", "--image", "a", "--sidecar-requests", "cpu=3", "-").want(t, 2, "stderr:the request of cpu, 3, is above its limit, 2")
	weir("", "inject", "--image", "a", "--sidecar-limits", "disk=3", "-").want(t, 2, `stderr:"disk=3" is no resource with an amount`)
	weir("", "inject", "--image", "a", t.TempDir()).want(t, 2, "stderr:is a folder: name the files in it")
}

// TestInjectTellsWhatTLSConfigsSelectInVain, whichever form they are written in, and wherever they stand.
func TestInjectTellsWhatTLSConfigsSelectInVain(t *testing.T) {
	const text = `{apiVersion: v1, kind: Pod, metadata: {name: out, labels: {app: pay, weirmesh.github.io/inject: disabled}}, spec: {containers: [{name: a}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: in, labels: {app: pay}}, spec: {containers: [{name: a}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: node, labels: {app: pay}}, spec: {hostNetwork: true, containers: [{name: a}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: other, labels: {app: web, weirmesh.github.io/inject: disabled}}, spec: {containers: [{name: a}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: elsewhere, namespace: bank, labels: {app: pay, weirmesh.github.io/inject: disabled}}, spec: {containers: [{name: a}]}}
---
{apiVersion: v1, kind: List, items: [{apiVersion: tls.smi-spec.io/v1beta1, kind: TLSConfig, metadata: {name: b}, spec: {selector: {matchLabels: {app: none}}}}]}
---
{apiVersion: v1beta1, kind: TLSConfig, name: draft, spec: {selector: {matchLabels: {app: pay}}}}
`
	r := weir(text, "inject", "--image", "weir-proxy:v1", "-")
	r.want(t, 0, "stderr:weir: Pod out: not injected: its label weirmesh.github.io/inject is disabled; TLSConfig draft selects it\n",
		"stderr:weir: Pod node: not injected: spec.hostNetwork: the redirect would be that of the node; TLSConfig draft selects it\n",
		"stderr:weir: Pod other: not injected: its label weirmesh.github.io/inject is disabled\n", "stderr:weir: Pod bank/elsewhere: not injected: its label weirmesh.github.io/inject is disabled\n",
		"stderr:weir: Pod in: injected; TLSConfig draft selects it\n", "kind: TLSConfig, name: draft, spec:") // as it was
}

// TestTheContainersRunAsTheyAreInjected has the commands of the two containers read their arguments and variables.
func TestTheContainersRunAsTheyAreInjected(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pod.json")
	text := `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"web","annotations":{"weirmesh.github.io/skip-outbound-networks":"10.0.0.0/8"}},"spec":{"containers":[{"name":"web","livenessProbe":{"httpGet":{"path":"/$(HOME)","port":80}}}]}}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := weir("", "inject", "--image", "weir-proxy:v1", "--trust-domain", "corp.example", file)
	r.want(t, 0)
	pod := &corev1.Pod{}
	if err := yaml.UnmarshalStrict([]byte(r.stdout), pod); err != nil {
		t.Fatal(err)
	}
	redirect, sidecar := pod.Spec.InitContainers[0], pod.Spec.InitContainers[1]
	weir("", append(slices.Clone(redirect.Args), "--dry-run")...).want(t, 0, "ip daddr 10.0.0.0/8 accept", "tcp dport 15020-15021 accept", "meta skuid 15000 accept")
	if sidecar.Args[0] != "sidecar" {
		t.Fatal(sidecar.Args)
	}
	f := pflag.NewFlagSet("sidecar", pflag.ContinueOnError)
	fed.NewSidecar().Flags(f)
	if err := f.Parse(sidecar.Args[1:]); err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]string{
		"controller": "weir-controller.weir-system.svc:18000", "trust-domain": "corp.example", "inbound-ports": "15011-15014", "outbound-ports": "15001-15004", "probe-port": "15020", "admin": ":15021", "permissive": "true",
		"ca-file": sidecar.VolumeMounts[0].MountPath + "/" + pod.Spec.Volumes[0].ConfigMap.Items[0].Path, "token-file": sidecar.VolumeMounts[1].MountPath + "/" + pod.Spec.Volumes[1].Projected.Sources[0].ServiceAccountToken.Path,
	} {
		if got := f.Lookup(flag); got == nil || got.Value.String() != want {
			t.Errorf("--%s is %v, want %s", flag, got, want)
		}
	}
	var variables []string
	for _, v := range sidecar.Env {
		name := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(v.Name, "WEIR_")), "_", "-")
		if f.Lookup(name) == nil {
			t.Errorf("variable %s sets no flag", v.Name)
		}
		if variables = append(variables, v.Name); strings.Contains(v.Value, "$") {
			t.Errorf("the kubelet would replace something in %s", v.Value)
		}
	}
	if want := []string{"WEIR_POD_NAMESPACE", "WEIR_POD_NAME", "WEIR_POD_IPS", "WEIR_NODE", "WEIR_ZONE", "WEIR_PROBES"}; !slices.Equal(variables, want) {
		t.Errorf("variables %q", variables)
	}
}
