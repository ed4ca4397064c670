package cli_test

import (
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/api/metrics"
)

// apiServer answers as an API server below a path of its address, with a kubeconfig for it whose contexts are "here",
// the current one, with the namespace shop, and "bare", with none.
type apiServer struct {
	t          *testing.T
	kubeconfig string
	answers    map[string]string // by path; of a path with a code and a body, "CODE BODY"

	mu    sync.Mutex
	asked []string
}

func newAPIServer(t *testing.T, answers map[string]string) *apiServer {
	t.Helper()
	a := &apiServer{t: t, answers: answers}
	a.kubeconfig = kubeconfigOf(t, a)
	return a
}

// kubeconfigOf serves an API server below a path of its address, and returns the file of a kubeconfig for it.
func kubeconfigOf(t *testing.T, h http.Handler) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	s := httptest.NewTLSServer(h) // credentials go nowhere without TLS
	t.Cleanup(s.Close)
	text := fmt.Sprintf(`
apiVersion: v1
kind: Config
current-context: here
clusters: [{name: c, cluster: {server: "%s/clusters/7", certificate-authority-data: %s}}]
users: [{name: u, user: {token: secret}}]
contexts:
- {name: here, context: {cluster: c, user: u, namespace: shop}}
- {name: bare, context: {cluster: c, user: u}}
`, s.URL, base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})))
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

const trafficPaths = "/clusters/7/apis/traffic.metrics.k8s.io/v1beta1/"

func (a *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, ok := strings.CutPrefix(r.URL.Path, trafficPaths)
	a.mu.Lock()
	a.asked = append(a.asked, r.Method+" "+path+"?"+r.URL.RawQuery)
	a.mu.Unlock()
	text := a.answers[path]
	if !ok || text == "" || r.Header.Get("Authorization") != "Bearer secret" {
		http.NotFound(w, r) // as an API server without the API
		return
	}
	code := 200
	if text[0] != '{' {
		if _, err := fmt.Sscan(text, &code); err != nil {
			a.t.Error(err)
		}
		text = text[4:]
	}
	if code == http.StatusFound {
		w.Header().Set("Location", text)
	}
	if strings.Contains(text, `"b"`) {
		w.Header().Set("Warning", "299 - \"2 proxies are missing\"")
	}
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text))
}

// paths are those that were asked since the last call.
func (a *apiServer) paths() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	defer func() { a.asked = nil }()
	return strings.Join(a.asked, ", ")
}

// listText is a list of Deployments with 3 of 4 requests that succeeded, or of the edges of the first from the others.
func listText(edges bool, names ...string) string {
	var l metrics.TrafficMetricsList
	ref := func(name string) corev1.ObjectReference {
		namespace, name, _ := strings.Cut(name, "/")
		return corev1.ObjectReference{Kind: "Deployment", Namespace: namespace, Name: name}
	}
	m := metrics.Measured{Success: 3, Failure: 1}
	for i, name := range names {
		switch {
		case !edges:
			l.Items = append(l.Items, metrics.New(ref(name), "", nil, time.Unix(1e9, 0), 4*time.Second, m))
		case i > 0:
			other := ref(name)
			l.Items = append(l.Items, metrics.New(ref(names[0]), metrics.From, &other, time.Unix(1e9, 0), 4*time.Second, m))
		}
	}
	text, err := json.Marshal(l)
	if err != nil {
		panic(err)
	}
	return string(text)
}

func statusText(code int, reason metav1.StatusReason, message string) string {
	text, err := json.Marshal(metav1.Status{TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: "Failure", Reason: reason, Message: message, Code: int32(code)})
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf("%d %s", code, text)
}

