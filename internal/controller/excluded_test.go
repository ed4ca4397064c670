package controller

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/resource"
)

// TestStatusesAdviseARestartOnlyIfItHelps compares what the status of a TLSConfig says of a pod without a sidecar with what the
// injection makes of the pod if it is created anew.
func TestStatusesAdviseARestartOnlyIfItHelps(t *testing.T) {
	c := meshed(t)
	c.namespace = "weir-system"
	translation, settings := c.translation(), c.sidecarSettings()
	const gateway = "labels: {app.kubernetes.io/managed-by: weir, gateway.networking.k8s.io/gateway-name: edge, gateway.networking.k8s.io/gateway-class-name: weir"
	for name, c := range map[string]struct{ namespace, metadata, spec, why string }{
		"any":                  {namespace: "shop"},
		"kube-system":          {namespace: "kube-system", why: "pods of this namespace"},
		"the controller's own": {namespace: "weir-system", why: "pods of this namespace"},
		"the node's network":   {namespace: "shop", spec: "hostNetwork: true, ", why: "hostNetwork"},
		"Windows":              {namespace: "shop", spec: "os: {name: windows}, ", why: "Windows"},
		"Windows by its nodes": {namespace: "shop", spec: "nodeSelector: {kubernetes.io/os: windows}, ", why: "Windows"},
		"Linux by its nodes":   {namespace: "shop", spec: "nodeSelector: {kubernetes.io/os: linux}, "},
		"from a file":          {namespace: "shop", metadata: `annotations: {kubernetes.io/config.mirror: "1"}`, why: "from a file"},
		"opted out":            {namespace: "shop", metadata: "labels: {weirmesh.github.io/inject: disabled}", why: "opts out"},
		"a Gateway's proxy":    {namespace: "shop", metadata: gateway + "}", why: "no pods are known"},
		"a proxy that asks":    {namespace: "shop", metadata: gateway + ", weirmesh.github.io/inject: enabled}"},
	} {
		text := "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: " + c.namespace + ", " + c.metadata + "}, spec: {" + c.spec + "containers: [{name: c}]}, status: {podIP: 10.0.0.1}}"
		var pod corev1.Pod
		if err := yaml.Unmarshal([]byte(text), &pod); err != nil {
			t.Fatal(err)
		}
		set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader("{apiVersion: tls.smi-spec.io/v1beta1, kind: TLSConfig, metadata: {name: all, namespace: "+c.namespace+"}, spec: {selector: {matchLabels: {}}}}\n---\n"+text))
		if err != nil {
			t.Fatal(err)
		}
		r, err := translation.Translate(set)
		if err != nil {
			t.Fatal(err)
		}
		said := ""
		for _, s := range r.Statuses {
			for _, condition := range s.Conditions {
				if s.Ref.Kind == "TLSConfig" && condition.Type == "Injected" {
					said = condition.Message
				}
			}
		}
		helps := settings.Ask(c.namespace, map[string]string{inject.Label: inject.Enabled}, &pod).Outcome == inject.Injected
		if said == "" || strings.Contains(said, "rollout restart") != helps || !strings.Contains(said, c.why) {
			t.Errorf("%s: created anew the pod gets a sidecar: %t; the status says %q, want %q in it", name, helps, said, c.why)
		}
	}
}
