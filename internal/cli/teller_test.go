package cli

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

func TestFindingsThatAreGoneAreTold(t *testing.T) {
	var log bytes.Buffer
	tell := newTeller(slog.New(slog.NewTextHandler(&log, nil)))
	finding := func(code, name string, line int) resource.Finding {
		return resource.Finding{Code: code, Ref: model.Ref{Kind: "HTTPRoute", Namespace: "default", Name: name, Field: "spec"}, Origin: resource.Origin{File: "a.yaml", Line: line}}
	}
	told := func() string {
		text := log.String()
		log.Reset()
		return text
	}
	tell.tellFindings([]resource.Finding{finding("WR534", "a", 1), finding("WR530", "b", 9), finding("WR520", "c", 1)})
	if text := told(); strings.Contains(text, "cleared") {
		t.Errorf("nothing was there before:\n%s", text)
	}
	tell.tellFindings([]resource.Finding{finding("WR530", "b", 7)}) // another line is the same mistake
	text := told()
	for _, part := range []string{"findings cleared", "cleared=2 left=1", "WR520 HTTPRoute default/c spec, WR534 HTTPRoute default/a spec"} {
		if !strings.Contains(text, part) {
			t.Errorf("the log lacks %q:\n%s", part, text)
		}
	}
	tell.tellFindings([]resource.Finding{finding("WR530", "b", 7)})
	if text := told(); text != "" {
		t.Errorf("told again:\n%s", text)
	}
	var many []resource.Finding
	for i := range 100 {
		many = append(many, finding("WR530", fmt.Sprint("many", i), i))
	}
	tell.tellFindings(many)
	told()
	tell.tellFindings(nil)
	if text := told(); !strings.Contains(text, "cleared=100 left=0") || !strings.Contains(text, "90 more") || len(text) > 1000 {
		t.Errorf("a hundred findings are gone:\n%s", text)
	}
}
