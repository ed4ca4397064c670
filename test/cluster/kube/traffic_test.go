package kube

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/access"
	"github.com/weirmesh/weir/internal/kube/aggregated"
	"github.com/weirmesh/weir/internal/kube/webhook"
	"github.com/weirmesh/weir/internal/metrics"
	metricsrest "github.com/weirmesh/weir/internal/metrics/rest"
	"github.com/weirmesh/weir/internal/metrics/schema"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/tapping"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/test/cluster/components"
)

// trafficVersions are the groups of Traffic Metrics with their versions.
var trafficVersions = []string{"traffic.metrics.k8s.io/v1beta1", "mesh.metrics.k8s.io/v1beta1", "metrics.smi-spec.io/v1alpha1"}

const draftAPI = "/apis/traffic.metrics.k8s.io/v1beta1"

// trafficRights are those that the controller needs for it.
func trafficRights() []access.Verb { return slices.Concat(access.Traffic(), access.Authentication()) }

// trafficStore answers with what was observed, or fails.
type trafficStore struct {
	registry *telemetry.Registry
	err      atomic.Pointer[error]
}

func (s *trafficStore) Ask(_ context.Context, q metrics.Question) (metrics.Answer, error) {
	if err := s.err.Load(); err != nil {
		return metrics.Answer{}, *err
	}
	out := metrics.Answer{Time: time.Now(), Window: q.Window}
	for _, e := range s.registry.Edges() {
		if q.At == nil && q.With == nil || slices.Contains(q.At, e.At) || slices.Contains(q.With, e.Peer) {
			if q.Sum {
				e.EdgeLabels = telemetry.EdgeLabels{At: e.At, Out: e.Out}
			}
			out.Traffic = append(out.Traffic, metrics.Traffic{EdgeLabels: e.EdgeLabels, Success: e.Success, Failure: e.Failure, Latency: e.Latency})
		}
	}
	return out, nil
}

func (s *trafficStore) requests(at telemetry.Side, out bool, peer telemetry.Side, success, failure int) {
	e := s.registry.Edge(telemetry.EdgeLabels{At: at, Out: out, Peer: peer})
	for i := range success + failure {
		e.Observe(0, i < success, 10*time.Millisecond)
	}
}

func trafficPod(namespace, name string) telemetry.Side {
	return telemetry.Side{Kind: "Pod", Namespace: namespace, Name: name}
}

// served is the API of Traffic Metrics behind the API server, for the time of a test.
type served struct {
	*trafficStore
	hub  *tapping.Hub // of taps at proxies, of which there are those of proxyOf
	t    *testing.T
	url  string // where it is itself
	tls  *tls.Config
	a, b string // namespaces with a pod "web" each, which talk to each other; a has "db", too
}

