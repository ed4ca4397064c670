package cli

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"
)

// screen is the abilities of an output. The zero value is a file or a pipe: lines are not fitted, without colours.
type screen struct {
	// width in columns; 0 is no bound.
	width  int
	colour bool
}

// screenOf returns the abilities of an output. A terminal's width is COLUMNS, else its own. It has colours unless the
// user has switched them off (https://no-color.org).
func screenOf(out io.Writer) screen {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return screen{}
	}
	s := screen{colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		s.width = n
	} else if width, _, err := term.GetSize(int(f.Fd())); err == nil {
		s.width = width
	}
	if s.width > 0 {
		s.width = max(s.width, narrowest)
	}
	return s
}

const (
	// narrowest is the width below which nothing is fitted.
	narrowest = 40
	// proseWidth is that of sentences where there is more.
	proseWidth = 100
)

// prose is the width of sentences.
func (s screen) prose() int {
	if s.width > 0 {
		return min(s.width, proseWidth)
	}
	return proseWidth
}

const (
	red    = "\x1b[31m"
	green  = "\x1b[32m"
	yellow = "\x1b[33m"
	plain  = "\x1b[0m"
)

func (s screen) in(colour, text string) string {
	if !s.colour {
		return text
	}
	return colour + text + plain
}

// fold breaks a line at spaces so that it fits the screen; lines that follow are indented as the first is, and by hang more. A word that is longer
// than the screen is left whole.
func (s screen) fold(line string, hang int) string {
	if s.width == 0 || utf8.RuneCountInString(line) <= s.width {
		return line
	}
	body := strings.TrimLeft(line, " ")
	indent := len(line) - len(body)
	pad := strings.Repeat(" ", min(indent+hang, s.width/2))
	var b strings.Builder
	b.WriteString(line[:indent])
	column, first := indent, true
	for body != "" {
		gap := len(body) - len(strings.TrimLeft(body, " "))
		word, rest, _ := cutWord(body[gap:])
		n := utf8.RuneCountInString(word)
		if !first && column+gap+n > s.width {
			b.WriteString("\n" + pad)
			column, gap = len(pad), 0
		}
		b.WriteString(strings.Repeat(" ", gap) + word)
		column, first, body = column+gap+n, false, rest
	}
	return b.String()
}

// cutWord cuts a text before its first space.
func cutWord(text string) (word, rest string, found bool) {
	if i := strings.IndexByte(text, ' '); i >= 0 {
		return text[:i], text[i:], true
	}
	return text, "", false
}

// columns are the widths of a table's columns such that it fits the screen with gap columns between them: the widest
// shrinks first, down to its least width.
func (s screen) columns(widths, least []int, gap int) []int {
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for s.width > 0 && total > s.width {
		widest := -1
		for i, w := range widths {
			if w > least[i] && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		total--
	}
	return widths
}

// cellLines are the lines of a cell: one for each word of a list. Words that are longer than the column are cut at a
// mark of the name, if it has one.
func cellLines(text string, width int) (lines []string) {
	line := ""
	for _, word := range strings.Fields(text) {
		for {
			need := utf8.RuneCountInString(word)
			if line != "" && utf8.RuneCountInString(line)+1+need <= width {
				line += " " + word
				break
			}
			if line != "" {
				lines, line = append(lines, line), ""
			}
			if need <= width {
				line = word
				break
			}
			at := cutAt(word, width)
			lines, word = append(lines, word[:at]), word[at:]
		}
	}
	if line != "" || lines == nil {
		lines = append(lines, line)
	}
	return lines
}

// cutAt is where to cut a word so that its beginning fits: behind the last of the marks that names have, if that is not too early.
func cutAt(word string, width int) int {
	end, n := len(word), 0
	for i := range word {
		if n == width {
			end = i
			break
		}
		n++
	}
	if i := strings.LastIndexAny(word[:end], "/.-:,"); i > end/2 {
		return i + 1
	}
	return end
}