func TestTrafficOfAClusterIsReadWithTheUsersOwnKubeconfig(t *testing.T) {
	t.Parallel()
	const of = "namespaces/shop/deployments"
	a := newAPIServer(t, map[string]string{
		of:                                   listText(false, "shop/cart", "shop/web"),
		of + "/cart/edges":                   listText(true, "shop/cart", "shop/web"),
		of + "/web/edges":                    statusText(404, "NotFound", `deployments.traffic.metrics.k8s.io "web" not found`),
		"namespaces/b/deployments":           listText(false, "b/api"),
		"namespaces/default/deployments":     listText(false),
		"deployments":                        listText(false, "b/api", "shop/cart"),
		"nodes":                              listText(false, "/n1"),
		"namespaces/b/deployments/api/edges": listText(true, "b/api", "shop/cart"),
	})
	for _, c := range []struct {
		args  string
		asks  string
		holds []string
	}{
		{"top deploy", "GET " + of + "?window=30s", []string{"cart 75.00% 1.0rps", "web 75.00% 1.0rps"}},
		{"top deploy -n b", "GET namespaces/b/deployments?window=30s", []string{"api 75.00%"}},
		{"top deploy -A -l app=x --window 1m", "GET deployments?labelSelector=app%3Dx&window=1m0s", []string{"b api 75.00%", "shop cart 75.00%"}},
		{"top nodes", "GET nodes?window=30s", []string{"n1 75.00%"}},
		{"top deploy --context bare", "GET namespaces/default/deployments?window=30s", []string{"There are no deployments in the namespace default."}},
		{"edges deploy/cart", "GET " + of + "/cart/edges?window=30s", []string{"from Deployment shop/web 75.00%"}},
		{"edges deploy/b/api --kind pods", "GET namespaces/b/deployments/api/edges?kind=pods&window=30s", []string{"from Deployment shop/cart"}},
		{"top deploy -o yaml -n b", "GET namespaces/b/deployments?window=30s", []string{"name: api"}},
		// A Deployment that is deleted meanwhile is left out.
		{"topology deploy", "GET " + of + "?window=30s, ", []string{"| web | - 1.0rps 75.00% --> | cart |"}},
		{"topology deploy --context bare", "GET namespaces/default/deployments?window=30s", []string{"No deployments in the namespace default exchanged traffic"}},
	} {
		for _, name := range []string{"traffic", "kubectl-traffic"} {
			r := weir("", append([]string{name}, strings.Fields(c.args+" --kubeconfig "+a.kubeconfig)...)...)
			said := strings.Join(strings.Fields(r.stdout), " ")
			for _, part := range c.holds {
				if r.code != 0 || !strings.Contains(said, part) {
					t.Errorf("%s %s: %d %s\n%s\nwant %s", name, c.args, r.code, r.err, r.stdout, part)
				}
			}
			if warns := strings.Contains(r.err, `Warning: 2 proxies are missing`+"\n"); warns != strings.Contains(c.asks, "namespaces/b/") && warns != strings.Contains(c.asks, "GET deployments") {
				t.Errorf("%s %s: %s", name, c.args, r.err)
			}
			if asked := a.paths(); asked != c.asks && !(strings.HasSuffix(c.asks, ", ") && strings.HasPrefix(asked, c.asks)) {
				t.Errorf("%s %s asks %s, want %s", name, c.args, asked, c.asks)
			}
		}
	}
}

