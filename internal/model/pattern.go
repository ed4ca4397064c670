package model

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"sync"
)

// Bounds on patterns. Go's regexp takes time in proportion to the instructions of a pattern times the bytes that it is
// matched with (https://swtch.com/~rsc/regexp/regexp2.html), and memory in proportion to the instructions. So both are
// bounded: the instructions before a pattern is compiled, the product before it is matched.
const (
	// MaxPatternLength is the maximum length of a pattern in bytes. The Gateway API has the same bound for the value of
	// a header.
	MaxPatternLength = 4096
	// MaxPatternInstructions is the most instructions that a pattern may compile to. Each character of a pattern is about one, and a
	// repetition counts as often as it repeats.
	MaxPatternInstructions = 5_000
	// MaxRouteInstructions is the most that the patterns of one route, or of one split, may have together.
	MaxRouteInstructions = 50_000
	// MaxMatchWork is the most work, in instructions times bytes, that matching one request may cost, all patterns together. A request
	// beyond it is refused rather than passed by a pattern that was not asked.
	MaxMatchWork = 16 << 20

	// MaxSharedInstructions is the most that the patterns of routes of several namespaces may have together on one hostname of a
	// listener, each as often as it occurs. It does not count those of the namespace that had the hostname first, as long as no route of another
	// namespace is older. MaxSharedMatches is the most that their matches of one path, or by patterns, may be there.
	MaxSharedInstructions = 4096
	MaxSharedMatches      = 1024
	// MaxSharedValue is how long, in bytes, values may be that are matched with all of these patterns. So MaxSharedWork is the most work
	// that they may cost a request, apart from MaxMatchWork: none whose values are no longer is refused for them.
	MaxSharedValue = 8 << 10
	MaxSharedWork  = MaxSharedInstructions * (MaxSharedValue + 1)

	// maxClasses bounds the Unicode and negated classes (\p, \P, \D, \S, \W) of a pattern. maxFolded bounds the ranges
	// that reach beyond ASCII in a case-insensitive pattern. Parsing alone costs up to 13 KB for each of the former and
	// 5 ms for each of the latter.
	maxClasses, maxFolded = 128, 8
	// rangesPerInstruction is how many ranges of a character class count as one more instruction.
	rangesPerInstruction = 16
)

// Pattern is a regular expression in RE2 syntax, judged and ready to be matched. It is immutable and safe for concurrent use.
type Pattern struct {
	*regexp.Regexp
	// Instructions is how many it compiles to, at most MaxPatternInstructions.
	Instructions int
	// Prefix is literal text that every match begins with; Complete means that it is the whole match.
	Prefix   string
	Complete bool
}

// Work is the cost of matching the pattern with a value of that many bytes, in the unit of MaxMatchWork.
func (p *Pattern) Work(bytes int) int { return p.Instructions * (bytes + 1) }

// CompilePattern compiles a pattern that must match whole values. It accepts exactly the patterns that CheckPattern
// accepts, with the same errors.
func CompilePattern(pattern string) (*Pattern, error) { return compilePattern(pattern, "$") }

// CompileStartPattern compiles a pattern that must match from the start of values, with any text after the match. It
// accepts exactly the patterns that CheckPattern accepts, with the same errors.
func CompileStartPattern(pattern string) (*Pattern, error) { return compilePattern(pattern, "") }

func compilePattern(pattern, end string) (*Pattern, error) {
	v := judge(pattern)
	if v.err != nil {
		return nil, v.err
	}
	e, err := regexp.Compile("^" + GroupPattern(pattern) + end)
	if err != nil {
		return nil, doesNotCompile(pattern, err) // judge accepted it, so this is unreachable; see TestCompiledPatternsAreThoseThatWereJudged
	}
	p := &Pattern{Regexp: e, Instructions: v.instructions}
	// Anchors hide the prefix.
	if bare, err := regexp.Compile(GroupPattern(pattern)); err == nil {
		p.Prefix, p.Complete = bare.LiteralPrefix()
	}
	return p, nil
}

// CheckPattern validates a pattern: it must have RE2 syntax, and be neither nested too deeply nor too large. It returns
// the number of its instructions. An error is a *PatternError. Verdicts are remembered, so that asking again costs
// little.
func CheckPattern(pattern string) (instructions int, err error) {
	v := judge(pattern)
	if v.err != nil {
		return v.instructions, v.err
	}
	return v.instructions, nil
}

// PatternError is the reason why a pattern is invalid.
type PatternError struct {
	ValueError
	// TooLarge means that the pattern has RE2 syntax but exceeds a bound.
	TooLarge bool
}

// PatternFix is the fix for a pattern that does not compile.
const PatternFix = "write it in RE2 syntax, which has neither look-around nor back-references"

