package openapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	apiaccess "github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/openapi"
	"github.com/weirmesh/weir/test/size"
)

func rolesOf(t *testing.T, tags ...string) map[string]string {
	t.Helper()
	var b strings.Builder
	b.WriteString("openapi: 3.0.0\npaths:\n")
	for i, tag := range tags {
		fmt.Fprintf(&b, "  /p%d: {get: {tags: [%q]}}\n", i, tag)
	}
	r, err := openapi.Generate([]byte(b.String()), openapi.Options{Resource: foo})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{} // by tag
	for _, role := range r.Roles {
		if tag, ok := strings.CutPrefix(role.About, "tag "); ok {
			out[tag] = role.Name
		}
	}
	if len(out) != len(tags) || len(r.Roles) != len(tags)+1 {
		t.Fatalf("%v are %d roles: %v", tags, len(r.Roles), out)
	}
	return out
}

func TestNamesAreValidUniqueAndStable(t *testing.T) {
	long := strings.Repeat("long-", 30)
	alone := rolesOf(t, "pets", "Pet Store", "ß", long+"a", long+"b", "all", "untagged", "x-part-2", "a/b", "a.b")
	for tag, want := range map[string]string{"pets": "foo-pets", "Pet Store": "foo-pet-store"} {
		if alone[tag] != want {
			t.Errorf("tag %q has the role %s, want %s", tag, alone[tag], want)
		}
	}
	// Other tags do not change the names of those that are names.
	more := rolesOf(t, "pets", "Pets", "PETS", "pet-store", "Pet Store", "ß", "ü")
	if more["pets"] != "foo-pets" || more["pet-store"] != "foo-pet-store" || more["ß"] != alone["ß"] {
		t.Errorf("with others, the names are %v", more)
	}
	var names []string
	for _, name := range more {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(more) {
		t.Errorf("names are not unique: %v", names)
	}
}

// TestLargeRolesContinueInOthers has more operations than a role may have rules, and larger expressions than it may have.
func TestLargeRolesContinueInOthers(t *testing.T) {
	var b strings.Builder
	b.WriteString("openapi: 3.0.0\npaths:\n")
	n := size.Of(600, 2000)
	for i := range n {
		fmt.Fprintf(&b, "  /p%d/{v}: {get: {tags: [x], parameters: [{name: v, in: path, schema: {type: string, minLength: 1, maxLength: 20}}]}}\n", i)
	}
	r, err := openapi.Generate([]byte(b.String()), openapi.Options{Resource: foo, Namespace: "shop", Bind: []openapi.Bind{client}})
	if err != nil {
		t.Fatal(err)
	}
	rules, parts := 0, 0
	for _, role := range r.Roles {
		if strings.HasPrefix(role.Name, "foo-all") {
			rules, parts = rules+len(role.Rules), parts+1
		}
	}
	if rules != n || parts < 3 || len(r.Bindings) != parts {
		t.Errorf("%d rules in %d roles with %d bindings, want %d rules and a binding for each role", rules, parts, len(r.Bindings), n)
	}
	may := judge(t, r.YAML())
	for i := range n {
		if path := fmt.Sprintf("/p%d/%%C3%%A9a", i); !allows(t, may, "GET", path) {
			t.Fatalf("GET %s is not allowed", path)
		}
	}
}

// TestAScopeAloneDoesNotAllowWhatNeedsTwo judges by roles of scopes.
func TestAScopeAloneDoesNotAllowWhatNeedsTwo(t *testing.T) {
	const document = `openapi: 3.0.0
paths:
  /both: {get: {security: [{oauth: [a, b]}]}}
  /schemes: {get: {security: [{oauth: [a], key: []}]}}
  /either: {get: {security: [{oauth: [a]}, {oauth: [b]}]}}
`
	for scope, want := range map[string][]string{"a": {"/either"}, "b": {"/either"}, "a and b": {"/both"}, "a and key": {"/schemes"}} {
		bind := openapi.Bind{To: scope, Subject: client.Subject}
		r, err := openapi.Generate([]byte(document), openapi.Options{Resource: foo, Namespace: "shop", By: openapi.ByScope, Bind: []openapi.Bind{bind}})
		if err != nil {
			t.Fatal(err)
		}
		may := judge(t, r.YAML())
		for _, path := range []string{"/both", "/schemes", "/either"} {
			if got := may("GET", path); got != slices.Contains(want, path) {
				t.Errorf("who has the role of %s may get %s: %v", scope, path, got)
			}
		}
	}
}

func TestRolesAreForTheResourceThatIsNamed(t *testing.T) {
	r, err := openapi.Generate([]byte("openapi: 3.0.0\npaths: {/a: {get: {}}}\n"), openapi.Options{
		Resource: apiaccess.Resource{Kind: apiaccess.Deployment, Name: "foo"}, Namespace: "shop", BasePaths: []string{"/x/"}, Bind: []openapi.Bind{client}, By: openapi.ByNone,
	})
	if err != nil || len(r.Roles) != 1 {
		t.Fatal(r, err)
	}
	if may := judge(t, r.YAML()); !may("GET", "/x/a") || may("GET", "/a") {
		t.Errorf("by\n%s", r.YAML())
	}
	if _, err := openapi.Generate([]byte("openapi: 3.0.0\npaths: {/a: {get: {}}}\n"), openapi.Options{Resource: apiaccess.Resource{Kind: apiaccess.Service, Name: strings.Repeat("a", 250)}}); err == nil {
		t.Error("a name is too long")
	}
}
