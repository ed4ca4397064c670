package crds_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	crvalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/test/size"
)

// server does with an object of one version of a kind what an API server does on create.
type server struct {
	kind, version string
	structural    *structuralschema.Structural
	schema        crvalidation.SchemaValidator
	rules         *cel.Validator
}

func newServer(t *testing.T, kind, version string) server {
	t.Helper()
	for _, v := range definitions(t)[kind].Spec.Versions {
		if v.Name != version {
			continue
		}
		props := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, props, nil); err != nil {
			t.Fatal(err)
		}
		structural, err := structuralschema.NewStructural(props)
		if err != nil {
			t.Fatal(err)
		}
		return server{kind, version, structural, schemaOf(t, kind, version), cel.NewValidator(structural, true, celconfig.PerCallLimit)}
	}
	t.Fatalf("no %s of %s", version, kind)
	return server{}
}

// create returns the object as it is stored, or why it is not.
func (s server) create(u map[string]any) (map[string]any, field.ErrorList) {
	u = runtime.DeepCopyJSON(u)
	pruning.Prune(u, s.structural, true)
	defaulting.PruneNonNullableNullsWithoutDefaults(u, s.structural)
	errs := crvalidation.ValidateCustomResource(nil, u, s.schema)
	if len(errs) == 0 {
		errs, _ = s.rules.Validate(context.Background(), nil, s.structural, u, nil, celconfig.RuntimeCELCostBudget)
	}
	if version := access.TargetVersions[0]; len(errs) == 0 && s.kind == "TrafficTarget" {
		of := runtime.DeepCopyJSON(u)
		of["apiVersion"] = access.Group + "/" + s.version
		if err := access.Kinds()[0].Change(of, version); err != nil {
			errs = field.ErrorList{err.(*field.Error)}
		}
	}
	return u, errs
}

func decodeAccess(kind, version string, u map[string]any) (any, field.ErrorList) {
	switch kind {
	case "TrafficRole":
		return access.DecodeTrafficRole(version, u)
	case "ClusterTrafficRole":
		return access.DecodeClusterTrafficRole(version, u)
	case "TrafficRoleBinding":
		return access.DecodeTrafficRoleBinding(version, u)
	case "ClusterTrafficRoleBinding":
		return access.DecodeClusterTrafficRoleBinding(version, u)
	case "IdentityBinding":
		return access.DecodeIdentityBinding(version, u)
	}
	return access.DecodeTrafficTarget(version, u)
}

// accessObjects are valid ones.
var accessObjects = []struct{ kind, version, text string }{
	{"TrafficRole", "v1beta1", `{rules: [{resources: [{kind: Deployment, name: foo}, {kind: "*", name: "*"}, {kind: statefulets, name: a.b-c}], methods: [GET, "*"], paths: ["/a\\d+", "*"]}, {}, {resources: [], methods: [], paths: []}]}`},
	{"ClusterTrafficRole", "v1beta1", `{rules: [{resources: [{kind: Pod, name: "*", namespace: "*"}, {kind: replicationscontrollers, name: a, namespace: b}], methods: [GET]}]}`},
	{"TrafficRoleBinding", "v1beta1", `{subjects: [{kind: Deployment, name: bar, namespace: default, apiGroup: apps}, {kind: Node, name: "*", apiGroup: ""}, {kind: jobs, name: j, apiGroup: batch}, {kind: "*", name: a}], roleRef: {kind: TrafficRole, name: path-specific, apiGroup: access.smi-spec.io}}`},
	{"ClusterTrafficRoleBinding", "v1beta1", `{subjects: [{kind: ServiceAccount, name: foo, namespace: x}], roleRef: {kind: ClusterTrafficRole, name: all}}`},
	{"TrafficTarget", "v1alpha4", `{spec: {destination: {kind: IdentityBinding, name: a, namespace: b, group: access.smi-spec.io}, sources: [{kind: ServiceAccount, name: c, group: ""}], rules: [{kind: HTTPRouteGroup, name: g, matches: [m], group: specs.smi-spec.io}, {kind: TCPRoute, name: t}]}}`},
	{"TrafficTarget", "v1alpha3", `{spec: {destination: {kind: IdentityBinding, name: "IdentityBinding:a"}, sources: [{kind: ServiceAccount, name: c}], rules: [{kind: HTTPRouteGroup, name: g, matches: []}]}}`},
	{"TrafficTarget", "v1alpha2", `{spec: {destination: {kind: ServiceAccount, name: a, namespace: b, port: 8080}, sources: [{kind: ServiceAccount, name: c}], rules: [{kind: HTTPRouteGroup, name: g}]}}`},
	{"TrafficTarget", "v1alpha1", `{destination: {kind: ServiceAccount, name: a, port: "80"}, sources: [{kind: ServiceAccount, name: c, namespace: d}], specs: [{kind: UDPRoute, name: g}]}`},
	{"IdentityBinding", "v1alpha4", `{spec: {schemes: {podLabelSelectors: [{name: w, matchLabels: {app: a}}], podLabelSelector: {matchExpressions: [{key: a, operator: Exists}]}, spiffeIdentities: [spiffe://a/b]}}}`},
	{"IdentityBinding", "v1alpha4", `{spec: {schemes: {serviceAccount: a, spiffeIdentities: [a/b]}}}`},
}

