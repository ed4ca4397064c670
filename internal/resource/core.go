package resource

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
)

// The kinds of Kubernetes itself have no definition to run: their validation is code that no module exports. They are
// decoded strictly, and the parts that matter here are checked as the API server does (k8s.io/kubernetes
// pkg/apis/core/validation).

// maxData is the most a Secret or ConfigMap may hold (corev1.MaxSecretSize).
const maxData = corev1.MaxSecretSize

// coreObject is a pointer to T with metadata.
type coreObject[T any] interface {
	*T
	GetObjectMeta() metav1.Object
}

// core makes the decoder of a kind of Kubernetes; check fills in defaults and validates.
func core[T any, P coreObject[T]](check func(P) field.ErrorList) Decoder {
	return Decoder{decode: func(k *Kind, _ string, u map[string]any, _ admission) (any, []Finding) {
		object, findings := decodeCore[T, P](k, u, check)
		if object == nil {
			return nil, findings
		}
		return object, findings
	}}
}

func decodeCore[T any, P coreObject[T]](k *Kind, u map[string]any, check func(P) field.ErrorList) (P, []Finding) {
	findings := checkBase64(k, u)
	if len(findings) > 0 {
		return nil, findings
	}
	text, err := json.Marshal(u)
	if err != nil {
		return nil, []Finding{finding(CodeCoreType, "", err.Error())}
	}
	object := P(new(T))
	strict, err := kjson.UnmarshalStrict(text, object)
	if err != nil {
		return nil, []Finding{coreTypeFinding(err, u)}
	}
	for _, err := range strict {
		var fe kjson.FieldError
		if errors.As(err, &fe) {
			findings = append(findings, unknownField(k, fe.FieldPath(), typeFields[T](fe.FieldPath())))
		}
	}
	errs := validation.ValidateObjectMetaAccessor(object.GetObjectMeta(), !k.Cluster, nameRule(k), field.NewPath("metadata"))
	var wrong []Finding
	for _, err := range errs {
		wrong = append(wrong, fieldFinding(CodeMetadata, err, u))
	}
	for _, err := range check(object) {
		errs = append(errs, err)
		wrong = append(wrong, fieldFinding(CodeCoreInvalid, err, u))
	}
	findings = together(findings, once(wrong))
	if len(errs) > 0 {
		return nil, findings
	}
	return object, findings
}

// coreTypeFinding names the field and the types, but never the value: it may be a secret.
func coreTypeFinding(err error, u map[string]any) Finding {
	var te *json.UnmarshalTypeError
	if !errors.As(err, &te) {
		return finding(CodeCoreType, "", "the object cannot be decoded: "+err.Error())
	}
	found, _, _ := strings.Cut(te.Value, " ") // the value itself follows a number
	return typed(CodeCoreType, te.Field, found, jsonType(te.Type), u)
}

// typed is the finding that a field has one type of JSON and must have another. The path lacks the indices of lists and the keys of maps.
func typed(code, path, found, wanted string, u map[string]any) Finding {
	if at := ofType(u, splitPath(path), found, ""); at != "" {
		path = at
	}
	is := typeNames[found]
	if found == "bool" {
		is = "a boolean"
	}
	f := finding(code, path, fmt.Sprintf("is %s, but must be %s", is, typeNames[wanted]))
	f.Fix = "write " + typeNames[wanted]
	if wanted == "string" && (found == "number" || found == "bool") {
		f.Fix = "put it in quotes"
	}
	return f
}

// ofType finds the first value of a type at a path without indices, or below it; empty if there is none.
func ofType(value any, path []string, found, at string) string {
	switch v := value.(type) {
	case []any:
		for i, item := range v {
			if in := ofType(item, path, found, fmt.Sprintf("%s[%d]", at, i)); in != "" {
				return in
			}
		}
	case map[string]any:
		if len(path) > 0 {
			return ofType(v[path[0]], path[1:], found, strings.TrimPrefix(at+"."+path[0], "."))
		}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if found != "object" && foundType(v[key]) == found {
				return at + "[" + key + "]"
			}
		}
	}
	if len(path) == 0 && foundType(value) == found {
		return at
	}
	return ""
}

// foundType is how encoding/json calls the type of a value.
func foundType(value any) string {
	switch value.(type) {
	case string:
		return "string"
	case bool:
		return "bool"
	case int64, float64:
		return "number"
	case []any:
		return "array"
	case map[string]any:
		return "object"
	}
	return ""
}

// wrongMeta finds the types in the message of the API server's decoder of metadata.
var wrongMeta = regexp.MustCompile(`cannot unmarshal (\w+).* into Go (?:struct field \w+\.(\S+)|value) of type (\S+)`)

