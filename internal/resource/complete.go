package resource

import (
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"
)

// What follows does as apiextensions-apiserver, pkg/apiserver/schema/defaulting, which cannot be had without CEL; a test holds it to that.

// complete fills the defaults of a schema in where a value is absent or null.
func complete(value any, s *structuralschema.Structural) {
	if s == nil {
		return
	}
	switch value := value.(type) {
	case map[string]any:
		for name, p := range s.Properties {
			if p.Default.Object == nil {
				continue
			}
			if v, found := value[name]; !found || isWrongNull(v, &p) {
				value[name] = runtime.DeepCopyJSONValue(p.Default.Object)
			}
		}
		for name, v := range value {
			if p, found := s.Properties[name]; found {
				complete(v, &p)
			} else if s.AdditionalProperties != nil {
				value[name] = completed(v, s.AdditionalProperties.Structural)
			}
		}
	case []any:
		for i, v := range value {
			value[i] = completed(v, s.Items)
		}
	}
}

// completed is a value with the defaults of its schema, or the schema's own default in place of null.
func completed(value any, s *structuralschema.Structural) any {
	if isWrongNull(value, s) {
		value = runtime.DeepCopyJSONValue(s.Default.Object)
	}
	complete(value, s)
	return value
}

// pruneNulls drops the fields that are null though their schema does not allow it, and for which it has no default.
func pruneNulls(value any, s *structuralschema.Structural) {
	switch value := value.(type) {
	case map[string]any:
		for name, v := range value {
			of := fieldSchema(s, name)
			if isWrongNull(v, of) && of.Default.Object == nil {
				delete(value, name)
				continue
			}
			pruneNulls(v, of)
		}
	case []any:
		var items *structuralschema.Structural
		if s != nil {
			items = s.Items
		}
		for _, v := range value {
			pruneNulls(v, items)
		}
	}
}

// isWrongNull says that a value is null where its schema does not allow that. A nil schema allows it.
func isWrongNull(value any, s *structuralschema.Structural) bool {
	return value == nil && s != nil && !s.Nullable
}

// fieldSchema is the schema of a field of an object; nil if there is none.
func fieldSchema(s *structuralschema.Structural, name string) *structuralschema.Structural {
	if s == nil {
		return nil
	}
	if p, found := s.Properties[name]; found {
		return &p
	}
	if s.AdditionalProperties != nil {
		return s.AdditionalProperties.Structural
	}
	return nil
}
