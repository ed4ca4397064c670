package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// rolloutServer is an API server with objects, by their paths. A patch is noted, and changes nothing.
type rolloutServer struct {
	t          *testing.T
	kubeconfig string
	// kinds are those of rollouts.kruise.io; none is no such group.
	kinds []string

	mu      sync.Mutex
	objects map[string]map[string]any
	// refused are what is answered 403, by method and path.
	refused map[string]bool
	// conflicts is how many patches come too late.
	conflicts int
	patches   []string
	// over is how the Rollout is once somebody watches it.
	over map[string]any
}

const shopObjects = `
/apis/rollouts.kruise.io/v1beta1/namespaces/shop/rollouts/web:
  apiVersion: rollouts.kruise.io/v1beta1
  kind: Rollout
  metadata: {name: web, namespace: shop, uid: u1, generation: 2, resourceVersion: "7"}
  spec:
    workloadRef: {apiVersion: apps/v1, kind: Deployment, name: web}
    strategy:
      canary:
        trafficRoutings: [{service: web, gateway: {httpRouteName: web}}]
        steps: [{traffic: 20%, replicas: 1}, {traffic: 50%, replicas: 2}]
  status:
    phase: Progressing
    message: Step 1 of 2 waits until somebody approves it.
    currentStepIndex: 1
    currentStepState: StepPaused
    conditions: [{type: Progressing, status: "True", reason: InRolling, message: m, lastTransitionTime: "2020-01-02T03:04:05Z"}]
    canaryStatus: {currentStepIndex: 1, nextStepIndex: 2, currentStepState: StepPaused, stableRevision: aaa, canaryRevision: bbb, podTemplateHash: bbb, finalisingStep: "", canaryReplicas: 1, canaryReadyReplicas: 1}
/apis/rollouts.kruise.io/v1beta1/namespaces/other/rollouts/api:
  apiVersion: rollouts.kruise.io/v1beta1
  kind: Rollout
  metadata: {name: api, namespace: other, uid: u2, resourceVersion: "3"}
  spec: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: api}, strategy: {canary: {steps: [{replicas: 1}]}}}
/apis/apps/v1/namespaces/shop/deployments/web:
  apiVersion: apps/v1
  kind: Deployment
  metadata: {name: web, namespace: shop, uid: d1, generation: 3, resourceVersion: "11"}
  spec:
    replicas: 3
    selector: {matchLabels: {app: web}}
    template: {metadata: {labels: {app: web}}, spec: {containers: [{name: c, image: "web:v2"}]}}
  status: {observedGeneration: 3}
/apis/apps/v1/namespaces/shop/replicasets/web-aaa:
  apiVersion: apps/v1
  kind: ReplicaSet
  metadata:
    {name: web-aaa, namespace: shop, uid: ra, labels: {app: web, pod-template-hash: aaa}, creationTimestamp: "2020-01-01T00:00:00Z", annotations: {deployment.kubernetes.io/revision: "4", kubernetes.io/change-cause: "the\e[2J first"},
    ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: d1, controller: true}]}
  spec:
    replicas: 2
    selector: {matchLabels: {app: web}}
    template: {metadata: {labels: {app: web, pod-template-hash: aaa}}, spec: {notKnownHere: kept, containers: [{name: c, image: "web:v1"}]}}
  status: {replicas: 2, availableReplicas: 2}
/apis/apps/v1/namespaces/shop/replicasets/web-bbb:
  apiVersion: apps/v1
  kind: ReplicaSet
  metadata:
    {name: web-bbb, namespace: shop, uid: rb, labels: {app: web, pod-template-hash: bbb}, creationTimestamp: "2020-01-02T00:00:00Z", annotations: {deployment.kubernetes.io/revision: "5"},
    ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: d1, controller: true}]}
  spec:
    replicas: 1
    selector: {matchLabels: {app: web}}
    template: {metadata: {labels: {app: web, pod-template-hash: bbb}}, spec: {containers: [{name: c, image: "web:v2"}]}}
  status: {replicas: 1, availableReplicas: 1}
/apis/apps/v1/namespaces/shop/replicasets/strange:
  apiVersion: apps/v1
  kind: ReplicaSet
  metadata: {name: strange, namespace: shop, uid: rs, labels: {app: web, pod-template-hash: ccc}, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: another, controller: true}]}
  spec: {replicas: 9, selector: {matchLabels: {app: web}}, template: {metadata: {}, spec: {containers: []}}}
/api/v1/namespaces/shop/pods/web-aaa-1:
  apiVersion: v1
  kind: Pod
  metadata: {name: web-aaa-1, namespace: shop, creationTimestamp: "2020-01-01T00:00:00Z", ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-aaa, uid: ra, controller: true}]}
  status: {phase: Running, conditions: [{type: Ready, status: "True"}], containerStatuses: [{name: c, restartCount: 2, state: {running: {}}}]}
/api/v1/namespaces/shop/pods/web-bbb-1:
  apiVersion: v1
  kind: Pod
  metadata: {name: web-bbb-1, namespace: shop, creationTimestamp: "2020-01-01T00:00:00Z", ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-bbb, uid: rb, controller: true}]}
  status: {phase: Running, conditions: [{type: Ready, status: "False"}], containerStatuses: [{name: c, restartCount: 0, state: {waiting: {reason: CrashLoopBackOff}}}]}
/api/v1/namespaces/shop/pods/strange:
  apiVersion: v1
  kind: Pod
  metadata: {name: strange, namespace: shop, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: strange, uid: rs, controller: true}]}
  status: {phase: Running}
/api/v1/namespaces/shop/events/e1:
  apiVersion: v1
  kind: Event
  metadata: {name: e1, namespace: shop}
  type: Warning
  message: "Step 1\e[2J cannot be carried out."
  eventTime: "2020-01-02T03:04:05.000000Z"
/apis/traffic.metrics.k8s.io/v1beta1/namespaces/shop/pods:
  items:
  - {resource: {kind: Pod, name: web-aaa-1}, window: 30s, metrics: [{name: success_count, value: "79"}, {name: failure_count, value: "1"}]}
  - {resource: {kind: Pod, name: web-bbb-1}, window: 30s, metrics: [{name: success_count, value: "20"}, {name: failure_count, value: "0"}]}
  - {resource: {kind: Pod, name: strange}, window: 30s, metrics: [{name: success_count, value: "1000"}, {name: failure_count, value: "0"}]}
`

