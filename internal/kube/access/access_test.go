package access_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/kube/access"
)

// TestTheRolesAreWhatIsUsed holds the roles that are installed to the lists, verb by verb.
func TestTheRolesAreWhatIsUsed(t *testing.T) {
	text, err := os.ReadFile("../../../deploy/manifests/install.yaml")
	if err != nil {
		t.Fatal(err)
	}
	roles := 0
	for _, document := range strings.Split(string(text), "\n---\n") {
		var role rbacv1.ClusterRole
		if err := yaml.Unmarshal([]byte(document), &role); err != nil {
			t.Fatal(err)
		}
		switch role.Kind {
		case "ClusterRole":
			compare(t, role.Kind, role.Rules, access.Cluster())
		case "Role":
			compare(t, role.Kind, role.Rules, access.Own())
		default:
			continue
		}
		roles++
	}
	if roles != 2 {
		t.Errorf("%d roles, want 2", roles)
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
