package resource

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// custom decodes an object of a custom resource definition as an API server does on create: metadata, pruning of
// unknown fields, defaults; then validation of metadata, schema, list types and rules (apiextensions-apiserver,
// customresource_handler.go schemaCoercingDecoder, and registry/customresource strategy.go Validate).
func custom[T any](k *Kind, version string, u map[string]any, admit admission) (any, []Finding) {
	findings, ok := admit(k, version, u)
	if !ok {
		return nil, findings
	}
	u["apiVersion"] = k.APIVersion(k.Versions[0])
	object := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u, object); err != nil {
		return nil, append(findings, finding(CodeType, "", err.Error()))
	}
	return object, findings
}

// admit prunes, completes and validates u as custom says; it is not ok when u is not valid.
func admit(k *Kind, version string, u map[string]any) (findings []Finding, ok bool) {
	s := schemaOf(k, version)
	meta, findings, ok := decodeMeta(u)
	if !ok {
		return findings, false
	}
	if k.Strict {
		if strict := strictFields(k, s.structural, u); len(strict) > 0 {
			return append(findings, strict...), false
		}
	}
	for i, path := range pruning.PruneWithOptions(u, s.structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
		if i > maxFindings {
			break // bounded adds a finding that there are more
		}
		findings = append(findings, unknownInVersion(k, version, path))
	}
	misspelt := k.Bundled && slices.ContainsFunc(findings, misread)
	pruneNulls(u, s.structural)
	metadata, err := runtime.DefaultUnstructuredConverter.ToUnstructured(meta)
	if err != nil {
		return append(findings, finding(CodeMetadata, "metadata", err.Error())), false
	}
	u["metadata"] = metadata
	findings = append(findings, checkMirrors(u)...)
	complete(u, s.structural)
	delete(u, "status") // as on create, for kinds with a status subresource

	errs := s.validate(u, meta, !k.Cluster)
	valid := len(errs) == 0 && !misspelt
	findings = slices.DeleteFunc(findings, func(f Finding) bool { // the schema's finding is sufficient for a share that is not a number of its type
		return f.Severity == Error && f.Meant == "" && slices.ContainsFunc(errs, func(e Finding) bool { return e.Ref.Field == f.Ref.Field })
	})
	findings = together(findings, specific(errs, u))
	if !valid {
		findings = withRoute(findings)
	}
	return findings, valid
}

// decodeMeta reads the metadata strictly, as apiextensions-apiserver, pkg/apiserver/schema/objectmeta, which cannot be had without the API server's
// feature gates and their metrics. It is not ok when malformed.
func decodeMeta(u map[string]any) (meta *metav1.ObjectMeta, findings []Finding, ok bool) {
	meta = &metav1.ObjectMeta{}
	metadata, found := u["metadata"]
	if !found {
		return meta, nil, true
	}
	text, err := json.Marshal(metadata)
	if err != nil {
		return nil, []Finding{metadataFinding(err, u)}, false
	}
	unknown, err := kjson.UnmarshalStrict(text, meta)
	if err != nil {
		return nil, []Finding{metadataFinding(err, u)}, false
	}
	for _, err := range unknown {
		if f, ok := err.(kjson.FieldError); ok {
			findings = append(findings, unknownField(nil, "metadata."+f.FieldPath(), typeFields[metav1.ObjectMeta](f.FieldPath())))
		}
	}
	return meta, findings, true
}

func (s *schema) validate(u map[string]any, meta *metav1.ObjectMeta, namespaced bool) []Finding {
	metaErrs := validation.ValidateObjectMetaAccessor(meta, namespaced, validation.NameIsDNSSubdomain, field.NewPath("metadata"))
	schemaErrs := s.openapi.validate(u)
	listErrs := listtype.ValidateListSetsAndMaps(nil, s.structural, u)

	var findings []Finding
	for _, err := range metaErrs {
		findings = append(findings, fieldFinding(CodeMetadata, err, u))
	}
	for _, err := range formatsLast(schemaErrs) {
		findings = append(findings, schemaFinding(err, u))
	}
	for _, err := range listErrs {
		findings = append(findings, fieldFinding(CodeListType, err, u))
	}
	findings = once(findings)
	if s.rules == nil {
		return findings
	}
	if blocksRules(metaErrs) || blocksRules(schemaErrs) || blocksRules(listErrs) {
		return append(findings, finding(CodeUnchecked, "",
			"the API's rules that compare fields were not checked because of the other errors"))
	}
	for _, err := range s.rules(u) {
		f := fieldFinding(CodeRule, err, u)
		if strings.Contains(err.Detail, "evaluating rule: ") && len(findings) > 0 {
			findings[0].Server += "\n" + f.Server // it could not be judged, because of the earlier findings
			continue
		}
		findings = append(findings, f)
	}
	return findings
}

