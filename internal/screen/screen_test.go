package screen

import (
	"bytes"
	"testing"
)

func TestAPipeHasNoWidthAndNoColours(t *testing.T) {
	t.Setenv("COLUMNS", "50")
	if s := Of(&bytes.Buffer{}); s != (Screen{}) {
		t.Errorf("screen = %+v", s)
	}
}
