package weir_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEveryTestOfTheThreatModelExists holds docs/threat-model.md to the tree: each test that it names is there, in the package it names.
func TestEveryTestOfTheThreatModelExists(t *testing.T) {
	text, err := os.ReadFile("docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile("`([a-z][a-z0-9/]*)` |((?:Test|Fuzz)[A-Z][A-Za-z0-9]*)")
	sources := map[string]string{} // tests by package
	found := 0
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "|") {
			continue
		}
		dir := ""
		for _, m := range named.FindAllStringSubmatch(line, -1) {
			if m[1] != "" {
				dir = m[1]
				continue
			}
			if _, ok := sources[dir]; !ok {
				sources[dir] = testsOf(t, dir)
			}
			if found++; !strings.Contains(sources[dir], "\nfunc "+m[2]+"(") {
				t.Errorf("there is no %s in %q", m[2], dir)
			}
		}
	}
	if found < 50 {
		t.Errorf("%d tests are named: the page is not read as it is written", found)
	}
}

// testsOf is the source of a package's tests.
func testsOf(t *testing.T, dir string) string {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("no tests in %q", dir)
	}
	var all strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	return all.String()
}