// blocksRules reports whether the API server skips CEL rules after these errors (strategy.go, hasBlockingErr).
func blocksRules(errs field.ErrorList) bool {
	for _, err := range errs {
		switch err.Type {
		case field.ErrorTypeNotSupported, field.ErrorTypeRequired, field.ErrorTypeTooLong, field.ErrorTypeTooMany, field.ErrorTypeTypeInvalid:
			return true
		}
	}
	return false
}

// formatPath finds the field in the message of a format error, whose path the API server leaves out.
var formatPath = regexp.MustCompile(`^Checked value must be .* in (\S+)$`)

// formatsLast puts errors about formats last. A number that is too large for the format of its field is also above the
// field's maximum, if it has one, which is what its writer should know.
func formatsLast(errs field.ErrorList) field.ErrorList {
	last := func(err *field.Error) int {
		if formatPath.MatchString(err.Detail) {
			return 1
		}
		return 0
	}
	return slices.SortedStableFunc(slices.Values(errs), func(a, b *field.Error) int { return last(a) - last(b) })
}

// lowerMatches reports whether the value would match its pattern in lower case.
func lowerMatches(err *field.Error) bool {
	value, _ := err.BadValue.(string)
	_, pattern, _ := strings.Cut(err.Detail, " in body should match '")
	re, compileErr := regexp.Compile(strings.TrimSuffix(pattern, "'"))
	return compileErr == nil && re.MatchString(strings.ToLower(value))
}

var quoted = regexp.MustCompile(`"([^"]*)"`)

func schemaCode(t field.ErrorType) string {
	switch t {
	case field.ErrorTypeRequired:
		return CodeRequired
	case field.ErrorTypeNotSupported:
		return CodeEnum
	case field.ErrorTypeTypeInvalid:
		return CodeType
	case field.ErrorTypeTooLong, field.ErrorTypeTooMany:
		return CodeTooMany
	}
	return CodeInvalid
}

// misread reports whether a finding is about a field that was to say something, and is not read.
func misread(f Finding) bool { return f.Code == CodeMisspeltField || f.Code == CodeOtherVersion }

// unknownInVersion is unknownField for an object of a version. It also tells of a field that another version has.
func unknownInVersion(k *Kind, version, path string) Finding {
	f := unknownField(k, path, schemaFields(schemaOf(k, version).structural, path))
	switch {
	case !k.Bundled:
		return f
	case f.Code == CodeMisspeltField:
		f.Message = strings.Replace(f.Message, ", it has no effect", "", 1)
		return f
	}
	name := lastName(path)
	for _, other := range k.Versions {
		if other == version || !slices.Contains(schemaFields(schemaOf(k, other).structural, path), name) {
			continue
		}
		f = finding(CodeOtherVersion, path, fmt.Sprintf("%s of version %s has no such field, %s has%s", k.Name, version, other, k.effect(path, name)))
		f.Fix = "write apiVersion: " + k.APIVersion(other)
		return f
	}
	return f
}

// unknownField reports a field that nothing reads; candidates are the fields there are at that place, and those one
// level below as "parent.child". One that is almost a known field is an error: what it was to say is not said.
func unknownField(k *Kind, path string, candidates []string) Finding {
	if k != nil && k.Elsewhere[path] != "" {
		to := k.Elsewhere[path]
		f := finding(CodeUnknownField, path, fmt.Sprintf("unknown field, which is read as %s where that is missing, and which an API server does not take", to))
		f.Fix = "write it as " + to
		return f
	}
	near := nearest(lastName(path), candidates)
	if near == "" {
		return finding(CodeUnknownField, path, "unknown field, it has no effect")
	}
	f := finding(CodeMisspeltField, path, "unknown field, it has no effect"+k.effect(path, near))
	f.Fix, f.Meant = fmt.Sprintf("did you mean %q?", near), near
	return f
}
