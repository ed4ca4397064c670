package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/diff"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// widest is the longest line with more than one word after its indentation, in columns.
func widest(text string) (n int) {
	for _, l := range strings.Split(text, "\n") {
		if len(strings.Fields(l)) > 1 {
			n = max(n, utf8.RuneCountInString(l))
		}
	}
	return n
}

// marks are the characters of a text but for spaces, sorted.
func marksOf(text string) string {
	all := []rune(strings.Join(strings.Fields(text), ""))
	slices.Sort(all)
	return string(all)
}

// TestOutputFitsTheScreenAndLosesNothing compares what is printed on screens with what is printed to a file.
func TestOutputFitsTheScreenAndLosesNothing(t *testing.T) {
	const examples = "../../examples/"
	look := func(path string) *look {
		files := flags.NewChoice("files")
		set, result, _, err := load([]string{examples + path}, nil, control.Options{}, &files)
		if err != nil {
			t.Fatal(err)
		}
		return &look{set: set, Result: result}
	}
	request := func(args ...string) *clientRequest {
		r, err := parseRequest(args)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	finding := resource.Finding{Code: "WR534", Ref: model.Ref{Kind: "HTTPRoute", Namespace: "default", Name: "shop", Field: "spec.rules[0].matches[0].path.Value"},
		Origin: resource.Origin{File: "routes/of/a/team/with/a/long/name.yaml", Line: 7}, Message: strings.Repeat("all is wrong ", 20), Fix: strings.Repeat("mend it ", 30)}
	printers := map[string]func(screen) (string, error){
		"status": func(s screen) (string, error) {
			var b bytes.Buffer
			err := clusterReport().print(&b, false, s)
			return b.String(), err
		},
		"status -o wide": func(s screen) (string, error) {
			var b bytes.Buffer
			err := clusterReport().print(&b, true, s)
			return b.String(), err
		},
		"check": func(s screen) (string, error) {
			var b bytes.Buffer
			err := checkReport{Objects: 1, Errors: 1, Findings: []resource.Finding{finding}}.print(&b, s)
			return b.String(), err
		},
		"explain": func(s screen) (string, error) {
			var b bytes.Buffer
			l := look("header-match")
			e := l.explainAt(l.Config, request("curl", "-H", "x-beta: no", "-x", "p", "http://shop.example:8080/cart"))
			e.LeftOut = []leftOut{{Ref: finding.Ref, Findings: []resource.Finding{finding}}}
			err := e.print(&b, s, func(r model.Ref) string { return l.set.Origin(r).String() })
			return b.String(), err
		},
		"diff": func(s screen) (string, error) {
			a, b := look("header-match"), look("canary")
			p := &diffPrinter{screen: s, sides: [2]diffSide{{"a", a.set, a.Config}, {"b", b.set, b.Config}}, report: diff.Compare(a.Config, b.Config)}
			return p.text(), nil
		},
	}
	for name, print := range printers {
		whole, err := print(screen{})
		if err != nil {
			t.Fatal(err)
		}
		for _, width := range []int{77, 80, 132} {
			got, err := print(screen{width: width})
			if err != nil {
				t.Fatal(err)
			}
			if n := widest(got); n > width {
				t.Errorf("%s: a line of %d columns on a screen of %d:\n%s", name, n, width, got)
			}
			if marksOf(got) != marksOf(whole) {
				t.Errorf("%s: %d columns show\n%s\nof\n%s", name, width, got, whole)
			}
		}
	}
}

func TestAPipeHasNoWidthAndNoColours(t *testing.T) {
	t.Setenv("COLUMNS", "50")
	if s := screenOf(&bytes.Buffer{}); s != (screen{}) {
		t.Errorf("screen = %+v", s)
	}
}
