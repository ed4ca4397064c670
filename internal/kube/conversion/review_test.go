package conversion

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/weirmesh/weir/api/convert"
	"github.com/weirmesh/weir/api/specs"
	"github.com/weirmesh/weir/api/split"
)

var kinds = slices.Concat(split.Kinds(), specs.Kinds())

func body(version string, objects ...string) string {
	return fmt.Sprintf(`{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{"uid":"u-1","desiredAPIVersion":%q,"objects":[%s]}}`, version, strings.Join(objects, ","))
}

func object1(version, weight string) string {
	return fmt.Sprintf(`{"apiVersion":"split.smi-spec.io/%s","kind":"TrafficSplit","metadata":{"namespace":"ns","name":"o","uid":"2"},"spec":{"service":"root","backends":[{"service":"a","weight":%s}]}}`, version, weight)
}

func TestReviewConvertsEachObjectInOrder(t *testing.T) {
	out, err := Review(kinds, []byte(body("split.smi-spec.io/v1alpha4", object1("v1alpha1", `"1"`), object1("v1alpha3", "2"), object1("v1alpha4", "3"))))
	if err != nil {
		t.Fatal(err)
	}
	r := out.Response
	if r.UID != "u-1" || r.Result.Status != "Success" || len(r.ConvertedObjects) != 3 || out.APIVersion != "apiextensions.k8s.io/v1" || out.Kind != "ConversionReview" {
		t.Fatalf("got %+v", out)
	}
	for i, o := range r.ConvertedObjects {
		var u struct {
			APIVersion string
			Spec       struct{ Backends []struct{ Weight int } }
		}
		if err := json.Unmarshal(o.Raw, &u); err != nil || u.APIVersion != "split.smi-spec.io/v1alpha4" || u.Spec.Backends[0].Weight != i+1 {
			t.Errorf("object %d: %s, %v", i, o.Raw, err)
		}
	}
	if out, err := Review(kinds, []byte(body("split.smi-spec.io/v1alpha4"))); err != nil || out.Response.Result.Status != "Success" || out.Response.ConvertedObjects == nil {
		t.Errorf("no objects: %+v, %v", out, err)
	}
}

