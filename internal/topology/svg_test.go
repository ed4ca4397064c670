package topology

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// element is one of a picture.
type element struct {
	XMLName  xml.Name
	Attrs    []xml.Attr `xml:",any,attr"`
	Children []element  `xml:",any"`
	Text     string     `xml:",chardata"`
}

func (e element) attr(name string) string {
	for _, a := range e.Attrs {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func (e element) number(name string) float64 {
	f, err := strconv.ParseFloat(e.attr(name), 64)
	if err != nil {
		return math.NaN()
	}
	return f
}

// passive are the elements and attributes that do no more than to show something.
var (
	passive           = []string{"svg", "title", "style", "rect", "g", "path", "text"}
	passiveAttributes = []string{"xmlns", "class", "role", "width", "height", "viewBox", "font-family", "font-size", "fill", "stroke", "rx", "x", "y", "d", "transform",
		"space", "textLength", "lengthAdjust"}
)

func parseSVG(text string) (root element, err error) {
	d := xml.NewDecoder(strings.NewReader(strings.TrimSuffix(text, "\n")))
	if err := d.Decode(&root); err != nil {
		return root, err
	}
	if _, err := d.Token(); err != io.EOF {
		return root, fmt.Errorf("something follows the picture: %v", err)
	}
	var check func(e element) error
	check = func(e element) error {
		if !slices.Contains(passive, e.XMLName.Local) || e.XMLName.Space != "http://www.w3.org/2000/svg" {
			return fmt.Errorf("the picture has an element %v", e.XMLName)
		}
		for _, a := range e.Attrs {
			if !slices.Contains(passiveAttributes, a.Name.Local) || strings.Contains(a.Value, "url(") {
				return fmt.Errorf("the picture has an attribute %v", a)
			}
		}
		for _, c := range e.Children {
			if err := check(c); err != nil {
				return err
			}
		}
		return nil
	}
	return root, check(root)
}

type spot struct{ x, y float64 }

// inside means that a spot is in a rectangle or on its sides.
func (e element) inside(p spot) bool {
	x, y := e.number("x"), e.number("y")
	return p.x >= x && p.x <= x+e.number("width") && p.y >= y && p.y <= y+e.number("height")
}

var numbers = regexp.MustCompile(`-?\d+`)

// spots are the numbers of an attribute in pairs.
func spots(d string) (out []spot) {
	n := numbers.FindAllString(d, -1)
	for i := 0; i+1 < len(n); i += 2 {
		x, _ := strconv.ParseFloat(n[i], 64)
		y, _ := strconv.ParseFloat(n[i+1], 64)
		out = append(out, spot{x, y})
	}
	return out
}

// readSVG finds the boxes and lines of a picture, with the heads and labels on them.
func readSVG(text string) (out picture, err error) {
	root, err := parseSVG(text)
	if err != nil {
		return out, err
	}
	for _, part := range root.Children {
		if part.XMLName.Local != "g" {
			continue
		}
		var boxes, lines, grounds, labels []element
		var names []string
		tips := map[spot]int{}
		for _, e := range part.Children {
			switch e.XMLName.Local + "." + e.attr("class") {
			case "g.":
				var texts []string
				for _, c := range e.Children {
					switch c.XMLName.Local {
					case "rect":
						boxes = append(boxes, c)
					case "text":
						texts = append(texts, strings.TrimSpace(c.Text))
					}
				}
				names = append(names, texts[0])
				out.boxes = append(out.boxes, texts)
			case "path.line":
				lines = append(lines, e)
			case "path.head":
				tips[spots(e.attr("d"))[0]]++
			case "rect.ground":
				grounds = append(grounds, e)
			case "text.":
				labels = append(labels, e)
			default:
				return out, fmt.Errorf("%s of class %q", e.XMLName.Local, e.attr("class"))
			}
		}
		out.nodes = append(out.nodes, names...)
		box := func(p spot) int { return slices.IndexFunc(boxes, func(b element) bool { return b.inside(p) }) }
		if len(grounds) != len(labels) {
			return out, fmt.Errorf("%d labels on %d grounds", len(labels), len(grounds))
		}
		for _, e := range lines {
			ps := spots(e.attr("d"))
			a, b := ps[0], ps[len(ps)-1]
			if box(a) < 0 || box(b) < 0 {
				return out, fmt.Errorf("the line %s does not join two boxes", e.attr("d"))
			}
			label := ""
			for i, l := range labels {
				middle := spot{l.number("x") + l.number("textLength")/2, l.number("y") - cellHeight/2 + 4}
				if !grounds[i].inside(middle) {
					return out, fmt.Errorf("the label %q is not on its ground", l.Text)
				}
				for j := range ps[1:] {
					if p, q := ps[j], ps[j+1]; math.Abs(p.y-middle.y) < 2 && p.y == q.y && min(p.x, q.x) < middle.x && middle.x < max(p.x, q.x) {
						label += l.Text
					}
				}
			}
			from, to := names[box(a)], names[box(b)]
			switch tail, head := tips[a], tips[b]; {
			case tail == 1 && head == 1:
				out.arrows = append(out.arrows, fmt.Sprintf("%s <-> %s: %s", min(from, to), max(from, to), label))
			case head == 1 && tail == 0:
				out.arrows = append(out.arrows, fmt.Sprintf("%s -> %s: %s", from, to, label))
			case tail == 1 && head == 0:
				out.arrows = append(out.arrows, fmt.Sprintf("%s -> %s: %s", to, from, label))
			default:
				return out, fmt.Errorf("the line %s has %d and %d heads", e.attr("d"), tail, head)
			}
			delete(tips, a)
			delete(tips, b)
		}
		if len(tips) > 0 {
			return out, fmt.Errorf("heads without a line: %v", tips)
		}
	}
	slices.Sort(out.nodes)
	slices.Sort(out.arrows)
	return out, nil
}

func TestPicturesReadAsTheGraphsThatTheyAreOf(t *testing.T) {
	graphs := 500
	if testing.Short() {
		graphs = 30
	}
	for seed := range uint64(graphs) {
		g := randomGraph(seed)
		text := SVG(g, Options{})
		got, err := readSVG(text)
		want := shown(g)
		for i, s := range want.arrows {
			// Labels have no quotes there.
			ends, label, _ := strings.Cut(s, ": ")
			want.arrows[i] = ends + ": " + unquote(label)
		}
		slices.Sort(want.arrows)
		if err != nil || !slices.Equal(got.nodes, want.nodes) || !slices.Equal(got.arrows, want.arrows) {
			t.Fatalf("graph %d: %v\n got %q\nwant %q", seed, err, got.arrows, want.arrows)
		}
		if again := SVG(g, Options{}); again != text {
			t.Fatalf("graph %d: another picture the second time", seed)
		}
	}
}

func TestHostileTextsStayTextsInPictures(t *testing.T) {
	hostile := []string{`"><script>alert(1)</script>`, `' onload='x`, "]]>", "&lt;&#x41;&", "<!--", "\x00\x1b[31m\r\n\u202e\u2066\ufffe\xff", "https://example.com/", "```\n<style>*{}"}
	for i, s := range hostile {
		text := SVG(Graph{Nodes: []Node{{ID: "a", Name: s + strings.Repeat("x", 60), Lines: []string{s}}}, Edges: []Edge{{"a", fmt.Sprint(i) + s, s}}}, Options{})
		got, err := readSVG(text)
		if err != nil || len(got.nodes) != 2 || len(got.arrows) != 1 {
			t.Errorf("%q: %v: %q\n%s", s, err, got.arrows, text)
		}
		if strings.ContainsAny(text, "\x00\x1b\r\u202e\u2066\ufffe\ufffd") || !utf8.ValidString(text) {
			t.Errorf("%q: not harmless: %q", s, text)
		}
	}
}

func TestAPictureTellsTheWholeNameOfWhatIsShortened(t *testing.T) {
	long := strings.Repeat("abc", 50)
	text := SVG(Graph{Nodes: []Node{{ID: "1", Name: "short"}, {ID: "2", Name: long}, {ID: "3", Name: strings.Repeat("x", 1000)}}}, Options{})
	titles := regexp.MustCompile(`<title>([^<]*)</title>`).FindAllStringSubmatch(text, -1)
	if len(titles) != 3 || titles[0][1] != "Nodes: 3, edges: 0" || titles[1][1] != long || columns(titles[2][1]) != maxTitle {
		t.Errorf("got titles %q", titles)
	}
}

// luminance is that of WCAG 2.2 of a colour like #0d1117.
func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	n, err := strconv.ParseUint(strings.TrimPrefix(colour, "#"), 16, 32)
	if err != nil || len(colour) != 7 {
		t.Fatalf("%q is no colour", colour)
	}
	part := func(shift int) float64 {
		c := float64(n>>shift&0xff) / 255
		if c <= 0.04045 {
			return c / 12.92
		}
		return math.Pow((c+0.055)/1.055, 2.4)
	}
	return 0.2126*part(16) + 0.7152*part(8) + 0.0722*part(0)
}

// TestPicturesAreReadableOnLightAndDark holds the contrasts to WCAG 2.2: 4.5 for texts (1.4.3), 3 for lines (1.4.11).
func TestPicturesAreReadableOnLightAndDark(t *testing.T) {
	text := SVG(Graph{Edges: []Edge{{"a", "b", "x"}}}, Options{})
	find := func(pattern string) string {
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no %s in\n%s", pattern, text)
		}
		return m[1]
	}
	for _, c := range []struct {
		what, front, ground string
		least               float64
	}{
		{"light text", `<text fill="(.*?)"`, `class="ground" fill="(.*?)"`, 4.5},
		{"light text in a box", `<text fill="(.*?)"`, `class="box" fill="(.*?)"`, 4.5},
		{"light line", `class="line" fill="none" stroke="(.*?)"`, `class="ground" fill="(.*?)"`, 3},
		{"light head", `class="head" fill="(.*?)"`, `class="ground" fill="(.*?)"`, 3},
		{"light side of a box", `class="box" fill="[^"]*" stroke="(.*?)"`, `class="ground" fill="(.*?)"`, 3},
		{"dark text", ` text { fill: (.*?) }`, `\.ground { fill: (.*?) }`, 4.5},
		{"dark text in a box", ` text { fill: (.*?) }`, `\.box { fill: (.*?);`, 4.5},
		{"dark line", `\.line { stroke: (.*?) }`, `\.ground { fill: (.*?) }`, 3},
		{"dark head", `\.head { fill: (.*?) }`, `\.ground { fill: (.*?) }`, 3},
		{"dark side of a box", `\.box { fill: [^;]*; stroke: (.*?) }`, `\.ground { fill: (.*?) }`, 3},
	} {
		a, b := luminance(t, find(c.front)), luminance(t, find(c.ground))
		if contrast := (max(a, b) + 0.05) / (min(a, b) + 0.05); contrast < c.least {
			t.Errorf("%s: contrast %.1f, want at least %.1f", c.what, contrast, c.least)
		}
	}
}

func FuzzSVG(f *testing.F) {
	f.Add("a", "<b>", "&'\"", 40)
	f.Add("界", "\x1b\u202e]]>", "\ufffe\xff", 8)
	f.Fuzz(func(t *testing.T, from, to, label string, width int) {
		text := SVG(Graph{Nodes: []Node{{ID: from, Name: to}, {ID: to, Lines: []string{label}}}, Edges: []Edge{{from, to, label}, {to, from, ""}}}, Options{Width: width})
		if _, err := parseSVG(text); err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
	})
}
