package resource

import (
	"fmt"
	"io/fs"
	"reflect"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// schema is what an API server makes of one version of a custom resource definition.
type schema struct {
	structural *structuralschema.Structural
	openapi    validation.SchemaValidator
	rules      *rules
	// judge is the API server's own validator of the rules, for objects of which not all hold.
	judge func() *cel.Validator
}

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
	openapi, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return nil, err
	}
	return &schema{
		structural: structural,
		openapi:    openapi,
		rules:      newRules(structural),
		judge:      sync.OnceValue(func() *cel.Validator { return cel.NewValidator(structural, true, celconfig.PerCallLimit) }),
	}, nil
}