func TestReviewNamesTheObjectAndTheFieldThatFail(t *testing.T) {
	for name, c := range map[string]struct{ body, want string }{
		"field":             {body("split.smi-spec.io/v1alpha4", object1("v1alpha1", `"1"`), object1("v1alpha1", `"x"`)), "object 1: TrafficSplit ns/o to v1alpha4: spec.backends[0].weight: Invalid value"},
		"version to":        {body("split.smi-spec.io/v2", object1("v1alpha1", `"1"`)), `TrafficSplit ns/o to v2: apiVersion: TrafficSplit has no version "v2"; its versions are v1alpha4, v1alpha1`},
		"version from":      {body("split.smi-spec.io/v1alpha4", object1("v9", `"1"`)), `no version "v9"`},
		"group":             {body("specs.smi-spec.io/v1alpha4", object1("v1alpha1", `"1"`)), "TrafficSplit of specs.smi-spec.io: no conversion"},
		"kind":              {body("split.smi-spec.io/v1alpha4", `{"kind":"Other"}`), "no conversion for this kind"},
		"no object":         {body("split.smi-spec.io/v1alpha4", `1`), "object 0: json:"},
		"null":              {body("split.smi-spec.io/v1alpha4", `null`), "no conversion for this kind"},
		"long":              {body("split.smi-spec.io/v1alpha4", object1("v1alpha1", `"`+strings.Repeat("x", 10000)+`"`)), "spec.backends[0].weight"},
		"long name of kind": {body("split.smi-spec.io/v1alpha4", `{"kind":"`+strings.Repeat("ü", 10000)+`"}`), "..."},
	} {
		out, err := Review(kinds, []byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r := out.Response
		if r.Result.Status != "Failure" || !strings.Contains(r.Result.Message, c.want) || len(r.Result.Message) > maxMessage+10 || len(r.ConvertedObjects) != 0 || r.UID != "u-1" {
			t.Errorf("%s: got %.300v, want %q", name, r, c.want)
		}
	}
	for name, text := range map[string]string{
		"nothing": "", "no JSON": "x", "no request": `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview"}`, "v1beta1": `{"apiVersion":"apiextensions.k8s.io/v1beta1","kind":"ConversionReview","request":{}}`,
		"no version": body("v1alpha4"), "no list": strings.Replace(body("split.smi-spec.io/v1alpha4"), "[]", "{}", 1),
	} {
		if out, err := Review(kinds, []byte(text)); err == nil {
			t.Errorf("%s: %+v", name, out)
		}
	}
}

// TestReviewKnowsNoKind converts an invented kind.
func TestReviewKnowsNoKind(t *testing.T) {
	made := convert.Kind{Group: "example.com", Name: "Thing", Plural: "things", Hub: "v2", Versions: map[string]convert.Version{
		"v1": {Up: func(u map[string]any) error { u["new"] = u["old"]; delete(u, "old"); return nil }, Down: func(u map[string]any) { u["old"] = u["new"]; delete(u, "new") }},
	}}
	out, err := Review([]convert.Kind{made}, []byte(body("example.com/v1", `{"apiVersion":"example.com/v2","kind":"Thing","metadata":{"name":"a"},"new":7}`)))
	if err != nil || string(out.Response.ConvertedObjects[0].Raw) != `{"apiVersion":"example.com/v1","kind":"Thing","metadata":{"name":"a"},"old":7}` {
		t.Errorf("got %+v, %v", out, err)
	}
}

// FuzzReview looks for a body that ends the process, and for answers that an API server does not take.
func FuzzReview(f *testing.F) {
	for _, v := range []string{"v1alpha1", "v1alpha2", "v1alpha4", "v1beta1"} {
		f.Add(body("split.smi-spec.io/"+v, object1("v1alpha1", `"500m"`), object1("v1alpha4", "1")))
	}
	f.Add(body("specs.smi-spec.io/v1alpha1", `{"apiVersion":"specs.smi-spec.io/v1alpha4","kind":"HTTPRouteGroup","metadata":{"name":"a","annotations":{"specs.smi-spec.io/matches":"[]"}},"spec":{"matches":[{"name":"a","headers":{"a":"b"}}]}}`))
	f.Add(body("specs.smi-spec.io/v1alpha4", `{"apiVersion":"specs.smi-spec.io/v1alpha1","kind":"TCPRoute","metadata":{"name":"a","annotations":{"specs.smi-spec.io/matches":"{\"matches\":{}}"}}}`))
	f.Add(body("split.smi-spec.io/v1alpha4", `{"apiVersion":"split.smi-spec.io/v1alpha1","kind":"TrafficSplit","metadata":7,"spec":{"backends":[{"weight":"1e2147483647"},[],null]}}`))
	f.Fuzz(func(t *testing.T, text string) {
		out, err := Review(kinds, []byte(text))
		if err != nil {
			return
		}
		answer, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		var in, again apiextensionsv1.ConversionReview
		if json.Unmarshal([]byte(text), &in) != nil || json.Unmarshal(answer, &again) != nil {
			t.Fatalf("%s is not read", answer)
		}
		if ok := again.Response.Result.Status == "Success"; again.Response.UID != in.Request.UID || ok && len(again.Response.ConvertedObjects) != len(in.Request.Objects) {
			t.Fatalf("%s is no answer to %s", answer, text)
		}
		for _, o := range again.Response.ConvertedObjects {
			var u struct{ APIVersion string }
			if json.Unmarshal(o.Raw, &u) != nil || u.APIVersion != in.Request.DesiredAPIVersion {
				t.Fatalf("%s is not of %s", o.Raw, in.Request.DesiredAPIVersion)
			}
		}
	})
}

// TestWorstReviewsCostBoundedMemory sends the bodies that take most memory when they are decoded, an eighth as large as
// allowed. It counts all allocations, even freed ones: the largest body takes 256 MiB, about half of it at the same
// time.
func TestWorstReviewsCostBoundedMemory(t *testing.T) {
	const largest = (3<<20 + 64<<10) / 8 // kube/webhook bounds them
	fill := func(item string) string {
		n := (largest - 600) / (len(item) + 1)
		return strings.TrimSuffix(strings.Repeat(item+",", n), ",")
	}
	inside := func(item string) string {
		return body("split.smi-spec.io/v1alpha4", `{"apiVersion":"split.smi-spec.io/v1alpha1","kind":"TrafficSplit","metadata":{"name":"o"},"junk":[`+fill(item)+`],"spec":{"backends":[]}}`)
	}
	for name, text := range map[string]string{
		"objects of one": inside(`{"":{}}`),
		"deep":           inside(strings.Repeat(`[`, 1000) + strings.Repeat(`]`, 1000)), "many": body("split.smi-spec.io/v1alpha4", fill("0")),
		"backends": body("split.smi-spec.io/v1alpha4", `{"apiVersion":"split.smi-spec.io/v1alpha1","kind":"TrafficSplit","metadata":{"name":"o"},"spec":{"backends":[`+fill(`{"weight":1}`)+`]}}`),
	} {
		if len(text) > largest {
			t.Fatalf("%s: %d bytes", name, len(text))
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _ = Review(kinds, []byte(text))
		runtime.ReadMemStats(&after)
		mib := (after.TotalAlloc - before.TotalAlloc) >> 20
		t.Logf("%s: %d MiB", name, mib)
		if mib > 256/8 {
			t.Errorf("%s: %d MiB", name, mib)
		}
	}
}
