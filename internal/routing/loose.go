package routing

import (
	"bytes"
	"regexp/syntax"
	"slices"
	"unicode"
	"unicode/utf8"
	"unsafe"

	"github.com/weirmesh/weir/internal/model"
)

// Refusal is why a request is refused because of its path. The zero value means that it is not refused.
type Refusal struct {
	// Reading is the way in which common servers read the path differently.
	Reading Reading
	// Other is the rule that the path leads to in that reading, if this decided; nil if the path has several readings
	// whatever the rules are.
	Other *Rule
}

// PathPolicy is that of a rule's requests at the listener: its route's, else the listener's, else model.PathAsWritten.
func (l *Listener) PathPolicy(r *Rule) model.PathPolicy {
	if p := r.Route.PathPolicy; p != "" {
		return p
	}
	if p := l.Listener.PathPolicy; p != "" {
		return p
	}
	return model.PathAsWritten
}

// Refuses reports whether and why the path policies of the listener's rules refuse a request that Match has decided on.
// raw is the path as it was received and given to NormalizePath. These requests are refused:
//
//   - Requests of a strict rule, if common servers read their path in several ways: Ambiguity.
//   - Requests of a strict rule, if some server would give their path to another rule that precedes it.
//   - Requests of a rule as-written, if some server would give their path to a strict rule that precedes it, or sees a
//     ".." in it that NormalizePath does not: where such a path leads depends on everything else.
//
// A server can give the path to a rule under three conditions: the rule's path matches when both are brought into one
// loose form, in which everything in everyReading is ignored; the rest of the rule's match holds; and its path is more
// specific than the one that matched. Of paths with the same loose form, the one that matches as written counts.
//
// A request whose patterns would cost too much is not refused here: its Excess reports it.
//
// scratch is working memory. It is returned, since it may have grown.
func (l *Listener) Refuses(raw string, req *Request, d *Decision, scratch []byte) (Refusal, []byte) {
	if !l.strict {
		return Refusal{}, scratch
	}
	found := differences(raw)
	strict := l.PathPolicy(d.Rule) == model.PathStrict
	if r := (found &^ ofTheRules).first(); strict && r != OneReading {
		return Refusal{Reading: r}, scratch
	}
	if found == 0 && l.plain {
		return Refusal{}, scratch
	}
	mark := len(scratch)
	for _, how := range [...]readingSet{everyReading, ofTheRules} {
		var up bool
		if scratch, up = appendLoose(scratch[:mark], req.Path, how); up {
			return Refusal{Reading: found.first()}, scratch[:mark]
		}
		loose := scratch[mark:]
		if other := l.before(req, unsafe.String(unsafe.SliceData(loose), len(loose)), d, strict); other != nil {
			return Refusal{Reading: other.reading(req.Path, found), Other: other.rule}, scratch[:mark]
		}
		if found&^ofTheRules == 0 {
			break // the other form is the same
		}
	}
	return Refusal{}, scratch[:mark]
}

// before finds a rule that the path in loose form leads to and that precedes the one decided on; nil if there is none.
// If the decided rule is not strict, the other one must be.
func (l *Listener) before(req *Request, path string, d *Decision, strict bool) *candidate {
	w := walk{req: req}
	req.shared = 0
	for h, cursor := l.hosts.next(req.Host, firstHost); h != nil; h, cursor = l.hosts.next(req.Host, cursor) {
		w.host = h
		list, n := h.loose.paths.find(path)
		for {
			if other, end := w.looselyFirst(l, list, d, strict); end {
				return other
			}
			if n == nil {
				break
			}
			list, n = n.prefix, n.up
		}
		for _, c := range h.loose.expressions {
			sameRule := c.rule == d.Rule
			if !sameRule && !strict && l.PathPolicy(c.rule) != model.PathStrict {
				continue
			}
			if e := c.loose.expression; !req.matches(e, req.Path, ExcessPath, w.shared(c)) && !req.matches(e, path, ExcessPath, w.shared(c)) {
				continue
			}
			if p, _ := w.fails(c); p != none {
				continue
			}
			if sameRule {
				return nil
			}
			return c
		}
		if other, end := w.looselyFirst(l, h.loose.all, d, strict); end {
			return other
		}
		if other, end := w.looselyFirst(l, h.catchAll, d, strict); end {
			return other
		}
	}
	return nil
}

