// Recording runs the README's first command in a terminal, changes its weights half way, and draws what the terminal showed as one
// animated SVG: the picture of the README. Run it by "make recording"; it needs util-linux's "script".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// command is what the README has people run.
const command = "go run ./cmd/weir-demo --for 10s"

const (
	columns, rows = 92, 21
	length        = 10 * time.Second // of the demo
	change        = 4500 * time.Millisecond
)

func main() {
	demo := flag.String("demo", "bin/weir-demo", "the binary that the command would make")
	out := flag.String("o", "docs/demo.svg", "the file to write")
	flag.Parse()
	if err := run(*demo, *out); err != nil {
		fmt.Fprintln(os.Stderr, "recording:", err)
		os.Exit(1)
	}
}

func run(demo, out string) error {
	demo, err := filepath.Abs(demo)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), length+20*time.Second)
	defer cancel()
	shell := fmt.Sprintf("stty cols %d rows %d; exec '%s' --for %s", columns, rows, demo, length)
	cmd := exec.CommandContext(ctx, "script", "-qefc", shell, "/dev/null")
	cmd.Env = append(os.Environ(), "TERM=xterm", "COLUMNS=", "NO_COLOR=1")
	screen, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	frames, err := record(screen)
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return err
	}
	if len(frames) < 5 {
		return fmt.Errorf("the demo showed %d screens only", len(frames))
	}
	return os.WriteFile(out, []byte(draw(frames)), 0o644)
}

// frame is a screen and how long after the start it appeared.
type frame struct {
	at    time.Duration
	lines []string
}