// TestSchemasHoldAccess has what would restrict and is not understood: an API server says so, and does not drop it.
func TestSchemasHoldAccess(t *testing.T) {
	const target = "destination: {kind: ServiceAccount, name: a}, sources: [{kind: ServiceAccount, name: b}], "
	for _, c := range []struct{ kind, version, text, want string }{
		{"TrafficRole", "v1beta1", "{}", "rules: Required"},
		{"TrafficRole", "v1beta1", "{rules: [{metods: [GET]}]}", "rules[0]: Too many: 1"},
		{"TrafficRole", "v1beta1", "{rules: [{resources: []}], methods: [GET]}", "methods: Forbidden: belongs into an element of rules; indent it"},
		{"TrafficRole", "v1beta1", "{rules: [{methods: [get]}]}", "rules[0].methods[0]: "},
		{"TrafficRole", "v1beta1", "{rules: [{resources: [{kind: Pod, name: a, namespace: b}]}]}", "rules[0].resources[0].namespace: Forbidden: the resources are those of the role's own namespace; remove namespace, or write a ClusterTrafficRole"},
		{"TrafficRole", "v1beta1", "{rules: [{resources: [{kind: Pod, name: a, port: 80}]}]}", "rules[0].resources[0]: "},
		{"TrafficRoleBinding", "v1beta1", "{subjects: [], roleRef: {kind: Role, name: a}}", `roleRef.kind: Unsupported value: "Role": supported values: "TrafficRole", "ClusterTrafficRole"`},
		{"TrafficRoleBinding", "v1beta1", "{subjects: [{kind: Node, name: a, namespace: b}], roleRef: {kind: TrafficRole, name: a}}", "subjects[0].namespace: Forbidden: Nodes belong to no namespace; remove namespace"},
		{"TrafficRoleBinding", "v1beta1", "{subjects: [{kind: Pod, name: a, apiGroup: apps}], roleRef: {kind: TrafficRole, name: a}}", "subjects[0].apiGroup: Invalid value: must be the group of the kind, or be left out"},
		{"ClusterTrafficRoleBinding", "v1beta1", "{subjects: [{kind: Pod, name: a, namspace: b}], roleRef: {kind: ClusterTrafficRole, name: a}}", "subjects[0]: "},
		{"TrafficRoleBinding", "v1beta1", "{subjects: [], roleRef: {kind: TrafficRole, name: a, namespace: b}}", "roleRef: Too many"},
		{"ClusterTrafficRoleBinding", "v1beta1", "{subjects: [], roleRef: {kind: TrafficRole, name: a}}", "roleRef.kind: Unsupported value"},
		{"TrafficTarget", "v1alpha4", "{spec: {" + target + "rules: [{kind: HTTPRouteGroup, name: g, match: [m]}]}}", "spec.rules[0]: "},
		{"TrafficTarget", "v1alpha4", "{spec: {" + target + "rules: [{kind: TCPRoute, name: g}], port: 80}}", "spec: "},
		{"TrafficTarget", "v1alpha4", "{spec: {destination: {kind: ServiceAccount, name: a, port: 80}, sources: [{kind: ServiceAccount, name: b}], rules: [{kind: TCPRoute, name: g}]}}", "spec.destination.port: Forbidden: v1alpha3 and v1alpha4 have no port; name a TCPRoute"},
		{"TrafficTarget", "v1alpha3", "{spec: {destination: {kind: IdentityBinding, name: a}, sources: [{kind: ServiceAccount, name: b}], rules: [{kind: TCPRoute, name: g}]}}", "spec.destination.name: Invalid value: IdentityBindings are for v1alpha4"},
		{"TrafficTarget", "v1alpha2", "{spec: {destination: {kind: ServiceAccount, name: a, port: null}, sources: [{kind: ServiceAccount, name: b}], rules: [{kind: TCPRoute, name: g}]}}", "spec.destination.port: Invalid value: \"null\": must be a port from 1 to 65535"},
		{"TrafficTarget", "v1alpha1", "{destination: {kind: ServiceAccount, name: a, port: http}, sources: [{kind: ServiceAccount, name: b}], specs: [{kind: TCPRoute, name: g}]}", "destination.port: "},
		{"IdentityBinding", "v1alpha4", "{spec: {schemes: {podLabelSelectors: [{matchLabels: {a: b}}], serviceAccount: c}}}", "spec.schemes: "},
		{"IdentityBinding", "v1alpha4", "{spec: {schemes: {serviceAcount: c}}}", "spec.schemes.serviceAccount: Required"},
	} {
		_, errs := newServer(t, c.kind, c.version).create(parse(t, c.text))
		if err := errs.ToAggregate(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s %s: %v, want %s", c.kind, c.version, c.text, err, c.want)
		}
	}
}

