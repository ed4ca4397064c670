package dialect_test

import (
	"slices"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/resource"
)

// TestDescriptorsAgreeWithTheDefinitions holds each kind against its custom resource definition.
func TestDescriptorsAgreeWithTheDefinitions(t *testing.T) {
	custom := 0
	for _, k := range dialect.Kinds() {
		if !k.Custom() {
			if k.API != "" || k.Status != nil || k.Conversion != nil {
				t.Errorf("%s is of Kubernetes: %+v", k.Resource(), k)
			}
			continue
		}
		custom++
		text, err := k.Definition.Text()
		if err != nil {
			t.Fatal(err)
		}
		var d apiextensionsv1.CustomResourceDefinition
		if err := yaml.Unmarshal(text, &d); err != nil {
			t.Fatal(err)
		}
		if d.Name != k.Resource() || d.Spec.Group != k.Group || d.Spec.Names.Kind != k.Name || d.Spec.Names.Plural != k.Plural {
			t.Errorf("%s: the definition is %s of %s", k.Resource(), d.Spec.Names.Kind, d.Name)
		}
		if cluster := d.Spec.Scope == apiextensionsv1.ClusterScoped; cluster != k.Cluster {
			t.Errorf("%s: the scope is %s", k.Resource(), d.Spec.Scope)
		}
		status, stored := false, ""
		var versions []string
		for _, v := range d.Spec.Versions {
			versions = append(versions, v.Name)
			status = status || v.Subresources != nil && v.Subresources.Status != nil
			if v.Storage {
				stored = v.Name
			}
		}
		for _, v := range k.Versions {
			if !slices.Contains(versions, v) {
				t.Errorf("%s: %s is read, and the definition has %q", k.Resource(), v, versions)
			}
		}
		for _, v := range d.Spec.Versions {
			if instead := k.Instead[v.Name]; v.Served == (instead != "") || instead != "" && (!slices.Contains(k.Versions, instead) || k.Instead[instead] != "") {
				t.Errorf("%s: %s is served: %t, and %q is written in place of it", k.Resource(), v.Name, v.Served, instead)
			}
		}
		if k.Status != nil && !status {
			t.Errorf("%s: a status is written, and the definition has none", k.Resource())
		}
		if k.Bundled && stored != k.Versions[0] {
			t.Errorf("%s: %s is stored, and %s is read", k.Resource(), stored, k.Versions[0])
		}
		if k.Conversion != nil && (k.Conversion.Hub != k.Versions[0] || k.Conversion.Definition() != k.Resource()) {
			t.Errorf("%s: the conversion is of %s, by %s", k.Resource(), k.Conversion.Definition(), k.Conversion.Hub)
		}
	}
	if custom < 12 {
		t.Errorf("only %d kinds have a definition", custom)
	}
}

// TestDescriptorsAreComplete holds that everything is there that is told of a kind, and that no two are mistaken for each other.
func TestDescriptorsAreComplete(t *testing.T) {
	seen := map[string]bool{}
	for _, k := range dialect.Kinds() {
		for _, name := range []string{"resource " + k.Resource(), "reference " + k.RefName()} {
			if seen[name] {
				t.Errorf("two kinds have the %s", name)
			}
			seen[name] = true
		}
		if back := dialect.Kinds().Key(k.Key("ns", "x").Ref()); back != k.Key("ns", "x") {
			t.Errorf("%s: the reference leads to %v", k.Resource(), back)
		}
		if len(k.Versions) == 0 || k.Plural == "" || k.Objects == nil && !k.FilesOnly {
			t.Errorf("%s: %+v", k.Resource(), k)
		}
		if k.Custom() && (k.API == "" || k.Without == "" || k.About == "") {
			t.Errorf("%s: something is missing for people: %+v", k.Resource(), k)
		}
		if k.Status == nil {
			continue
		}
		if s := k.Status; len(s.Types) == 0 || !s.Conditions && !s.Parents && !s.Ancestors {
			t.Errorf("%s: a status without conditions: %+v", k.Resource(), s)
		}
		if k.Table == "" || len(k.Columns) == 0 {
			t.Errorf("%s: it has a status and no columns in weir status", k.Resource())
		}
	}
}

func TestDialectsAreIndependent(t *testing.T) {
	names := map[string]bool{}
	for _, d := range dialect.All() {
		if names[d.Name] || d.New == nil {
			t.Errorf("dialect %q", d.Name)
		}
		names[d.Name] = true
		if r := d.New(dialect.Options{})(resource.NewSet(dialect.Kinds()), dialect.Known{}); len(r.Config.Listeners)+len(r.Statuses)+len(r.Findings) > 0 {
			t.Errorf("%s makes something of nothing: %+v", d.Name, r)
		}
	}
	codes := map[string]bool{}
	for _, c := range dialect.All().Codes() {
		if codes[c.ID] {
			t.Errorf("code %s is there twice", c.ID)
		}
		codes[c.ID] = true
	}
}
