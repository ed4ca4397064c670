package inject_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/inject"
)

var asks = map[string]string{inject.Label: inject.Enabled}

// ready is a pod as it is stored: injected, with what the API server fills in.
func ready(t *testing.T) *corev1.Pod {
	t.Helper()
	_, out := injected(t, "shop", asks, tree(t, `
metadata: {name: web}
spec:
  initContainers: [{name: seed, image: seed}]
  containers: [{name: web, image: web, livenessProbe: {httpGet: {path: /healthz, port: 80}}}]
`))
	pod, err := inject.Typed(out)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		c.TerminationMessagePath = "/dev/termination-log"
		if c.StartupProbe != nil {
			c.StartupProbe.SuccessThreshold = 1
		}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "kube-api-access", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true})
	}
	return pod
}

// TestThePodThatIsStoredIsJudged has other webhooks that change a pod after it was injected.
func TestThePodThatIsStoredIsJudged(t *testing.T) {
	sidecar := func(f func(*corev1.Container)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { f(&p.Spec.InitContainers[1]) }
	}
	redirects := func(f func(*corev1.Container)) func(*corev1.Pod) {
		return func(p *corev1.Pod) { f(&p.Spec.InitContainers[0]) }
	}
	root := int64(0)
	for name, c := range map[string]struct {
		change func(*corev1.Pod)
		want   []string // in the problems, one each; none is that the pod is fine
		lost   bool     // it cannot be mended by injecting it again
	}{
		"nothing": {func(*corev1.Pod) {}, nil, false},
		"what others may add": {sidecar(func(c *corev1.Container) {
			c.Env = append(c.Env, corev1.EnvVar{Name: "TZ", Value: "UTC"})
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "x", MountPath: "/etc/x"})
			c.ImagePullPolicy = corev1.PullAlways
			c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
			c.SecurityContext.SELinuxOptions = &corev1.SELinuxOptions{Level: "s0"}
		}), nil, false},
		"containers and init containers after": {func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "agent", Image: "agent"})
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "agent-init", Image: "agent"})
		}, nil, false},
		"stripped": {func(p *corev1.Pod) { p.Spec.InitContainers = p.Spec.InitContainers[2:] },
			[]string{"spec.initContainers[weir-redirect]: it was injected and is not there any more", "spec.initContainers[weir-sidecar]: it was injected and is not there any more"}, false},
		"annotations gone": {func(p *corev1.Pod) { p.Annotations = nil }, []string{"the pod asks for a sidecar and has none"}, true},
		"a container before": {func(p *corev1.Pod) {
			p.Spec.InitContainers = slices.Insert(p.Spec.InitContainers, 0, corev1.Container{Name: "first", Image: "x"})
		}, []string{"spec.initContainers[weir-redirect]: container first is before it", "spec.initContainers[weir-sidecar]: container weir-redirect is before it"}, false},
		"another image": {sidecar(func(c *corev1.Container) { c.Image = "mirror.example/weir-proxy:v1" }), []string{`image: is "mirror.example/weir-proxy:v1", and has to be "weir-proxy:v1" (proxyImage.name of the chart)`}, false},
		"another user":  {sidecar(func(c *corev1.Container) { c.SecurityContext.RunAsUser = &root }), []string{"runAsUser: is 0, and has to be 15000"}, false},
		"more rights": {sidecar(func(c *corev1.Container) { c.SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"} }),
			[]string{"capabilities: is [SYS_ADMIN], and has to be none"}, false},
		"fewer rights":   {redirects(func(c *corev1.Container) { c.SecurityContext.Capabilities = nil }), []string{"and has to be NET_ADMIN alone"}, false},
		"no security":    {redirects(func(c *corev1.Container) { c.SecurityContext = nil }), []string{"securityContext: is missing"}, false},
		"an old server":  {sidecar(func(c *corev1.Container) { c.RestartPolicy = nil }), []string{"Kubernetes has from 1.33 on"}, false},
		"arguments":      {sidecar(func(c *corev1.Container) { c.Args = append(c.Args, "--permissive=false") }), []string{"its arguments"}, false},
		"a variable":     {sidecar(func(c *corev1.Container) { c.Env = append(c.Env, corev1.EnvVar{Name: "WEIR_ADMIN", Value: ":80"}) }), []string{"its arguments, WEIR_ variables"}, false},
		"variables from": {sidecar(func(c *corev1.Container) { c.EnvFrom = []corev1.EnvFromSource{{Prefix: "WEIR_"}} }), []string{"its arguments, WEIR_ variables"}, false},
		"mounts over it": {sidecar(func(c *corev1.Container) { c.VolumeMounts[0].MountPath = "/var/" }), []string{"mounts below /var/run/weir"}, false},
		"a hook":         {sidecar(func(c *corev1.Container) { c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{}} }), []string{"hooks"}, false},
		"volume gone":    {func(p *corev1.Pod) { p.Spec.Volumes = p.Spec.Volumes[1:] }, []string{"spec.volumes[weir-ca]: it was injected and is not there any more"}, false},
		"volume changed": {func(p *corev1.Pod) { p.Spec.Volumes[0].ConfigMap.Name = "mine" }, []string{"spec.volumes[weir-ca]: it is not as it was injected"}, false},
		"probe reset":    {func(p *corev1.Pod) { p.Spec.Containers[0].LivenessProbe.HTTPGet.Path = "/healthz" }, []string{"probe or hook web/liveness: it does not ask the sidecar"}, true},
		"probe of others": {func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "agent", ReadinessProbe: tcp(9)})
		}, []string{"probe or hook agent/readiness: it does not ask the sidecar"}, false},
		"the sidecar's user": {func(p *corev1.Pod) {
			user := int64(15000)
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{RunAsUser: &user}
		}, []string{`container "web" would run as user 15000`}, true},
		"another mesh": {func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "istio-proxy", Image: "x"})
			p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: "istio-init", Image: "x"})
		}, []string{"spec.initContainers[istio-init]: the pod is in the mesh of Istio"}, true},
		"host network": {func(p *corev1.Pod) { p.Spec.HostNetwork = true }, []string{"spec.hostNetwork"}, true},
	} {
		pod := ready(t)
		c.change(pod)
		problems := settings().Verify("shop", asks, pod)
		if len(problems) != len(c.want) {
			t.Errorf("%s: %q", name, problems)
			continue
		}
		for i := range c.want {
			if !strings.Contains(problems[i], c.want[i]) {
				t.Errorf("%s: %q, want %q in it", name, problems[i], c.want[i])
			}
		}
		// Asked again after the others, the mutating webhook mends it.
		text, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		d, out := injected(t, "shop", asks, tree(t, string(text)))
		mended, err := inject.Typed(out)
		if err != nil {
			t.Fatal(err)
		}
		if problems := settings().Verify("shop", asks, mended); (d.Outcome != inject.Injected || len(problems) > 0) != c.lost {
			t.Errorf("%s, injected again: %v %q %q", name, d.Outcome, d.Reasons, problems)
		}
		if name == "what others may add" && !reflect.DeepEqual(mended, pod) {
			t.Error("what others have added is lost")
		}
	}
}

