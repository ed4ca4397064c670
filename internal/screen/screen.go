// Package screen is what an output can show, a terminal or a file: widths, colours, tables and the wording of numbers. Commands print by it.
package screen

import (
	"io"
	"os"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/weirmesh/weir/internal/visible"
)

// Screen is what an output can show. The zero value is a file or a pipe: lines are as long as they are, without colours.
type Screen struct {
	// Width in columns; 0 is no bound.
	Width int
	// Height in lines; 0 is no bound.
	Height int
	// Colour says that escape sequences for colours may be written.
	Colour bool
}

// Of says what an output is. A terminal is as wide as COLUMNS says and as high as LINES says, else as it says itself, and has colours unless its user has something
// against them (https://no-color.org).
func Of(out io.Writer) Screen {
	f, ok := out.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return Screen{}
	}
	s := Screen{Colour: os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
	if width, height, err := term.GetSize(int(f.Fd())); err == nil {
		s.Width, s.Height = width, height
	}
	for name, value := range map[string]*int{"COLUMNS": &s.Width, "LINES": &s.Height} {
		if n, err := strconv.Atoi(os.Getenv(name)); err == nil && n > 0 {
			*value = n
		}
	}
	if s.Width > 0 {
		s.Width = max(s.Width, narrowest)
	}
	return s
}

const (
	// narrowest is the width below which nothing is fitted.
	narrowest = 40
	// proseWidth is that of sentences where there is more.
	proseWidth = 100
)

// Prose is the width of sentences.
func (s Screen) Prose() int {
	if s.Width > 0 {
		return min(s.Width, proseWidth)
	}
	return proseWidth
}

// Colours for In.
const (
	Red    = "\x1b[31m"
	Green  = "\x1b[32m"
	Yellow = "\x1b[33m"
	Plain  = "\x1b[0m"
)

// In puts a text into a colour, where the screen has colours.
func (s Screen) In(colour, text string) string {
	if !s.Colour {
		return text
	}
	return colour + text + Plain
}

// Print writes lines that others may have written parts of, with the colours of the screen and nothing else that a terminal, or who reads the lines, obeys
// (visible.Lines). What others wrote must have been made visible before where it must not have line breaks or colours; Fold, Wrap, Problem and Table do that.
func (s Screen) Print(w io.Writer, lines string) error {
	var own []string
	if s.Colour {
		own = []string{Red, Green, Yellow, Plain}
	}
	_, err := io.WriteString(w, visible.Lines(lines, own...))
	return err
}

// Fold breaks a line at spaces so that it fits the screen; lines that follow are indented as the first is, and by hang more. A word that is longer
// than the screen is left whole. What is not visible is escaped, line breaks too.
func (s Screen) Fold(line string, hang int) string {
	line = visible.Text(line)
	if s.Width == 0 || utf8.RuneCountInString(line) <= s.Width {
		return line
	}
	body := strings.TrimLeft(line, " ")
	indent := len(line) - len(body)
	pad := strings.Repeat(" ", min(indent+hang, s.Width/2))
	var b strings.Builder
	b.WriteString(line[:indent])
	column, first := indent, true
	for body != "" {
		gap := len(body) - len(strings.TrimLeft(body, " "))
		word, rest, _ := CutWord(body[gap:])
		n := utf8.RuneCountInString(word)
		if !first && column+gap+n > s.Width {
			b.WriteString("\n" + pad)
			column, gap = len(pad), 0
		}
		b.WriteString(strings.Repeat(" ", gap) + word)
		column, first, body = column+gap+n, false, rest
	}
	return b.String()
}

// CutWord cuts a text before its first space.
func CutWord(text string) (word, rest string, found bool) {
	if i := strings.IndexByte(text, ' '); i >= 0 {
		return text[:i], text[i:], true
	}
	return text, "", false
}

// Columns are the widths of a table's columns such that it fits the screen with gap columns between them: the widest gives first, as far as its
// least width.
func (s Screen) Columns(widths, least []int, gap int) []int {
	total := gap * (len(widths) - 1)
	for _, w := range widths {
		total += w
	}
	for s.Width > 0 && total > s.Width {
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

// CellLines are the lines of a cell: words of a list by line, and words that are longer than the column cut where a name has a mark, if anywhere.
func CellLines(text string, width int) (lines []string) {
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
