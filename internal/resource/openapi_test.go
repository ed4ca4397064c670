package resource

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/objectmeta"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/test/size"
)

// serverValidators are the API server's own validators of all kinds with definitions, by kind and version.
func serverValidators(t *testing.T, each func(s *schema, server validation.SchemaValidator, of *spec.Schema, name string)) {
	t.Helper()
	for _, k := range everything {
		if !k.Custom() {
			continue
		}
		text, err := k.Definition.Text()
		if err != nil {
			t.Fatal(err)
		}
		var crd apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &crd); err != nil {
			t.Fatal(err)
		}
		for _, v := range crd.Spec.Versions {
			if !slices.Contains(k.Versions, v.Name) {
				continue
			}
			props := &apiextensions.JSONSchemaProps{}
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, props, nil); err != nil {
				t.Fatal(err)
			}
			tolerateMirrors(props)
			server, of, err := validation.NewSchemaValidator(props)
			if err != nil {
				t.Fatal(err)
			}
			each(schemaOf(k, v.Name), server, of, k.Name+"/"+v.Name)
		}
	}
}

// TestSchemasAreTheAPIServers compares what validators are made of, but for the rules in CEL, which they pass over.
func TestSchemasAreTheAPIServers(t *testing.T) {
	text := func(s *spec.Schema) string {
		withoutRules(s)
		data, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	serverValidators(t, func(s *schema, _ validation.SchemaValidator, of *spec.Schema, name string) {
		got, want := text(openAPIOf(s.structural)), text(of)
		if got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	})
}

func withoutRules(s *spec.Schema) {
	if s == nil {
		return
	}
	delete(s.Extensions, "x-kubernetes-validations")
	for _, all := range [][]spec.Schema{s.AllOf, s.AnyOf, s.OneOf} {
		for i := range all {
			withoutRules(&all[i])
		}
	}
	for name, p := range s.Properties {
		withoutRules(&p)
		s.Properties[name] = p
	}
	withoutRules(s.Not)
	if s.Items != nil {
		withoutRules(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		withoutRules(s.AdditionalProperties.Schema)
	}
}

// TestSchemasJudgeAsTheAPIServerDoes changes objects at random and compares what is said of them, and what they are completed to, with the API
// server's own code.
func TestSchemasJudgeAsTheAPIServerDoes(t *testing.T) {
	servers := map[*schema]validation.SchemaValidator{}
	serverValidators(t, func(s *schema, server validation.SchemaValidator, _ *spec.Schema, _ string) { servers[s] = server })
	files, err := filepath.Glob("testdata/findings/*")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	many := map[string]any{}
	for i := range 70 {
		many[fmt.Sprintf("k%d", i)] = "v"
	}
	words := append(slices.Clone(words), int64(-1), int64(1<<40), 1.5, "x y", nil, nil, false, []any{nil, int64(1), "a", "a"}, map[string]any{"x": nil},
		strings.Repeat("long", 2000), slices.Repeat([]any{"a"}, 70), many)
	each := size.Of(4, 20)
	good, bad, changed := 0, 0, 0
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range splitFile(content, false) {
			value, _, _ := p.parse()
			u, _ := value.(map[string]any)
			apiVersion, _ := u["apiVersion"].(string)
			kindName, _ := u["kind"].(string)
			named := everything.named(kindName)
			if len(named) == 0 || !named[0].Custom() {
				continue
			}
			k := named[0]
			version := k.Versions[0]
			for _, v := range k.Versions {
				if k.APIVersion(v) == apiVersion {
					version = v
				}
			}
			s := schemaOf(k, version)
			for range each {
				u := runtime.DeepCopyJSON(u)
				mutate(random, u, func() any { return runtime.DeepCopyJSONValue(words[random.IntN(len(words))]) })

				enlarge(random, u)

				mutateMeta(random, u, words)

				ours, theirs := runtime.DeepCopyJSON(u), runtime.DeepCopyJSON(u)
				meta, findings, ok := decodeMeta(ours)
				want, found, unknown, err := objectmeta.GetObjectMetaWithOptions(theirs, objectmeta.ObjectMetaOptions{ReturnUnknownFieldPaths: true})
				if ok != (err == nil) || ok && found && !reflect.DeepEqual(meta, want) || ok && len(findings) != len(unknown) {
					t.Fatalf("%s: metadata %v, %v, %v, want %v, %q, %v", path, meta, findings, ok, want, unknown, err)
				}
				pruneNulls(ours, s.structural)
				defaulting.PruneNonNullableNullsWithoutDefaults(theirs, s.structural)
				if !reflect.DeepEqual(ours, theirs) {
					t.Fatalf("%s: pruned to\n%v\nwant\n%v", path, ours, theirs)
				}
				complete(ours, s.structural)
				defaulting.Default(theirs, s.structural)
				if !reflect.DeepEqual(ours, theirs) {
					t.Fatalf("%s: completed to\n%v\nwant\n%v", path, ours, theirs)
				}
				if !reflect.DeepEqual(ours, u) {
					changed++
				}
				said, wanted := errorTexts(s.openapi.validate(ours)), errorTexts(validation.ValidateCustomResource(nil, theirs, servers[s]))
				if !slices.Equal(said, wanted) {
					t.Fatalf("%s: said\n%q\nwant\n%q", path, said, wanted)
				}
				if len(said) == 0 {
					good++
				} else {
					bad++
				}
			}
		}
	}
	if min(good, bad, changed) < 10*each {
		t.Errorf("%d good, %d bad and %d incomplete objects prove little", good, bad, changed)
	}
}

// mutateMeta sets one field of the metadata now and then.
func mutateMeta(random *rand.Rand, u map[string]any, words []any) {
	meta, ok := u["metadata"].(map[string]any)
	if !ok || random.IntN(3) > 0 {
		return
	}
	names := []string{"name", "namespace", "labels", "annotations", "finalizers", "generation", "creationTimestamp", "lables", "ownerReferences"}
	meta[names[random.IntN(len(names))]] = runtime.DeepCopyJSONValue(words[random.IntN(len(words))])
}

// enlarge makes one list too long now and then. Not more: the library compares all errors with each other.
func enlarge(random *rand.Rand, u map[string]any) bool {
	for name, v := range u {
		switch v := v.(type) {
		case map[string]any:
			if enlarge(random, v) {
				return true
			}
		case []any:
			if len(v) == 0 {
				continue
			}
			if random.IntN(30) == 0 {
				u[name] = runtime.DeepCopyJSONValue(slices.Repeat(v[:1], 70))
				return true
			}
			if m, ok := v[0].(map[string]any); ok && enlarge(random, m) {
				return true
			}
		}
	}
	return false
}

// errorTexts are the errors with all that they say, in order: a validator walks maps.
func errorTexts[E error](errs []E) []string {
	texts := map[string]int{}
	for _, err := range errs {
		texts[fmt.Sprintf("%+v", err)]++
	}
	var all []string
	for _, text := range slices.Sorted(maps.Keys(texts)) {
		all = append(all, fmt.Sprintf("%d of %s", texts[text], text))
	}
	return all
}
