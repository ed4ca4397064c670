// Package screentest checks, for tests, that what is printed fits screens.
package screentest

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/weirmesh/weir/internal/screen"
)

// Fits holds that what print writes fits screens of several widths, and loses nothing of what it writes to a file.
func Fits(t *testing.T, print func(screen.Screen) (string, error)) {
	t.Helper()
	whole, err := print(screen.Screen{})
	if err != nil {
		t.Fatal(err)
	}
	for _, width := range []int{77, 80, 132} {
		got, err := print(screen.Screen{Width: width})
		if err != nil {
			t.Fatal(err)
		}
		if n := widest(got); n > width {
			t.Errorf("a line of %d columns on a screen of %d:\n%s", n, width, got)
		}
		if marks(got) != marks(whole) {
			t.Errorf("%d columns show\n%s\nof\n%s", width, got, whole)
		}
	}
}

// widest is the longest line with more than one word after its indentation, in columns.
func widest(text string) (n int) {
	for _, l := range strings.Split(text, "\n") {
		if len(strings.Fields(l)) > 1 {
			n = max(n, utf8.RuneCountInString(l))
		}
	}
	return n
}

// marks are the characters of a text but for spaces, sorted.
func marks(text string) string {
	all := []rune(strings.Join(strings.Fields(text), ""))
	slices.Sort(all)
	return string(all)
}
