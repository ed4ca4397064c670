package weir_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	snippet      = regexp.MustCompile("(?s)```sh\n(.*?)```")
	singleQuotes = regexp.MustCompile(`'[^']*'`)
	doubleQuotes = regexp.MustCompile(`"[^"]*"`)
	// globbed are marks that zsh expands in a word where bash leaves them alone if no file fits: a URL with a query, above all.
	globbed = regexp.MustCompile(`\S*(\?|[^\s$({]\[|\*|\^)\S*`)
)

// TestSnippetsAreForBashAndZsh looks for what zsh reads in another way than bash: unquoted marks of patterns ("no matches found"), "!" in double quotes
// (history), and jobs -p, which prints more than numbers.
func TestSnippetsAreForBashAndZsh(t *testing.T) {
	n := 0
	for _, root := range []string{"README.md", "docs", "examples", "deploy", "test"} {
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(path) != ".md" {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range snippet.FindAllStringSubmatch(string(text), -1) {
				n++
				for _, line := range strings.Split(m[1], "\n") {
					if p := unlikeInZsh(line); p != "" {
						t.Errorf("%s: %s: %q", path, p, line)
					}
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if n < 10 {
		t.Errorf("%d snippets, want those of the tutorials", n)
	}
	for line, want := range map[string]bool{
		"curl http://a/?x=1": true, "curl 'http://a/?x=1'": false, `echo "done!"`: true, "kill $(jobs -p)": true, "kill $WEIR; wait": false,
		"kubectl get x -o jsonpath={.a[0]}": true, `kubectl get x -o 'jsonpath={.a[0]}'`: false, "weir check routes/ || echo \"exit code $?\"": false,
	} {
		if got := unlikeInZsh(line) != ""; got != want {
			t.Errorf("%q: found %v, want %v", line, got, want)
		}
	}
}

// unlikeInZsh says what of a line is not the same in zsh; empty if all is.
func unlikeInZsh(line string) string {
	line = singleQuotes.ReplaceAllString(line, "")
	for _, q := range doubleQuotes.FindAllString(line, -1) {
		if strings.Contains(q, "!") {
			return `"!" in double quotes`
		}
	}
	line = strings.ReplaceAll(doubleQuotes.ReplaceAllString(line, ""), "$?", "")
	switch {
	case strings.Contains(line, "jobs -p"):
		return "jobs -p"
	case globbed.MatchString(line):
		return "a mark of a pattern without quotes"
	}
	return ""
}
