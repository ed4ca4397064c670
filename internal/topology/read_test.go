package topology

import (
	"fmt"
	"slices"
	"strings"
)

// picture is what a reader sees: the texts of boxes, and arrows as "from -> to: label" or "a <-> b: label" with the first line of each box.
type picture struct {
	nodes, arrows []string
	boxes         [][]string // all lines of text of each box
	crossings     int
}

// pen are the characters of a way to draw. Lines run right, left, down and up.
type pen struct {
	// corners of boxes and bends of lines: from the right and below, left and below, right and above, left and above
	corners            [4]string
	across, down       string
	heads              [4]string // to the right, left, down, up
	cross              string    // two lines; where it is empty, a vertical one is seen and the horizontal one goes on behind it
	anyBend, hasLabels bool      // all bends look alike; labels stand in lines
}

var (
	ours   = pen{corners: [4]string{"+", "+", "+", "+"}, across: "-", down: "|", heads: [4]string{">", "<", "v", "^"}, anyBend: true, hasLabels: true}
	boxart = pen{corners: [4]string{"┌", "┐", "└", "┘"}, across: "─", down: "│", heads: [4]string{">", "<", "∨", "∧"}, cross: "┼"}
)

var ways = [4]point{{1, 0}, {-1, 0}, {0, 1}, {0, -1}}

const (
	right = iota
	left
	down
	up
)

// page has a text for each column of each row; the second column of a wide character has none.
type page [][]string

func readPage(text string) page {
	var g page
	for row := range strings.Lines(text) {
		var cells []string
		for _, r := range strings.TrimRight(row, "\n") {
			switch n := runeColumns(r); {
			case n > 0:
				cells = append(cells, string(r))
				if n == 2 {
					cells = append(cells, "")
				}
			case len(cells) > 0:
				// A sign on a wide character stands on its first column.
				at := len(cells) - 1
				if cells[at] == "" {
					at--
				}
				cells[at] += string(r)
			}
		}
		g = append(g, cells)
	}
	return g
}

func (g page) at(p point) string {
	if p.y < 0 || p.y >= len(g) || p.x < 0 || p.x >= len(g[p.y]) {
		return " "
	}
	return g[p.y][p.x]
}

// reading follows what is drawn, and knows nothing of who drew it but its pen.
type reading struct {
	page
	pen
	out                  picture
	owner                map[point]int // a cell of a box
	horizontal, vertical map[point]int // a cell of a line
	labels               map[point]bool
	lines                int
}

// read finds boxes and follows the lines between them. It fails if a line ends nowhere, if two share a cell other than by crossing, if one runs through a box
// or if something belongs to neither.
func read(text string, p pen) (picture, error) {
	r := reading{page: readPage(text), pen: p, owner: map[point]int{}, horizontal: map[point]int{}, vertical: map[point]int{}, labels: map[point]bool{}}
	r.findBoxes()
	if err := r.follow(); err != nil {
		return r.out, err
	}
	for y := range r.page {
		for x, c := range r.page[y] {
			if at := (point{x, y}); c != " " && c != "" && !r.isBox(at) && r.horizontal[at] == 0 && r.vertical[at] == 0 {
				return r.out, fmt.Errorf("%q at %v belongs to nothing", c, at)
			}
		}
	}
	for at := range r.horizontal {
		if r.at(at) == r.down && r.vertical[at] == 0 && !r.labels[at] {
			return r.out, fmt.Errorf("no line crosses at %v", at)
		}
		if r.vertical[at] != 0 && r.vertical[at] != r.horizontal[at] || r.vertical[at] == r.horizontal[at] && r.isCross(at) {
			r.out.crossings++
		}
	}
	slices.Sort(r.out.nodes)
	slices.Sort(r.out.arrows)
	return r.out, nil
}

func (r *reading) isBox(p point) bool { _, ok := r.owner[p]; return ok }

