package visible

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"sigs.k8s.io/yaml"
)

func TestWhatIsObeyedIsEscaped(t *testing.T) {
	for in, want := range map[string]string{
		"plain ünïcode 日本 🙂": "plain ünïcode 日本 🙂",
		`C:\x1b`:             `C:\x1b`,
		"a\x1b[31mb":         `a\x1b[31mb`,
		"a\nb\r\tc\x00\x7f":  `a\nb\r\tc\x00\x7f`,
		"\u009b2J\u0085":     `\u009b2J\u0085`,
		"a\u202eb\u2066":     `a\u202eb\u2066`,
		"a\u200bb\ufeff":     `a\u200bb\ufeff`,
		"a\u2028b\u00a0c":    `a\u2028b\u00a0c`,
		"\u3164\u034f\ufe0f": `\u3164\u034f\ufe0f`,
		"a\xffb\xc2":         `a\xffb\xc2`,
		"\ufffd":             "\ufffd",
		"\U000e0041":         `\U000e0041`,
		"x ##[add-mask]e":    `x #\x23[add-mask]e`,
		"##vso[a]":           `#\x23vso[a]`,
		"### [a] ##":         "### [a] ##",
	} {
		if got := Text(in); got != want || Text(got) != want {
			t.Errorf("Text(%q) is %q, want %q", in, got, want)
		}
	}
	const red = "\x1b[31m"
	for in, want := range map[string]string{
		"a\n::error::b\n":              "a\n\\x3a:error::b\n",
		"  ::error::b":                 "  \\x3a:error::b",
		" " + red + " ::error::b":      " " + red + " \\x3a:error::b",
		red + "a\x1b[2J\n\n  fe80::1 ": red + "a\\x1b[2J\n\n  fe80::1 ",
		"a\r::error::b":                `a\r::error::b`,
	} {
		if got := Lines(in, red); got != want {
			t.Errorf("Lines(%q) is %q, want %q", in, got, want)
		}
	}
}

func FuzzVisible(f *testing.F) {
	f.Add("a\x1b\u202e\xff##[x]\n::e::")
	f.Add("\U000e0041\u2028\\")
	f.Fuzz(func(t *testing.T, s string) {
		if got := Text(s); hidden(got, "") || strings.Contains(got, "\n") || !utf8.ValidString(got) {
			t.Errorf("Text(%q) is %q", s, got)
		}
		got := Lines(s)
		if hidden(got, "\n") || strings.Count(got, "\n") != strings.Count(s, "\n") {
			t.Errorf("Lines(%q) is %q", s, got)
		}
		for line := range strings.Lines(got) {
			if strings.HasPrefix(strings.TrimSpace(line), "::") {
				t.Errorf("Lines(%q) is %q", s, got)
			}
		}
		text, err := json.Marshal(map[string]string{"a": s})
		if err != nil {
			t.Fatal(err)
		}
		var was, is, read map[string]string
		if err := json.Unmarshal(text, &was); err != nil {
			t.Fatal(err)
		}
		if out := JSON(text); hidden(string(out), "") || json.Unmarshal(out, &is) != nil || is["a"] != was["a"] {
			t.Errorf("JSON(%q) is %q", text, out)
		}
		if out := YAML(text); hidden(string(out), "") || yaml.Unmarshal(out, &read) != nil || read["a"] != was["a"] {
			t.Errorf("YAML(%q) is %q: %q", text, out, read["a"])
		}
	})
}
