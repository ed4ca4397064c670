package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const mistaken = `apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: shop}
spec: {rules: [{backendRefs: [{name: "no: such,%", port: 80}]}]}
---
kind: [
`

func TestFindingsAsAnnotationsOfGitHub(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a,b.yaml")
	if err := os.WriteFile(file, []byte(mistaken), 0o600); err != nil {
		t.Fatal(err)
	}
	r := weir("", "check", "-o", "github", file)
	at := "file=" + strings.ReplaceAll(file, ",", "%2C")
	r.want(t, 1, "::error "+at+",line=4,title=WR", "::error "+at+",line=6,title=WR102::", "%0Afix: ", "1 object")
	for line := range strings.Lines(r.stdout) {
		if !strings.HasPrefix(line, "::") && !strings.HasPrefix(line, "1 object") && !strings.HasPrefix(line, "target: ") {
			t.Errorf("a line that is no command: %q", line)
		}
	}
	weir(mistaken, "check", "-o", "github", "-").want(t, 1, "::error title=WR102", "!file=")
	weir("", "check", "-o", "github", "../../examples/canary").want(t, 0, "nothing to complain about", "!::")
}

// TestFindingsAsSARIF holds the log to what the format requires (SARIF 2.1.0) and to what "-o json" says.
func TestFindingsAsSARIF(t *testing.T) {
	file := filepath.Join(t.TempDir(), "a b.yaml")
	if err := os.WriteFile(file, []byte(mistaken), 0o600); err != nil {
		t.Fatal(err)
	}
	var log struct {
		Schema  string `json:"$schema"`
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name  string
					Rules []struct {
						ID, HelpURI                       string
						ShortDescription, FullDescription struct{ Text string }
						DefaultConfiguration              struct{ Level string }
					}
				}
			}
			Results []struct {
				RuleID    string
				RuleIndex int
				Level     string
				Message   struct{ Text string }
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine int }
					}
					LogicalLocations []struct{ FullyQualifiedName string }
				}
			}
		}
	}
	decode := func(text string, into any) {
		t.Helper()
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
	}
	decode(weir("", "check", "-o", "sarif", file).stdout, &log)
	var plain struct {
		Findings []struct {
			Code, Severity, Message string
			Origin                  struct{ Line int }
		}
	}
	decode(weir("", "check", "-o", "json", file).stdout, &plain)
	if log.Version != "2.1.0" || log.Schema == "" || len(log.Runs) != 1 || log.Runs[0].Tool.Driver.Name != "weir" {
		t.Fatalf("%+v", log)
	}
	run := log.Runs[0]
	if len(run.Results) != len(plain.Findings) || len(run.Results) < 2 {
		t.Fatalf("%d results, %d findings", len(run.Results), len(plain.Findings))
	}
	for i, got := range run.Results {
		want := plain.Findings[i]
		rule := run.Tool.Driver.Rules[got.RuleIndex]
		if got.RuleID != want.Code || rule.ID != want.Code || !strings.HasPrefix(got.Message.Text, want.Message) || got.Level != strings.Replace(want.Severity, "info", "note", 1) {
			t.Errorf("%+v is not %+v", got, want)
		}
		if rule.ShortDescription.Text == "" || rule.FullDescription.Text == "" || !strings.HasSuffix(rule.HelpURI, "#"+strings.ToLower(rule.ID)) || rule.DefaultConfiguration.Level == "" {
			t.Errorf("rule %+v", rule)
		}
		if l := got.Locations[0].PhysicalLocation; l.Region.StartLine != want.Origin.Line || !strings.HasSuffix(l.ArtifactLocation.URI, "/a%20b.yaml") {
			t.Errorf("location %+v, want line %d", l, want.Origin.Line)
		}
	}
	decode(weir("", "check", "-o", "sarif", "../../examples/canary").stdout, &log)
	if r := log.Runs[0].Results; r == nil || len(r) != 0 {
		t.Errorf("results %v, want an empty list", r)
	}
}
