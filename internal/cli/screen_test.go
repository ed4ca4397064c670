package cli

import (
	"bytes"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/curl"
	"github.com/weirmesh/weir/internal/diff"
	"github.com/weirmesh/weir/internal/explain"
	"github.com/weirmesh/weir/internal/explain/access"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/screen/screentest"
)

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
		"explain --from": func(s screen.Screen) (string, error) {
			var b bytes.Buffer
			l := look("../internal/cli/testdata/access/mesh.yaml")
			served := l.accessServed()
			a, err := served.Explain("deployment/shop/cart", request("curl", "-X", "DELETE", "http://web/orders/"+strings.Repeat("1", 60)))
			if err != nil {
				return "", err
			}
			err = a.Print(&b, s, served)
			return b.String(), err
		},
		"access": func(s screen.Screen) (string, error) {
			var b bytes.Buffer
			l := look("../internal/cli/testdata/access/mesh.yaml")
			m, err := l.accessServed().Matrix(access.Filter{})
			if err == nil {
				err = m.Print(&b, s)
			}
			return b.String(), err
		},
		"diff": func(s screen.Screen) (string, error) {
			a, b := look("header-match"), look("canary")
			p := &diffPrinter{Screen: s, sides: [2]diffSide{{path: "a", set: a.set, config: a.Config}, {path: "b", set: b.set, config: b.Config}}, report: diff.Compare(a.Config, b.Config, "")}
			return p.text(), nil
		},
		"diff of access": func(s screen.Screen) (string, error) {
			a, b := look("../internal/cli/testdata/access/mesh.yaml"), look("../internal/cli/testdata/access/changed.yaml")
			p := &diffPrinter{Screen: s, sides: [2]diffSide{{path: "a", set: a.set, config: a.Config}, {path: "b", set: b.set, config: b.Config}}, report: diff.Compare(a.Config, b.Config, "")}
			return p.text(), nil
		},
		"rollout plan": func(s screen.Screen) (string, error) {
			set := look("rollout").set
			report, err := planAll(set, "")
			if err != nil {
				return "", err
			}
			p := &report.Rollouts[0]
			p.Problems = []planProblem{{Code: finding.Code, Field: finding.Ref.Field, Message: finding.Message, Fix: finding.Fix}}
			p.Steps[0].Objects[0].After["metadata"].(map[string]any)["annotations"] = map[string]any{"about": strings.Repeat("a long text ", 20)}
			p.Steps[1].Who = strings.Repeat("a long sentence ", 20)
			report.Problems = []resource.Finding{finding}
			var b bytes.Buffer
			err = report.print(&b, s)
			return b.String(), err
		},
	}
	for name, print := range printers {
		t.Run(name, func(t *testing.T) { screentest.Fits(t, print) })
	}
}
