package rest_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/metrics/rest"
	"github.com/weirmesh/weir/internal/telemetry"
)

const (
	draft = "/apis/traffic.metrics.k8s.io/v1beta1"
	foo   = "foo-775b9cbd88-ntxsl"
)

// status reads an error, and fails if the answer is none as an API server would tell it.
func status(t testing.TB, w *httptest.ResponseRecorder) metav1.Status {
	t.Helper()
	var s metav1.Status
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil {
		t.Fatalf("%v: %s", err, w.Body)
	}
	if s.Kind != "Status" || s.APIVersion != "v1" || s.Status != "Failure" || int(s.Code) != w.Code || s.Reason == "" || s.Message == "" || w.Code < 400 {
		t.Errorf("%d: %+v", w.Code, s)
	}
	return s
}

// TestPaths: what each path is, by code and by the kind of the answer and what it is of.
func TestPaths(t *testing.T) {
	h := handler(objects(t), &store{})
	for path, want := range map[string]string{
		"/apis":                                  "200 APIGroupList",
		"/apis/":                                 "200 APIGroupList",
		"/apis/traffic.metrics.k8s.io":           "200 APIGroup",
		"/apis/metrics.smi-spec.io/":             "200 APIGroup",
		draft:                                    "200 APIResourceList",
		"/apis/mesh.metrics.k8s.io/v1beta1/":     "200 APIResourceList",
		draft + "/pods":                          "200 TrafficMetricsList Pod /",
		draft + "/pods/":                         "200 TrafficMetricsList Pod /",
		draft + "/p%6fds":                        "200 TrafficMetricsList Pod /",
		draft + "/namespaces":                    "200 TrafficMetricsList Namespace /",
		draft + "/namespaces/foobar":             "200 TrafficMetrics Namespace /foobar",
		draft + "/namespaces/foobar/edges":       "200 TrafficMetricsList Namespace /foobar",
		draft + "/namespaces/foobar/edges/":      "200 TrafficMetricsList Namespace /foobar",
		draft + "/nodes":                         "200 TrafficMetricsList Node /",
		draft + "/nodes/n1":                      "200 TrafficMetrics Node /n1",
		draft + "/nodes/n1/edges":                "200 TrafficMetricsList Node /n1",
		draft + "/namespaces/foobar/pods":        "200 TrafficMetricsList Pod foobar/",
		draft + "/namespaces/none/pods":          "200 TrafficMetricsList Pod none/",
		draft + "/namespaces/foobar/pods/" + foo: "200 TrafficMetrics Pod foobar/" + foo,
		draft + "/namespaces/foobar/pods/" + foo + "/edges":                     "200 TrafficMetricsList Pod foobar/" + foo,
		"/apis/metrics.smi-spec.io/v1alpha1/namespaces/shop/services/web":       "200 TrafficMetrics Service shop/web",
		draft + "/namespaces/shop/deployments/web?watch=false&limit=1&pretty=x": "200 TrafficMetrics Deployment shop/web",

		"/":                                                 "404",
		"/apisx":                                            "404",
		"/api/v1/pods":                                      "404",
		"/apis/apps/v1":                                     "404",
		"/apis/traffic.metrics.k8s.io/v1":                   "404",
		"/apis/metrics.smi-spec.io/v1beta1":                 "404",
		"//apis":                                            "404",
		"/apis//" + api.DraftGroup:                          "404",
		draft + "//pods":                                    "404",
		draft + "/pods//":                                   "404",
		draft + "/Pods":                                     "404",
		draft + "/pods/" + foo:                              "404",
		draft + "/namespaces/foobar/nodes":                  "404",
		draft + "/namespaces/foobar/nodes/n1":               "404",
		draft + "/namespaces/foobar/namespaces":             "404",
		draft + "/namespaces/foobar/edges/edges":            "404",
		draft + "/namespaces/foobar/pods/edges":             "404",
		draft + "/namespaces/foobar/pods/x/y":               "404",
		draft + "/nodes/n1/edges/edges":                     "404",
		draft + "/namespaces/foobar%2fpods":                 "404",
		draft + "/namespaces%2ffoobar":                      "404",
		draft + "/namespaces/..":                            "404",
		draft + "/namespaces/foobar/pods/%2e%2e":            "404",
		draft + "/namespaces/foobar/pods/%252e":             "404",
		draft + "/namespaces/foobar/pods/%00":               "404",
		draft + "/namespaces/" + strings.Repeat("x", 1<<16): "404",
	} {
		w := get(h, path)
		if w.Code != 200 {
			if got := fmt.Sprint(w.Code); got != want {
				t.Errorf("%.100s: %s, want %s", path, got, want)
			}
			if s := status(t, w); s.Reason != metav1.StatusReasonNotFound || w.Body.Len() > 2000 || s.Details == nil || strings.Contains(s.Details.Name, "/") {
				t.Errorf("%.100s: %.2000s", path, w.Body)
			}
			continue
		}
		var o struct {
			Kind     string
			Resource struct{ Kind, Namespace, Name string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprint(w.Code, " ", o.Kind)
		if o.Resource.Kind != "" {
			got += fmt.Sprintf(" %s %s/%s", o.Resource.Kind, o.Resource.Namespace, o.Resource.Name)
		}
		if got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestEverythingDiscoveredIsServed: what discovery lists has answers to the verbs that it names.
func TestEverythingDiscoveredIsServed(t *testing.T) {
	h := handler(objects(t), &store{})
	for _, group := range []string{"traffic.metrics.k8s.io/v1beta1", "mesh.metrics.k8s.io/v1beta1", "metrics.smi-spec.io/v1alpha1"} {
		var list metav1.APIResourceList
		if err := json.Unmarshal(get(h, "/apis/"+group).Body.Bytes(), &list); err != nil || list.GroupVersion != group || len(list.APIResources) != 20 {
			t.Fatalf("%+v, %v", list, err)
		}
		for _, r := range list.APIResources {
			plural, edges := strings.CutSuffix(r.Name, "/edges")
			var items api.TrafficMetricsList
			w := get(h, "/apis/"+group+"/"+plural)
			if err := json.Unmarshal(w.Body.Bytes(), &items); err != nil || w.Code != 200 || items.APIVersion != group || items.Kind != "TrafficMetricsList" {
				t.Fatalf("%s: %d, %v", r.Name, w.Code, err)
			}
			for _, item := range items.Items {
				path := "/apis/" + group
				if r.Namespaced {
					path += "/namespaces/" + item.Namespace
				}
				path += "/" + plural + "/" + item.Name
				if edges {
					path += "/edges"
				}
				var one metav1.TypeMeta
				w := get(h, path)
				if err := json.Unmarshal(w.Body.Bytes(), &one); err != nil || w.Code != 200 || one.APIVersion != group || one.Kind != r.Kind || item.APIVersion != group {
					t.Errorf("%s: %d %+v, want a %s", path, w.Code, one, r.Kind)
				}
			}
		}
	}
}

// TestParametersThatAreNotValid are named, and each is 400.
func TestParametersThatAreNotValid(t *testing.T) {
	h := handler(objects(t), &store{})
	edges := "/namespaces/foobar/pods/" + foo + "/edges?"
	for query, want := range map[string]string{
		"/pods?labelSelector=a%20in":                            "labelSelector",
		"/pods?labelSelector=a>1":                               "labelSelector",
		"/pods?labelSelector=a&labelSelector=b":                 "labelSelector",
		"/pods?labelSelector=" + strings.Repeat("a,", 4000):     "labelSelector",
		"/namespaces/foobar/pods/" + foo + "?labelSelector=app": "labelSelector",
		"/pods?window=30":                                       "window",
		"/pods?window=-1s":                                      "window",
		"/pods?window=999ms":                                    "window",
		"/pods?window=1h1ns":                                    "window",
		"/pods?window=" + strings.Repeat("9", 10000):            "window",
		"/pods?window=NaNs":                                     "window",
		"/pods?window=1s&window=2s":                             "window",
		"/pods?kind=pods":                                       "kind",
		"/pods?fieldSelector=metadata.name%3Da":                 "fieldSelector",
		"/pods?watch=true":                                      "watch",
		"/pods?watch=1":                                         "watch",
		"/pods?watch":                                           "watch",
		"/pods?watch=false&watch=true":                          "watch",
		"/pods?a=%zz":                                           "query",
		"/pods?a;b":                                             "query",
		"/pods?includeObject=all":                               "includeObject",
		edges + "kind=cronjobs":                                 "kind",
		edges + "kind=%1b[31m":                                  "kind",
		edges + "kind=" + strings.Repeat("%ff", 1000):           "kind",
	} {
		r := httptest.NewRequest("GET", draft, nil)
		r.URL.Path, r.URL.RawQuery, _ = strings.Cut(draft+query, "?")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		s := status(t, w)
		if s.Code != 400 || s.Reason != metav1.StatusReasonBadRequest || s.Details == nil || len(s.Details.Causes) != 1 || s.Details.Causes[0].Field != want || !strings.HasPrefix(s.Message, want+": ") ||
			len(s.Message) > 1100 || strings.ContainsRune(s.Message, '\x1b') {
			t.Errorf("%.80s: %+v, want 400 about %s", query, s, want)
		}
	}
	for _, kind := range []string{"deployments", "Deployment", "deployment"} {
		if w := get(h, draft+edges+"kind="+kind+"&window=1h"); w.Code != 200 {
			t.Errorf("kind %s: %s", kind, w.Body)
		}
	}
}

func TestMethods(t *testing.T) {
	h := handler(objects(t), &store{})
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "OPTIONS", "X"} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, draft+"/pods", strings.NewReader("{}")))
		if s := status(t, w); s.Code != 405 || s.Reason != metav1.StatusReasonMethodNotAllowed || w.Header().Get("Allow") != "GET, HEAD" {
			t.Errorf("%s: %+v", method, s)
		}
	}
	server := httptest.NewServer(h)
	defer server.Close()
	defer server.Client().CloseIdleConnections()
	for _, path := range []string{draft + "/pods", draft + "/gone"} {
		head, err := server.Client().Head(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		head.Body.Close()
		r, err := http.NewRequest("GET", server.URL+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept", "application/vnd.kubernetes.protobuf, application/json")
		whole, err := server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(whole.Body)
		whole.Body.Close()
		if err != nil || head.StatusCode != whole.StatusCode || head.ContentLength != int64(len(b)) || whole.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: HEAD %d with %d bytes, GET %d with %d, %v", path, head.StatusCode, head.ContentLength, whole.StatusCode, len(b), err)
		}
	}
}

func TestWhatCannotBeSaidIs503(t *testing.T) {
	s := &store{err: errors.New("no proxy has answered for a minute")}
	h := handler(objects(t), s)
	for _, path := range []string{"/pods", "/nodes/n1", "/nodes/n1/edges"} {
		if got := status(t, get(h, draft+path)); got.Code != 503 || got.Reason != metav1.StatusReasonServiceUnavailable || got.Message != s.err.Error() {
			t.Errorf("%s: %+v", path, got)
		}
	}
	// Whatever a Store says, it is not an error of the API's own.
	for _, err := range []error{&metav1StatusError{}, errors.New(strings.Repeat("\x1b€", 10000))} {
		s.err = err
		if got := status(t, get(h, draft+"/pods")); got.Code != 503 || len(got.Message) > 1100 || strings.ContainsRune(got.Message, '\x1b') {
			t.Errorf("%d %.200s", got.Code, got.Message)
		}
	}
	if got := status(t, get(handler(nil, s), draft+"/pods")); got.Code != 503 {
		t.Errorf("before objects are known: %+v", got)
	}
	if got := get(handler(nil, s), draft); got.Code != 200 {
		t.Errorf("discovery needs no objects, and is %d", got.Code)
	}
}

// metav1StatusError is an error of another API server.
type metav1StatusError struct{}

func (*metav1StatusError) Error() string         { return "of another server" }
func (*metav1StatusError) Status() metav1.Status { return metav1.Status{Code: 500} }

func TestAStoreThatDoesNotAnswerIs504(t *testing.T) {
	x := objects(t)
	synctest.Test(t, func(t *testing.T) {
		if s := status(t, get(handler(x, &store{wait: make(chan struct{})}), draft+"/pods")); s.Code != 504 || s.Reason != metav1.StatusReasonTimeout {
			t.Errorf("%+v", s)
		}
	})
}

// TestRequestsAtATimeAreBounded: more than can be answered get 429, and the others their answers.
func TestRequestsAtATimeAreBounded(t *testing.T) {
	x := objects(t)
	synctest.Test(t, func(t *testing.T) {
		s := &store{wait: make(chan struct{})}
		h := handler(x, s)
		h.Custom = &rest.Custom{Index: h.Index, Store: s} // which is counted with the others
		var mu sync.Mutex
		codes := map[int]int{}
		var all sync.WaitGroup
		for i := range rest.MaxConcurrent + 5 {
			path := draft + "/pods"
			if i%2 == 0 {
				path = customPath + "/namespaces/*/metrics/requests_per_second"
			}
			all.Go(func() {
				w := get(h, path)
				mu.Lock()
				defer mu.Unlock()
				codes[w.Code]++
				if w.Code == 429 && w.Header().Get("Retry-After") != "1" {
					t.Errorf("%v", w.Header())
				}
			})
		}
		synctest.Wait()
		close(s.wait)
		all.Wait()
		if codes[200] != rest.MaxConcurrent || codes[429] != 5 {
			t.Errorf("codes %v", codes)
		}
		if w := get(h, draft+"/pods"); w.Code != 200 {
			t.Errorf("afterwards: %d", w.Code)
		}
	})
}

// TestWhatIsLeftOutIsSaid in a field of the response, too, which kubectl prints.
func TestWhatIsLeftOutIsSaid(t *testing.T) {
	s := &store{}
	for i := range metrics.MaxItems + 3 {
		row := traffic(t, []string{fmt.Sprintf("Pod foobar/%s from unknown: 1 ok, 0 failed, 1ms", foo)})[0]
		row.Peer = side(fmt.Sprintf("Pod z/%05d", i))
		s.rows = append(s.rows, row)
	}
	h := handler(objects(t), s)
	w := get(h, draft+"/namespaces/foobar/pods/"+foo+"/edges")
	var list api.TrafficMetricsList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || *list.RemainingItemCount != 3 || !strings.HasPrefix(w.Header().Get("Warning"), `299 - "3 items are left out`) {
		t.Errorf("%v, %v", w.Header(), err)
	}
	if w := get(h, draft+"/pods"); w.Header().Get("Warning") != "" {
		t.Errorf("%v", w.Header())
	}
}

// TestWhatIsMissingIsSaid in answers that tell traffic, and in no others.
func TestWhatIsMissingIsSaid(t *testing.T) {
	h := handler(objects(t), &store{})
	missing := "2 of the proxies do not answer"
	h.Missing = func() string { return missing }
	of := draft + "/namespaces/foobar/pods"
	for path, want := range map[string]string{
		draft + "/pods": `299 - "2 of the proxies do not answer"`, of + "/" + foo: `299 - "2 of the proxies do not answer"`,
		"/apis": "", draft: "", of + "/none": "",
	} {
		if w := get(h, path); w.Header().Get("Warning") != want {
			t.Errorf("%s: %q, want %q", path, w.Header().Get("Warning"), want)
		}
	}
	missing = ""
	if w := get(h, draft+"/pods"); w.Header().Get("Warning") != "" {
		t.Errorf("%v", w.Header())
	}
}

// TestNamesOfOthersDoNotMoveTerminals: kubectl prints answers as they are.
func TestNamesOfOthersDoNotMoveTerminals(t *testing.T) {
	s := &store{rows: traffic(t, []string{"Pod foobar/" + foo + " from Pod a/b\u202e\u009b31m: 1 ok, 0 failed, 1ms"})}
	w := get(handler(objects(t), s), draft+"/namespaces/foobar/pods/"+foo+"/edges")
	var list api.TrafficMetricsList
	if err := json.Unmarshal(w.Body.Bytes(), &list); err != nil || len(list.Items) != 1 || list.Items[0].Edge.Resource.Name != "b\u202e\u009b31m" {
		t.Errorf("%+v, %v", list.Items, err)
	}
	if strings.ContainsAny(w.Body.String(), "\u202e\u009b") {
		t.Errorf("%s", w.Body)
	}
}

// FuzzRequests: whatever is asked, the answer is a whole one: no panic, no 500, and an error is a Status.
func FuzzRequests(f *testing.F) {
	for _, path := range []string{
		"/apis", draft, draft + "/pods", draft + "/namespaces/foobar/pods/" + foo + "/edges", draft + "/namespaces/%2e%2e/pods/%2f", "//", "", "%", draft + "/namespaces/foobar", draft + "/nodes/n1/edges",
		"/apis/metrics.smi-spec.io/v1alpha1/namespaces/foobar/deployments/foo",
	} {
		for _, query := range []string{"", "labelSelector=app%3Dfoo", "window=1m&kind=pods", "window=1e9h", "labelSelector=a+in+(b,c),!d", "a=%zz;", "watch=1"} {
			f.Add("GET", path, query)
		}
	}
	f.Add("HEAD", "/apis", "")
	f.Add("POST", "/apis", "")
	s := &store{rows: traffic(f, []string{"Pod foobar/" + foo + " from Pod foobar/gone: 1 ok, 2 failed, 1ms", "Gateway a/gw to Pod foobar/" + foo + ": 1 ok, 2 failed, 1ms"})}
	h := handler(objects(f), s)
	f.Fuzz(func(t *testing.T, method, path, query string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Method, r.URL.RawQuery = method, query
		// As servers do it: the path is unescaped, and what was sent is kept if it differs.
		u, err := r.URL.Parse("/" + strings.TrimLeft(path, "/"))
		if err != nil {
			return
		}
		r.URL.Path, r.URL.RawPath = u.Path, u.RawPath
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if method == "HEAD" {
			return
		}
		if !slices.Contains([]int{200, 400, 404, 405}, w.Code) {
			t.Errorf("%s %q?%q: %d", method, path, query, w.Code)
		}
		if w.Code != 200 {
			status(t, w)
			return
		}
		var o metav1.TypeMeta
		if err := json.Unmarshal(w.Body.Bytes(), &o); err != nil || o.Kind == "" {
			t.Errorf("%s %q?%q: %v, %+v", method, path, query, err, o)
		}
	})
}

// TestNamesAreShownToWhomTheyMayBe: who asks is in the context, and what cannot be said is no answer.
func TestNamesAreShownToWhomTheyMayBe(t *testing.T) {
	type asker struct{}
	var fault error
	h := handler(objects(t), &store{rows: traffic(t, []string{
		"Pod foobar/" + foo + " from Pod foobar/bar-5b48b5fb9c-7rw27: 1 ok, 0 failed, 1ms",
		"Pod foobar/" + foo + " from Gateway other/gw: 2 ok, 0 failed, 1ms",
	})})
	h.Shown = func(ctx context.Context, _ []string) (func(string) bool, error) {
		return func(namespace string) bool { return namespace == ctx.Value(asker{}) }, fault
	}
	h.Tap = func(_ http.ResponseWriter, r *http.Request, _ telemetry.TapQuery, of telemetry.TapOf) error {
		_, err := of(r.Context())
		return err
	}
	ask := func(path, namespace string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		r := httptest.NewRequest("GET", draft+path, nil)
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), asker{}, namespace)))
		return w
	}
	const pod = "/namespaces/foobar/pods/" + foo
	for namespace, want := range map[string]string{"foobar": `unknown Pod foobar/bar-5b48b5fb9c-7rw27`, "other": `unknown Gateway other/gw`, "": "unknown"} {
		var list api.TrafficMetricsList
		if err := json.Unmarshal(ask(pod+"/edges", namespace).Body.Bytes(), &list); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, item := range list.Items {
			r := item.Edge.Resource
			got = append(got, strings.TrimSuffix(strings.Replace(r.Kind+" "+r.Namespace+"/"+r.Name, " /", "unknown", 1), "/"))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("in %q: %q, want %q", namespace, got, want)
		}
	}
	// A tap has no part that could be left out.
	if s := status(t, ask(pod+"/tap", "foobar")); s.Code != 403 || s.Reason != metav1.StatusReasonForbidden {
		t.Errorf("a tap: %+v", s)
	}
	if w := ask(pod+"/tap", ""); w.Code != 200 {
		t.Errorf("a tap of who may see all: %d %s", w.Code, w.Body)
	}
	fault = errors.New("the API server does not answer")
	for _, path := range []string{pod + "/edges", pod + "/tap"} {
		if s := status(t, ask(path, "")); s.Code != 503 || s.Message != fault.Error() {
			t.Errorf("%s: %+v", path, s)
		}
	}
	if w := ask(pod, ""); w.Code != 200 {
		t.Errorf("what names nobody else: %d", w.Code)
	}
}
