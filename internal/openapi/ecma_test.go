package openapi

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/test/size"
)

// randomPattern is a pattern that means the same in ECMA-262 and in RE2.
func randomPattern(r *rand.Rand, depth int) string {
	atoms := []string{"a", "b", "0", " ", "é", "€", "😀", "@", "%", ";", "/", "-", `\.`, `\+`, "[ab]", "[^a]", "[a-c0-2]", `\d`, `\w`, `\W`, `[^\d;]`, "[é-€]", "[;%]", "[^a-z€]", `[\x20-\x40]`, "[/]", "[😀-😂]"}
	n := 1 + r.IntN(3)
	var b strings.Builder
	for range n {
		atom := atoms[r.IntN(len(atoms))]
		if depth > 0 && r.IntN(3) == 0 {
			atom = "(?:" + randomPattern(r, depth-1) + ")"
			if r.IntN(2) == 0 {
				atom = strings.Replace(atom, "(?:", "(", 1)
			}
		}
		b.WriteString(atom)
		b.WriteString([]string{"", "", "", "*", "+", "?", "{2}", "{1,3}", "{0,2}", "*?"}[r.IntN(10)])
	}
	text := b.String()
	if r.IntN(4) == 0 {
		text += "|" + randomPattern(r, 0)
	}
	return text
}

// TestPatternsMatchTheEscapedFormOfWhatTheyMatched compares what is made of patterns with the patterns themselves.
func TestPatternsMatchTheEscapedFormOfWhatTheyMatched(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	alphabet := []rune("aabbc012 é€😀@%;-.+zÿ\n~")
	compared, matched := 0, 0
	for range size.Of(3000, 40_000) {
		pattern := randomPattern(r, 2)
		switch r.IntN(5) {
		case 0:
			pattern = "^" + pattern
		case 1:
			pattern += "$"
		case 2, 3:
			pattern = "^(?:" + pattern + ")$"
		}
		naive, err := regexp.Compile(pattern)
		if err != nil {
			continue
		}
		made, err := ecmaPattern(pattern)
		if err != nil && err != errNothing {
			continue
		}
		if made == "" {
			made = `[^\x00-\x{10ffff}]` // nothing
		}
		clever, err := regexp.Compile("^" + model.GroupPattern(made) + "$")
		if err != nil {
			t.Fatalf("%q became %q: %v", pattern, made, err)
		}
		// What stands before and after it stays as it is, also without a group.
		if beside := regexp.MustCompile("^<" + made + ">$"); beside.MatchString("<") || beside.MatchString(">") || beside.MatchString("<>") {
			t.Fatalf("%q became %q, which does not stay together or may be empty", pattern, made)
		}
		for range 12 {
			var value strings.Builder
			for range 1 + r.IntN(5) {
				value.WriteRune(alphabet[r.IntN(len(alphabet))])
			}
			text := value.String()
			want := naive.MatchString(text)
			path := encoded(r, text)
			compared++
			if want {
				matched++
			}
			if clever.MatchString(path) != want {
				t.Fatalf("%q became %q; value %q, as %q: want %v", pattern, made, text, path, want)
			}
		}
	}
	if compared < 3000 || matched < compared/20 {
		t.Errorf("%d compared, of which %d match", compared, matched)
	}
}

// encoded is a text as it stands in a path in its plain form.
func encoded(r *rand.Rand, text string) string {
	var b strings.Builder
	for _, c := range []byte(text) {
		if bare(c) && (c != ';' || r.IntN(2) == 0) {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

func TestBareBytesAreThoseOfThePlainForm(t *testing.T) {
	for i := 1; i < 256; i++ {
		b := byte(i)
		if b == '/' || b == '\\' {
			continue
		}
		normal, err := model.NormalizePath(fmt.Sprintf("/a%%%02xa", b))
		if err != nil {
			t.Fatal(err)
		}
		plain, _ := model.PlainPath(normal, nil)
		if got := len(plain) == 4; got != bare(b) && b != ';' {
			t.Errorf("%q is %s in a path, bare: %v", b, plain, bare(b))
		}
		if literal, wrong := literalPath(normal); literal != plain || wrong != "" {
			t.Errorf("%s is %s, %s as literal text", plain, literal, wrong)
		}
	}
}

func TestPatternsOfECMAThatRE2DoesNotHave(t *testing.T) {
	for pattern, want := range map[string]string{
		`(?=a)b`: "looks around", `(?!a)b`: "looks around", `(?<=a)b`: "looks around", `(?<!a)b`: "looks around", `(a)\1`: "back-reference", `(?<n>a)\k<n>`: "back-reference",
		`a\b`: "word boundary", `\B`: "word boundary", `a\`: "backslash", `[a`: "without end", `[]`: "empty character class", `[^]a]`: "empty character class", `\07`: "octal",
		`\u00`: "invalid escape", `\xg0`: "invalid escape", `\u{}`: "invalid escape", `\ud83d\ude00`: "surrogate", `\Aa`: `\A`, `a\z`: `\z`, `\Qa\E`: `\Q`, `\pL`: "without {}",
		`(?i)a`: "modifier", `(?i:a)`: "modifier", `(?P<n>a)`: "modifier", `a{1001}`: "repeat", `a**`: "", `(`: "", `a^b`: "anchor inside", `(^a|b)c`: "anchor inside", `$a`: "anchor inside",
		strings.Repeat("a", maxPattern+1): "too long", `([a-z]{500}){100}`: "", `[\S]`: `\S`, `a/b`: "no value", `^$`: "no value", ``: "",
	} {
		made, err := ecmaPattern(pattern)
		if pattern == "" {
			if err != nil {
				t.Errorf("an empty pattern: %v", err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.30q became %q, %v; want %q", pattern, made, err, want)
		}
	}
	for pattern, values := range map[string][2][]string{ // that match, and that do not
		`^\s$`:          {{"%20", "%C2%A0", "%E2%80%A8"}, {"a", "%C3%A9"}},
		`^\S+$`:         {{"a", "%C3%A9", "%F0%9F%98%80"}, {"%20", "a%C2%A0"}},
		`^\u00e9\x41$`:  {{"%C3%A9A"}, {"A"}},
		`^\u{1F600}$`:   {{"%F0%9F%98%80"}, {"a"}},
		`^[\b]$`:        {{"%08"}, {"b"}},
		`^[[a]$`:        {{"%5B", "a"}, {"b"}},
		`^[[:alpha:]]$`: {{"a%5D", ":%5D", "%5B%5D"}, {"b", "a"}},
		`^a\/?$`:        {{"a"}, {"a%2F"}},
		`^a.b$`:         {{"axb", "a%C3%A9b", "a%2Fb"[:1] + "%20b"}, {"a%0Ab", "ab", "a/b"}},
		`^(?<n>a)$`:     {{"a"}, {"b"}},
		`^a$|^b`:        {{"a", "b", "bc"}, {"ac", "ab"}},
		`^(a|b)*$`:      {{"a", "abab"}, {"", "c"}},
		`^é$`:           {{"%C3%A9"}, {"e"}},
	} {
		made, err := ecmaPattern(pattern)
		if err != nil {
			t.Errorf("%q: %v", pattern, err)
			continue
		}
		re := regexp.MustCompile("^" + model.GroupPattern(made) + "$")
		for i, list := range values {
			for _, v := range list {
				if re.MatchString(v) != (i == 0) {
					t.Errorf("%q became %q, which matches %q: %v", pattern, made, v, i != 0)
				}
			}
		}
	}
}
