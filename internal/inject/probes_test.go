package inject_test

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/probe"
)

const podText = `
initContainers:
- name: weir
  restartPolicy: Always
  startupProbe: {httpGet: {path: /readyz, port: 15021}}
- name: proxy-of-somebody
  restartPolicy: Always
  startupProbe: {tcpSocket: {port: 7000}}
containers:
- name: app
  ports: [{name: web, containerPort: 8080}]
  startupProbe: {httpGet: {path: "/start?x=1", port: web, scheme: HTTPS, httpHeaders: [{name: Host, value: shop}]}, timeoutSeconds: 3, periodSeconds: 7, failureThreshold: 9}
  livenessProbe: {exec: {command: ["true"]}}
  readinessProbe: {grpc: {port: 9000, service: carts}}
  lifecycle:
    postStart: {httpGet: {path: /hook, port: 8080}}
    preStop: {sleep: {seconds: 1}}
- name: other
  startupProbe: {httpGet: {path: /, port: "8081"}}
  livenessProbe: {tcpSocket: {port: web}}
  readinessProbe: {httpGet: {path: /, port: 80, host: elsewhere.example}}
  lifecycle:
    preStop: {httpGet: {path: /bye, port: 8081}}
- name: last
  livenessProbe: {tcpSocket: {port: 1, host: 192.0.2.1}}
  readinessProbe: {grpc: {port: 9000}, timeoutSeconds: 5}
`

func pod(t *testing.T) *corev1.PodSpec {
	t.Helper()
	spec := &corev1.PodSpec{}
	if err := yaml.UnmarshalStrict([]byte(podText), spec); err != nil {
		t.Fatal(err)
	}
	return spec
}

func TestTheKubeletAsksTheSidecar(t *testing.T) {
	spec, was := pod(t), pod(t)
	table := inject.Probes(spec, "weir", 15021, nil, "")
	want := probe.Table{
		"proxy-of-somebody/startup": {TCP: &probe.TCP{Port: 7000}, Seconds: 1},
		"app/startup":               {HTTP: &probe.HTTP{Port: 8080, Path: "/start?x=1", Secure: true, Fields: []probe.Field{{Name: "Host", Value: "shop"}}}, Seconds: 3},
		"app/readiness":             {GRPC: &probe.GRPC{Port: 9000, Service: "carts"}, Seconds: 1},
		"app/postStart":             {HTTP: &probe.HTTP{Port: 8080, Path: "/hook"}},
		"other/startup":             {HTTP: &probe.HTTP{Port: 8081, Path: "/"}, Seconds: 1},
		"other/preStop":             {HTTP: &probe.HTTP{Port: 8081, Path: "/bye"}},
		"last/readiness":            {GRPC: &probe.GRPC{Port: 9000}, Seconds: 5},
	}
	if !reflect.DeepEqual(table, want) {
		t.Errorf("%+v", table)
	}
	app := spec.Containers[0]
	if got := fmt.Sprintf("%s %d %s %v %v", app.StartupProbe.HTTPGet.Path, app.StartupProbe.HTTPGet.Port.IntVal, app.StartupProbe.HTTPGet.Scheme, app.StartupProbe.HTTPGet.HTTPHeaders, app.ReadinessProbe.GRPC); got != "/app/startup 15021 HTTP [] nil" {
		t.Error(got)
	}
	if p := app.StartupProbe; p.PeriodSeconds != 7 || p.FailureThreshold != 9 || p.TimeoutSeconds != 3 {
		t.Errorf("%+v", p)
	}
	// What is not in the table is as it was.
	for _, same := range [][2]any{
		{spec.InitContainers[0], was.InitContainers[0]}, {app.LivenessProbe, was.Containers[0].LivenessProbe}, {app.Lifecycle.PreStop, was.Containers[0].Lifecycle.PreStop},
		{spec.Containers[1].LivenessProbe, was.Containers[1].LivenessProbe}, {spec.Containers[1].ReadinessProbe, was.Containers[1].ReadinessProbe}, {spec.Containers[2].LivenessProbe, was.Containers[2].LivenessProbe},
	} {
		if !reflect.DeepEqual(same[0], same[1]) {
			t.Errorf("%+v, was %+v", same[0], same[1])
		}
	}
	text, err := json.Marshal(table)
	if err != nil {
		t.Fatal(err)
	}
	if read, err := probe.Parse(text); err != nil || !reflect.DeepEqual(read, table) {
		t.Errorf("%+v %v", read, err)
	}
}

