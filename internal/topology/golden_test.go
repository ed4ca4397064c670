package topology

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// specification.txt is the drawing of the specification of traffic metrics, with boxes as wide as their names.
func TestDrawingsAreThoseOfTheGoldenFiles(t *testing.T) {
	files, err := filepath.Glob("testdata/drawings/*.json")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var g Graph
		if err := json.Unmarshal(source, &g); err != nil {
			t.Fatal(err)
		}
		base := strings.TrimSuffix(file, ".json")
		golden(t, base+".txt", Text(g, Options{}))
		golden(t, base+"-120.txt", Text(g, Options{Width: 120}))
		golden(t, base+"-60.txt", Text(g, Options{Width: 60}))
		golden(t, base+".svg", SVG(g, Options{}))
		golden(t, base+".dot", DOT(g))
	}
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(want, []byte(got)) {
		t.Errorf("%s: got\n%s\nwant\n%s", file, got, want)
	}
}
