package screen

import (
	"bytes"
	"strings"
	"testing"
)

func TestAPipeHasNoWidthAndNoColours(t *testing.T) {
	t.Setenv("COLUMNS", "50")
	if s := Of(&bytes.Buffer{}); s != (Screen{}) {
		t.Errorf("screen = %+v", s)
	}
}

func TestOnlyOwnColoursAreWritten(t *testing.T) {
	const foreign = "a\x1b[31mb\n::error::c"
	for _, s := range []Screen{{}, {Width: 40, Colour: true}} {
		var out strings.Builder
		text := s.Problem("error", foreign, foreign, foreign) + s.Fold(foreign, 2) + "\n" + s.Table([][]string{{"A", "B"}, {foreign, foreign}}) + s.In(Green, "::x") + "\n"
		if err := s.Print(&out, text); err != nil {
			t.Fatal(err)
		}
		got := out.String()
		if n := strings.Count(got, "\x1b"); s.Colour && n != 4 || !s.Colour && n != 0 {
			t.Errorf("%d sequences:\n%q", n, got)
		}
		for line := range strings.Lines(got) {
			for _, c := range []string{Red, Green, Yellow, Plain} {
				line = strings.ReplaceAll(line, c, "")
			}
			if strings.HasPrefix(strings.TrimSpace(line), "::") {
				t.Errorf("a command: %q", line)
			}
		}
	}
}
