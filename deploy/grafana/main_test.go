package main

import (
	"encoding/json"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// file is what of a board's file a reader of it counts on.
type file struct {
	UID, Title, Description string
	ID                      *int
	SchemaVersion           int
	Panels                  []filePanel
	Templating              struct {
		List []struct {
			Name, Type string
			Datasource struct{ UID string }
		}
	}
}

type filePanel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct {
		RefID, Expr, LegendFormat string
		Datasource                struct{ Type, UID string }
	}
	FieldConfig struct{ Defaults struct{ Unit string } }
	Panels      []filePanel
}

func files(t *testing.T) map[string]file {
	t.Helper()
	out := map[string]file{}
	for _, b := range boards() {
		text, err := os.ReadFile(b.name + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var f file
		if err := json.Unmarshal(text, &f); err != nil {
			t.Fatal(err)
		}
		out[b.name] = f
	}
	return out
}

func TestBoardsAreUpToDate(t *testing.T) {
	if err := run(".", true); err != nil {
		t.Error(err)
	}
}

// TestBoardsCanBeImported holds what Grafana asks for, and does not say well: a UID that stays, no ID of one server, panels
// with IDs of their own that do not overlap, and a data source that can be chosen.
func TestBoardsCanBeImported(t *testing.T) {
	uids := map[string]bool{}
	for name, f := range files(t) {
		if f.UID != "weir-"+name || len(f.UID) > 40 || uids[f.UID] || f.ID != nil || f.Title == "" || f.Description == "" || f.SchemaVersion != schema {
			t.Errorf("%s: UID %q, ID %v, title %q, description %q, version %d", name, f.UID, f.ID, f.Title, f.Description, f.SchemaVersion)
		}
		uids[f.UID] = true
		if v := f.Templating.List[0]; v.Type != "datasource" || v.Name != "datasource" {
			t.Errorf("%s: the first variable is %+v", name, v)
		}
		for _, v := range f.Templating.List[1:] {
			if v.Datasource.UID != "${datasource}" {
				t.Errorf("%s: the variable %s asks %q", name, v.Name, v.Datasource.UID)
			}
		}
		var all []filePanel
		for _, p := range f.Panels {
			all = append(append(all, p), p.Panels...)
		}
		ids, cells := map[int]bool{}, map[[2]int]string{}
		for _, p := range all {
			if ids[p.ID] || p.ID < 1 {
				t.Errorf("%s: %q has the ID %d, which is not its own", name, p.Title, p.ID)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if other := cells[[2]int{x, y}]; other != "" || x >= columns {
						t.Fatalf("%s: %q is over %q, or over the edge", name, p.Title, other)
					}
					cells[[2]int{x, y}] = p.Title
				}
			}
			if p.Type != "row" {
				checkPanel(t, name, p)
			}
		}
	}
}

// units are those of Grafana that panels have.
var units = []unit{perSecond, perSecondOf, bytesPerSecond, ratio, seconds, size, count}

func checkPanel(t *testing.T, board string, p filePanel) {
	if p.Title == "" || len(p.Description) < 20 || !strings.HasSuffix(p.Description, ".") {
		t.Errorf("%s: %q is described by %q", board, p.Title, p.Description)
	}
	if kind(p.Type) != table && !slices.Contains(units, unit(p.FieldConfig.Defaults.Unit)) {
		t.Errorf("%s: %q has the unit %q", board, p.Title, p.FieldConfig.Defaults.Unit)
	}
	if len(p.Targets) == 0 {
		t.Errorf("%s: %q has no query", board, p.Title)
	}
	refs := map[string]bool{}
	for _, q := range p.Targets {
		if q.Expr == "" || refs[q.RefID] || q.Datasource.Type != "prometheus" || q.Datasource.UID != "${datasource}" {
			t.Errorf("%s: %q has the query %+v", board, p.Title, q)
		}
		refs[q.RefID] = true
		if kind(p.Type) == graph && q.LegendFormat == "" && len(p.Targets) > 1 {
			t.Errorf("%s: %q: a line of several has no name", board, p.Title)
		}
	}
}

// TestLegendsNameLabelsOfTheirQueries holds that each label in a legend is one that the query keeps.
func TestLegendsNameLabelsOfTheirQueries(t *testing.T) {
	label := regexp.MustCompile(`\{\{([a-z_]+)\}\}`)
	for _, b := range boards() {
		for _, r := range b.rows {
			for _, p := range r.panels {
				for _, q := range p.queries {
					by := regexp.MustCompile(`by \(([a-z_, ]+)\)`).FindStringSubmatch(q.expr)
					if by == nil {
						continue
					}
					for _, l := range label.FindAllStringSubmatch(q.legend, -1) {
						if !slices.Contains(strings.Split(strings.ReplaceAll(by[1], " ", ""), ","), l[1]) {
							t.Errorf("%s: %q: the legend %q of %s", b.name, p.title, q.legend, q.expr)
						}
					}
				}
			}
		}
	}
}

// TestLinksLeadToBoards holds that each leads to a variable of a board that there is, from a column that there is.
func TestLinksLeadToBoards(t *testing.T) {
	known := map[link]bool{}
	for _, b := range boards() {
		for _, v := range b.variables {
			known[link{board: "weir-" + b.name, variable: v.name}] = true
		}
	}
	n := 0
	for _, b := range boards() {
		for _, r := range b.rows {
			for _, p := range r.panels {
				for _, column := range slices.Sorted(maps.Keys(p.links)) {
					n++
					to, by := p.links[column], p.queries[0].expr
					if !known[link{board: to.board, variable: to.variable}] || !strings.Contains(by, column) ||
						known[link{board: to.board, variable: "namespace"}] != (to.namespace != "") || !strings.Contains(by, to.namespace) {
						t.Errorf("%s: %q leads from %s to %+v", b.name, p.title, column, to)
					}
				}
				if p.kind == table && !strings.Contains(p.queries[0].expr, p.sort) && !slices.ContainsFunc(p.queries, func(q query) bool { return q.legend == p.sort }) {
					t.Errorf("%s: %q is sorted by %q", b.name, p.title, p.sort)
				}
			}
		}
	}
	if n < 4 {
		t.Errorf("%d links", n)
	}
}