// TestProbesAreRewrittenOnce repeats the call after others have changed the pod.
func TestProbesAreRewrittenOnce(t *testing.T) {
	spec := pod(t)
	first := inject.Probes(spec, "weir", 15021, nil, "")
	after := spec.DeepCopy()
	if again := inject.Probes(spec, "weir", 15021, first, ""); !reflect.DeepEqual(again, first) || !reflect.DeepEqual(spec, after) {
		t.Errorf("%+v", again)
	}
	added := corev1.Container{Name: "added", LivenessProbe: pod(t).Containers[2].ReadinessProbe}
	spec.Containers = append(spec.Containers[1:], added) // app is gone
	spec.Containers[0].StartupProbe = pod(t).Containers[0].StartupProbe
	again := inject.Probes(spec, "weir", 15021, first, "")
	if _, ok := again["other/startup"]; ok || len(again) != 4 || again["added/liveness"].GRPC == nil { // its port has a name that the container does not know
		t.Errorf("%+v", again)
	}
}

// TestAProbeOfItsOwnPathIsNoneOfOurs has an application with the path and the port that a rewritten probe has.
func TestAProbeOfItsOwnPathIsNoneOfOurs(t *testing.T) {
	spec := pod(t)
	get := spec.Containers[1].StartupProbe.HTTPGet
	get.Path, get.Port.StrVal, get.Port.IntVal, get.Port.Type = "/other/startup", "", 15021, 0
	if table := inject.Probes(spec, "weir", 15021, nil, ""); table["other/startup"].HTTP.Port != 15021 {
		t.Errorf("%+v", table)
	}
}

// TestARewrittenProbeAsksTheApplication goes the whole way.
func TestARewrittenProbeAsksTheApplication(t *testing.T) {
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/healthz" {
			w.WriteHeader(500)
		}
	}))
	defer app.Close()
	at := app.Listener.Addr().(*net.TCPAddr)
	for path, want := range map[string]int{"/healthz": 200, "/other": 503} {
		spec := &corev1.PodSpec{}
		text := fmt.Sprintf(`containers: [{name: app, readinessProbe: {httpGet: {path: %s, port: %d}}}]`, path, at.Port)
		if err := yaml.UnmarshalStrict([]byte(text), spec); err != nil {
			t.Fatal(err)
		}
		h := probe.New(inject.Probes(spec, "weir", 15021, nil, ""), netip.MustParseAddr(at.IP.String()), slog.New(slog.DiscardHandler))
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", spec.Containers[0].ReadinessProbe.HTTPGet.Path, nil))
		if w.Code != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// TestEachPodHasPathsOfItsOwn, which stay when the pod is injected again, and are what the validating webhook wants.
func TestEachPodHasPathsOfItsOwn(t *testing.T) {
	s, n := settings(), 0
	s.Secret = func() string { n++; return fmt.Sprint("s", n) }
	text := "metadata: {name: web}\nspec: {containers: [{name: web, image: web, lifecycle: {preStop: {httpGet: {path: /quit, port: 80}}}}]}"
	for _, want := range []string{"/web/preStop/s1", "/web/preStop/s2"} {
		made := tree(t, text)
		for range 2 {
			typed, err := inject.Typed(made)
			if err != nil {
				t.Fatal(err)
			}
			d := s.Pod("shop", asks, typed)
			if made, err = d.Apply(made); err != nil {
				t.Fatal(err)
			}
			pod, err := inject.Typed(made)
			if err != nil {
				t.Fatal(err)
			}
			if got := pod.Spec.Containers[0].Lifecycle.PreStop.HTTPGet.Path; got != want {
				t.Errorf("the kubelet asks %q, want %q", got, want)
			}
			if problems := s.Verify("shop", asks, pod); len(problems) > 0 {
				t.Errorf("%q", problems)
			}
			pod.Spec.Containers[0].Lifecycle.PreStop.HTTPGet.Path = "/web/preStop"
			if problems := s.Verify("shop", asks, pod); len(problems) != 1 || strings.Contains(problems[0], "/s") {
				t.Errorf("%q", problems)
			}
		}
	}
}
