package openapi_test

import (
	"os"
	"path/filepath"
	"regexp/syntax"
	"strings"
	"testing"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/openapi"
)

// FuzzGenerate holds that no document makes it panic, and that what it makes of any is valid.
func FuzzGenerate(f *testing.F) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		document, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(document)
	}
	for _, pattern := range []string{`^[a-z]*$`, `(a|b*)+`, `^(?:(?:a?)?)*$|^b`, `[^\s]`, `[\d\-/]+`, `\u00e9{2,}?`} {
		f.Add([]byte("openapi: 3.1.0\npaths: {'/a/{b}': {get: {tags: [x], parameters: [{name: b, in: path, schema: {pattern: '" + pattern + "'}}]}}}\n"))
	}
	f.Add([]byte("openapi: 3.1.0\npaths: {'/a': {$ref: '#/components/pathItems/A'}}\ncomponents: {pathItems: {A: {$ref: '#/components/pathItems/A', get: {}}}}\n"))
	f.Add([]byte("openapi: 3.1.0\npaths: {'/{a}': {get: {parameters: [{$ref: '#/components/parameters/A'}]}}}\ncomponents: {parameters: {A: {$ref: '#/components/parameters/B'}, B: {$ref: '#/components/parameters/A'}}}\n"))
	f.Add([]byte("openapi: 3.1.0\npaths: {'/{a}': {get: {parameters: [{name: a, in: path, schema: {$ref: '#/components/schemas/A'}}]}}}\ncomponents: {schemas: {A: {$ref: '#/components/schemas/A'}}}\n"))
	f.Fuzz(func(t *testing.T, document []byte) {
		if len(document) > 1<<16 {
			return
		}
		for _, by := range []openapi.Grouping{openapi.ByTag, openapi.ByScope} {
			r, err := openapi.Generate(document, openapi.Options{Resource: foo, By: by})
			if err != nil {
				continue
			}
			if len(r.Notes) > 1001 {
				t.Errorf("%d notes", len(r.Notes))
			}
			names := map[string]bool{}
			for _, role := range r.Roles {
				if names[role.Name] {
					t.Errorf("two roles are called %s", role.Name)
				}
				names[role.Name] = true
				var budget model.PatternBudget
				for _, rule := range role.Rules {
					for _, p := range rule.Paths {
						if err := budget.Add(p); err != nil {
							t.Error(err)
						}
						sound(t, p)
					}
				}
			}
			if len(r.Roles) == 0 {
				continue
			}
			set := load(t, r.YAML())
			for _, f := range set.Findings {
				t.Errorf("%v\n%s", f, r.YAML())
			}
			if n := strings.Count(string(r.YAML()), "\nkind: TrafficRole\n"); n != len(r.Roles) {
				t.Errorf("%d of %d roles are written", n, len(r.Roles))
			}
		}
	})
}

// sound holds that an expression of a path ends where the path does, with no alternative that does not.
func sound(t *testing.T, path string) {
	t.Helper()
	if len(path) > 4*access.MaxPath {
		t.Errorf("%q is too long", path)
	}
	re, err := syntax.Parse(path, syntax.Perl)
	if err != nil {
		t.Fatal(err)
	}
	if re.Op != syntax.OpConcat || re.Sub[len(re.Sub)-1].Op != syntax.OpEndText {
		t.Errorf("%q does not end with $", path)
	}
	if re.Sub[0].Op != syntax.OpLiteral || re.Sub[0].Rune[0] != '/' {
		t.Errorf("%q does not begin with a slash", path)
	}
}