// metadataFinding describes metadata that cannot be decoded.
func metadataFinding(err error, u map[string]any) Finding {
	text := err.Error()
	m := wrongMeta.FindStringSubmatch(text)
	switch {
	case m != nil:
		wanted := "string"
		switch t := m[3]; {
		case strings.HasPrefix(t, "[]"):
			wanted = "array"
		case strings.HasPrefix(t, "int"):
			wanted = "integer"
		case strings.HasPrefix(t, "map[") || strings.HasSuffix(t, "ObjectMeta"):
			wanted = "object"
		case t == "bool":
			wanted = "boolean"
		}
		path := strings.TrimSuffix("metadata."+m[2], ".")
		meta, _ := u["metadata"].(map[string]any)
		if values, ok := meta[m[2]].(map[string]any); ok && wanted == "string" && len(values) > 0 {
			path = "metadata." + m[2]
		}
		f := typed(CodeMetadata, path, m[1], wanted, u)
		f.Server = "metadata: " + text
		return f
	case strings.Contains(text, "parsing time"):
		f := finding(CodeMetadata, "metadata.creationTimestamp", "is not a time")
		f.Fix, f.Server = "write it as 2006-01-02T15:04:05Z, or leave it out", "metadata: "+text
		return f
	}
	return finding(CodeMetadata, "metadata", text)
}

func jsonType(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Struct, reflect.Map:
		return "object"
	case reflect.Slice:
		if t.Elem().Kind() == reflect.Uint8 {
			return "string"
		}
		return "array"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "integer"
	}
	return "string"
}

func nameRule(k *Kind) validation.ValidateNameFunc {
	switch k.Name {
	case "Service", "Namespace":
		return validation.NameIsDNSLabel
	case "Role", "ClusterRole":
		return isPathSegment
	}
	return validation.NameIsDNSSubdomain
}

// isPathSegment says why a name, or the start of one, cannot be a part of a URL's path, which is all that Kubernetes asks of
// some names (Kubernetes, "Object Names and IDs", Path Segment Names).
func isPathSegment(name string, prefix bool) (problems []string) {
	if !prefix && (name == "." || name == "..") {
		problems = append(problems, fmt.Sprintf("may not be '%s'", name))
	}
	for _, c := range []string{"/", "%"} {
		if strings.Contains(name, c) {
			problems = append(problems, fmt.Sprintf("may not contain '%s'", c))
		}
	}
	return problems
}

// checkBase64 finds the value that is not base64, which decoding into a struct would not name.
func checkBase64(k *Kind, u map[string]any) []Finding {
	member, ok := map[string]string{"Secret": "data", "ConfigMap": "binaryData"}[k.Name]
	if !ok {
		return nil
	}
	data, _ := u[member].(map[string]any)
	var findings []Finding
	for _, key := range slices.Sorted(maps.Keys(data)) {
		path := field.NewPath(member).Key(key).String()
		switch v := data[key].(type) {
		case nil:
		case string:
			if _, err := base64.StdEncoding.DecodeString(v); err != nil {
				findings = append(findings, finding(CodeCoreData, path, err.Error()))
			}
		default:
			findings = append(findings, finding(CodeCoreType, path, path+" must be of type string, in base64"))
		}
	}
	return findings
}

func checkNamespace(*corev1.Namespace) field.ErrorList { return nil }

func checkSecret(o *corev1.Secret) (errs field.ErrorList) {
	if len(o.StringData) > 0 {
		if o.Data == nil {
			o.Data = make(map[string][]byte, len(o.StringData))
		}
		for k, v := range o.StringData {
			o.Data[k] = []byte(v)
		}
		o.StringData = nil
	}
	if o.Type == "" {
		o.Type = corev1.SecretTypeOpaque
	}
	size := 0
	at := field.NewPath("data")
	for _, key := range slices.Sorted(maps.Keys(o.Data)) {
		for _, msg := range utilvalidation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(at.Key(key), key, msg))
		}
		size += len(o.Data[key])
	}
	if size > maxData {
		errs = append(errs, field.TooLong(at, "", maxData))
	}
	if o.Type == corev1.SecretTypeTLS {
		for _, key := range []string{corev1.TLSCertKey, corev1.TLSPrivateKeyKey} {
			if _, ok := o.Data[key]; !ok {
				errs = append(errs, field.Required(at.Key(key), "type "+string(corev1.SecretTypeTLS)+" has it"))
			}
		}
	}
	return errs
}

func checkConfigMap(o *corev1.ConfigMap) (errs field.ErrorList) {
	size := 0
	for _, key := range slices.Sorted(maps.Keys(o.Data)) {
		at := field.NewPath("data").Key(key)
		for _, msg := range utilvalidation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(at, key, msg))
		}
		if _, both := o.BinaryData[key]; both {
			errs = append(errs, field.Invalid(at, key, "duplicate of key present in binaryData"))
		}
		size += len(o.Data[key])
	}
	for _, key := range slices.Sorted(maps.Keys(o.BinaryData)) {
		for _, msg := range utilvalidation.IsConfigMapKey(key) {
			errs = append(errs, field.Invalid(field.NewPath("binaryData").Key(key), key, msg))
		}
		size += len(o.BinaryData[key])
	}
	if size > maxData {
		errs = append(errs, field.TooLong(field.NewPath(""), "", maxData))
	}
	return errs
}
