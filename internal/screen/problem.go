package screen

import (
	"fmt"
	"strings"
)

// Problem is what is wrong in some lines for people: how bad it is ("error", or less), its name and where it is, the message, and what to do.
func (s Screen) Problem(severity, name, message, fix string) string {
	colour := Yellow
	if severity == "error" {
		colour = Red
	}
	text := "  " + s.In(colour, fmt.Sprintf("%-7s", severity)) + s.Fold(strings.Repeat(" ", 10)+name, 0)[9:] + "\n" + Wrap(message, 10, s.Prose())
	if fix != "" {
		text += Wrap("fix: "+fix, 10, s.Prose())
	}
	return text
}
