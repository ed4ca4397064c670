package resource

import (
	"embed"
	"fmt"
	"reflect"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"

	ownCRDs "github.com/weirmesh/weir/deploy/crds"
)

//go:embed crds/*.yaml
var crds embed.FS

// schema is the compiled form of one version of a custom resource definition, as in an API server.
type schema struct {
	structural *structuralschema.Structural
	openapi    validation.SchemaValidator
	rules      *rules
	// judge returns the API server's own validator of the rules, for objects for which not all rules hold.
	judge func() *cel.Validator
}

// definition compiles the schemas of one embedded definition when they are first asked for.
type definition struct {
	name    string
	once    sync.Once
	schemas map[string]*schema // by version
}

var definitions sync.Map // of *definition, by name

// schemaOf returns the compiled schema of a kind that has a definition. The definitions are part of the binary, so one
// that does not compile is a defect of the build and panics; a test compiles them all.
func schemaOf(k *kind, version string) *schema {
	v, _ := definitions.LoadOrStore(k.crd, &definition{name: k.crd})
	d := v.(*definition)
	d.once.Do(func() {
		if err := d.compile(); err != nil {
			panic(fmt.Sprintf("embedded definition %s: %v", d.name, err))
		}
	})
	return d.schemas[version]
}

func (d *definition) compile() error {
	text, err := crds.ReadFile("crds/" + d.name + ".yaml")
	if err != nil {
		if text, err = ownCRDs.Files.ReadFile(d.name + ".yaml"); err != nil {
			return err
		}
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return err
	}
	d.schemas = make(map[string]*schema)
	for i, v := range crd.Spec.Versions {
		// Most versions differ in their descriptions at most: compile each different schema once.
		for _, other := range crd.Spec.Versions[:i] {
			if reflect.DeepEqual(other.Schema, v.Schema) {
				d.schemas[v.Name] = d.schemas[other.Name]
			}
		}
		if d.schemas[v.Name] != nil {
			continue
		}
		if d.schemas[v.Name], err = compileSchema(v.Schema.OpenAPIV3Schema); err != nil {
			return fmt.Errorf("version %s: %w", v.Name, err)
		}
	}
	return nil
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
