package aggregated

import (
	"fmt"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/request"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/dialect/roles"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/metrics/rest"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// TestRolesAreJudgedByWhatIsServed: "weir check" has a warning about a rule if and only if the rule permits no request
// that is answered. The requests are those of all shapes that a path can have; what they are called is by the API server's
// own code, and whether a rule matches them by its rules.
func TestRolesAreJudgedByWhatIsServed(t *testing.T) {
	set := &resource.Set{Namespaces: []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "a"}}}}
	index := metrics.NewIndex(set)
	h := &rest.Handler{Index: func() *metrics.Index { return index }, Store: silent{}}
	const root = "/apis/traffic.metrics.k8s.io/v1beta1"
	entries := []string{"*", "*/edges", "*/scale", "edges", "edges/edges", "pod", "ingresses", "a"}
	plurals := []string{"edges", "pod"}
	for _, r := range api.Resources() {
		entries = append(entries, r.Plural, r.Plural+"/edges", r.Plural+"/status")
		plurals = append(plurals, r.Plural)
	}
	var answered []*request.RequestInfo
	for _, plural := range plurals {
		for _, namespace := range []string{"", "/namespaces/a"} {
			for _, rest := range []string{"", "/a", "/a/edges", "/edges", "/a/status"} {
				for _, query := range []string{"", "?watch=true", "?fieldSelector=metadata.name%3Da"} {
					r := httptest.NewRequest("GET", root+namespace+"/"+plural+rest+query, nil)
					info, err := paths.NewRequestInfo(r)
					if err != nil {
						continue
					}
					w := httptest.NewRecorder()
					h.ServeHTTP(w, r)
					// An object that there is none of is answered, too: the path is one of those that are served.
					if strings.Contains(w.Body.String(), "could not find the requested resource") || w.Code != 200 && w.Code != 404 {
						continue
					}
					answered = append(answered, info)
				}
			}
		}
	}
	if len(answered) < 40 {
		t.Fatalf("only %d requests are answered", len(answered))
	}
	permitted := func(rule rbacv1.PolicyRule, namespaced bool) bool {
		return slices.ContainsFunc(answered, func(r *request.RequestInfo) bool {
			of := r.Resource
			if r.Subresource != "" {
				of += "/" + r.Subresource
			}
			return (!namespaced || r.Namespace != "") &&
				(slices.Contains(rule.Verbs, "*") || slices.Contains(rule.Verbs, r.Verb)) &&
				(slices.Contains(rule.Resources, "*") || slices.Contains(rule.Resources, of) || r.Subresource != "" && slices.Contains(rule.Resources, "*/"+r.Subresource)) &&
				(len(rule.ResourceNames) == 0 || slices.Contains(rule.ResourceNames, r.Name))
		})
	}
	n := map[bool]int{}
	for _, entry := range entries {
		for _, verbs := range [][]string{{"*"}, {"get"}, {"list"}, {"watch"}, {"get", "list"}, {"create", "list"}, {"get", "watch"}} {
			for _, names := range [][]string{nil, {"a"}} {
				for _, ref := range []model.Ref{{Kind: "Role", Namespace: "a", Name: "x"}, {Kind: "ClusterRole", Name: "x"}} {
					rule := rbacv1.PolicyRule{APIGroups: []string{"traffic.metrics.k8s.io"}, Resources: []string{entry}, Verbs: verbs, ResourceNames: names}
					var told []string
					for _, f := range roles.Judge(ref, []rbacv1.PolicyRule{rule}) {
						if f.Severity == resource.Warning {
							told = append(told, f.String())
						}
					}
					want := permitted(rule, ref.Namespace != "")
					if n[want]++; want != (len(told) == 0) {
						t.Errorf("%s %s: permits something %v, and is told %q", ref.Kind, fmt.Sprint(rule), want, told)
					}
				}
			}
		}
	}
	if n[true] < 100 || n[false] < 100 {
		t.Errorf("%v: one of the two is hardly tried", n)
	}
}
