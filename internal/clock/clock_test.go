package clock

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// wallClock are the functions of the data plane that may speak of the time of day, by file, and why that is no measuring of intervals.
var wallClock = map[string]string{
	"socket/clock.go: LongAgo":   "a deadline that has passed, whatever the clock says",
	"proxy/session.go: *":        "tokens outlive the process; see maxSkew",
	"telemetry/registry.go: *":   "when a configuration was applied, for people",
	"telemetry/prometheus.go: *": "the same, and when certificates expire",
	"telemetry/encode.go: *":     "the access log's times",
	"proxy/tls.go: *":            "certificates have times of day",
	"upstream/tls.go: *":         "certificates have times of day",
	"telemetry/accesslog.go: *":  "the access log's times",
}

// A time that was turned into a number of the Unix epoch has lost its reading of the monotonic clock: intervals between such numbers jump when
// somebody sets the clock.
func TestIntervalsComeFromTheMonotonicClock(t *testing.T) {
	for _, dir := range []string{"clock", "proxy", "upstream", "socket", "http1", "http2", "routing", "telemetry", "control"} {
		files, err := filepath.Glob(filepath.Join("..", dir, "*.go"))
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", dir, len(files), err)
		}
		for _, path := range files {
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				name := dir + "/" + filepath.Base(path) + ": "
				if wallClock[name+"*"] != "" || wallClock[name+declared(d)] != "" {
					continue
				}
				ast.Inspect(d, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok {
						switch s.Sel.Name {
						case "Unix", "UnixNano", "UnixMilli", "UnixMicro":
							t.Errorf("%s: %s loses the monotonic clock", set.Position(n.Pos()), s.Sel.Name)
						}
					}
					return true
				})
			}
		}
	}
}

func declared(d ast.Decl) string {
	switch d := d.(type) {
	case *ast.FuncDecl:
		return d.Name.Name
	case *ast.GenDecl:
		for _, s := range d.Specs {
			if v, ok := s.(*ast.ValueSpec); ok {
				return v.Names[0].Name
			}
		}
	}
	return ""
}

func TestInstantsMeasureIntervals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := Instant(time.Now())
		time.Sleep(90 * time.Minute)
		if got := Since(a); a <= 0 || got != 90*time.Minute {
			t.Errorf("%v since %d", got, a)
		}
	})
}
