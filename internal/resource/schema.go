package resource

import (
	"fmt"
	"io/fs"
	"reflect"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"
)

// schema is what an API server makes of one version of a custom resource definition.
type schema struct {
	structural *structuralschema.Structural
	openapi    *openapi
	// rules says which of the rules that compare fields do not hold; nil if there are none, or this program does not check them.
	rules func(u map[string]any) field.ErrorList
}

// rulesOf is what CheckRules was given; chosen says that it was called.
var (
	rulesOf func(*structuralschema.Structural) func(u map[string]any) field.ErrorList
	chosen  bool
)

// CheckRules says how the rules of schemas that compare fields (x-kubernetes-validations) are checked: by rules.Compile, or not at all, if compile
// is nil. compile returns nil for a schema without rules. Every program that reads objects with definitions calls it once, before it reads any.
func CheckRules(compile func(*structuralschema.Structural) func(u map[string]any) field.ErrorList) {
	rulesOf, chosen = compile, true
}

// ChecksRules says whether this program checks them.
func ChecksRules() bool { return rulesOf != nil }

// schemaOf returns the compiled schema of a version of a kind that has a definition. The definitions are part of the binary, so one that
// does not compile is a defect of the build and panics; a test compiles them all.
func schemaOf(k *Kind, version string) *schema {
	k.once.Do(func() {
		var err error
		if k.schemas, err = k.Definition.compile(); err != nil {
			panic(fmt.Sprintf("definition %s of %s: %v", k.Definition.Name, k.Name, err))
		}
	})
	return k.schemas[version]
}

// Text is the definition, as YAML.
func (d Definition) Text() ([]byte, error) { return fs.ReadFile(d.Files, d.Name) }

// compile returns the schemas by version.
func (d Definition) compile() (map[string]*schema, error) {
	text, err := d.Text()
	if err != nil {
		return nil, err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return nil, err
	}
	schemas := make(map[string]*schema)
	for i, v := range crd.Spec.Versions {
		// Most versions differ in their descriptions at most: compile each different schema once.
		for _, other := range crd.Spec.Versions[:i] {
			if reflect.DeepEqual(other.Schema, v.Schema) {
				schemas[v.Name] = schemas[other.Name]
			}
		}
		if schemas[v.Name] != nil {
			continue
		}
		if schemas[v.Name], err = compileSchema(v.Schema.OpenAPIV3Schema); err != nil {
			return nil, fmt.Errorf("version %s: %w", v.Name, err)
		}
	}
	return schemas, nil
}

func compileSchema(v1 *apiextensionsv1.JSONSchemaProps) (*schema, error) {
	props := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v1, props, nil); err != nil {
		return nil, err
	}
	tolerateMirrors(props)
	structural, err := structuralschema.NewStructural(props)
	if err != nil {
		return nil, err
	}
	if !chosen {
		panic("resource: call CheckRules before objects are read")
	}
	out := &schema{structural: structural, openapi: newOpenAPI(structural)}
	if rulesOf != nil {
		out.rules = rulesOf(structural)
	}
	return out, nil
}