// serveTraffic installs and serves it, with the rights of a controller.
func serveTraffic(t *testing.T) *served {
	t.Helper()
	s := &served{trafficStore: &trafficStore{registry: telemetry.New()}, hub: &tapping.Hub{Connected: func() int { return 2 }}, t: t, a: namespace(t), b: namespace(t)}
	s.requests(trafficPod(s.a, "web"), false, trafficPod(s.b, "web"), 90, 10)
	s.requests(trafficPod(s.a, "web"), true, trafficPod(s.a, "db"), 50, 0)
	s.requests(trafficPod(s.a, "web"), false, telemetry.Side{}, 4, 0)
	s.requests(trafficPod(s.a, "db"), false, trafficPod(s.a, "web"), 50, 0)
	var text strings.Builder
	for _, p := range [][2]string{{s.a, "web"}, {s.a, "db"}} {
		fmt.Fprintf(&text, "{apiVersion: v1, kind: Pod, metadata: {namespace: %s, name: %s, labels: {app: %[2]s}}, spec: {nodeName: n1}}\n---\n", p[0], p[1])
	}
	// The pod of b belongs to a Deployment.
	fmt.Fprintf(&text, "{apiVersion: v1, kind: Pod, metadata: {namespace: %[1]s, name: web, labels: {app: web}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: api-1, uid: r, controller: true}]}, spec: {nodeName: n1}}\n---\n"+
		"{apiVersion: apps/v1, kind: ReplicaSet, metadata: {namespace: %[1]s, name: api-1, uid: r, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: api, uid: d, controller: true}]}, spec: {selector: {matchLabels: {app: web}}}}\n---\n"+
		"{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: %[1]s, name: api, uid: d}, spec: {selector: {matchLabels: {app: web}}}}\n", s.b)
	set, err := resource.Load(kinds, []string{"-"}, strings.NewReader(text.String()))
	if err != nil {
		t.Fatal(err)
	}
	index := metrics.NewIndex(set)

	config := userWho(t, "traffic-controller", nil)
	grant(t, "traffic-controller", trafficRights())
	c, err := kube.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	handler := &metricsrest.Handler{Index: func() *metrics.Index { return index }, Store: s.trafficStore, Shown: aggregated.Shown, Tap: s.hub.ServeTap}
	api := &aggregated.API{Client: c, Logger: logger(t), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/openapi/") {
			schema.ServeHTTP(w, r)
			return
		}
		handler.ServeHTTP(w, r)
	})}
	background(t, api.Run)

	ensureNamespace(t, own)
	const service = "weir-traffic"
	authority, err := identity.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	certificate := &identity.Server{Subject: identity.Subject{DNSNames: []string{service + "." + own + ".svc"}}}
	certificate.Use(authority)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	background(t, func(ctx context.Context) error { return webhook.Serve(ctx, l, api, certificate.Certificate) })
	s.url = "https://" + l.Addr().String()
	s.tls = &tls.Config{InsecureSkipVerify: true}

	port := int64(l.Addr().(*net.TCPAddr).Port)
	create(t, &corev1.Service{ObjectMeta: named(own, service), Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}})
	bundles := &webhook.Bundles{Client: c, Service: webhook.Service{Namespace: own, Name: service}, Bundle: func() string { return string(authority.Bundle()) }, Logger: logger(t)}
	for _, v := range trafficVersions {
		group, version, _ := strings.Cut(v, "/")
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": version + "." + group},
			"spec": map[string]any{
				"group": group, "version": version, "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
				"service": map[string]any{"namespace": own, "name": service, "port": port},
			},
		}}
		create(t, o)
		bundles.APIServices = append(bundles.APIServices, o.GetName())
	}
	background(t, func(ctx context.Context) error { bundles.Run(ctx, nil); return nil })
	err = within(t.Context(), func() error {
		for _, v := range trafficVersions {
			group, version, _ := strings.Cut(v, "/")
			if err := discovered(t.Context(), group, []string{version}, "pods"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// grant lets a user of userWho do something, to objects of one name where it has one.
func grant(t *testing.T, user string, may []access.Verb) {
	t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: user}}
	change(t, role, func() {
		role.Rules = nil
		for _, v := range may {
			rule := rbacv1.PolicyRule{APIGroups: []string{v.Group}, Resources: []string{v.Resource}, Verbs: []string{v.Verb}}
			if v.Name != "" {
				rule.ResourceNames = []string{v.Name}
			}
			role.Rules = append(role.Rules, rule)
		}
	})
}

// trafficUser is somebody who has the rules of a role in some namespaces, in "" by a role of the cluster.
func (s *served) trafficUser(name string, rule rbacv1.PolicyRule, namespaces ...string) (kubeconfig string, c *http.Client) {
	s.t.Helper()
	who := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: name}}
	for _, ns := range namespaces {
		if ns == "" {
			create(s.t, &rbacv1.ClusterRole{ObjectMeta: named("", name), Rules: []rbacv1.PolicyRule{rule}}, &rbacv1.ClusterRoleBinding{
				ObjectMeta: named("", name), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name}, Subjects: who,
			})
			continue
		}
		create(s.t, &rbacv1.Role{ObjectMeta: named(ns, name), Rules: []rbacv1.PolicyRule{rule}}, &rbacv1.RoleBinding{
			ObjectMeta: named(ns, name), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}, Subjects: who,
		})
	}
	for _, ns := range namespaces { // the API server knows of them somewhat later
		resource, part, _ := strings.Cut(rule.Resources[0], "/")
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: name, ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: ns, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: part,
		}}}
		if err := within(s.t.Context(), func() error {
			if err := admin.Create(s.t.Context(), review); err != nil || !review.Status.Allowed {
				return fmt.Errorf("%s in %q: %+v, %v", name, ns, review.Status, err)
			}
			return nil
		}); err != nil {
			s.t.Fatal(err)
		}
	}
	pair, err := server.Authority().Issue(name, nil, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	text, err := server.Authority().Kubeconfig(server.URL, pair)
	if err != nil {
		s.t.Fatal(err)
	}
	kubeconfig = filepath.Join(s.t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
	config, err := adminConfig()
	if err != nil {
		s.t.Fatal(err)
	}
	config = rest.AnonymousClientConfig(config)
	config.CertData, config.KeyData = pair.Public, pair.Private
	if c, err = rest.HTTPClientFor(config); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.CloseIdleConnections)
	return kubeconfig, c
}

