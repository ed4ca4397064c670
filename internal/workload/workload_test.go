package workload_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
)

func load(t *testing.T, text string) *resource.Set {
	t.Helper()
	set, err := resource.Load(workload.Kinds(), []string{"-"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

func TestFindHasWhatIsWrittenAndItsOwners(t *testing.T) {
	set := load(t, `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-5d, namespace: shop, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: u2, controller: true}]}
spec: {template: {spec: {serviceAccountName: web}}}
`)
	p, ok := workload.Find(set, "ReplicaSet", "shop", "web-5d")
	if got := fmt.Sprint(p.Kind, p.Account, p.Owners, ok); got != "ReplicaSetweb[{ReplicaSet web-5d} {Deployment web}] true" {
		t.Error(got)
	}
	if _, ok := workload.Find(set, "Deployment", "shop", "web"); ok {
		t.Error("what is not there is found")
	}
}

func TestPodsOfASet(t *testing.T) {
	set := load(t, `
apiVersion: v1
kind: Pod
metadata:
  name: web-1
  namespace: shop
  labels: {app: web}
  annotations: {large: text}
  ownerReferences:
  - {apiVersion: v1, kind: Gone, name: other, uid: u0}
  - {apiVersion: apps/v1, kind: ReplicaSet, name: web-5d, uid: u1, controller: true}
spec:
  nodeName: n1
  serviceAccountName: web
  initContainers:
  - {name: once, ports: [{containerPort: 1}]}
  - {name: sidecar, restartPolicy: Always, ports: [{containerPort: 2, name: admin}]}
  containers:
  - {name: a, ports: [{containerPort: 80, name: http}, {containerPort: 53, protocol: UDP}]}
status: {podIP: 10.0.0.1, podIPs: [{ip: 10.0.0.1}, {ip: "fd00::1"}]}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-5d, namespace: shop, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: u2, controller: true}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop}
spec: {template: {metadata: {labels: {app: web}}, spec: {serviceAccountName: web}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: idle, namespace: shop}
spec: {template: {metadata: {labels: {app: idle}}, spec: {serviceAccount: old, containers: [{name: a, ports: [{containerPort: 80}]}]}}}
---
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: idle-1, namespace: shop, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: idle, uid: u3, controller: true}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {template: {spec: {}}}
---
apiVersion: v1
kind: Pod
metadata: {name: bare}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: web, namespace: shop}
`)
	if len(set.Findings) > 0 {
		t.Error(set.Findings)
	}
	var got []string
	for _, p := range workload.Of(set) {
		got = append(got, fmt.Sprintf("%s %s/%s account=%s owners=%v labels=%v ports=%v node=%q %v", p.Kind, p.Namespace, p.Name, p.Account, p.Owners, p.PodLabels, p.Ports, p.Node, p.Addresses))
		if len(p.Annotations) > 0 {
			t.Error("annotations are kept")
		}
	}
	want := []string{
		`Job default/once account=default owners=[{Job once}] labels=map[] ports=[] node="" []`,
		`Pod default/bare account=default owners=[] labels=map[] ports=[] node="" []`,
		`Deployment shop/idle account=old owners=[{Deployment idle}] labels=map[app:idle] ports=[{ 80 false}] node="" []`,
		`Pod shop/web-1 account=web owners=[{ReplicaSet web-5d} {Deployment web}] labels=map[app:web] ports=[{admin 2 false} {http 80 false} { 53 true}] node="n1" [10.0.0.1 fd00::1]`,
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if n := len(workload.ServiceAccountList.In(set)); n != 1 {
		t.Errorf("%d ServiceAccounts", n)
	}
}

// TestAPodThatRunsOthersIsAPod, as the driver of a job is whose executors it owns.
func TestAPodThatRunsOthersIsAPod(t *testing.T) {
	set := load(t, `
apiVersion: v1
kind: Pod
metadata: {name: driver, namespace: shop}
---
apiVersion: v1
kind: Pod
metadata: {name: executor, namespace: shop, ownerReferences: [{apiVersion: v1, kind: Pod, name: driver, uid: u, controller: true}]}
`)
	if all := workload.Of(set); len(all) != 2 || all[0].Name != "driver" || all[1].Name != "executor" {
		t.Errorf("%+v", all)
	}
}

func TestANameAloneMeansThePodFirst(t *testing.T) {
	for _, k := range workload.Kinds() { // each kind can be meant
		set := load(t, fmt.Sprintf("{apiVersion: %s, kind: %s, metadata: {name: x, namespace: shop}}", k.APIVersion("v1"), k.Name))
		if p := workload.Named(workload.Of(set), "shop", "x"); (p != nil) != (k.Name != "ServiceAccount") {
			t.Errorf("%s: %+v", k.Name, p)
		}
	}
	set := load(t, `
apiVersion: v1
kind: Pod
metadata: {name: a, namespace: shop}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: a, namespace: shop}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: b, namespace: shop}
---
apiVersion: v1
kind: ReplicationController
metadata: {name: b, namespace: shop}
---
apiVersion: batch/v1
kind: Job
metadata: {name: c, namespace: other}
`)
	all := workload.Of(set)
	for name, want := range map[string]string{"shop/a": "Pod", "shop/b": "ReplicationController", "other/c": "Job", "shop/c": "", "other/a": "", "/": ""} {
		namespace, name, _ := strings.Cut(name, "/")
		p := workload.Named(all, namespace, name)
		if p == nil && want != "" || p != nil && (p.Kind != want || p.Name != name || p.Namespace != namespace) {
			t.Errorf("%s/%s: %+v, want a %s", namespace, name, p, want)
		}
	}
}

func TestOwnersInACircleEnd(t *testing.T) {
	set := load(t, `
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: a, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: b, uid: u, controller: true}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: b, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: a, uid: u, controller: true}]}
`)
	if got := workload.Of(set); len(got) != 0 {
		t.Error(got)
	}
}

func TestMistakesInWhatIsRead(t *testing.T) {
	for text, want := range map[string]string{
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: 7}":                              "spec.template",
		"apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: a}\nspec: {template: {metadata: {labels: {app: 7}}}}": "spec.template.metadata.labels[app]",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {serviceAccountName: 7}":                                "spec.serviceAccountName",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: {}}":                                       "spec.containers",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{ports: [{containerPort: 70000}]}]}":      "spec.containers[0].ports[0].containerPort",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: a, labels: {a: [1]}}":                                             "metadata.labels[a]",
		"apiVersion: v1\nkind: Pod\nmetadata: {name: A_}":                                                              "metadata.name",
	} {
		set := load(t, text)
		if len(set.Findings) != 1 || set.Findings[0].Ref.Field != want || len(workload.Of(set)) != 0 {
			t.Errorf("%s: %v", want, set.Findings)
		}
	}
}

// TestVersionsOfAPodThatMeanTheSame: a pod's status changes far more often than what is taken from it.
func TestVersionsOfAPodThatMeanTheSame(t *testing.T) {
	decode := func(version, labels, status, image string) *resource.Object {
		t.Helper()
		var u map[string]any
		text := "{apiVersion: v1, kind: Pod, metadata: {name: p, namespace: blog, resourceVersion: '" + version + "', labels: {" + labels + "}}, spec: {containers: [{name: a, image: " + image +
			"}]}, status: {" + status + "}}"
		if err := yaml.Unmarshal([]byte(text), &u); err != nil {
			t.Fatal(err)
		}
		o, err := resource.Decode(workload.Kinds(), &unstructured.Unstructured{Object: u})
		if err != nil {
			t.Fatal(err)
		}
		if o.GetObjectMeta().GetResourceVersion() != version {
			t.Errorf("version %q, want %q", o.GetObjectMeta().GetResourceVersion(), version)
		}
		return o
	}
	first := decode("1", "app: a", "podIP: 10.0.0.7", "i:1")
	for text, other := range map[string]*resource.Object{
		"same":      decode("2", "app: a", "podIP: 10.0.0.7, phase: Running, conditions: [{type: Ready, status: 'True'}]", "i:2"),
		"label":     decode("2", "app: b", "podIP: 10.0.0.7", "i:1"),
		"address":   decode("2", "app: a", "podIP: 10.0.0.8", "i:1"),
		"ended":     decode("2", "app: a", "podIP: 10.0.0.7, phase: Failed", "i:1"),
		"not valid": decode("2", "app: [], n: 7", "", "i:1"),
	} {
		if got, want := resource.SameExcerpt(first, other), text == "same"; got != want {
			t.Errorf("%s: the same is %v", text, got)
		}
	}
	broken := decode("1", "app: []", "", "i:1")
	if broken.Value() != nil || resource.SameExcerpt(broken, broken) {
		t.Error("objects that could not be decoded are not known to be the same")
	}
	if first.GetObjectMeta().GetResourceVersion() != "1" {
		t.Error("an object was changed")
	}
}

// TestASelectionFindsWhatSelects compares it with asking each Service.
func TestASelectionFindsWhatSelects(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	labels := func(most int) map[string]string {
		all := map[string]string{}
		for range r.IntN(most + 1) {
			all[fmt.Sprint("l", r.IntN(3))] = fmt.Sprint(r.IntN(2))
		}
		return all
	}
	found := 0
	for range 200 {
		var services []*corev1.Service
		for i := range 20 {
			services = append(services, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("n", r.IntN(2)), Name: fmt.Sprint(i)}, Spec: corev1.ServiceSpec{Selector: labels(2)}})
		}
		x := workload.NewSelection(services)
		for range 20 {
			o := &workload.Object{ObjectMeta: metav1.ObjectMeta{Namespace: fmt.Sprint("n", r.IntN(2))}, PodLabels: labels(4)}
			var want []*corev1.Service
			for _, s := range services {
				if o.SelectedBy(s) {
					want = append(want, s)
				}
			}
			if got := x.Of(o); !slices.Equal(got, want) {
				t.Fatalf("%v: %d Services, want %d", o.PodLabels, len(got), len(want))
			}
			found += len(want)
		}
	}
	if found == 0 {
		t.Error("nothing is selected")
	}
}
