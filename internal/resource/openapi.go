package resource

import (
	"encoding/json"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	openapierrors "k8s.io/kube-openapi/pkg/validation/errors"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kube-openapi/pkg/validation/strfmt"
	"k8s.io/kube-openapi/pkg/validation/validate"
)

// openapi validates objects by a schema, without its rules in CEL. Schema and errors are those of apiextensions-apiserver, pkg/apiserver/validation,
// which cannot be had without CEL; a test holds both to it.
type openapi struct {
	validator *validate.SchemaValidator
}

func newOpenAPI(s *structuralschema.Structural) *openapi {
	return &openapi{validate.NewSchemaValidator(openAPIOf(s), nil, "", strfmt.Default)}
}

// openAPIOf is a schema as validators read it.
func openAPIOf(s *structuralschema.Structural) *spec.Schema {
	out := s.ToKubeOpenAPI()
	typeNumbersOrText(s, out)
	return out
}

// typeNumbersOrText gives values that may be numbers or text their types, which only an extension says otherwise.
func typeNumbersOrText(s *structuralschema.Structural, out *spec.Schema) {
	if s.XIntOrString && len(out.Type) == 0 {
		out.Type = spec.StringOrArray{"integer", "string"}
	}
	if s.Items != nil {
		typeNumbersOrText(s.Items, out.Items.Schema)
	}
	if a := s.AdditionalProperties; a != nil && a.Structural != nil {
		typeNumbersOrText(a.Structural, out.AdditionalProperties.Schema)
	}
	for name, p := range s.Properties {
		property := out.Properties[name]
		typeNumbersOrText(&p, &property)
		out.Properties[name] = property
	}
}

// validate says what of an object its schema does not allow.
func (o *openapi) validate(u map[string]any) (all field.ErrorList) {
	for _, err := range o.validator.Validate(u).Errors {
		all = append(all, fieldError(err))
	}
	return all
}

// fieldError is an error of the validator in the words of an API server.
func fieldError(err error) *field.Error {
	v, ok := err.(*openapierrors.Validation)
	if !ok {
		return field.Invalid(nil, "", err.Error())
	}
	var at *field.Path
	if v.Name != "" && v.Name != "." {
		at = at.Child(strings.TrimPrefix(v.Name, "."))
	}
	value := v.Value
	if value == nil {
		value = ""
	}
	switch v.Code() {
	case openapierrors.RequiredFailCode:
		return field.Required(at, "")
	case openapierrors.EnumFailCode:
		values := []string{}
		for _, allowed := range v.Values {
			text, ok := allowed.(string)
			if !ok {
				data, _ := json.Marshal(allowed)
				text = string(data)
			}
			values = append(values, text)
		}
		return field.NotSupported(at, v.Value, values)
	case openapierrors.TooLongFailCode:
		return field.TooLong(at, "", numberOf(v.Valid))
	case openapierrors.MaxItemsFailCode, openapierrors.TooManyPropertiesCode:
		return field.TooMany(at, numberOf(v.Value), numberOf(v.Valid))
	case openapierrors.InvalidTypeCode:
		return field.TypeInvalid(at, value, v.Error())
	}
	return field.Invalid(at, value, v.Error())
}

// numberOf is -1 for what is no number.
func numberOf(v any) int {
	if n, ok := v.(int64); ok {
		return int(n)
	}
	return -1
}
