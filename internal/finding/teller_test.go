package finding

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

func TestFindingsThatAreGoneAreTold(t *testing.T) {
	var log bytes.Buffer
	tell := Teller{Log: slog.New(slog.NewTextHandler(&log, nil))}
	about := func(code, name string, line int) Finding {
		return Finding{Code: code, Ref: model.Ref{Kind: "HTTPRoute", Namespace: "default", Name: name, Field: "spec"}, Origin: Origin{File: "a.yaml", Line: line}}
	}
	told := func() string {
		text := log.String()
		log.Reset()
		return text
	}
	tell.Tell([]Finding{about("WR534", "a", 1), about("WR530", "b", 9), about("WR520", "c", 1)})
	if text := told(); strings.Contains(text, "cleared") {
		t.Errorf("nothing was there before:\n%s", text)
	}
	tell.Tell([]Finding{about("WR530", "b", 7)}) // another line is the same mistake
	text := told()
	for _, part := range []string{"findings cleared", "cleared=2 left=1", "WR520 HTTPRoute default/c spec, WR534 HTTPRoute default/a spec"} {
		if !strings.Contains(text, part) {
			t.Errorf("the log lacks %q:\n%s", part, text)
		}
	}
	tell.Tell([]Finding{about("WR530", "b", 7)})
	if text := told(); text != "" {
		t.Errorf("told again:\n%s", text)
	}
	var many []Finding
	for i := range 100 {
		many = append(many, about("WR530", fmt.Sprint("many", i), i))
	}
	tell.Tell(many)
	told()
	tell.Tell(nil)
	if text := told(); !strings.Contains(text, "cleared=100 left=0") || !strings.Contains(text, "90 more") || len(text) > 1000 {
		t.Errorf("a hundred findings are gone:\n%s", text)
	}
}