// record follows the terminal to its end, and changes the demo's weights on the way.
func record(screen io.Reader) ([]frame, error) {
	manifest := regexp.MustCompile(`edit (\S+demo\.yaml)`)
	var frames []frame
	var s terminal
	start := time.Time{}
	path, changed := "", false
	buf := make([]byte, 64<<10)
	for {
		n, err := screen.Read(buf)
		if n > 0 {
			if start.IsZero() {
				start = time.Now()
			}
			s.write(string(buf[:n]))
			at := time.Since(start)
			if !slices.ContainsFunc(s.text, isSummary) { // it adds up what was before the change and after it
				frames = append(frames, frame{at, s.lines()})
			}
			if m := manifest.FindStringSubmatch(strings.Join(s.lines(), "\n")); m != nil {
				path = m[1]
			}
			if !changed && at >= change && path != "" {
				changed = true
				if err := edit(path); err != nil {
					return nil, err
				}
				s.note("$ # in another window: weights 90/10 become 50/50, the mirror's fraction 1/5 becomes 1/2")
				frames = append(frames, frame{at + 300*time.Millisecond, s.lines()})
			}
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if !changed {
		return nil, errors.New("the demo ended before its weights were changed")
	}
	return frames, nil
}

func isSummary(line string) bool { return strings.HasPrefix(line, "services received") }

func edit(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	moved := strings.NewReplacer("weight: 90", "weight: 50", "weight: 10", "weight: 50", "denominator: 5", "denominator: 2").Replace(string(text))
	if moved == string(text) {
		return fmt.Errorf("%s has no weights to change", path)
	}
	return os.WriteFile(path, []byte(moved), 0o600)
}

// terminal understands what the demo writes: lines, "cursor up" and "erase to the end of the screen".
type terminal struct {
	text []string
	row  int
	rest string // half a sequence
	said string // shown below the prompt
}

var sequence = regexp.MustCompile(`^\x1b\[([0-9]*)([A-Za-z])`)

func (t *terminal) write(s string) {
	for s = t.rest + s; s != ""; {
		switch {
		case s[0] == '\n':
			t.row++
			s = s[1:]
		case s[0] == '\r':
			s = s[1:]
		case s[0] == '\x1b':
			m := sequence.FindStringSubmatch(s)
			if m == nil {
				t.rest = s
				return
			}
			n := 1
			if m[1] != "" {
				_, _ = fmt.Sscan(m[1], &n)
			}
			switch m[2] {
			case "A":
				t.row = max(t.row-n, 0)
			case "J":
				t.text = t.text[:min(t.row, len(t.text))]
			}
			s = s[len(m[0]):]
		default:
			end := strings.IndexAny(s, "\r\n\x1b")
			if end < 0 {
				end = len(s)
			}
			for len(t.text) <= t.row {
				t.text = append(t.text, "")
			}
			t.text[t.row] += s[:end]
			s = s[end:]
		}
	}
	t.rest = ""
}

func (t *terminal) note(s string) { t.said = s }

func (t *terminal) lines() []string {
	lines := append([]string{"$ " + command}, t.text...)
	if t.said != "" {
		lines = append(lines, "", t.said)
	}
	return lines
}

const (
	size, width, height = 14, 8.43, 20.0
	margin              = 16.0
)

// draw puts the screens on top of each other; each is seen for its time. Who wants no motion sees the last.
func draw(frames []frame) string {
	most := 0
	for _, f := range frames {
		most = max(most, len(f.lines))
	}
	still := len(frames) - 1
	total := frames[len(frames)-1].at + 4*time.Second
	w, h := columns*width+2*margin, float64(most)*height+2*margin
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" role="img" `+
		`aria-label="`+command+`: the shares of two versions and of a mirror follow their weights, which are changed while it runs">`+"\n", w, h, w, h)
	fmt.Fprintf(&b, "<style>\ntext{font:%dpx ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;fill:#d5dae1;white-space:pre}\n"+
		".p{fill:#7ee0b0}.h{fill:#7fb4ff}.q{fill:#8b949e}\n.f{visibility:hidden}\n", size)
	fmt.Fprintf(&b, "@media (prefers-reduced-motion:reduce){.f{animation:none!important}#f%d{visibility:visible}}\n", still)
	for i, f := range frames {
		end := total
		if i+1 < len(frames) {
			end = frames[i+1].at
		}
		from, to := 100*f.at.Seconds()/total.Seconds(), 100*end.Seconds()/total.Seconds()
		fmt.Fprintf(&b, "#f%d{animation:k%d %.2fs step-end infinite}@keyframes k%d{0%%{visibility:%s}%.2f%%{visibility:visible}",
			i, i, total.Seconds(), i, visible(from < 0.005), from)
		if to < 100 {
			fmt.Fprintf(&b, "%.2f%%{visibility:hidden}", to)
		}
		b.WriteString("}\n")
	}
	fmt.Fprintf(&b, "</style>\n<rect width=\"%.0f\" height=\"%.0f\" rx=\"10\" fill=\"#0d1117\"/>\n", w, h)
	for i, f := range frames {
		fmt.Fprintf(&b, "<g id=\"f%d\" class=\"f\">\n", i)
		for row, line := range f.lines {
			if line = strings.TrimRight(line, " "); line != "" {
				text := strings.TrimLeft(line, " ")
				x := margin + width*float64(len(line)-len(text))
				fmt.Fprintf(&b, "<text x=\"%.1f\" y=\"%.1f\"%s>%s</text>\n", x, margin+float64(row)*height+size, class(line), escape(text))
			}
		}
		b.WriteString("</g>\n")
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func visible(yes bool) string {
	if yes {
		return "visible"
	}
	return "hidden"
}

// class is the colour of a line: what was typed, the heads of tables, what explains.
func class(line string) string {
	switch {
	case strings.HasPrefix(line, "$"):
		return ` class="p"`
	case strings.Contains(line, "WANTED"):
		return ` class="h"`
	case strings.HasPrefix(line, "weir demo:"), regexp.MustCompile(`^  (try it|metrics|change|end|      ) `).MatchString(line):
		return ` class="q"`
	}
	return ""
}

func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", " ", "\u00a0").Replace(s)
}
