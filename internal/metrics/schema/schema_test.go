package schema

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	openapiv3 "github.com/google/gnostic-models/openapiv3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"

	api "github.com/weirmesh/weir/api/metrics"
)

func get(method, path, etag string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r := httptest.NewRequest(method, path, nil)
	if etag != "" {
		r.Header.Set("If-None-Match", etag)
	}
	ServeHTTP(w, r)
	return w
}

// TestDocuments are read by the libraries that API servers and kubectl read them with, and say nothing that these do not know:
// the first one writes protobuf, and takes no word that is not of the document's version.
func TestDocuments(t *testing.T) {
	w := get("GET", "/openapi/v2", "")
	if _, err := openapiv2.ParseDocument(w.Body.Bytes()); err != nil {
		t.Error(err)
	}
	var swagger spec.Swagger
	if err := json.Unmarshal(w.Body.Bytes(), &swagger); err != nil || len(swagger.Definitions) != 2 || w.Header().Get("Content-Type") != "application/json" {
		t.Fatalf("%v, %v", err, w.Header())
	}
	var root struct {
		Paths map[string]struct{ ServerRelativeURL string }
	}
	if err := json.Unmarshal(get("GET", "/openapi/v3", "").Body.Bytes(), &root); err != nil || len(root.Paths) != 3 {
		t.Fatal(err, root)
	}
	operations := map[string]bool{}
	paths := 0
	for gv, at := range root.Paths {
		var document spec3.OpenAPI
		text := get("GET", at.ServerRelativeURL, "").Body.Bytes()
		if _, err := openapiv3.ParseDocument(text); err != nil {
			t.Error(err)
		}
		if err := json.Unmarshal(text, &document); err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, s := range document.Components.Schemas {
			kinds = append(kinds, fmt.Sprint(s.Extensions["x-kubernetes-group-version-kind"]))
		}
		group, version, _ := strings.Cut(strings.TrimPrefix(gv, "apis/"), "/")
		slices.Sort(kinds)
		if want := fmt.Sprintf("[[map[group:%s kind:TrafficMetrics version:%s]] [map[group:%s kind:TrafficMetricsList version:%s]]]", group, version, group, version); fmt.Sprint(kinds) != want {
			t.Errorf("%s has the schemas of %v, want %s", gv, kinds, want)
		}
		for path, p := range document.Paths.Paths {
			paths++
			second, ok := swagger.Paths.Paths[path]
			if !ok || second.Get == nil || p.Get == nil || operations[p.Get.OperationId] || p.Get.OperationId != second.Get.ID || len(p.Get.Parameters) != len(second.Get.Parameters) {
				t.Fatalf("%s: %+v, %+v", path, p.Get, second.Get)
			}
			operations[p.Get.OperationId] = true
			ref := p.Get.Responses.StatusCodeResponses[200].Content["application/json"].Schema.Ref.String()
			if document.Components.Schemas[strings.TrimPrefix(ref, third.refs)] == nil {
				t.Errorf("%s answers with %s", path, ref)
			}
		}
	}
	if paths != 3*(8*4+2*3) || paths != len(swagger.Paths.Paths) {
		t.Errorf("%d paths in version 3, %d in version 2", paths, len(swagger.Paths.Paths))
	}
}

func TestDocumentsAreNotSentTwice(t *testing.T) {
	for _, path := range []string{"/openapi/v2", "/openapi/v3", "/openapi/v3/apis/metrics.smi-spec.io/v1alpha1"} {
		if w := get("GET", path, get("GET", path, "").Header().Get("Etag")); w.Code != http.StatusNotModified || w.Body.Len() > 0 {
			t.Errorf("%s again: %d", path, w.Code)
		}
	}
	for path, code := range map[string]int{"/openapi": 404, "/openapi/v3/apis/apps/v1": 404, "/openapi/v3/": 404} {
		if w := get("GET", path, ""); w.Code != code {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	if w := get("POST", "/openapi/v2", ""); w.Code != 405 {
		t.Errorf("POST: %d", w.Code)
	}
}

// TestObjectsAreAsDescribed: what the types of the API write has no field that the schema lacks, and is valid by it.
func TestObjectsAreAsDescribed(t *testing.T) {
	pod := corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "a", Name: "b"}
	item := api.New(pod, api.From, &pod, time.Unix(1, 0), time.Minute, api.Measured{Success: 1, P50: 1, P90: 2, P99: 3})
	objects := api.NewList(pod, &metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, []api.TrafficMetrics{item})
	released := objects.Released()
	whole := api.New(pod, api.From, nil, time.Unix(1, 0), time.Minute, api.Measured{}).Released()
	for name, o := range map[string]any{one: item, list: objects, list + " as released": released, one + " of nobody in particular": whole} {
		name, _, _ = strings.Cut(name, " ")
		b, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		var value any
		if err := json.Unmarshal(b, &value); err != nil {
			t.Fatal(err)
		}
		known(t, name, value, second.schemas(groups...)[name].(object))
		var s spec.Schema
		all := second.schemas(groups...)
		b, err = json.Marshal(all[name])
		if err != nil {
			t.Fatal(err)
		}
		b = []byte(strings.ReplaceAll(string(b), `{"$ref":"`+second.refs+one+`"}`, string(mustJSON(t, all[one]))))
		if err := json.Unmarshal(b, &s); err != nil {
			t.Fatal(err)
		}
		if r := validate.NewSchemaValidator(&s, nil, "", strfmt.Default).Validate(value); !r.IsValid() {
			t.Errorf("%s: %v", name, r.Errors)
		}
	}
}

func mustJSON(t *testing.T, o any) []byte {
	t.Helper()
	b, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// known checks that a schema has all fields of a value, where it names any.
func known(t *testing.T, at string, value any, schema object) {
	t.Helper()
	switch v := value.(type) {
	case map[string]any:
		properties, ok := schema["properties"].(object)
		if !ok {
			return
		}
		for field, inner := range v {
			s, ok := properties[field].(object)
			if !ok {
				t.Errorf("%s.%s is not described: %v", at, field, reflect.TypeOf(inner))
				continue
			}
			known(t, at+"."+field, inner, s)
		}
	case []any:
		items := schema["items"].(object)
		if items["$ref"] != nil {
			items = second.schemas(groups...)[one].(object)
		}
		for _, inner := range v {
			known(t, at+"[]", inner, items)
		}
	}
}
