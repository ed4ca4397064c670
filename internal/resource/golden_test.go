package resource

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const goldenMark = "# --- expected ---\n"

// TestFindings reads each file of testdata/findings. What is expected of it stands at its end, as comments.
func TestFindings(t *testing.T) {
	files, err := filepath.Glob("testdata/findings/*")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".yaml"), func(t *testing.T) {
			t.Parallel()
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			input, want, _ := bytes.Cut(content, []byte(goldenMark))
			file := filepath.Join(t.TempDir(), "in.yaml")
			if err := os.WriteFile(file, input, 0o600); err != nil {
				t.Fatal(err)
			}
			set, err := Load(everything, []string{file}, nil)
			if err != nil {
				t.Fatal(err)
			}
			got := strings.ReplaceAll(summary(set), file, "in.yaml")
			if *update {
				if err := os.WriteFile(path, []byte(string(input)+goldenMark+got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// summary is the keys and the findings of a set as comment lines.
func summary(set *Set) string {
	var keys []string
	for k, o := range set.Origins {
		keys = append(keys, fmt.Sprintf("# serves %s (%s)\n", k, o))
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, k := range keys {
		b.WriteString(k)
	}
	for _, f := range set.Findings {
		b.WriteString("# " + strings.ReplaceAll(f.String(), "\n", "\n#   ") + "\n")
	}
	return b.String()
}