// isCross means that a line crosses itself there, in place of a bend.
func (r *reading) isCross(p point) bool {
	c := r.at(p)
	return c == r.cross || r.cross == "" && c == r.down
}

func (r *reading) findBoxes() {
	for y := range r.page {
		for x := range r.page[y] {
			if r.at(point{x, y}) != r.corners[0] || r.isBox(point{x, y}) {
				continue
			}
			e, b := x+1, y+1
			for r.at(point{e, y}) == r.across {
				e++
			}
			for r.at(point{x, b}) == r.down && r.at(point{e, b}) == r.down {
				b++
			}
			whole := e > x+1 && b > y+1 && r.at(point{e, y}) == r.corners[1] && r.at(point{x, b}) == r.corners[2] && r.at(point{e, b}) == r.corners[3]
			for i := x + 1; i < e; i++ {
				whole = whole && r.at(point{i, b}) == r.across
			}
			if !whole {
				continue
			}
			var lines []string
			for j := y + 1; j < b; j++ {
				if s := strings.TrimSpace(strings.Join(r.page[j][x+1:e], "")); s != "" {
					lines = append(lines, s)
				}
			}
			if len(lines) == 0 {
				continue
			}
			for j := y; j <= b; j++ {
				for i := x; i <= e; i++ {
					r.owner[point{i, j}] = len(r.out.boxes)
				}
			}
			r.out.boxes = append(r.out.boxes, lines)
			r.out.nodes = append(r.out.nodes, lines[0])
		}
	}
}

// beside is the box that a line at p, on its way in a direction, ends at: one column lies between its side and the line.
func (r *reading) beside(p point, way int) (int, bool) {
	q := point{p.x + ways[way].x, p.y + ways[way].y}
	if way == right || way == left {
		if r.at(q) != " " || r.isBox(q) {
			return 0, false
		}
		q.x += ways[way].x
		if r.at(q) != r.down {
			return 0, false
		}
	}
	box, ok := r.owner[q]
	return box, ok
}

func opposite(way int) int { return way ^ 1 }