func doesNotCompile(pattern string, err error) *PatternError {
	reason := strings.TrimPrefix(err.Error(), "error parsing regexp: ")
	if e, ok := err.(*syntax.Error); ok {
		reason = e.Code.String()
		if !strings.HasPrefix(e.Expr, "^") || len(e.Expr) < len(pattern) {
			reason += ": `" + brief(e.Expr) + "`"
		}
		if e.Code == syntax.ErrInvalidRepeatSize {
			reason += " (at most 1000, nested ones multiplied)"
		}
	}
	return &PatternError{ValueError{fmt.Sprintf("%q does not compile: %s", brief(pattern), reason), PatternFix}, false}
}

func tooLarge(pattern, reason, fix string) *PatternError {
	return &PatternError{ValueError{fmt.Sprintf("%q %s", brief(pattern), reason), fix}, true}
}

// GroupPattern returns the pattern as a part of another one: in a group without a number, with an open quote (\Q)
// closed, and without numbers for its own groups. Numbers have no meaning if a pattern is only matched, but cost
// memory: each instruction needs room for all of them. The pattern must be one that CheckPattern accepts.
func GroupPattern(pattern string) string {
	if !strings.ContainsAny(pattern, `(\`) {
		return "(?:" + pattern + ")"
	}
	b := make([]byte, 0, len(pattern)+32)
	b = append(b, "(?:"...)
	for rest := pattern; rest != ""; {
		n := 1
		switch {
		case strings.HasPrefix(rest, `\Q`):
			if n = strings.Index(rest, `\E`); n < 0 {
				b, rest = append(append(b, rest...), `\E`...), ""
				continue
			}
			n += 2
		case rest[0] == '\\':
			n = min(2, len(rest))
		case rest[0] == '[':
			n = classEnd(rest)
		case strings.HasPrefix(rest, "(?P<"), strings.HasPrefix(rest, "(?<"):
			b, rest = append(b, "(?:"...), rest[strings.IndexByte(rest, '>')+1:]
			continue
		case rest[0] == '(' && !strings.HasPrefix(rest, "(?"):
			b, rest = append(b, "(?:"...), rest[1:]
			continue
		}
		b, rest = append(b, rest[:n]...), rest[n:]
	}
	return string(append(b, ')'))
}

// classEnd returns the length of the bracketed class that s begins with.
func classEnd(s string) int {
	i := 1
	if strings.HasPrefix(s[i:], "^") {
		i++
	}
	if strings.HasPrefix(s[i:], "]") {
		i++
	}
	for i < len(s) && s[i] != ']' {
		switch {
		case s[i] == '\\':
			i++
		case strings.HasPrefix(s[i:], "[:"):
			if n := strings.Index(s[i+2:], ":]"); n >= 0 {
				i += 2 + n + 1
			}
		}
		i++
	}
	return min(i+1, len(s))
}

// verdict is the judgement of a pattern. err is nil if it is valid.
type verdict struct {
	instructions int
	err          *PatternError
}

// judge is CheckPattern.
func judge(pattern string) verdict {
	if len(pattern) > MaxPatternLength {
		return verdict{err: tooLarge(pattern, fmt.Sprintf("has %d bytes, and a pattern has at most %d", len(pattern), MaxPatternLength), "split it over several matches")}
	}
	if v, ok := verdicts.get(pattern); ok {
		return v
	}
	v := judgeAnew(pattern)
	verdicts.put(pattern, v)
	return v
}

func judgeAnew(pattern string) verdict {
	classes := 0
	for _, class := range []string{`\p`, `\P`, `\D`, `\S`, `\W`} {
		classes += strings.Count(pattern, class)
	}
	if classes > maxClasses {
		return verdict{err: tooLarge(pattern, fmt.Sprintf("has %d Unicode or negated classes, and a pattern has at most %d", classes, maxClasses), "use fewer of them")}
	}
	if n := folded(pattern); n > maxFolded {
		return verdict{err: tooLarge(pattern, fmt.Sprintf("has %d case-insensitive ranges beyond ASCII, and a pattern has at most %d", n, maxFolded),
			"use fewer of them, or leave out (?i)")}
	}
	// By itself first: "a)(b" would be valid in a group.
	if _, err := syntax.Parse(pattern, syntax.Perl); err != nil {
		return verdict{err: doesNotCompile(pattern, err)}
	}
	// Then as it is compiled, which may nest one level deeper than is allowed.
	tree, err := syntax.Parse("^"+GroupPattern(pattern)+"$", syntax.Perl)
	if err != nil {
		return verdict{err: doesNotCompile(pattern, err)}
	}
	n := instructions(tree) + 2
	if n > MaxPatternInstructions {
		return verdict{n, tooLarge(pattern, fmt.Sprintf("compiles to %s instructions, and a pattern has at most %d", counted(n), MaxPatternInstructions),
			"repeat less: x{0,1000} counts a thousand times, nested repeats multiply; .* has no such cost")}
	}
	return verdict{instructions: n}
}

// folded counts the ranges beyond ASCII in a case-insensitive pattern, and returns 0 for others. It may count text that
// only looks like a range.
func folded(pattern string) (n int) {
	insensitive := false
	for rest, more := pattern, true; more && !insensitive; {
		if _, rest, more = strings.Cut(rest, "(?"); more {
			flags := rest[:len(rest)-len(strings.TrimLeft(rest, "imsU-"))]
			insensitive = strings.Contains(flags, "i")
		}
	}
	if !insensitive {
		return 0
	}
	for i := 1; i < len(pattern); i++ {
		if pattern[i-1] == '-' && (pattern[i] >= 0x80 || strings.HasPrefix(pattern[i:], `\x{`)) {
			n++
		}
	}
	return n
}

func counted(n int) string {
	if n >= manyInstructions {
		return fmt.Sprintf("more than %d", manyInstructions)
	}
	return fmt.Sprint(n)
}

// manyInstructions is where counting stops.
const manyInstructions = 1 << 30

// instructions returns how many instructions package regexp/syntax compiles a tree to, once repetitions are written out, and no fewer.
func instructions(re *syntax.Regexp) int {
	sum := 0
	for _, sub := range re.Sub {
		sum = min(sum+instructions(sub), manyInstructions)
	}
	switch re.Op {
	case syntax.OpLiteral:
		sum = max(1, len(re.Rune))
	case syntax.OpCharClass:
		sum = 1 + len(re.Rune)/(2*rangesPerInstruction)
	case syntax.OpCapture, syntax.OpStar:
		sum += 2
	case syntax.OpPlus, syntax.OpQuest:
		sum++
	case syntax.OpAlternate:
		sum += max(0, len(re.Sub)-1)
	case syntax.OpRepeat:
		// x{2,5} is xx(x(x(x)?)?)?, x{2,} is xx+, x{0,} is x*.
		switch {
		case re.Max >= 0:
			sum = sum*re.Max + re.Max - re.Min
		case re.Min == 0:
			sum += 2
		default:
			sum = sum*re.Min + 1
		}
	}
	return min(max(1, sum), manyInstructions)
}

// patternMemory remembers verdicts and forgets those that were not asked for recently. It has two generations. When the
// younger one is full, it becomes the older one, and the former older one is dropped.
type patternMemory struct {
	mu         sync.RWMutex
	young, old map[string]verdict
	bytes      int // of the young one's patterns
}

// Bounds on a generation.
const (
	maxVerdicts     = 32 << 10
	maxVerdictBytes = 4 << 20
)

var verdicts patternMemory

func (m *patternMemory) get(pattern string) (verdict, bool) {
	m.mu.RLock()
	v, ok := m.young[pattern]
	old := false
	if !ok {
		v, ok = m.old[pattern]
		old = ok
	}
	m.mu.RUnlock()
	if old {
		m.put(pattern, v)
	}
	return v, ok
}

func (m *patternMemory) put(pattern string, v verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.young[pattern]; ok {
		return
	}
	if m.young == nil || len(m.young) >= maxVerdicts || m.bytes+len(pattern) > maxVerdictBytes {
		m.young, m.old, m.bytes = map[string]verdict{}, m.young, 0
	}
	m.young[strings.Clone(pattern)] = v
	m.bytes += len(pattern)
}

// Instructions are those of all patterns of a match, each as often as it occurs. Patterns that CheckPattern refuses count nothing.
func (m *Match) Instructions() (sum int) {
	add := func(pattern string) {
		if n, err := CheckPattern(pattern); err == nil {
			sum += n
		}
	}
	if m.Path.Type == Regex {
		add(m.Path.Value)
	}
	for _, list := range [][]ValueMatch{m.Headers, m.Query} {
		for i := range list {
			if list[i].Type == Regex {
				add(list[i].Value)
			}
		}
	}
	return sum
}

// PatternBudget counts the instructions of the patterns of one route, or of one split: each pattern once, however often it occurs. The zero
// value is an empty one.
type PatternBudget struct {
	sum  int
	seen map[string]bool
}

// Add takes another pattern in. It fails, and leaves it out, if CheckPattern refuses the pattern or if there are more than
// MaxRouteInstructions with it. An error is a *PatternError.
func (b *PatternBudget) Add(pattern string) error {
	if b.seen[pattern] {
		return nil
	}
	n, err := CheckPattern(pattern)
	if err != nil {
		return err
	}
	if b.sum+n > MaxRouteInstructions {
		return tooLarge(pattern, fmt.Sprintf("compiles to %d instructions, which with the %d of the patterns before it is more than the %d of one route or split",
			n, b.sum, MaxRouteInstructions), "repeat less, or split the object in two")
	}
	if b.seen == nil {
		b.seen = map[string]bool{}
	}
	b.seen[pattern] = true
	b.sum += n
	return nil
}
