package model

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"runtime"
	"strings"
	"testing"
)

// costly takes 309 MB and half a minute of a core for one request, if it is compiled and asked.
var costly = strings.Repeat(".{0,1000}", 455) + "!"

// allocated is how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

func TestPatternThatCostsTooMuchIsRefusedBeforeItIsCompiled(t *testing.T) {
	var err error
	n := 0
	if bytes := allocated(func() { n, err = CheckPattern(costly) }); bytes > 8<<20 {
		t.Errorf("judging it allocates %d bytes", bytes)
	}
	var bad *PatternError
	if !errors.As(err, &bad) || !bad.TooLarge || bad.Fix == "" || n != 910_005 {
		t.Fatalf("%d instructions, %v", n, err)
	}
	for _, want := range []string{"910005 instructions", fmt.Sprint(MaxPatternInstructions)} {
		if !strings.Contains(bad.Reason, want) {
			t.Errorf("%q does not say %q", bad.Reason, want)
		}
	}
	if len(bad.Reason) > 500 {
		t.Errorf("the message has %d bytes", len(bad.Reason))
	}
	if _, err := CompilePattern(costly); err == nil {
		t.Error("it is compiled")
	}
}

// Parsing itself must not cost much either: classes, and case without regard to it, are what makes trees large.
func TestJudgingAnyPatternOfTheLongestLengthIsCheap(t *testing.T) {
	fill := func(start, piece, end string) string {
		return start + strings.Repeat(piece, (MaxPatternLength-len(start)-len(end))/len(piece)) + end
	}
	for _, pattern := range []string{
		fill("", `\pL`, ""), fill("(?i)", `\PL`, ""), fill("(?i)[", `\pL`, "]"), fill("(?i)", `[^\pL\PN]`, ""), fill("(?i)", `\W`, ""), fill("(?i)", `[\W\S]`, ""),
		fill("(?i)", `[\x{41}-\x{1e942}]`, ""), fill("(?i)[", "A-\U0001e942", "]"), fill("(?m-s:(?-i)(?si)", `[^B-\x{1e942}]`, ")"),
		fill("(?i)", "[[:word:]]", ""), fill("", "(", ""), fill("", "()", ""), fill("", "(?:a*)*", ""), fill("", "a|.|", "b"), fill("", ".{0,1000}", ""),
		strings.Repeat("(", 999) + "a" + strings.Repeat(")", 999), strings.Repeat("(?:", 600) + "a" + strings.Repeat(")*", 600),
		strings.Repeat("(?:", 9) + "a" + strings.Repeat("){0,2}", 9), "(((((.{10}){10}){10}){10}){10}){10}", fill("", "x", "xxxx"),
	} {
		if bytes := allocated(func() { judge(pattern) }); bytes > 16<<20 {
			t.Errorf("%.40q: %d bytes are allocated", pattern, bytes)
		}
	}
}

func TestPatternJustUnderTheBoundIsServedWithinTheBudget(t *testing.T) {
	const pattern = ".{0,1000}.{0,1000}.{0,497}!" // two for each that may be repeated
	p, err := CompilePattern(pattern)
	if err != nil {
		t.Fatal(err)
	}
	if p.Instructions > MaxPatternInstructions || p.Instructions < MaxPatternInstructions-10 {
		t.Errorf("%d instructions", p.Instructions)
	}
	if _, err := CheckPattern(strings.Replace(pattern, "497", "503", 1)); err == nil {
		t.Error("a little more is taken")
	}
	longest := MaxMatchWork/p.Instructions - 1
	if w := p.Work(longest); w > MaxMatchWork || p.Work(longest+1) <= MaxMatchWork {
		t.Errorf("%d bytes cost %d of %d", longest, w, MaxMatchWork)
	}
	if longest < 3000 {
		t.Errorf("the longest text that it may be matched with has %d bytes", longest)
	}
	if p.MatchString(strings.Repeat("a", longest)) {
		t.Error("it matches")
	}
}

func TestRouteHasABoundOnAllItsPatterns(t *testing.T) {
	var b PatternBudget
	n := 0
	for ; n < 1000; n++ {
		if err := b.Add(fmt.Sprintf(".{0,1000}%d", n)); err != nil {
			var bad *PatternError
			if !errors.As(err, &bad) || !bad.TooLarge || !strings.Contains(bad.Reason, fmt.Sprint(MaxRouteInstructions)) {
				t.Error(err)
			}
			break
		}
	}
	if n < 20 || n > MaxRouteInstructions/2000 {
		t.Errorf("%d patterns of 2,000 instructions are taken", n)
	}
	if err := b.Add(".{0,1000}0"); err != nil {
		t.Errorf("one that is there already: %v", err)
	}
	if err := b.Add("a"); err != nil {
		t.Errorf("one that still fits: %v", err)
	}
}

// wholly is whether a pattern matches the whole of a text, found without anchors.
func wholly(bare *regexp.Regexp, text string) bool {
	at := bare.FindStringIndex(text)
	return at != nil && at[0] == 0 && at[1] == len(text)
}