func newRolloutServer(t *testing.T) *rolloutServer {
	t.Helper()
	s := &rolloutServer{t: t, kinds: []string{"Rollout"}, refused: map[string]bool{}}
	if err := yaml.Unmarshal([]byte(shopObjects), &s.objects); err != nil {
		t.Fatal(err)
	}
	s.kubeconfig = kubeconfigOf(t, s)
	return s
}

// resources are those of the groups' versions.
var resources = map[string][]metav1.APIResource{
	"/api/v1": {{Name: "pods", Kind: "Pod", Namespaced: true}, {Name: "events", Kind: "Event", Namespaced: true}},
	"/apis/apps/v1": {
		{Name: "deployments", Kind: "Deployment", Namespaced: true}, {Name: "replicasets", Kind: "ReplicaSet", Namespaced: true}, {Name: "controllerrevisions", Kind: "ControllerRevision", Namespaced: true},
	},
}

func groupOf(name, version string) metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + version, Version: version}
	return metav1.APIGroup{TypeMeta: metav1.TypeMeta{Kind: "APIGroup", APIVersion: "v1"}, Name: name, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
}

func (s *rolloutServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := strings.TrimPrefix(r.URL.Path, "/clusters/7")
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := func(code int, v any) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		if err := json.NewEncoder(w).Encode(v); err != nil {
			s.t.Error(err)
		}
	}
	status := func(code int32, reason metav1.StatusReason, message string) {
		answer(int(code), metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Message: message, Code: code})
	}
	const group = "/apis/rollouts.kruise.io"
	list := map[string]any{"kind": map[string]string{"pods": "PodList", "events": "EventList"}[path.Base(at)], "apiVersion": "v1", "items": []any{}}
	if list["kind"] == "" {
		list["kind"] = "List"
	}
	switch o, list2 := s.objects[at], resources[at]; {
	case s.refused[r.Method+" "+at]:
		status(403, metav1.StatusReasonForbidden, fmt.Sprintf("%s is forbidden: User \"u\" cannot %s it\x1b[2J", path.Base(at), strings.ToLower(r.Method)))
	case at == "/api":
		answer(200, metav1.APIVersions{TypeMeta: metav1.TypeMeta{Kind: "APIVersions"}, Versions: []string{"v1"}})
	case at == "/apis":
		all := metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{groupOf("apps", "v1")}}
		if len(s.kinds) > 0 {
			all.Groups = append(all.Groups, groupOf("rollouts.kruise.io", "v1beta1"))
		}
		answer(200, all)
	case at == group && len(s.kinds) > 0:
		answer(200, groupOf("rollouts.kruise.io", "v1beta1"))
	case at == group+"/v1beta1" && len(s.kinds) > 0:
		for _, k := range s.kinds {
			list2 = append(list2, metav1.APIResource{Name: strings.ToLower(k) + "s", Kind: k, Namespaced: true})
		}
		fallthrough
	case list2 != nil:
		answer(200, metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: strings.TrimPrefix(strings.TrimPrefix(at, "/apis/"), "/api/"), APIResources: list2})
	case r.Method == http.MethodPatch:
		s.patch(r, at, answer, status)
	case o != nil:
		answer(200, o)
	case r.URL.Query().Get("watch") != "":
		if strings.HasSuffix(at, "/rollouts") && s.over != nil {
			s.objects[at+"/web"]["status"] = s.over
		}
		answer(200, map[string]any{"type": "MODIFIED", "object": s.objects[at+"/web"]})
	case r.Method == http.MethodGet && slices.Contains([]string{"rollouts", "replicasets", "controllerrevisions", "pods", "events"}, path.Base(at)) && (len(s.kinds) > 0 || !strings.HasPrefix(at, group)):
		for _, k := range slices.Sorted(maps.Keys(s.objects)) {
			if path.Dir(k) == at || at == group+"/v1beta1/rollouts" && strings.HasPrefix(k, group) {
				list["items"] = append(list["items"].([]any), s.objects[k])
			}
		}
		answer(200, list)
	default:
		status(404, metav1.StatusReasonNotFound, path.Base(at)+" not found")
	}
}