func parse(t *testing.T, text string) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var u map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &u); err != nil {
		t.Fatal(err)
	}
	return u
}

// TestSchemasAndDecodersAgreeOnAccess breaks valid objects at random places: what an API server admits is read, and what is read
// it admits. Selectors of pods are without a schema.
func TestSchemasAndDecodersAgreeOnAccess(t *testing.T) {
	seed := rand.Uint64()
	w := writer{rand.New(rand.NewPCG(seed, 0))}
	admitted, refused := 0, 0
	for _, c := range accessObjects {
		s := newServer(t, c.kind, c.version)
		for i := range size.Of(200, 1500) {
			u := parse(t, c.text)
			u["apiVersion"], u["kind"], u["metadata"] = access.Group+"/"+c.version, c.kind, map[string]any{"name": "o"}
			before := asJSON(t, u)
			if i > 0 {
				for range 1 + w.IntN(2) {
					w.mutate(u)
				}
				u["apiVersion"], u["kind"], u["metadata"] = access.Group+"/"+c.version, c.kind, map[string]any{"name": "o"}
			}
			now := asJSON(t, u)
			stored, errs := s.create(u)
			_, read := decodeAccess(c.kind, c.version, stored)
			if i == 0 && len(errs)+len(read) > 0 {
				t.Errorf("%s is not admitted: %v, or not read: %v", now, errs, read)
			}
			if len(errs) > 0 {
				if _, read := decodeAccess(c.kind, c.version, u); len(read) == 0 {
					t.Errorf("seed %d: %s is read, and an API server does not admit it: %v\nwas %s", seed, now, errs, before)
				}
				refused++
				continue
			}
			admitted++
			if len(slices.DeleteFunc(read, unsaid)) > 0 {
				t.Errorf("seed %d: %s is admitted as %s, and not read: %v\nwas %s", seed, now, asJSON(t, stored), read, before)
			}
		}
	}
	if admitted < refused/20 || refused < admitted/4 {
		t.Errorf("%d were admitted and %d refused", admitted, refused)
	}
}

// unsaid are errors of which no schema can say anything: it keeps what is wrong, and the controller refuses the object.
func unsaid(e *field.Error) bool {
	return strings.Contains(e.Field, "podLabelSelector") || e.Field == "spec.schemes" || strings.HasPrefix(e.Detail, "must not be null") ||
		!strings.ContainsAny(e.Field, ".[") && strings.HasPrefix(e.Detail, "is no field here")
}

// mutate changes a value below u.
func (w writer) mutate(u map[string]any) {
	var keys []string
	for k := range u {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	if len(keys) == 0 {
		u["x"] = "y"
		return
	}
	k := keys[w.IntN(len(keys))]
	switch w.IntN(8) {
	case 0:
		delete(u, k)
	case 1:
		u[k+"x"] = u[k]
	case 2:
		u[fmt.Sprint(w.oneOf("namespace", "name", "group", "apiGroup", "port", "methods", "kind", "x"))] = w.strange()
	case 3:
		u[k] = w.strange()
	default:
		u[k] = w.changed(u[k])
	}
}

func (w writer) changed(v any) any {
	switch v := v.(type) {
	case map[string]any:
		w.mutate(v)
	case []any:
		if len(v) == 0 || w.IntN(6) == 0 {
			return append(v, w.strange())
		}
		i := w.IntN(len(v))
		v[i] = w.changed(v[i])
	case string:
		return w.oneOf(v+"s", v+v, strings.ToUpper(v), "*"+v, v+"*", v+" ", v+".", strings.ToLower(v), "IdentityBinding:"+v, v[:w.IntN(len(v)+1)], w.strange())
	default:
		return w.strange()
	}
	return v
}

func (w writer) strange() any {
	return w.oneOf(nil, true, int64(0), int64(80), int64(65536), 0.5, "", "*", "a", "80", "A", "ä", "GET", "Pod", "ServiceAccount", "IdentityBinding", "Node", "TrafficRole", "access.smi-spec.io", "apps",
		strings.Repeat("a", 63), strings.Repeat("a", 64), strings.Repeat("a", 254), strings.Repeat("ä", 1024), strings.Repeat("/", 1025),
		[]any{}, []any{nil}, []any{"a"}, []any{"GET"}, []any{map[string]any{}}, []any{map[string]any{"kind": "Pod", "name": "*"}}, map[string]any{}, map[string]any{"kind": "Pod", "name": "a"},
		slices.Repeat([]any{"GET"}, 65), slices.Repeat([]any{"a"}, 257))
}
