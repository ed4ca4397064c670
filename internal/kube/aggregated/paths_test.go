package aggregated

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/metrics/rest"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/telemetry"
)

type silent struct{}

func (silent) Ask(_ context.Context, q metrics.Question) (metrics.Answer, error) {
	return metrics.Answer{Window: q.Window}, nil
}

// FuzzPathsAreReadAlike: what the API server is asked about is what metrics/rest answers about, whatever the path, or it
// answers about nothing. Two programs read the path here: a difference would be a way around the roles.
func FuzzPathsAreReadAlike(f *testing.F) {
	const draft = "/apis/traffic.metrics.k8s.io/v1beta1"
	for _, path := range []string{
		draft + "/pods", draft + "/namespaces/a/pods/", draft + "/namespaces/a/pods/p/edges", draft + "/namespaces/a/edges", draft + "/namespaces/edges/pods",
		draft + "/namespaces/a", draft + "/namespaces/status/pods", draft + "/namespaces/a/status", draft + "/nodes/n/edges", draft + "/watch/pods", draft + "/namespaces/a%2fpods/p",
		draft + "/namespaces//pods", "//apis/traffic.metrics.k8s.io/v1beta1/pods", draft + "/namespaces/a/pods/%2e%2e/b", draft + "/p%6fds", draft + "/proxy/namespaces/a/pods/p",
		"/apis/metrics.smi-spec.io/v1alpha1/namespaces/a/jobs/j/edges/",
		draft + "/namespaces/a/pods/p/tap", draft + "/watch/namespaces/a/pods/p/tap", draft + "/watch/namespaces/a/tap", draft + "/namespaces/a/tap", draft + "/watch/watch/namespaces/a/tap",
		draft + "/watch/nodes/n/tap", draft + "/watch/namespaces/a/pods/p/edges", draft + "/watch/namespaces/a", draft + "/namespaces/tap/pods/p/tap", draft + "/watch/namespaces/tap/tap",
	} {
		for _, query := range []string{"", "watch=0", "fieldSelector=metadata.name%3Dx", "labelSelector=a", "kind=pods", "fieldSelector=&fieldSelector=metadata.name=x"} {
			f.Add(path, query)
		}
	}
	index := metrics.NewIndex(&resource.Set{Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}, {ObjectMeta: metav1.ObjectMeta{Name: "edges"}}}})
	tapped := false
	h := &rest.Handler{Index: func() *metrics.Index { return index }, Store: silent{}, Tap: func(w http.ResponseWriter, r *http.Request, _ telemetry.TapQuery, of telemetry.TapOf) error {
		tapped = true
		if _, err := of(r.Context()); err != nil {
			return err
		}
		_, err := w.Write([]byte(`{"resource": {"kind": "Namespace"}}`)) // nothing else is there
		return err
	}}
	plurals := map[string]string{}
	for _, r := range api.Resources() {
		plurals[r.Kind] = r.Plural
	}
	f.Fuzz(func(t *testing.T, path, query string) {
		r := httptest.NewRequest("GET", "/", nil)
		u, err := r.URL.Parse("/" + strings.TrimLeft(path, "/"))
		if err != nil || !utf8.ValidString(u.Path) { // no object has such a name, and JSON cannot tell it
			return
		}
		r.URL.Path, r.URL.RawPath, r.URL.RawQuery = u.Path, u.RawPath, query
		what, err := paths.NewRequestInfo(r)
		if err != nil {
			return // refused
		}
		w := httptest.NewRecorder()
		tapped = false
		h.ServeHTTP(w, r)
		var answer struct {
			Kind     string
			Resource corev1.ObjectReference
			Details  metav1.StatusDetails
		}
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatal(err)
		}
		var plural, namespace, name string
		switch {
		case w.Code == 200 && answer.Resource.Kind != "":
			plural, namespace, name = plurals[answer.Resource.Kind], answer.Resource.Namespace, answer.Resource.Name
		case w.Code == 404 && answer.Details.Kind != "":
			plural, name = answer.Details.Kind, answer.Details.Name
			if what.Resource != "namespaces" && what.Resource != "edges" && what.Resource != "tap" {
				namespace = what.Namespace // which is not told
			}
		case w.Code == 200 && what.IsResourceRequest:
			t.Fatalf("%q?%q is about %+v, and answered with %s", path, query, what, w.Body)
		default:
			return
		}
		asked := [3]string{what.Resource, what.Namespace, what.Name}
		if what.Resource == "edges" || what.Resource == "tap" || what.Resource == "namespaces" && what.Name != "" { // of a namespace
			asked = [3]string{"namespaces", "", what.Namespace}
		}
		if tap := what.Resource == "tap" || what.Subresource == "tap"; tap != tapped || what.Verb == "watch" && !tap {
			t.Errorf("%q?%q is about %+v, and answered as a tap: %v", path, query, what, tapped)
		}
		if tapped && w.Code == 200 { // of a namespace that exists
			if what.Resource != "tap" || what.Namespace != "a" && what.Namespace != "edges" || !what.IsResourceRequest {
				t.Errorf("%q?%q is about %+v, and was a tap of a namespace", path, query, what)
			}
			return
		}
		edges := what.Resource == "edges" || what.Subresource == "edges"
		if asked != [3]string{plural, namespace, name} || !what.IsResourceRequest || w.Code == 200 && edges && answer.Kind != "TrafficMetricsList" ||
			w.Code == 200 && !edges && (answer.Kind == "TrafficMetrics") != (name != "") || what.Verb != "get" && what.Verb != "list" && !tapped {
			t.Errorf("%q?%q is about %+v, and answered about %s %s/%s: %.300s", path, query, what, plural, namespace, name, w.Body)
		}
	})
}