// looselyFirst searches the candidates of one path, in order of precedence, for the rule decided on, or for another
// rule before it. end is true if one of them was found; other is nil for the decided rule itself.
func (w *walk) looselyFirst(l *Listener, list []*candidate, d *Decision, strict bool) (other *candidate, end bool) {
	for _, c := range list {
		if c.rule == d.Rule {
			if p, _ := w.fails(c); p == none {
				return nil, true
			}
		}
	}
	for _, c := range list {
		if c.rule == d.Rule || c.loose != nil && c.loose.shadow || !strict && l.PathPolicy(c.rule) != model.PathStrict {
			continue
		}
		if p, _ := w.fails(c); p == none {
			return c, true
		}
	}
	return nil, false
}

// looseRules are copies of a host's candidates, in their order of precedence for paths in loose form. A copy has no
// expression, so that walk.fails does not check the path.
//
// The key of a candidate is its path without the parts that depend on the rules. A candidate whose own path has several
// readings whatever the rules are also has a shadow, under its path in loose form. The shadow shows where that path
// leads if the candidate is the one decided on. It takes no other requests: "/a" is not ambiguous because there is a
// rule for "/a;b".
type looseRules struct {
	paths       node
	expressions []*candidate
	// all are shadows with an empty path.
	all []*candidate
}

// looseForm is the original of a copy: path is its path as written, expression is its expression that ignores letter
// case.
type looseForm struct {
	path       string
	expression *model.Pattern
	shadow     bool
}

// loosen prepares Refuses, if any rule of the listener is strict.
func (c *compiler) loosen(l *Listener) {
	for _, h := range l.all {
		l.strict = l.strict || slices.ContainsFunc(h.all, func(c *candidate) bool { return l.PathPolicy(c.rule) == model.PathStrict })
	}
	if !l.strict {
		return
	}
	l.plain = true
	for _, h := range l.all {
		for _, x := range h.all {
			switch {
			case x.expression != nil:
			case x.path == "": // "/", which is as it is
			default:
				found := differences(x.path)
				l.plain = l.plain && found&ofTheRules == 0
				h.loose.add(x, ofTheRules, false)
				if found&^ofTheRules != 0 {
					h.loose.add(x, everyReading, true)
				}
			}
		}
		for _, x := range h.expressions {
			pattern := x.match.Path.Value
			l.plain = l.plain && sameInLowerCase(pattern)
			loose := *x
			loose.loose, loose.expression = &looseForm{expression: x.expression}, nil
			c.patterns = model.PatternBudget{} // it counts only patterns of routes
			if e, err := c.expression("(?i)" + pattern); err == nil {
				loose.loose.expression = e
			}
			h.loose.expressions = append(h.loose.expressions, &loose)
		}
		h.loose.paths.finish(nil)
		sortCandidates(h.loose.all)
	}
}

// add copies a candidate that has a path (not an expression).
func (r *looseRules) add(c *candidate, how readingSet, shadow bool) {
	loose := *c
	loose.loose = &looseForm{path: c.path, shadow: shadow}
	key, _ := appendLoose(nil, c.path, how)
	loose.path = string(key)
	if c.match.Path.Type == model.Prefix {
		loose.path = trimSlash(loose.path)
	}
	switch n := (*node)(nil); {
	case loose.path == "":
		loose.loose.shadow = true
		r.all = append(r.all, &loose)
	case c.match.Path.Type == model.Exact:
		n = r.paths.at(loose.path)
		n.exact = append(n.exact, &loose)
	default:
		n = r.paths.at(loose.path)
		n.prefix = append(n.prefix, &loose)
	}
}

func trimSlash(s string) string {
	if n := len(s); n > 0 && s[n-1] == '/' {
		return s[:n-1]
	}
	return s
}