func (r *reading) follow() error {
	for y := range r.page {
		for x := range r.page[y] {
			p := point{x, y}
			if r.isBox(p) {
				continue
			}
			for way := range ways {
				c := r.at(p)
				straight := r.across
				if way == down || way == up {
					straight = r.down
				}
				// A line begins at a box, with its head or without one.
				if _, ok := r.beside(p, opposite(way)); !ok || c != straight && c != r.heads[opposite(way)] {
					continue
				}
				if way == right && r.horizontal[p] != 0 || way == left && r.horizontal[p] != 0 || way >= down && r.vertical[p] != 0 {
					continue
				}
				if r.hasLabels && (way == left || way >= down && r.bendsLeft(p, way)) {
					continue // labels are read from the left, and so is this line, from its other end
				}
				if err := r.line(p, way); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// bendsLeft means that a line that goes up or down turns to the left.
func (r *reading) bendsLeft(p point, way int) bool {
	for r.at(p) == r.down || r.at(p) == r.heads[opposite(way)] {
		p.y += ways[way].y
	}
	return r.at(point{p.x - 1, p.y}) == r.across
}

func (r *reading) mark(p point, way int) error {
	if r.isBox(p) {
		return fmt.Errorf("a line runs through the box of %q at %v", r.out.boxes[r.owner[p]][0], p)
	}
	m := r.horizontal
	if way >= down {
		m = r.vertical
	}
	if m[p] != 0 {
		return fmt.Errorf("two lines share the cell %v", p)
	}
	m[p] = r.lines
	return nil
}

// line follows a line from its first cell to the box at its end.
func (r *reading) line(p point, way int) error {
	r.lines++
	from, _ := r.beside(p, opposite(way))
	name := r.out.boxes[from][0]
	tail, label := r.at(p) == r.heads[opposite(way)], ""
	begin := p
	for {
		c := r.at(p)
		if err := r.mark(p, way); err != nil {
			return err
		}
		turned := way
		switch horizontal := way <= left; {
		case p == begin:
		case horizontal && c == r.across, !horizontal && c == r.down, c == r.heads[way], c == r.cross:
		case horizontal && c == r.down && r.cross == "":
		case slices.Contains(r.corners[:], c):
			var err error
			if turned, err = r.turn(p, way); err != nil {
				return err
			}
			if err := r.mark(p, turned); err != nil {
				return err
			}
		default:
			return fmt.Errorf("the line from %q breaks at %v with %q", name, p, c)
		}
		way = turned
		if to, ok := r.beside(p, way); ok && (c == r.heads[way] || c == r.across || c == r.down || c == r.heads[opposite(way)] && p == begin) {
			return r.arrow(from, to, tail, c == r.heads[way], label)
		}
		if c == r.heads[way] {
			return fmt.Errorf("the head at %v shows to no box", p)
		}
		p = point{p.x + ways[way].x, p.y + ways[way].y}
		if r.hasLabels && way == right && label == "" && r.at(p) == " " {
			var err error
			if label, p, err = r.label(p); err != nil {
				return err
			}
		}
	}
}

// turn tells where a line goes on behind a bend.
func (r *reading) turn(p point, way int) (int, error) {
	if !r.anyBend {
		// What a corner joins, in the order of corners.
		joins := [4][2]int{{right, down}, {left, down}, {right, up}, {left, up}}[slices.Index(r.corners[:], r.at(p))]
		for i, j := range joins {
			if j == opposite(way) {
				return joins[1-i], nil
			}
		}
		return 0, fmt.Errorf("the bend at %v does not join a line that comes from there", p)
	}
	// Bends look alike: what goes on there tells.
	a, b, goesOn := right, left, []string{r.across}
	if way <= left {
		a, b, goesOn = down, up, []string{r.down, r.corners[0], r.heads[down], r.heads[up]}
	}
	goes := func(w int) bool {
		q := point{p.x + ways[w].x, p.y + ways[w].y}
		return !r.isBox(q) && slices.Contains(goesOn, r.at(q))
	}
	if goes(a) == goes(b) {
		return 0, fmt.Errorf("the bend at %v goes on nowhere or to two sides", p)
	}
	if goes(a) {
		return a, nil
	}
	return b, nil
}

// label reads the text in a line from the space before it to the one behind it, and says where the line goes on.
func (r *reading) label(p point) (string, point, error) {
	open := r.at(point{p.x + 1, p.y}) == `"`
	for end, escaped := p.x+2, false; p.y < len(r.page) && end < len(r.page[p.y]); end++ {
		c := r.at(point{end, p.y})
		if open {
			open = escaped || c != `"`
			escaped = !escaped && c == `\`
			continue
		}
		if c == " " && r.at(point{end + 1, p.y}) == r.across {
			for x := p.x; x <= end; x++ {
				if err := r.mark(point{x, p.y}, right); err != nil {
					return "", p, err
				}
				r.labels[point{x, p.y}] = true
			}
			return strings.Join(r.page[p.y][p.x+1:end], ""), point{end + 1, p.y}, nil
		}
	}
	return "", p, fmt.Errorf("the line breaks at %v with a space", p)
}

func (r *reading) arrow(from, to int, tail, head bool, label string) error {
	a, b := r.out.boxes[from][0], r.out.boxes[to][0]
	switch {
	case tail && head && from != to:
		r.out.arrows = append(r.out.arrows, fmt.Sprintf("%s <-> %s: %s", min(a, b), max(a, b), label))
	case head && !tail:
		r.out.arrows = append(r.out.arrows, fmt.Sprintf("%s -> %s: %s", a, b, label))
	case tail && !head:
		r.out.arrows = append(r.out.arrows, fmt.Sprintf("%s -> %s: %s", b, a, label))
	default:
		return fmt.Errorf("the line from %q to %q has no head, or two at one box", a, b)
	}
	return nil
}
