package cli

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/curl"
	"github.com/weirmesh/weir/internal/diff"
	"github.com/weirmesh/weir/internal/explain"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/screen/screentest"
	"github.com/weirmesh/weir/internal/telemetry"
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
	request := func(args ...string) *curl.Request {
		r, err := curl.Parse(args)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	finding := resource.Finding{Code: "WR534", Ref: model.Ref{Kind: "HTTPRoute", Namespace: "default", Name: "shop", Field: "spec.rules[0].matches[0].path.Value"},
		Origin: resource.Origin{File: "routes/of/a/team/with/a/long/name.yaml", Line: 7}, Message: strings.Repeat("all is wrong ", 20), Fix: strings.Repeat("mend it ", 30)}
	printers := map[string]func(screen.Screen) (string, error){
		"check": func(s screen.Screen) (string, error) {
			var b bytes.Buffer
			err := checkReport{Objects: 1, Errors: 1, Findings: []resource.Finding{finding}}.print(&b, s)
			return b.String(), err
		},
		"explain": func(s screen.Screen) (string, error) {
			var b bytes.Buffer
			l := look("header-match")
			e, err := l.served().Explain(request("curl", "-H", "x-beta: no", "-x", "p", "http://shop.example:8080/cart"), "")
			if err != nil {
				t.Fatal(err)
			}
			e.LeftOut = []explain.LeftOut{{Ref: finding.Ref, Findings: []resource.Finding{finding}}}
			err = e.Print(&b, s, l.served().Origin)
			return b.String(), err
		},
		"diff": func(s screen.Screen) (string, error) {
			a, b := look("header-match"), look("canary")
			p := &diffPrinter{Screen: s, sides: [2]diffSide{{"a", a.set, a.Config}, {"b", b.set, b.Config}}, report: diff.Compare(a.Config, b.Config)}
			return p.text(), nil
		},
	}
	for name, print := range printers {
		t.Run(name, func(t *testing.T) { screentest.Fits(t, print) })
	}
}

func TestTheDemosTablesFitTheScreen(t *testing.T) {
	o := observation{elapsed: 1e9, generation: 1, problem: strings.Repeat("what is wrong ", 20)}
	for range 2 {
		o.backends = append(o.backends, backendRow{rule: "a-rule-with-a-long-name", backend: "default/a-service-with-a-very-long-name:80", share: 0.5, wanted: 0.5,
			ExchangeSnapshot: telemetry.ExchangeSnapshot{Requests: 1234567}})
		o.mirrors = append(o.mirrors, mirrorRow{rule: "a-rule-with-a-long-name", mirror: "default/another-service-with-a-long-name:80", numerator: 1, denominator: 2})
	}
	whole := tables(screen.Screen{}, o)
	for _, part := range []string{"a-rule-with-a-long-name", "a-service-with-a-very-long-name", "1234567", "RPS", o.problem} {
		if !strings.Contains(whole, part) {
			t.Errorf("a file lacks %q:\n%s", part, whole)
		}
	}
	for _, width := range []int{40, 60, 80} {
		text := tables(screen.Screen{Width: width}, o)
		if n := widest(text); n > width {
			t.Errorf("a line of %d columns on a screen of %d:\n%s", n, width, text)
		}
		if strings.Count(text, "\n") != strings.Count(whole, "\n") {
			t.Errorf("%d columns: other lines than in a file:\n%s", width, text)
		}
		for _, part := range []string{"BACKEND", "WANTED", "SHARE"} {
			if !strings.Contains(text, part) {
				t.Errorf("%d columns lack %s:\n%s", width, part, text)
			}
		}
	}
}