// patch notes a patch of the newest version of an object.
func (s *rolloutServer) patch(r *http.Request, at string, answer func(int, any), status func(int32, metav1.StatusReason, string)) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Error(err)
	}
	of := s.objects[strings.TrimSuffix(at, "/status")]
	version := of["metadata"].(map[string]any)["resourceVersion"].(string)
	if !strings.Contains(string(body), `"`+version+`"`) {
		s.t.Errorf("%s is not of version %s: %s", at, version, body)
	}
	if s.conflicts > 0 { // somebody else was faster
		s.conflicts--
		of["metadata"].(map[string]any)["resourceVersion"] = version + "1"
		status(409, metav1.StatusReasonConflict, "the object has been modified")
		return
	}
	s.patches = append(s.patches, path.Base(r.Header.Get("Content-Type"))+" "+at+" "+string(body))
	answer(200, of)
}

// patched are the patches since the last call.
func (s *rolloutServer) patched() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() { s.patches = nil }()
	return strings.Join(s.patches, "\n")
}

// set changes the server.
func (s *rolloutServer) set(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

func (s *rolloutServer) weir(args string) result {
	return weir("", append([]string{"kubectl-weir", "rollout"}, strings.Fields(args+" --kubeconfig "+s.kubeconfig)...)...)
}

func TestRolloutsOfAClusterAreShownWithTheirPods(t *testing.T) {
	t.Parallel()
	s := newRolloutServer(t)
	s.weir("list").want(t, 0, "shop", "web", "‖ Paused", "1/2", "20 %", "20.0 %", "aaa to bbb", "!api")
	s.set(func() { s.refused["GET /apis/apps/v1/namespaces/shop/deployments/web"] = true })
	s.weir("list").want(t, 0, "web", "‖ Paused", "20 %", "!20.0 %")
	s.set(func() { clear(s.refused) })
	s.weir("list -A").want(t, 0, "api", "◌ Initial", "web")
	s.weir("list --context bare").want(t, 0, "There are no Rollouts in the namespace default.")
	s.weir("list -A -n shop").want(t, 2, "stderr:give one of them")
	s.weir("get web").want(t, 0,
		"Rollout:   shop/web", "Status:    ‖ Paused", "Strategy:  Canary, by HTTPRoute web", "Step:      1/2", "Requests:  20% of the requests go to web-canary, 80% to web.", "Set:       20 %",
		"Measured:  20.0 %, 20 of 100 requests in the last 30 s", "Workload:  Deployment web, 3 pods", "Condition: Progressing True InRolling",
		"├─ revision 5 (canary), Service web-canary: 0 of 1 pod ready, web:v2\n│  └─ ◌ web-bbb-1  CrashLoopBackOff", "└─ revision 4 (stable), Service web: 1 of 1 pod ready, web:v1\n   └─ ✔ web-aaa-1  Running", "2 restarts",
		`Step 1\x1b[2J cannot be carried out.`, "!strange", "!Unread")
	s.weir("get shop/web --context bare -o json").want(t, 0, `"restarts": 2`, `"kind": "Deployment"`, `"status": "CrashLoopBackOff"`, `"canary": 20`)
	s.weir("history web").want(t, 0, "5", "bbb", "canary", "web:v2", "4", "aaa", "stable", `the\x1b[2J first`, "!strange")
	s.weir("status web --watch=false").want(t, 0, "Paused: Step 1 of 2 waits until somebody approves it.")
	s.weir("get nobody").want(t, 1, "stderr:there is no Rollout shop/nobody")
	s.weir("get api -n other").want(t, 0, "◌ Initial", "No controller has taken it up yet.")
	s.weir("history api -n other").want(t, 1, "stderr:there is no Deployment api")
	// It waits for the end, of which it learns as it happens.
	s.set(func() {
		s.over = map[string]any{"phase": "Healthy", "message": "There is nothing to release.", "currentStepIndex": 2, "currentStepState": "Completed", "canaryStatus": map[string]any{"canaryRevision": "bbb", "stableRevision": "aaa", "currentStepState": "Completed"}}
	})
	s.weir("status web --timeout 1m").want(t, 0, "Healthy: There is nothing to release.")
	if p := s.patched(); p != "" {
		t.Errorf("who looks has changed something: %s", p)
	}
}

func TestCommandsChangeTheNewestVersionOfOneObject(t *testing.T) {
	t.Parallel()
	const of, workload = "/apis/rollouts.kruise.io/v1beta1/namespaces/shop/rollouts/web", "/apis/apps/v1/namespaces/shop/deployments/web"
	for args, want := range map[string]struct{ patch, says string }{
		"promote web":          {"merge-patch+json " + of + `/status {"metadata":{"resourceVersion":"7"},"status":{"canaryStatus":{"currentStepState":"StepReady"},"currentStepState":"StepReady"}}`, "Rollout shop/web: Step 1 of 2 is approved."},
		"promote web --step 2": {"merge-patch+json " + of + `/status {"metadata":{"resourceVersion":"7"},"status":{"canaryStatus":{"currentStepState":"StepReady"},"currentStepState":"StepReady"}}`, "goes to step 2"},
		"restart web":          {"merge-patch+json " + of + `/status {"metadata":{"resourceVersion":"7"},"status":{"canaryStatus":{"nextStepIndex":1}}}`, "step 1 of 2"},
		"pause web":            {"merge-patch+json " + of + ` {"metadata":{"resourceVersion":"7"},"spec":{"strategy":{"paused":true}}}`, "stays where it is"},
		"abort web":            {"merge-patch+json " + of + ` {"metadata":{"annotations":{"rollouts.weirmesh.github.io/abort":"bbb"},"resourceVersion":"7"}}`, "All requests go to the stable version"},
		// Fields that Weir does not know come back, too.
		"undo web": {"json-patch+json " + workload + ` [{"op":"replace","path":"/metadata/resourceVersion","value":"11"},{"op":"replace","path":"/spec/template","value":{"metadata":{"labels":{"app":"web"}},"spec":{"containers":[{"image":"web:v1","name":"c"}],"notKnownHere":"kept"}}}]`, "Deployment web has the template of revision 4 (aaa) again."},
	} {
		s := newRolloutServer(t)
		s.weir(args).want(t, 0, want.says)
		if got := s.patched(); got != want.patch {
			t.Errorf("%s: %s, want %s", args, got, want.patch)
		}
		s.set(func() { s.conflicts = 2 })
		s.weir(args).want(t, 0, want.says)
		if n := strings.Count(s.patched(), "-patch+json "); n != 1 {
			t.Errorf("%s: %d patches after two conflicts, want 1", args, n)
		}
	}
}

func TestCommandsSayWhyTheyCannotBe(t *testing.T) {
	t.Parallel()
	const of, workload = "/apis/rollouts.kruise.io/v1beta1/namespaces/shop/rollouts/web", "/apis/apps/v1/namespaces/shop/deployments/web"
	s := newRolloutServer(t)
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"retry web":                       {1, "weir: retry shop/web: no release was aborted\n"},
		"promote web --step 9":            {1, "there is no step 9: the Rollout has 2"},
		"promote nobody":                  {1, "there is no such Rollout: Rollout shop/nobody"},
		"promote ..":                      {2, "names no Rollout"},
		"promote web -n a/b":              {2, "--namespace"},
		"promote web --step 0":            {2, "steps count from 1"},
		"promote web --admin 127.0.0.1:1": {2, "give either a run (--admin) or a cluster"},
		"promote web --context nowhere":   {2, `"nowhere" does not exist`},
	} {
		if r := s.weir(args); r.code != want.code || !strings.Contains(r.err, want.says) {
			t.Errorf("%s: %d %s, want %d %s", args, r.code, r.err, want.code, want.says)
		}
	}
	// kubectl weir asks a run that is named, and weir one that is not.
	weir("", "kubectl-weir", "rollout", "list", "--admin", "127.0.0.1:1").want(t, 1, "stderr:is weir run there?")
	weir("", "kubectl-weir", "traffic", "top", "pods", "--kubeconfig", "/nowhere").want(t, 2, "stderr:/nowhere")
	weir("", "rollout", "list", "--kubeconfig", s.kubeconfig).want(t, 0, "web")
	weir("", "kubectl-weir", "rollout", "--help").want(t, 0, "kubectl weir rollout COMMAND")

	s.set(func() { s.refused["PATCH "+of+"/status"] = true })
	s.weir("promote web").want(t, 1, `stderr:weir: promote shop/web: status is forbidden: User "u" cannot patch it\x1b[2J; docs/rollouts.md has the role that it needs`)
	s.set(func() { s.refused["GET "+workload] = true })
	s.weir("get web").want(t, 0, "Step:      1/2", `Unread:    web is forbidden: User "u" cannot get it\x1b[2J`)
	s.weir("undo web").want(t, 1, "stderr:undo shop/web: web is forbidden")
	s.weir("abort web").want(t, 0, "All requests go to the stable version") // by the status alone
	s.set(func() { s.refused["GET "+of] = true })
	s.weir("get web").want(t, 1, "stderr:weir: web is forbidden")
	s.set(func() { clear(s.refused); s.conflicts = 1000 })
	s.weir("pause web").want(t, 1, "stderr:given up after 20 attempts: the object has been modified")
	s.set(func() { s.conflicts, s.kinds = 0, []string{"Rollout", "BatchRelease"} })
	s.weir("abort web").want(t, 1, "stderr:abort works only where Weir's controller carries Rollouts out (OpenKruise Rollouts is installed")
	s.weir("promote web").want(t, 0, "approved")
	s = &rolloutServer{t: t, objects: map[string]map[string]any{}}
	s.kubeconfig = kubeconfigOf(t, s)
	s.weir("list").want(t, 1, "stderr:weir: the cluster has no Rollouts (rollouts.kruise.io/v1beta1): install Weir's chart there, with rollouts.enabled")
	s.weir("promote web").want(t, 1, "stderr:the cluster has no Rollouts")
}
