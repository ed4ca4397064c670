package kube

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/dialect/access"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
)

const (
	draftRole    = `{metadata: {name: read}, rules: [{resources: [{kind: Deployment, name: web}], methods: [GET]}]}`
	draftBinding = `{metadata: {name: read}, subjects: [{kind: Deployment, name: web}, {kind: Job, name: none}], roleRef: {kind: TrafficRole, name: read}}`
)

// runs creates a Deployment with its ReplicaSet and a pod, as the controllers of Kubernetes would.
func runs(t *testing.T, ns, name string) *corev1.Pod {
	t.Helper()
	labels := map[string]string{"app": name}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
		ServiceAccountName: "runner", Containers: []corev1.Container{{Name: "a", Image: "a:1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}}}},
	}}
	owned := func(kind string, by metav1.Object) []metav1.OwnerReference {
		yes := true
		return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: by.GetName(), UID: by.GetUID(), Controller: &yes}}
	}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	d := &appsv1.Deployment{ObjectMeta: named(ns, name), Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}}
	create(t, d)
	r := &appsv1.ReplicaSet{ObjectMeta: named(ns, name+"-1"), Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template}}
	r.OwnerReferences = owned("Deployment", d)
	create(t, r)
	p := &corev1.Pod{ObjectMeta: named(ns, name+"-1-a"), Spec: template.Spec}
	p.Labels, p.OwnerReferences = labels, owned("ReplicaSet", r)
	create(t, p)
	return p
}

// who are the pods of a set's namespace, with what they are known by.
func who(set *resource.Set, ns string) (out []string) {
	for _, p := range workload.Of(set) {
		if p.Namespace == ns {
			out = append(out, strings.TrimSpace(fmt.Sprint(p.Kind, " ", p.Name, " ", p.Account, " ", p.Owners, " ", p.Ports, " ", strings.Join(p.Addresses, ","))))
		}
	}
	return out
}

const webPod = "Pod web-1-a runner [{ReplicaSet web-1} {Deployment web}] [{http 8080 false}]"

// TestWorkloadsAreReadWhileSomethingNeedsThem: pods are read from the first object of access control to the last, and no set
// has the one without the others.
func TestWorkloadsAreReadWhileSomethingNeedsThem(t *testing.T) {
	ns := namespace(t)
	pod := runs(t, ns, "web")
	for _, plural := range accessPlurals {
		define(t, api.Group, plural, nil)
	}
	s := watch(t, admin)
	set := s.until("the namespace", func(set *resource.Set) bool { return set.Namespace(ns) != nil })
	if got := who(set, ns); len(got) > 0 {
		t.Errorf("pods are read without need: %q", got)
	}
	load := func(every bool) []string {
		t.Helper()
		set, err := kube.Load(t.Context(), admin, kinds, controller, kube.Scope{}, every)
		if err != nil {
			t.Fatal(err)
		}
		return who(set, ns)
	}
	if got := load(false); len(got) > 0 {
		t.Errorf("pods are loaded without need: %q", got)
	}
	if got := load(true); !slices.Equal(got, []string{webPod}) {
		t.Errorf("loaded all: %q", got)
	}

	a := accessClient{t, raw(t), ns}
	is(t, "the role", a.create("TrafficRole", api.Draft, draftRole), `{}`)
	s.until("the role", func(set *resource.Set) bool { return len(access.Roles.In(set)) == 1 })
	if got := load(false); !slices.Equal(got, []string{webPod}) {
		t.Errorf("loaded: %q", got)
	}
	for _, set := range s.all() {
		if n := len(access.Roles.In(set)); n > 0 && !slices.Equal(who(set, ns), []string{webPod}) {
			t.Errorf("a set has the role and the pods %q", who(set, ns))
		}
	}

	// What is not taken from a pod makes no set; its address does.
	before := len(s.all())
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	if err := objects.Status().Update(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	create(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns + "-mark"}})
	s.until("the mark", func(set *resource.Set) bool { return set.Namespace(ns+"-mark") != nil })
	if n := len(s.all()) - before; n != 1 {
		t.Errorf("%d sets after a condition and the mark", n)
	}
	phase := func(phase corev1.PodPhase, want string) {
		t.Helper()
		pod.Status.Phase, pod.Status.PodIP, pod.Status.PodIPs = phase, "10.0.0.7", []corev1.PodIP{{IP: "10.0.0.7"}, {IP: "fd00::7"}}
		if err := objects.Status().Update(t.Context(), pod); err != nil {
			t.Fatal(err)
		}
		s.until(want, func(set *resource.Set) bool { return slices.Equal(who(set, ns), []string{want}) })
	}
	phase(corev1.PodRunning, webPod+" 10.0.0.7,fd00::7")
	phase(corev1.PodSucceeded, webPod) // another pod may have the addresses now

	if err := a.c.Delete().AbsPath(a.path("TrafficRole", api.Draft, "read")).Do(t.Context()).Error(); err != nil {
		t.Fatal(err)
	}
	s.until("no pods", func(set *resource.Set) bool {
		return len(access.Roles.In(set)) == 0 && len(workload.PodList.In(set)) == 0
	})
}

// conditions are those of an object of access control, without their messages.
func (a accessClient) conditions(kind, name string) map[string]string {
	a.t.Helper()
	out := map[string]string{}
	raw := is(a.t, name, a.get(kind, api.Draft, name), `{}`)
	status, _ := raw["status"].(map[string]any)
	list, _ := status["conditions"].([]any)
	for _, c := range list {
		c := c.(map[string]any)
		out[fmt.Sprint(c["type"])] = fmt.Sprint(c["status"], " ", c["reason"])
	}
	return out
}

// TestStatusesOfAccessControl: the controller says of each object what is in force, what it lacks, and that nothing
// enforces it.
func TestStatusesOfAccessControl(t *testing.T) {
	ns := namespace(t)
	ensureNamespace(t, own)
	runs(t, ns, "web")
	for _, plural := range accessPlurals {
		define(t, api.Group, plural, nil)
	}
	a := accessClient{t, raw(t), ns}
	is(t, "the role", a.create("TrafficRole", api.Draft, draftRole), `{}`)
	is(t, "the binding", a.create("TrafficRoleBinding", api.Draft, draftBinding), `{}`)
	is(t, "a role of nothing", a.create("TrafficRole", api.Draft, `{metadata: {name: nothing}, rules: [{resources: [{kind: Deployment, name: gone}]}]}`), `{}`)
	startController(t, "a")
	becomes := func(kind, name string, want map[string]string) {
		t.Helper()
		if err := within(t.Context(), func() error {
			if got := a.conditions(kind, name); !maps.Equal(got, want) {
				return fmt.Errorf("%s %s has %v, want %v", kind, name, got, want)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
	becomes("TrafficRole", "read", map[string]string{"Accepted": "True Accepted", "ResolvedRefs": "True ResolvedRefs", "Effective": "False NotEnforced"})
	becomes("TrafficRoleBinding", "read", map[string]string{"Accepted": "True Accepted", "ResolvedRefs": "False SubjectNotFound", "Effective": "False NotEnforced"})
	becomes("TrafficRole", "nothing", map[string]string{"Accepted": "True Accepted", "ResolvedRefs": "False ResourceNotFound", "Effective": "False NotBound"})

	// It follows pods: with another Deployment the second role names somebody.
	runs(t, ns, "gone")
	becomes("TrafficRole", "nothing", map[string]string{"Accepted": "True Accepted", "ResolvedRefs": "True ResolvedRefs", "Effective": "False NotBound"})
}