func TestTrafficOfAClusterSaysWhyThereIsNone(t *testing.T) {
	t.Parallel()
	const forbidden = `pods.traffic.metrics.k8s.io is forbidden: User "eve" cannot list resource "pods" in API group "traffic.metrics.k8s.io" in the namespace "shop"`
	const of = "namespaces/shop/"
	a := newAPIServer(t, map[string]string{
		of + "pods":                statusText(403, "Forbidden", forbidden),
		of + "services":            statusText(503, "ServiceUnavailable", "no proxy has answered for a minute\x1b[2J"),
		of + "jobs":                "503 service unavailable\n",
		of + "replicasets":         "302 http://127.0.0.1:1/elsewhere",
		of + "daemonsets":          "200 <html>",
		of + "deployments":         listText(false, "shop/a", "shop/b", "shop/c"),
		of + "deployments/a/edges": statusText(403, "Forbidden", forbidden),
		of + "deployments/b/edges": statusText(403, "Forbidden", forbidden),
		of + "deployments/c/edges": statusText(403, "Forbidden", forbidden),
		of + "deployments/web":     statusText(404, "NotFound", `deployments.traffic.metrics.k8s.io "web" not found`),
	})
	for args, want := range map[string]string{
		"traffic tap pod/x -n a/b --kubeconfig FILE":             "--namespace",
		"traffic tap pod/x --rate 0 --kubeconfig FILE":           "--rate",
		"kubectl-traffic tap pod/x --kubeconfig /nowhere":        "/nowhere",
		"traffic top pods --admin 127.0.0.1:1 --kubeconfig FILE": "give either a run (--admin) or a cluster",
		"traffic top pods --context nowhere --kubeconfig FILE":   `"nowhere" does not exist`,
		"traffic top pods -n .. --kubeconfig FILE":               "--namespace",
		"traffic top pods -n a/b --kubeconfig FILE":              "--namespace",
		"traffic edges pod/.. --kubeconfig FILE":                 "names no resource",
		"traffic top pods -n a -A --kubeconfig FILE":             "give one of them",
		"kubectl-traffic top pods --kubeconfig /nowhere":         "/nowhere",
	} {
		r := weir("", strings.Fields(strings.ReplaceAll(args, "FILE", a.kubeconfig))...)
		if r.code != 2 || !strings.Contains(r.err, want) {
			t.Errorf("%s: %d %s, want %s", args, r.code, r.err, want)
		}
	}
	if asked := a.paths(); asked != "" {
		t.Errorf("a wrong command line asked %s", asked)
	}
	for args, want := range map[string]string{
		"top pods":            "weir: " + forbidden + "\n",
		"topology deployment": "weir: " + forbidden + "\n",
		"top svc":             "weir: no proxy has answered for a minute\\x1b[2J\n",
		"top jobs":            `weir: the API server reaches no controller that serves Traffic Metrics (service unavailable): "kubectl get apiservices" says why` + "\n",
		"edges pod/x":         "weir: the cluster has no Traffic Metrics (traffic.metrics.k8s.io/v1beta1): install Weir's chart there, with traffic.enabled and traffic.apiService\n",
		"top deploy/web":      `weir: deployments.traffic.metrics.k8s.io "web" not found` + "\n",
		"top rs":              "answers 302",
		"top ds":              "cannot be read",
	} {
		r := weir("", append([]string{"traffic"}, strings.Fields(args+" --kubeconfig "+a.kubeconfig)...)...)
		if r.code != 1 || !strings.Contains(r.err, want) || r.stdout != "" {
			t.Errorf("%s: %d %q %s, want %q", args, r.code, r.err, r.stdout, want)
		}
	}
	// kubectl traffic asks a run that is named.
	weir("", "kubectl-traffic", "top", "pods", "--admin", "127.0.0.1:1").want(t, 1, "stderr:is weir run there?")
}

// TestTheCommandLineChoosesBetweenRunAndClusterBeforeTheEnvironment changes the environment, so it runs alone.
func TestTheCommandLineChoosesBetweenRunAndClusterBeforeTheEnvironment(t *testing.T) {
	a := newAPIServer(t, map[string]string{"namespaces/shop/pods": listText(false)})
	const none = "There are no pods in the namespace shop."
	t.Setenv("WEIR_ADMIN", "127.0.0.1:1")
	weir("", "traffic", "top", "pods", "--kubeconfig", a.kubeconfig).want(t, 0, none)
	weir("", "kubectl-traffic", "top", "pods").want(t, 1, "stderr:127.0.0.1:1")
	t.Setenv("WEIR_KUBECONFIG", a.kubeconfig)
	weir("", "traffic", "top", "pods").want(t, 2, "stderr:either a run")
	weir("", "traffic", "top", "pods", "--admin", "127.0.0.1:2").want(t, 1, "stderr:127.0.0.1:2")
	if err := os.Unsetenv("WEIR_ADMIN"); err != nil {
		t.Fatal(err)
	}
	weir("", "traffic", "top", "pods").want(t, 0, none)
	t.Setenv("WEIR_KUBECONFIG", "")
	if err := os.Unsetenv("WEIR_KUBECONFIG"); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", a.kubeconfig)
	weir("", "kubectl-traffic", "top", "pods").want(t, 0, none)
}

