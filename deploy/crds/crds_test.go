package crds_test

import (
	"context"
	"io/fs"
	"slices"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	crvalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/version"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/api/convert"
	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/api/specs"
	"github.com/weirmesh/weir/api/split"
	"github.com/weirmesh/weir/deploy/crds"
)

func definitions(t *testing.T) map[string]*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	names, err := fs.Glob(crds.Files, "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*apiextensionsv1.CustomResourceDefinition{}
	for _, name := range names {
		text, err := crds.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.UnmarshalStrict(text, crd); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if want := crd.Spec.Group + "_" + crd.Spec.Names.Plural + ".yaml"; name != want {
			t.Errorf("%s is to be called %s", name, want)
		}
		all[crd.Spec.Names.Kind] = crd
	}
	return all
}

// TestAnAPIServerAcceptsTheDefinitions runs the API server's own validation on create.
func TestAnAPIServerAcceptsTheDefinitions(t *testing.T) {
	for kind, v1 := range definitions(t) {
		apiextensionsv1.SetDefaults_CustomResourceDefinition(v1)
		apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&v1.Spec)
		crd := &apiextensions.CustomResourceDefinition{}
		if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(v1, crd, nil); err != nil {
			t.Fatal(err)
		}
		for _, v := range v1.Spec.Versions {
			if v.Storage {
				crd.Status.StoredVersions = []string{v.Name}
			}
		}
		for _, err := range validation.ValidateCustomResourceDefinition(context.Background(), crd) {
			t.Errorf("%s: %v", kind, err)
		}
		for _, v := range v1.Spec.Versions {
			props := &apiextensions.JSONSchemaProps{}
			if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, props, nil); err != nil {
				t.Fatal(err)
			}
			if _, err := structuralschema.NewStructural(props); err != nil {
				t.Errorf("%s %s is not structural: %v", kind, v.Name, err)
			}
		}
	}
}

func TestEveryVersionIsDefined(t *testing.T) {
	all := definitions(t)
	for kind, want := range map[string][]string{
		"TrafficSplit": split.Versions, "HTTPRouteGroup": specs.Versions, "TCPRoute": specs.Versions, "UDPRoute": specs.Versions[:1],
		"Rollout": rollouts.Versions, "TrafficTarget": access.TargetVersions, "IdentityBinding": access.IdentityVersions,
		"TrafficRole": access.RoleVersions, "TrafficRoleBinding": access.RoleVersions,
		"ClusterTrafficRole": access.RoleVersions, "ClusterTrafficRoleBinding": access.RoleVersions,
	} {
		var got []string
		for _, v := range all[kind].Spec.Versions {
			got = append(got, v.Name)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has versions %q, want %q", kind, got, want)
		}
	}
}

// TestVersionsOfOtherFormsAreConverted holds that an API server asks the webhook for what it cannot do by renaming, and that the
// webhook's kinds are those.
func TestVersionsOfOtherFormsAreConverted(t *testing.T) {
	kinds := map[string]convert.Kind{}
	for _, k := range slices.Concat(split.Kinds(), specs.Kinds(), access.Kinds(), rollouts.Kinds()) {
		kinds[k.Name] = k
	}
	for kind, crd := range definitions(t) {
		k, converted := kinds[kind]
		forms := map[string]bool{}
		for _, v := range crd.Spec.Versions {
			form, _ := yaml.Marshal(v.Schema)
			forms[string(form)] = true
			if v.Storage && converted && v.Name != k.Hub {
				t.Errorf("%s: %s is stored, and %s can hold everything", kind, v.Name, k.Hub)
			}
			if converted && !slices.Contains(k.All(), v.Name) {
				t.Errorf("%s: there is no way to %s", kind, v.Name)
			}
		}
		webhook := crd.Spec.Conversion != nil && crd.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter
		if webhook != converted || webhook != (len(forms) > 1) {
			t.Errorf("%s: it has a webhook: %t, conversions: %t, and %d forms", kind, webhook, converted, len(forms))
		}
		if converted && k.Definition() != crd.Name {
			t.Errorf("the conversions of %s are for %s", crd.Name, k.Definition())
		}
		if webhook && len(crd.Spec.Conversion.Webhook.ClientConfig.CABundle) > 0 {
			t.Errorf("%s: the certificates are the controller's to write", kind)
		}
	}
}

