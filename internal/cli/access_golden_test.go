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

// TestAccessTranscripts and TestDumpTranscripts run the command lines of testdata/*/*.golden, each after "$ ", and compare what
// they print and their exit codes.
func TestAccessTranscripts(t *testing.T) { transcripts(t, "testdata/access/", 5) }

func TestDumpTranscripts(t *testing.T) { transcripts(t, "testdata/dump/", 1) }

// transcripts runs those of a folder, of which there are at least so many. Files that they name are in it, too.
func transcripts(t *testing.T, folder string, least int) {
	files, err := filepath.Glob(folder + "*.golden")
	if err != nil || len(files) < least {
		t.Fatalf("%d transcripts (%v), want at least %d", len(files), err, least)
	}
	inputs, err := filepath.Glob(folder + "*.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var places []string
	for _, file := range inputs {
		places = append(places, filepath.Base(file), file)
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
				r := weir("", words(strings.NewReplacer(places...).Replace(command))...)
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