// ask sends a request to the API server.
func (s *served) ask(c *http.Client, method, path string, into any) (int, string) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, server.URL+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	response, err := c.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		s.t.Fatal(err)
	}
	if into != nil {
		if err := json.Unmarshal(text, into); err != nil {
			s.t.Fatalf("%v: %s", err, text)
		}
	}
	return response.StatusCode, string(text)
}

// The rules of the draft's two roles (RBAC), as written, and others.
var (
	allTraffic   = rbacv1.PolicyRule{APIGroups: []string{"traffic.metrics.k8s.io"}, Resources: []string{"*"}, Verbs: []string{"*"}}
	edgesOfPods  = rbacv1.PolicyRule{APIGroups: []string{"traffic.metrics.k8s.io"}, Resources: []string{"pods/edges"}, Verbs: []string{"*"}}
	edgesNothing = rbacv1.PolicyRule{APIGroups: []string{"traffic.metrics.k8s.io"}, Resources: []string{"namespaces/edges"}, Verbs: []string{"*"}}
	edgesOfAll   = rbacv1.PolicyRule{APIGroups: []string{"traffic.metrics.k8s.io"}, Resources: []string{"edges"}, Verbs: []string{"list"}}
	podsRead     = rbacv1.PolicyRule{APIGroups: []string{"traffic.metrics.k8s.io"}, Resources: []string{"pods"}, Verbs: []string{"get"}}
)

