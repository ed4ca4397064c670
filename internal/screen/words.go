package screen

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirmesh/weir/internal/visible"
)

// Wrap breaks text into lines of at most width columns, each indented. What is not visible is escaped.
func Wrap(text string, indent, width int) string {
	var b strings.Builder
	pad := strings.Repeat(" ", indent)
	column := 0
	for _, word := range strings.Fields(text) {
		word = visible.Text(word)
		switch {
		case column == 0:
			b.WriteString(pad)
			column = indent
		case column+1+utf8.RuneCountInString(word) > width:
			b.WriteString("\n" + pad)
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += utf8.RuneCountInString(word)
	}
	if column > 0 {
		b.WriteByte('\n')
	}
	return b.String()
}

// Count is "1 noun" or "2 nouns".
func Count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// Percent shows a part of 1 without hiding small ones.
func Percent(p float64) string {
	return strconv.FormatFloat(p*100, 'g', 4, 64) + " %"
}