func tcp(port int32) *corev1.Probe {
	return &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(port)}}}
}

// TestAReplicaWithOtherSettingsTakesThePod is what happens while a controller is upgraded.
func TestAReplicaWithOtherSettingsTakesThePod(t *testing.T) {
	pod := ready(t)
	newer := settings()
	newer.Image, newer.Version, newer.Controller = "weir-proxy:v2", "v2", "elsewhere:1"
	if problems := newer.Verify("shop", asks, pod); len(problems) > 0 {
		t.Errorf("%q", problems)
	}
	pod.Spec.InitContainers[1].Image = "x"
	if problems := newer.Verify("shop", asks, pod); len(problems) != 1 {
		t.Errorf("%q", problems)
	}
	d := newer.Pod("shop", asks, ready(t))
	out, err := d.Apply(tree(t, mustJSON(t, ready(t))))
	if err != nil || d.Outcome != inject.Injected || !strings.Contains(mustJSON(t, out), "weir-proxy:v2") || strings.Contains(mustJSON(t, out), "weir-proxy:v1") {
		t.Errorf("%v %q: %v", err, d.Reasons, out)
	}
}

func mustJSON(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestWhoAsksForNoSidecarIsLetThrough whatever his pod looks like.
func TestWhoAsksForNoSidecarIsLetThrough(t *testing.T) {
	for _, text := range []string{
		"{metadata: {labels: {weirmesh.github.io/inject: disabled}}, spec: {containers: [{name: weir-sidecar}]}}",
		"{spec: {hostNetwork: true}}",
	} {
		pod := &corev1.Pod{}
		if err := yaml.Unmarshal([]byte(text), pod); err != nil {
			t.Fatal(err)
		}
		if problems := settings().Verify("shop", asks, pod); len(problems) > 0 {
			t.Errorf("%s: %q", text, problems)
		}
	}
	if problems := settings().Verify("shop", nil, &corev1.Pod{}); len(problems) > 0 {
		t.Errorf("%q", problems)
	}
}

// FuzzPod holds that whatever is injected is what is wanted of a pod, and is injected once.
func FuzzPod(f *testing.F) {
	f.Add(`{"metadata":{"annotations":{"weirmesh.github.io/skip-users":"1,2"}},"spec":{"containers":[{"name":"a","livenessProbe":{"grpc":{"port":1}}}]}}`)
	f.Add(`{"metadata":{"labels":{"weirmesh.github.io/inject":"enabled"},"annotations":{"weirmesh.github.io/sidecar":"{\"probes\":{\"a/liveness\":{\"tcp\":{\"port\":1}}}}"}},"spec":{"initContainers":[{"name":"weir-sidecar"}],"containers":[{"name":"a"},{"name":"a"}],"volumes":[{"name":"weir-ca"}]}}`)
	f.Add(`{"spec":{"containers":null,"volumes":[{},{"name":""}]},"status":null}`)
	f.Fuzz(func(t *testing.T, text string) {
		var in map[string]any
		if json.Unmarshal([]byte(text), &in) != nil || in == nil {
			return
		}
		pod, err := inject.Typed(in)
		if err != nil {
			return
		}
		d := settings().Pod("shop", asks, pod)
		out, err := d.Apply(in)
		if err != nil {
			t.Fatal(err)
		}
		after, err := inject.Typed(out)
		if err != nil {
			t.Fatal(err)
		}
		problems := settings().Verify("shop", asks, after)
		switch d.Outcome {
		case inject.Injected:
			if len(problems) > 0 {
				t.Errorf("%s: %q", text, problems)
			}
			again := settings().Pod("shop", asks, after)
			same, err := again.Apply(out)
			if err != nil || again.Outcome != inject.Injected || !reflect.DeepEqual(out, same) {
				t.Errorf("once more: %v %v %q\n%v\n%v", err, again.Outcome, again.Reasons, out, same)
			}
		case inject.Refused:
			for _, r := range d.Reasons {
				if len(r) > 1024 {
					t.Errorf("a reason of %d bytes", len(r))
				}
			}
			if len(problems) == 0 {
				t.Errorf("%s: it is refused (%q) and passes", text, d.Reasons)
			}
		}
	})
}
