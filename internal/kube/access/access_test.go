package access_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/kube/access"
)

// role is a Role or ClusterRole as it is installed.
type role struct {
	rbacv1.ClusterRole
}

// installed returns the roles of a file of manifests.
func installed(t *testing.T, file string) (roles []role) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, document := range strings.Split(string(text), "\n---\n") {
		var r role
		if err := yaml.Unmarshal([]byte(document), &r.ClusterRole); err != nil {
			t.Fatal(err)
		}
		if r.Kind == "ClusterRole" || r.Kind == "Role" {
			roles = append(roles, r)
		}
	}
	return roles
}

// TestTheRolesAreWhatIsUsed holds the roles that are installed to the lists, verb by verb.
func TestTheRolesAreWhatIsUsed(t *testing.T) {
	roles := installed(t, "../../../deploy/manifests/install.yaml")
	for _, r := range roles {
		if r.Kind == "ClusterRole" {
			compare(t, r.Kind, r.Rules, access.Cluster(dialect.Kinds()))
		} else {
			compare(t, r.Kind, r.Rules, access.Own())
		}
	}
	if len(roles) != 2 {
		t.Errorf("%d roles, want 2", len(roles))
	}
}

// TestTheRolesOfNamedNamespacesAreWhatIsUsed does so where the controller watches two namespaces alone: cluster-wide it reads classes
// and has tokens reviewed, and reads no Secret.
func TestTheRolesOfNamedNamespacesAreWhatIsUsed(t *testing.T) {
	roles := installed(t, "../../../deploy/release/manifests/testdata/namespaces.yaml")
	seen := map[string]bool{}
	for _, r := range roles {
		switch name := r.Kind + " " + r.Namespace; name {
		case "ClusterRole ":
			compare(t, name, r.Rules, access.Shared(dialect.Kinds(), []string{"shop", "blog"}))
			seen[name] = true
		case "Role weir-system":
			compare(t, name, r.Rules, access.Alone())
			seen[name] = true
		case "Role shop", "Role blog":
			compare(t, name, r.Rules, access.Each(dialect.Kinds()))
			seen[name] = true
		default:
			t.Errorf("%s is not expected", name)
		}
	}
	if len(seen) != 4 || len(roles) != 4 {
		t.Errorf("roles %v", seen)
	}
	for _, v := range access.Shared(dialect.Kinds(), []string{"shop"}) {
		if v.Resource == "secrets" || v.Resource == "namespaces" && v.Name == "" {
			t.Errorf("cluster-wide: %s", v)
		}
	}
	// Both modes come to the same in a namespace.
	all := slices.Concat(access.Shared(dialect.Kinds(), []string{"shop"}), access.Each(dialect.Kinds()))
	for _, v := range access.Cluster(dialect.Kinds()) {
		if v.Resource != "namespaces" && !slices.Contains(all, v) {
			t.Errorf("%s is missing", v)
		}
	}
}

func compare(t *testing.T, kind string, rules []rbacv1.PolicyRule, want []access.Verb) {
	t.Helper()
	var got []access.Verb
	for _, r := range rules {
		if len(r.NonResourceURLs) > 0 {
			t.Errorf("%s: %v", kind, r.NonResourceURLs)
		}
		names := r.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				for _, verb := range r.Verbs {
					for _, name := range names {
						got = append(got, access.Verb{Group: group, Resource: resource, Verb: verb, Name: name})
					}
				}
			}
		}
	}
	for _, v := range got {
		if strings.Contains(v.Group+v.Resource+v.Verb, "*") {
			t.Errorf("%s: %s is a wildcard", kind, v)
		}
		if !slices.Contains(want, v) {
			t.Errorf("%s: %s is given and not used", kind, v)
		}
	}
	for _, v := range want {
		if !slices.Contains(got, v) {
			t.Errorf("%s: %s is used and not given", kind, v)
		}
	}
}