// reading returns the reading in which the path leads to the candidate: one of those found if that is sufficient,
// otherwise SeveralReadings.
func (c *candidate) reading(path string, found readingSet) Reading {
	found |= ofTheRules // the rule's own path may need these, too
	for r := OneReading + 1; r < SeveralReadings; r++ {
		if found.has(r) && c.matchesLoosely(path, alone(r)) {
			return r
		}
	}
	return SeveralReadings
}

// alone returns a reading with those that it implies: a byte that is decoded twice can be any byte.
func alone(r Reading) readingSet {
	if r == DoubleEscape {
		return setOf(r, EscapedSlash, Backslash, EscapedCharacter)
	}
	return setOf(r)
}

func (c *candidate) matchesLoosely(path string, how readingSet) bool {
	read, _ := appendLoose(nil, path, how)
	path = string(read)
	switch {
	case c.loose == nil:
		return true // "/"
	case c.loose.expression != nil:
		return c.loose.expression.MatchString(path)
	}
	read, _ = appendLoose(nil, c.loose.path, how)
	rulePath := string(read)
	if c.match.Path.Type == model.Exact {
		return path == rulePath
	}
	rulePath = trimSlash(rulePath)
	return len(path) >= len(rulePath) && path[:len(rulePath)] == rulePath && (len(path) == len(rulePath) || path[len(rulePath)] == '/')
}

// appendLoose appends the loose form of a path: the given readings are ignored in it, so that two paths have the same
// form if a server with these readings reads them alike. The path is in normal form; the result is not. It begins with
// a slash. up reports that it led up by "..", which paths in normal form do not.
func appendLoose(out []byte, path string, how readingSet) (loose []byte, up bool) {
	mark := len(out)
	out = appendDecoded(out, path, how)
	// The decoded path is written over itself, piece by piece. Each piece is written after one slash, was read after
	// one, and never becomes longer.
	decoded := out[mark:]
	if how.has(EscapedQuestionMark) {
		decoded, _, _ = bytes.Cut(decoded, []byte{'?'})
	}
	out = out[:mark]
	slash := false
	for rest, more := decoded[1:], true; more; {
		var piece []byte
		piece, rest, more = cutPiece(rest, how)
		if how.has(PathParameter) {
			piece, _, _ = bytes.Cut(piece, []byte{';'})
		}
		piece = trimPiece(piece, how)
		parent := string(piece) == ".."
		if slash = parent || len(piece) == 0 || string(piece) == "."; slash {
			if parent {
				out, up = out[:mark+max(bytes.LastIndexByte(out[mark:], '/'), 0)], true
			}
			continue
		}
		out = append(out, '/')
		if how.has(LetterCase) {
			out = appendFolded(out, piece)
		} else {
			out = append(out, piece...)
		}
	}
	if slash {
		out = append(out, '/')
	}
	return out, up
}

// appendDecoded appends a path in normal form with the escapes decoded that the readings decode. It drops control
// characters and invalid UTF-8 if the readings ignore them.
func appendDecoded(out []byte, path string, how readingSet) []byte {
	mark, wide := len(out), false
	for i := range len(path) {
		out = append(out, path[i])
		for n := len(out); n-mark >= 3 && out[n-3] == '%'; n = len(out) {
			b, ok := model.Unhex(out[n-2], out[n-1])
			if !ok || !how.decodes(b) {
				break
			}
			out = out[:n-3]
			if b >= ' ' && b != 0x7f {
				out = append(out, b)
			}
			wide = wide || b >= utf8.RuneSelf
		}
	}
	if wide && how.has(InvalidUTF8) {
		out = append(out[:mark], leniently(out[mark:])...)
	}
	return out
}

// decodes reports whether the readings replace an escape by the byte it stands for.
func (s readingSet) decodes(b byte) bool {
	switch {
	case model.Unreserved(b):
		return true
	case b == '/':
		return s.has(EscapedSlash)
	case b == '\\':
		return s.has(Backslash)
	case b == '%':
		return s.has(DoubleEscape)
	case b == ';':
		return s.has(PathParameter)
	case b == '?':
		return s.has(EscapedQuestionMark)
	case b == ' ':
		return s.has(OuterSpace)
	case b < ' ' || b == 0x7f:
		return s.has(ControlCharacter)
	case b >= utf8.RuneSelf:
		return s.has(LetterCase) || s.has(InvalidUTF8)
	}
	return s.has(EscapedCharacter)
}

