package grafana

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// TestBoardsAreOfGrafanasModel reads each board strictly: fields that the model does not have, or of another type, are errors,
// in panels and queries too.
func TestBoardsAreOfGrafanasModel(t *testing.T) {
	plugins.RegisterDefaultPlugins()
	files, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(files) != 5 {
		t.Fatalf("%d boards, %v", len(files), err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		b := dashboard.NewDashboard()
		newest := b.SchemaVersion
		if wrong := mistakes(text); wrong != "" {
			t.Errorf("%s: %s", file, wrong)
		}
		if err := json.Unmarshal(text, b); err != nil {
			t.Errorf("%s: %v", file, err)
			continue
		}
		if err := b.Validate(); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if b.SchemaVersion != newest {
			t.Errorf("%s has schema %d, Grafana's is %d", file, b.SchemaVersion, newest)
		}
		panels, queries := 0, 0
		count := func(p *dashboard.Panel) {
			panels++
			queries += len(p.Targets)
		}
		for _, p := range b.Panels {
			if p.Panel != nil {
				count(p.Panel)
			}
			if p.RowPanel != nil {
				for i := range p.RowPanel.Panels {
					count(&p.RowPanel.Panels[i])
				}
			}
		}
		t.Logf("%s has %d panels with %d queries", filepath.Base(file), panels, queries)
		if panels < 8 || queries < panels {
			t.Errorf("%s has %d panels with %d queries", file, panels, queries)
		}
		mistaken(t, text)
	}
}

// mistakes returns what is wrong with a board. The model's error may be a list without any, and then the panels are not read.
func mistakes(text []byte) string {
	if err := dashboard.NewDashboard().UnmarshalJSONStrict(text); err != nil {
		return err.Error()
	}
	return ""
}

// mistaken holds that the model notices a field of a query that there is not.
func mistaken(t *testing.T, text []byte) {
	var b map[string]any
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	for _, p := range b["panels"].([]any) {
		if targets, ok := p.(map[string]any)["targets"].([]any); ok {
			targets[0].(map[string]any)["expression"] = "up"
			break
		}
	}
	wrong, err := json.Marshal(b)
	if err != nil {
		t.Fatal(err)
	}
	if mistakes(wrong) == "" {
		t.Error("a query may have any field")
	}
}
