package weir_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// racePackages are those that "make test" runs with the race detector, as the Makefile has them.
func racePackages(t *testing.T) []string {
	t.Helper()
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(strings.ReplaceAll(string(makefile), "\\\n", ""), "\nRACE := ")
	if !found {
		t.Fatal("the Makefile has no RACE")
	}
	list, _, _ := strings.Cut(rest, "\n")
	return strings.Fields(list)
}

// TestPackagesThatStartGoroutinesAreTestedForRaces holds RACE in the Makefile to the sources.
func TestPackagesThatStartGoroutinesAreTestedForRaces(t *testing.T) {
	raced := racePackages(t)
	for _, name := range raced {
		if sources, _ := filepath.Glob(filepath.Join(name, "*.go")); len(sources) == 0 {
			t.Errorf("RACE in the Makefile names %s, which has no Go files: remove it there", name)
		}
	}
	for _, top := range []string{"api", "cmd", "internal"} {
		err := filepath.WalkDir(top, func(file string, d os.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(file, ".go") || strings.HasSuffix(file, "_test.go") {
				return err
			}
			dir := path.Dir(filepath.ToSlash(file))
			if slices.Contains(raced, dir) || !hasTests(dir) {
				return nil
			}
			if at := startsGoroutine(t, file); at != "" {
				t.Errorf("%s starts a goroutine: add %s to RACE in the Makefile", at, dir)
				raced = append(raced, dir)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

func hasTests(dir string) bool {
	tests, _ := filepath.Glob(filepath.Join(dir, "*_test.go"))
	return len(tests) > 0
}

// startsGoroutine returns where the file starts one: by a go statement, a group's Go, or a function that is called later. Empty if nowhere.
func startsGoroutine(t *testing.T, file string) (at string) {
	t.Helper()
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			at = files.Position(n.Pos()).String()
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok && slices.Contains([]string{"Go", "AfterFunc"}, f.Sel.Name) {
				at = files.Position(n.Pos()).String()
			}
		}
		return at == ""
	})
	return at
}
