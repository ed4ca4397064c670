package weir_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// normalizers are the places that make the normal form of a path: of the request, once, before everything that reads
// it; of the configuration, where paths are judged and compiled, and of templates in documents of OpenAPI; of the request of "weir explain", and of "weir explain
// --from"; and of the requests of "weir diff". Code that compares paths must take the request's normal form from there; it must not get a line here.
var normalizers = []string{
	"internal/diff/probe.go", "internal/exchange/route.go", "internal/explain/access/answer.go", "internal/explain/walk.go", "internal/model/path.go", "internal/model/value.go",
	"internal/openapi/operations.go", "internal/routing/normal.go",
}

// otherNormalizers are functions that could be mistaken for it, in the packages that see requests.
var otherNormalizers = []string{"path.Clean", "path.Join", "url.JoinPath", "url.Parse", "url.ParseRequestURI", "url.PathUnescape"}

func TestPathsAreNormalizedByOneFunction(t *testing.T) {
	var found []string
	err := filepath.WalkDir("internal", func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
			return err
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		seesRequests := slices.ContainsFunc([]string{"internal/http1", "internal/http2", "internal/proxy", "internal/routing"}, func(p string) bool { return strings.HasPrefix(file, p+"/") })
		ast.Inspect(tree, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			name := ""
			switch f := call.Fun.(type) {
			case *ast.Ident:
				name = f.Name
			case *ast.SelectorExpr:
				if pkg, ok := f.X.(*ast.Ident); ok {
					name = pkg.Name + "." + f.Sel.Name
				}
			}
			if name == "NormalizePath" || name == "routing.NormalizePath" || name == "model.NormalizePath" {
				found = append(found, file)
			}
			if seesRequests && slices.Contains(otherNormalizers, name) {
				t.Errorf("%s calls %s: paths are normalized by routing.NormalizePath alone", file, name)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	if !slices.Equal(found, normalizers) {
		t.Errorf("NormalizePath is called in %q, once each in %q", found, normalizers)
	}
}