// TestRolesOfTheDraftHoldForTrafficMetrics is a matrix of roles, verbs, resources and namespaces.
func TestRolesOfTheDraftHoldForTrafficMetrics(t *testing.T) {
	s := serveTraffic(t)
	in := func(ns string) string { return "/namespaces/" + ns }
	requests := []struct{ method, path string }{
		{"GET", "/pods"}, {"GET", in(s.a) + "/pods"}, {"GET", in(s.b) + "/pods"}, // 0 to 2
		{"GET", in(s.a) + "/pods/web"}, {"GET", in(s.b) + "/pods/web"}, // 3, 4
		{"GET", in(s.a) + "/pods/web/edges"}, {"GET", in(s.b) + "/pods/web/edges"}, // 5, 6
		{"GET", "/namespaces"}, {"GET", in(s.a)}, {"GET", in(s.b)}, // 7 to 9
		{"GET", in(s.a) + "/edges"}, {"GET", in(s.b) + "/edges"}, // 10, 11
		{"GET", "/nodes/n1"}, {"GET", "/nodes/n1/edges"}, // 12, 13
		{"GET", in(s.a) + "/deployments"}, {"GET", in(s.a) + "/pods?watch=true"}, // 14, 15
		{"POST", in(s.a) + "/pods"}, {"DELETE", in(s.a) + "/pods/web"}, // 16, 17
	}
	for _, role := range []struct {
		name  string
		rule  rbacv1.PolicyRule
		in    []string
		codes string
	}{
		{"nobody", podsRead, nil, "403 403 403 403 403 403 403 403 403 403 403 403 403 403 403 403 403 403"},
		{"all-of-a", allTraffic, []string{s.a}, "403 200 403 200 403 200 403 403 200 403 200 403 403 403 200 400 405 405"},
		{"all", allTraffic, []string{""}, "200 200 200 200 200 200 200 200 200 200 200 200 200 200 200 400 405 405"},
		{"edges-of-a", edgesOfPods, []string{s.a}, "403 403 403 403 403 200 403 403 403 403 403 403 403 403 403 403 403 403"},
		{"edges-of-both", edgesOfPods, []string{s.a, s.b}, "403 403 403 403 403 200 200 403 403 403 403 403 403 403 403 403 403 403"},
		{"edges-of-pods", edgesOfPods, []string{""}, "403 403 403 403 403 200 200 403 403 403 403 403 403 403 403 403 403 403"},
		{"namespaces-edges", edgesNothing, []string{"", s.a}, "403 403 403 403 403 403 403 403 403 403 403 403 403 403 403 403 403 403"},
		{"edges-of-namespaces", edgesOfAll, []string{s.a}, "403 403 403 403 403 403 403 403 403 403 200 403 403 403 403 403 403 403"},
		{"get-pods-of-a", podsRead, []string{s.a}, "403 403 403 200 403 403 403 403 403 403 403 403 403 403 403 403 403 403"},
	} {
		t.Run(role.name, func(t *testing.T) {
			_, c := s.trafficUser("traffic-"+role.name, role.rule, role.in...)
			// A role is in force a little after it was made.
			if first := strings.Index(role.codes, "200"); first >= 0 {
				if err := within(t.Context(), func() error {
					if code, text := s.ask(c, requests[first/4].method, draftAPI+requests[first/4].path, nil); code != 200 {
						return fmt.Errorf("%d %s", code, text)
					}
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for _, r := range requests {
				var status metav1.Status
				code, text := s.ask(c, r.method, draftAPI+r.path, &status)
				got = append(got, fmt.Sprint(code))
				if code != 200 && (status.Kind != "Status" || int(status.Code) != code || status.Reason == "") {
					t.Errorf("%s %s: %s", r.method, r.path, text)
				}
				// The other groups are others' for roles.
				for _, other := range trafficVersions[1:] {
					if code, text := s.ask(c, r.method, "/apis/"+other+r.path, nil); code != 403 {
						t.Errorf("%s of %s: %d %s", r.path, other, code, text)
					}
				}
			}
			if got := strings.Join(got, " "); got != role.codes {
				t.Errorf("got  %s\nwant %s", got, role.codes)
			}
		})
	}

	// A refusal is as an API server words it.
	_, nobody := s.trafficUser("traffic-stranger", podsRead)
	for path, want := range map[string]string{
		"/namespaces/x/pods/web/edges": `pods.traffic.metrics.k8s.io \"web\" is forbidden: User \"traffic-stranger\" cannot get resource \"pods/edges\" in API group \"traffic.metrics.k8s.io\" in the namespace \"x\"`,
		"/nodes":                       `nodes.traffic.metrics.k8s.io is forbidden: User \"traffic-stranger\" cannot list resource \"nodes\" in API group \"traffic.metrics.k8s.io\" at the cluster scope`,
	} {
		if _, text := s.ask(nobody, "GET", draftAPI+path, nil); !strings.Contains(text, want) {
			t.Errorf("%s: %s, want %s", path, text, want)
		}
	}

	t.Run("names", func(t *testing.T) {
		for _, c := range []struct {
			name string
			rule rbacv1.PolicyRule
			in   []string
			want string
		}{
			{"all-of-a", allTraffic, []string{s.a}, "from  /, to Pod " + s.a + "/db"},
			{"edges-of-a", edgesOfPods, []string{s.a}, "from  /, to Pod " + s.a + "/db"},
			{"edges-of-both", edgesOfPods, []string{s.a, s.b}, "from  /, from Pod " + s.b + "/web, to Pod " + s.a + "/db"},
			{"all", allTraffic, []string{""}, "from  /, from Pod " + s.b + "/web, to Pod " + s.a + "/db"},
		} {
			_, client := s.trafficUser("names-"+c.name, c.rule, c.in...)
			for _, kind := range []string{"", "?kind=namespaces", "?kind=nodes"} {
				code, text := s.ask(client, "GET", draftAPI+in(s.a)+"/pods/web/edges"+kind, nil)
				if code != 200 || strings.Contains(text, s.b) != strings.Contains(c.want, s.b) && kind != "?kind=nodes" {
					t.Errorf("%s%s: %d %s", c.name, kind, code, text)
				}
			}
			var list struct {
				Items []struct {
					Edge struct {
						Direction string
						Resource  corev1.ObjectReference
					}
				}
			}
			s.ask(client, "GET", draftAPI+in(s.a)+"/pods/web/edges", &list)
			var got []string
			for _, i := range list.Items {
				got = append(got, fmt.Sprintf("%s %s %s/%s", i.Edge.Direction, i.Edge.Resource.Kind, i.Edge.Resource.Namespace, i.Edge.Resource.Name))
			}
			slices.Sort(got)
			if got := strings.Join(got, ", "); got != c.want {
				t.Errorf("%s: %s, want %s", c.name, got, c.want)
			}
		}
	})

	t.Run("who comes another way", func(t *testing.T) {
		pair, err := server.Authority().Issue("admin", []string{"system:masters"}, nil)
		if err != nil {
			t.Fatal(err)
		}
		certificate, err := tls.X509KeyPair(pair.Public, pair.Private)
		if err != nil {
			t.Fatal(err)
		}
		for name, with := range map[string][]tls.Certificate{"without a certificate": nil, "with an administrator's": {certificate}} {
			config := s.tls.Clone()
			config.Certificates = with
			transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
			for _, path := range []string{draftAPI, draftAPI + "/pods", "/openapi/v2", "/"} {
				r, err := http.NewRequestWithContext(t.Context(), "GET", s.url+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				r.Header.Set("X-Remote-User", "admin")
				r.Header.Set("X-Remote-Group", "system:masters")
				response, err := transport.RoundTrip(r)
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
				if response.StatusCode != 401 {
					t.Errorf("%s, %s: %s", name, path, response.Status)
				}
			}
			transport.CloseIdleConnections()
		}
		config, err := adminConfig()
		if err != nil {
			t.Fatal(err)
		}
		anonymous, err := rest.HTTPClientFor(rest.AnonymousClientConfig(config))
		if err != nil {
			t.Fatal(err)
		}
		defer anonymous.CloseIdleConnections()
		if code, text := s.ask(anonymous, "GET", draftAPI+"/pods", nil); code != 403 || !strings.Contains(text, "system:anonymous") {
			t.Errorf("nobody in particular: %d %s", code, text)
		}
	})
}

// TestKubectlReadsTrafficMetrics as other objects, and is told when nothing can be said.
func TestKubectlReadsTrafficMetrics(t *testing.T) {
	s := serveTraffic(t)
	programs, err := components.Cache{Log: os.Stderr}.Ensure(t.Context(), components.Kubectl)
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	kubectl := func(kubeconfig string, args ...string) (string, error) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), programs.Path(components.Kubectl), append([]string{"--kubeconfig=" + kubeconfig, "--cache-dir=" + home}, args...)...)
		cmd.WaitDelay = 10 * time.Second
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	const draft = ".traffic.metrics.k8s.io"
	masters := server.Kubeconfig
	limited, _ := s.trafficUser("kubectl-of-a", allTraffic, s.a)
	edges, _ := s.trafficUser("kubectl-edges-of-a", edgesOfPods, s.a)
	for _, c := range []struct {
		as    string
		args  string
		holds []string // lines, with single spaces
	}{
		{masters, "get pods" + draft + " -n " + s.a, []string{"NAME SUCCESS RPS P50 P90 P99", "db 100.00% 1.7rps 9.8ms 10ms 10ms", "web 90.38% 3.5rps 9.8ms 10ms 10ms"}},
		{masters, "get pods" + draft + " -A", []string{"NAMESPACE NAME SUCCESS RPS P50 P90 P99", s.a + " web 90.38% 3.5rps 9.8ms 10ms 10ms", s.b + " web - 0.0rps - - -"}},
		{masters, "get pods" + draft + " -o wide -n " + s.a, []string{"NAME SUCCESS RPS P50 P90 P99 REQUESTS FAILURES WINDOW", "db 100.00% 1.7rps 9.8ms 10ms 10ms 50 0 30s"}},
		{masters, "get pods" + draft + " -l app=db -A", []string{s.a + " db 100.00% 1.7rps 9.8ms 10ms 10ms", "!web"}},
		{masters, "get pods" + draft + " web -n " + s.a, []string{"web 90.38% 3.5rps 9.8ms 10ms 10ms"}},
		{masters, "get pods" + draft + " web -o yaml -n " + s.a, []string{"kind: TrafficMetrics", "apiVersion: traffic.metrics.k8s.io/v1beta1", "- name: success_count"}},
		{masters, "get pods" + draft + " -o yaml -n " + s.a, []string{"kind: List", "kind: TrafficMetrics", "name: db", "name: web", "!name: n1"}},
		{masters, "get deployments" + draft + " -o yaml -n " + s.a, []string{"items: []"}},
		{masters, "get pods" + draft + " -o name -n " + s.a, []string{"/db"}},
		{masters, "get namespaces" + draft, []string{s.a + " 93.51% 5.1rps 9.8ms 10ms 10ms"}},
		{masters, "get nodes" + draft + " n1", []string{"n1 93.51% 5.1rps 9.8ms 10ms 10ms"}},
		{masters, "get pods.mesh.metrics.k8s.io db -n " + s.a, []string{"db 100.00% 1.7rps 9.8ms 10ms 10ms"}},
		{masters, "get pods.metrics.smi-spec.io db -n " + s.a, []string{"db 100.00% 1.7rps 9.8ms 10ms 10ms"}},
		{masters, "get pods" + draft + " gone -n " + s.a, []string{`Error from server (NotFound): pods.traffic.metrics.k8s.io "gone" not found`}},
		{limited, "get pods" + draft + " -n " + s.a, []string{"db 100.00% 1.7rps 9.8ms 10ms 10ms"}},
		{limited, "get pods" + draft + " -A", []string{`Error from server (Forbidden): pods.traffic.metrics.k8s.io is forbidden: User "kubectl-of-a" cannot list resource "pods" in API group "traffic.metrics.k8s.io" at the cluster scope`}},
		{limited, "auth can-i get pods" + draft + " --subresource=edges -n " + s.a, []string{"yes"}},
		{edges, "get pods" + draft + " -n " + s.a, []string{`Error from server (Forbidden): pods.traffic.metrics.k8s.io is forbidden: User "kubectl-edges-of-a" cannot list resource "pods" in API group "traffic.metrics.k8s.io" in the namespace "` + s.a + `"`}},
		{edges, "get --raw " + draftAPI + "/namespaces/" + s.a + "/pods/web/edges", []string{`"kind":"TrafficMetricsList"`, "!" + s.b}},
		{masters, "api-resources --api-group=traffic.metrics.k8s.io", []string{"pods traffic.metrics.k8s.io/v1beta1 true TrafficMetrics", "nodes traffic.metrics.k8s.io/v1beta1 false NodeTrafficMetrics"}},
		{masters, "explain deployments" + draft, []string{"GROUP: traffic.metrics.k8s.io", "KIND: TrafficMetrics", "VERSION: v1beta1", "What was measured of a resource's traffic in a window of time.", "metrics <[]Object> -required-"}},
		{masters, "explain pods.edge.direction --api-version=metrics.smi-spec.io/v1alpha1", []string{"GROUP: metrics.smi-spec.io", "FIELD: direction <string>"}},
	} {
		check := func() error {
			said, err := kubectl(c.as, strings.Fields(c.args)...)
			var plain []string
			for line := range strings.Lines(said) {
				plain = append(plain, strings.Join(strings.Fields(line), " "))
			}
			text := strings.Join(plain, "\n")
			for _, part := range c.holds {
				absent, not := strings.CutPrefix(part, "!")
				if strings.Contains(text, absent) == not {
					return fmt.Errorf("kubectl %s says, %v:\n%.3000s\nwant %s", c.args, err, said, part)
				}
			}
			return nil
		}
		wait := strings.Contains(c.args, "explain") // the API server reads documents when it has time
		err := check()
		if wait && err != nil {
			err = within(t.Context(), check)
		}
		if err != nil {
			t.Error(err)
		}
	}

	// The document of all APIs is asked for as protobuf by kubectl, Helm and controllers: one word of ours that is not of its
	// version leaves everybody without it.
	config, err := adminConfig()
	if err != nil {
		t.Fatal(err)
	}
	discover, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := within(t.Context(), func() error {
		document, err := discover.OpenAPISchema()
		if err != nil {
			return err
		}
		for _, d := range document.GetDefinitions().GetAdditionalProperties() {
			if strings.Contains(d.GetName(), "weir.metrics.TrafficMetricsList") {
				return nil
			}
		}
		return errors.New("the document of all APIs has no TrafficMetricsList")
	}); err != nil {
		t.Error(err)
	}

	// A store that cannot answer is no traffic, and no error of the API server.
	reason := errors.New("no proxy has answered for a minute")
	s.err.Store(&reason)
	if said, err := kubectl(masters, "get", "pods"+draft, "-A"); err == nil || !strings.Contains(said, "Error from server (ServiceUnavailable): "+reason.Error()) {
		t.Errorf("%v: %s", err, said)
	}
	var status metav1.Status
	if code, text := s.ask(server.Client(), "GET", draftAPI+"/pods", &status); code != 503 || status.Message != reason.Error() || status.Reason != metav1.StatusReasonServiceUnavailable {
		t.Errorf("%d %s", code, text)
	}
	s.err.Store(nil)

	// Both discoveries tell of all kinds with their edges and taps.
	for _, v := range trafficVersions {
		var list metav1.APIResourceList
		s.ask(server.Client(), "GET", "/apis/"+v, &list)
		if n := len(list.APIResources); n != 30 || list.APIResources[1].Name != "namespaces/edges" {
			t.Errorf("%s has %d resources", v, n)
		}
	}
	r, err := http.NewRequestWithContext(t.Context(), "GET", server.URL+"/apis", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	response, err := server.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var all struct {
		Items []struct {
			Metadata metav1.ObjectMeta
			Versions []struct {
				Freshness string
				Resources []struct {
					Resource     string
					Subresources []struct{ Subresource string }
				}
			}
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&all); err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, g := range all.Items {
		if slices.ContainsFunc(trafficVersions, func(v string) bool { return strings.HasPrefix(v, g.Metadata.Name+"/") }) {
			found++
			if v := g.Versions[0]; v.Freshness != "Current" || len(v.Resources) != 10 || v.Resources[2].Resource != "pods" || len(v.Resources[2].Subresources) != 2 {
				t.Errorf("%s: %+v", g.Metadata.Name, v)
			}
		}
	}
	if found != len(trafficVersions) {
		t.Errorf("%d groups are told of at once", found)
	}
}
