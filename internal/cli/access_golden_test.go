package cli_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// update says that golden files are rewritten; package goldentest has the flag.
func update() bool { return flag.Lookup("update").Value.String() == "true" }

// TestAccessTranscripts runs the command lines of testdata/access/*.golden, each after "$ ", and compares what they
// print and their exit codes.
func TestAccessTranscripts(t *testing.T) {
	const least, folder = 5, "testdata/access/"
	files, err := filepath.Glob("testdata/access/*.golden")
	if err != nil || len(files) < least {
		t.Fatalf("%d transcripts (%v), want at least %d", len(files), err, least)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".golden"), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			var got strings.Builder
			for line := range strings.SplitSeq(string(want), "\n") {
				command, ok := strings.CutPrefix(line, "$ weir ")
				if !ok {
					continue
				}
				r := weir("", words(strings.NewReplacer("mesh.yaml", folder+"mesh.yaml", "changed.yaml", folder+"changed.yaml").Replace(command))...)
				fmt.Fprintf(&got, "%s\n%s%s(exit %d)\n\n", line, r.stdout, r.err, r.code)
			}
			text := strings.ReplaceAll(got.String(), folder, "")
			if update() {
				if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if text != string(want) {
				t.Errorf("it prints\n%s\nwant\n%s", text, want)
			}
		})
	}
}

// words splits a command line at its spaces, outside of single quotes.
func words(line string) (all []string) {
	for i, part := range strings.Split(line, "'") {
		if i%2 == 1 { // in quotes
			all = append(all, part)
		} else {
			all = append(all, strings.Fields(part)...)
		}
	}
	return all
}