// TestTheVersionThatAPIServersPreferIsStored holds that discovery, and with it kubectl, the deletion of namespaces and garbage collection,
// use the version that needs no webhook. All are served but the draft, which would come first.
func TestTheVersionThatAPIServersPreferIsStored(t *testing.T) {
	for kind, crd := range definitions(t) {
		var served []string
		for _, v := range crd.Spec.Versions {
			if draft := kind == "TrafficSplit" && v.Name == split.Draft; v.Served == draft {
				t.Errorf("%s %s is served: %t", kind, v.Name, v.Served)
			}
			if v.Served {
				served = append(served, v.Name)
			}
		}
		preferred := slices.MaxFunc(served, version.CompareKubeAwareVersionStrings)
		if !slices.ContainsFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Storage && v.Name == preferred }) {
			t.Errorf("%s: %s is preferred and not stored", kind, preferred)
		}
	}
}

// schemaOf is that of a version of a kind.
func schemaOf(t *testing.T, kind, version string) crvalidation.SchemaValidator {
	t.Helper()
	for _, v := range definitions(t)[kind].Spec.Versions {
		if v.Name != version {
			continue
		}
		props := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(v.Schema.OpenAPIV3Schema, props, nil); err != nil {
			t.Fatal(err)
		}
		schema, _, err := crvalidation.NewSchemaValidator(props)
		if err != nil {
			t.Fatal(err)
		}
		return schema
	}
	t.Fatalf("no %s of %s", version, kind)
	return nil
}

func validate(t *testing.T, kind, version, text string) []string {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var u map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &u); err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range crvalidation.ValidateCustomResource(nil, u, schemaOf(t, kind, version)) {
		out = append(out, e.Field)
	}
	return out
}

func TestSchemasHoldTheWeights(t *testing.T) {
	for _, c := range []struct {
		version, weight string
		valid           bool
	}{
		{"v1alpha4", "0", true}, {"v1alpha4", "1000", true}, {"v1alpha3", "-1", false}, {"v1alpha2", "0.5", false}, {"v1alpha4", `"1"`, false}, {"v1alpha4", "500m", false},
		{"v1alpha1", "500m", true}, {"v1alpha1", "1", true}, {"v1alpha1", `"1e3"`, true}, {"v1alpha1", "-1", false}, {"v1alpha1", "-1m", false}, {"v1alpha1", "x", false},
		{"v1beta1", "10m", true}, {"v1beta1", "1500m", true}, {"v1beta1", "0m", true},
	} {
		text := "spec: {service: a, backends: [{service: b, weight: " + c.weight + "}]}"
		if errs := validate(t, "TrafficSplit", c.version, text); (len(errs) == 0) != c.valid {
			t.Errorf("%s weight %s: %v", c.version, c.weight, errs)
		}
	}
	for _, v := range split.Versions {
		for _, text := range []string{"spec: {service: a, backends: []}", "spec: {service: a}", "spec: {backends: [{service: b, weight: 1}]}", "{}", "spec: {service: a, backends: [{service: b}]}"} {
			if errs := validate(t, "TrafficSplit", v, text); len(errs) == 0 {
				t.Errorf("%s accepts %s", v, text)
			}
		}
	}
}

func TestSchemasHoldTheRoutes(t *testing.T) {
	for _, c := range []struct {
		kind, version, text string
		valid               bool
	}{
		{"HTTPRouteGroup", "v1alpha4", "spec: {matches: [{name: a, methods: [GET, '*'], pathRegex: /x, headers: [{a: b}]}]}", true},
		{"HTTPRouteGroup", "v1alpha4", "spec: {matches: [{name: a, headers: {a: b}}]}", true},
		{"HTTPRouteGroup", "v1alpha4", "spec: {matches: [{methods: [GET]}]}", false},
		{"HTTPRouteGroup", "v1alpha3", "spec: {matches: [{name: a, methods: [get]}]}", false},
		{"HTTPRouteGroup", "v1alpha2", "matches: [{name: a, headers: [{a: b}]}]", true},
		{"HTTPRouteGroup", "v1alpha1", "matches: [{name: a, pathRegex: 1}]", false},
		{"TCPRoute", "v1alpha4", "spec: {matches: {ports: [80]}}", true},
		{"TCPRoute", "v1alpha4", "spec: {matches: {ports: [0]}}", false},
		{"TCPRoute", "v1alpha1", "{}", true},
		{"TCPRoute", "v1alpha3", "spec: {}", true},
		{"UDPRoute", "v1alpha4", "spec: {matches: {ports: [53]}}", true},
		{"UDPRoute", "v1alpha4", "spec: {matches: {ports: [dns]}}", false},
	} {
		if errs := validate(t, c.kind, c.version, c.text); (len(errs) == 0) != c.valid {
			t.Errorf("%s %s %s: %v", c.kind, c.version, c.text, errs)
		}
	}
}
