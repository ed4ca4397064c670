package workload

import (
	"fmt"
	"math"
	"slices"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// replicasPath is where a definition has to say that the number of pods is.
const replicasPath = ".spec.replicas"

// Unfitting says why no object of a custom kind can be released, as its definition has it in a version; empty if they can. The
// definition is nil if there is none. What a definition leaves open is judged by objects (Lacks).
func (k *Kind) Unfitting(crd *apiextensionsv1.CustomResourceDefinition, version string) string {
	if crd == nil {
		return fmt.Sprintf("There is no definition %s: correct the group or the resource of %s in %s of Weir's chart.", k.Definition(), k.Name, ChartValue)
	}
	if kind := crd.Spec.Names.Kind; kind != k.Name {
		return fmt.Sprintf("The definition %s is of the kind %s: correct the resource of %s in %s of Weir's chart.", k.Definition(), kind, k.Name, ChartValue)
	}
	i := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == version && v.Served })
	if i < 0 {
		return fmt.Sprintf("The definition %s has no version %s that is served: correct spec.workloadRef.apiVersion.", k.Definition(), version)
	}
	v := &crd.Spec.Versions[i]
	var lacks []string
	sub := v.Subresources
	if sub == nil {
		sub = &apiextensionsv1.CustomResourceSubresources{}
	}
	switch {
	case sub.Scale == nil:
		lacks = append(lacks, "the scale subresource (subresources.scale)")
	case sub.Scale.SpecReplicasPath != replicasPath:
		lacks = append(lacks, fmt.Sprintf("its number of pods in %s (subresources.scale.specReplicasPath is %s)", replicasPath[1:], sub.Scale.SpecReplicasPath))
	}
	if sub.Status == nil {
		lacks = append(lacks, "the status subresource (subresources.status)")
	}
	schema := (*apiextensionsv1.JSONSchemaProps)(nil)
	if v.Schema != nil {
		schema = v.Schema.OpenAPIV3Schema
	}
	for _, path := range append([]string{"spec.template"}, statusFields()...) {
		if _, may := property(schema, path); !may {
			lacks = append(lacks, path)
		}
	}
	const path = "spec." + partitionField
	switch p, may := property(schema, path); {
	case !may:
		lacks = append(lacks, path)
	case p == nil:
	case p.Type != "integer" && !p.XIntOrString:
		lacks = append(lacks, path+" as a whole number")
	case p.Maximum != nil && *p.Maximum < math.MaxInt32:
		lacks = append(lacks, fmt.Sprintf("%s without a maximum", path))
	}
	if len(lacks) == 0 {
		return ""
	}
	return fmt.Sprintf("A %s cannot be released step by step, as its definition (%s, version %s) lacks %s: use a version of it that has this, or name another workload.", k.Name, k.Definition(), version, strings.Join(lacks, ", "))
}

func statusFields() (all []string) {
	for _, field := range needed {
		all = append(all, "status."+field)
	}
	return all
}

// property is a schema's of a field. may is false if the API server would not store the field; the schema is nil if it stores
// any value there.
func property(schema *apiextensionsv1.JSONSchemaProps, path string) (p *apiextensionsv1.JSONSchemaProps, may bool) {
	for name := range strings.SplitSeq(path, ".") {
		if schema == nil {
			return nil, false
		}
		next, there := schema.Properties[name]
		switch {
		case there:
			schema = &next
		case schema.XPreserveUnknownFields != nil && *schema.XPreserveUnknownFields, schema.AdditionalProperties != nil:
			return nil, true
		default:
			return nil, false
		}
	}
	return schema, true
}