var patternSeeds = []string{
	"", "a", "a.*b", `/a\Q.b`, `\Q`, `\Qa\`, `\Qa\Eb\Qc(`, `a\\Qb`, `(a)(b|c)`, `(?P<name>a)(?<other>b)`, `[(](a)[)]`, `[]()](a)`, `[^](](a)`, `[[:alpha:](]+(a)`, `[[:x](a)`,
	`(?i)(A|b)`, `(?i:a(b))`, `a|b`, `a)(b`, "(", `\pL+`, `\x{41}(a)`, `[\](](a)`, `[\Q(](a)`, `(?s).{0,30}`, `x{2,}y{0,}z{3}`, "(a{2}){3}", `^a$`, `(?m)^a$`, `a\b`, `()*`, `(|a)*`, costly,
	strings.Repeat("(", 999) + "a" + strings.Repeat(")", 999), strings.Repeat("(?:b", 500) + "a" + strings.Repeat(")*", 500), "a\xff", `\C`, `(?`, `(?i)[A-\x{1e942}]`, `(?U)a*`, "\\Q\\E(a)", "[[:",
}

// FuzzPattern checks that a pattern that is judged valid compiles, alone and with others, to no more instructions than
// judged, and matches what the pattern itself matches.
func FuzzPattern(f *testing.F) {
	for _, p := range patternSeeds {
		f.Add(p, "/a.b")
	}
	f.Fuzz(func(t *testing.T, pattern, text string) {
		n, err := CheckPattern(pattern)
		whole, wholeErr := CompilePattern(pattern)
		start, startErr := CompileStartPattern(pattern)
		if (err == nil) != (wholeErr == nil) || (err == nil) != (startErr == nil) {
			t.Fatalf("%q: judged %v, compiled %v and %v", pattern, err, wholeErr, startErr)
		}
		var bad *PatternError
		if err != nil {
			if !errors.As(err, &bad) || bad.Reason == "" || bad.Fix == "" || len(bad.Reason) > 1024 {
				t.Errorf("%q: %v", pattern, err)
			}
			if _, parses := syntax.Parse(pattern, syntax.Perl); parses == nil && len(pattern) < 900 && !bad.TooLarge {
				t.Errorf("%q is RE2 syntax, but %v", pattern, err)
			}
			return
		}
		if whole.NumSubexp() != 0 || start.NumSubexp() != 0 {
			t.Errorf("%q: groups are left", pattern)
		}
		for _, e := range []*Pattern{whole, start} {
			tree, err := syntax.Parse(e.String(), syntax.Perl)
			if err != nil {
				t.Fatal(err)
			}
			prog, err := syntax.Compile(tree.Simplify())
			if err != nil {
				t.Fatal(err)
			}
			if len(prog.Inst) > n {
				t.Errorf("%q compiles to %d instructions, it was said %d", pattern, len(prog.Inst), n)
			}
		}
		if n > MaxPatternInstructions || whole.Instructions != n {
			t.Errorf("%q: %d instructions", pattern, n)
		}
		if len(text) > 200 || len(pattern) > 500 {
			return
		}
		bare := regexp.MustCompile(pattern)
		bare.Longest()
		if whole.MatchString(text) != wholly(bare, text) {
			t.Errorf("%q matches %q: %t, want %t", pattern, text, whole.MatchString(text), wholly(bare, text))
		}
		at := bare.FindStringIndex(text)
		if got, want := start.MatchString(text), at != nil && at[0] == 0; got != want {
			t.Errorf("%q matches the start of %q: %t, want %t", pattern, text, got, want)
		}
		if !strings.HasPrefix(text, whole.Prefix) && whole.MatchString(text) {
			t.Errorf("%q matches %q without its prefix %q", pattern, text, whole.Prefix)
		}
	})
}

func TestVerdictsAreRememberedUpToABound(t *testing.T) {
	var m patternMemory
	for i := range 3 * maxVerdicts {
		m.put(fmt.Sprint(i), verdict{instructions: i})
	}
	if len(m.young) > maxVerdicts || len(m.old) > maxVerdicts {
		t.Errorf("%d and %d are remembered", len(m.young), len(m.old))
	}
	if v, ok := m.get(fmt.Sprint(3*maxVerdicts - 1)); !ok || v.instructions != 3*maxVerdicts-1 {
		t.Error("the last one is forgotten")
	}
	if _, ok := m.get("0"); ok {
		t.Error("the first one is remembered")
	}
	large := strings.Repeat("x", MaxPatternLength-10)
	for i := range 3 * maxVerdictBytes / MaxPatternLength {
		m.put(fmt.Sprint(large, i), verdict{})
	}
	if m.bytes > maxVerdictBytes || len(m.young)*len(large) > maxVerdictBytes || len(m.old)*len(large) > maxVerdictBytes {
		t.Errorf("%d bytes are remembered", m.bytes)
	}
}

// Patterns that are used again and again are not judged again: a reload of 10,000 routes costs look-ups.
func TestVerdictIsNotFoundAnew(t *testing.T) {
	pattern := strings.Repeat("a?", 500)
	CheckPattern(pattern)
	if n := testing.AllocsPerRun(100, func() { CheckPattern(pattern) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkCheckPattern(b *testing.B) {
	patterns := make([]string, 10_000)
	for i := range patterns {
		patterns[i] = fmt.Sprintf("/service%d/v[0-9]+/items/.*", i)
	}
	for b.Loop() {
		for _, p := range patterns {
			if _, err := CheckPattern(p); err != nil {
				b.Fatal(err)
			}
		}
	}
}