// TestATapOfAClusterIsWatched; who may only get it gets it in pieces, for the API server cuts off what lasts.
func TestATapOfAClusterIsWatched(t *testing.T) {
	t.Parallel()
	const of, watched = "namespaces/shop/deployments/", "watch/namespaces/shop/deployments/"
	answer := func(path string) string {
		return `{"counts":{"matched":0,"shown":0,"silent":3}}` + "\n" +
			`{"request":{"time":"2026-01-02T03:04:05Z","at":{"kind":"Pod","namespace":"shop","name":"gw-1"},"method":"GET","host":"shop","path":"` + path + `","protocol":"HTTP/1.1","status":200,"nanos":1000000}}` + "\n" +
			`{"counts":{"matched":5,"shown":1,"proxies":2,"silent":1}}` + "\n"
	}
	forbidden := statusText(403, "Forbidden", `User "u" cannot watch resource "deployments/tap"`)
	a := newAPIServer(t, map[string]string{
		watched + "cart/tap":  answer("/watched"),
		watched + "web/tap":   forbidden,
		of + "web/tap":        answer("/got"),
		watched + "api/tap":   forbidden,
		of + "api/tap":        statusText(403, "Forbidden", `User "u" cannot get resource "deployments/tap"`),
		watched + "gone/tap":  statusText(404, "NotFound", `deployments.traffic.metrics.k8s.io "gone" not found`),
		watched + "ended/tap": answer("/x") + `{"error":"you may not\u001b[2J any more"}` + "\n",
		watched + "job/tap":   "{nonsense\n",
	})
	tap := func(args string) result {
		t.Helper()
		a.paths()
		return weir("", append([]string{"traffic", "tap"}, strings.Fields(args+" --kubeconfig "+a.kubeconfig)...)...)
	}
	r := tap("deploy/cart --for 5s --status 5xx --path /a")
	if r.code != 0 || !strings.Contains(r.stdout, "unknown -> Pod shop/gw-1  GET shop/watched  200  1ms\n") || strings.Count(r.stdout, "\n") != 1 {
		t.Errorf("%d %q %q", r.code, r.stdout, r.err)
	}
	if want := "2 proxies take part, 1 proxy does not answer\n1 of 5 requests were shown, the others came faster than --rate allows, or than they were read\n"; r.err != want {
		t.Errorf("it says %q, want %q", r.err, want)
	}
	if got, want := a.paths(), "GET "+watched+"cart/tap?for=5s&path=%2Fa&rate=100&status=5xx"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	if r := tap("deploy/cart --for 5s -o json"); r.code != 0 || r.stdout != answer("/watched") || strings.Contains(r.err, "take part") {
		t.Errorf("%d %q %q", r.code, r.stdout, r.err)
	}
	if r := tap("deploy/cart"); r.code != 1 || !strings.Contains(r.err, "weir: the tap ended 10m0s early") {
		t.Errorf("%d %q", r.code, r.err)
	}
	r = tap("deploy/web --for 2m")
	if r.code != 0 || strings.Count(r.stdout, "shop/got  200") != 3 || strings.Count(r.err, "take part") != 1 || !strings.Contains(r.err, "3 of 15 requests were shown") {
		t.Errorf("%d %q %q", r.code, r.stdout, r.err)
	}
	const got = "GET " + of + "web/tap?for="
	if got, want := a.paths(), "GET "+watched+"web/tap?for=2m0s&rate=100, "+got+"50s&rate=100, "+got+"50s&rate=100, "+got+"20s&rate=100"; got != want {
		t.Errorf("asked %s, want %s", got, want)
	}
	for args, want := range map[string]string{
		"deploy/api":   `weir: User "u" cannot get resource "deployments/tap"`,
		"deploy/gone":  `weir: deployments.traffic.metrics.k8s.io "gone" not found`,
		"deploy/ended": `weir: you may not\x1b[2J any more`,
		"deploy/job":   "cannot be read",
		"deploy/none":  "weir: the cluster has no Traffic Metrics",
	} {
		if r := tap(args); r.code != 1 || !strings.Contains(r.err, want) {
			t.Errorf("%s: %d %q, want %q", args, r.code, r.err, want)
		}
	}
}