// leniently decodes bytes in place, as a decoder does that accepts overlong forms of ASCII and drops invalid UTF-8.
func leniently(b []byte) []byte {
	out := b[:0]
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		switch {
		case r != utf8.RuneError || n > 1:
			out = append(out, b[:n]...)
		case len(b) >= 2 && b[0]&0xfe == 0xc0 && b[1]&0xc0 == 0x80:
			out, n = append(out, b[0]<<6|b[1]&0x3f), 2
		case len(b) >= 3 && b[0] == 0xe0 && b[1]&0xfe == 0x80 && b[2]&0xc0 == 0x80:
			out, n = append(out, b[1]<<6|b[2]&0x3f), 3
		case len(b) >= 4 && b[0] == 0xf0 && b[1] == 0x80 && b[2]&0xfe == 0x80 && b[3]&0xc0 == 0x80:
			out, n = append(out, b[2]<<6|b[3]&0x3f), 4
		}
		b = b[n:]
	}
	return out
}

// cutPiece cuts at the next slash, or at a byte that is read as a slash.
func cutPiece(b []byte, how readingSet) (piece, rest []byte, more bool) {
	for i, c := range b {
		if c == '/' || c == '\\' && how.has(Backslash) {
			return b[:i], b[i+1:], true
		}
	}
	return b, nil, false
}

// trimPiece drops spaces and dots at the ends of a segment, but leaves dot segments.
func trimPiece(piece []byte, how readingSet) []byte {
	for {
		n := len(piece)
		if how.has(OuterSpace) {
			piece = bytes.TrimFunc(piece, unicode.IsSpace)
		}
		if how.has(TrailingDot) && string(piece) != "." && string(piece) != ".." {
			piece = bytes.TrimRight(piece, ".")
		}
		if len(piece) == n {
			return piece
		}
	}
}

// appendFolded appends text in a form in which letter case does not count: each character is replaced by the least of
// those that are equal under Unicode's simple case folding, and the two letters i of Turkish by the same as other i. It
// never becomes longer.
func appendFolded(out, text []byte) []byte {
	for len(text) > 0 {
		if c := text[0]; c < utf8.RuneSelf {
			if 'a' <= c && c <= 'z' {
				c -= 'a' - 'A'
			}
			out, text = append(out, c), text[1:]
			continue
		}
		r, n := utf8.DecodeRune(text)
		if r == utf8.RuneError {
			out, text = append(out, text[:n]...), text[n:]
			continue
		}
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		if r == '\u0130' || r == '\u0131' {
			least = 'I'
		}
		out, text = utf8.AppendRune(out, least), text[n:]
	}
	return out
}

// sameInLowerCase reports whether a pattern matches the same paths without capital letters, whether or not it ignores
// case.
func sameInLowerCase(pattern string) bool {
	e, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return false
	}
	var same func(*syntax.Regexp) bool
	same = func(e *syntax.Regexp) bool {
		switch e.Op {
		case syntax.OpLiteral:
			if e.Flags&syntax.FoldCase == 0 && slices.ContainsFunc(e.Rune, func(r rune) bool { return unicode.SimpleFold(r) != r && !('a' <= r && r <= 'z') }) {
				return false
			}
		case syntax.OpCharClass:
			has := func(r rune) bool {
				for i := 0; i+1 < len(e.Rune); i += 2 {
					if e.Rune[i] <= r && r <= e.Rune[i+1] {
						return true
					}
				}
				return false
			}
			for r := 'a'; r <= 'z'; r++ {
				if has(r-'a'+'A') && !has(r) {
					return false
				}
			}
		}
		return !slices.ContainsFunc(e.Sub, func(sub *syntax.Regexp) bool { return !same(sub) })
	}
	return same(e)
}
