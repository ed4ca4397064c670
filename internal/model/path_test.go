package model

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestNormalizePath(t *testing.T) {
	for _, c := range []struct{ raw, want string }{
		{"", "/"},
		{"/", "/"},
		{"/a/b", "/a/b"},
		{"/a/b/", "/a/b/"},
		{"/a//b", "/a/b"},
		{"//a", "/a"},
		{"//", "/"},
		{"/a///", "/a/"},
		{"/.", "/"},
		{"/..", "/"},
		{"/a/.", "/a/"},
		{"/a/..", "/"},
		{"/a/../", "/"},
		{"/a/./b", "/a/b"},
		{"/a/b/../c", "/a/c"},
		{"/a/b/../../../c", "/c"},
		{"/../../etc/passwd", "/etc/passwd"},
		{"/a//../b", "/b"},
		{"/a/b/..//c", "/a/c"},
		{"/%2e%2e/a", "/a"},
		{"/a/%2E./b", "/b"},
		{"/a/.%2e/b", "/b"},
		{"/a/%2e/b", "/a/b"},
		{"/...", "/..."},
		{"/a/..b/.c/d.", "/a/..b/.c/d."},
		{"/.well-known/x", "/.well-known/x"},
		{"/%61%7e%2D%5f%41", "/a~-_A"},
		{"/Admin", "/Admin"},
		{"/%41dmin", "/Admin"},
		{"/%c3%a9", "/%C3%A9"},
		{"/\u00e9", "/%C3%A9"},
		{"/%C3%A9", "/%C3%A9"},
		{"/a%20b", "/a%20b"},
		{"/a+b", "/a+b"},
		{"/a%2fb", "/a%2Fb"},
		{"/a%2Fb", "/a%2Fb"},
		{"/a%5cb", "/a%5Cb"},
		{`/a\b`, "/a%5Cb"},
		{`/{id}|"<>^` + "`[]", "/%7Bid%7D%7C%22%3C%3E%5E%60%5B%5D"},
		{"/a;v=1/b", "/a;v=1/b"},
		{"/a;/b", "/a;/b"},
		{"/a%3bv", "/a%3Bv"},
		{"/;a", "/;a"},
		{"/!$&'()*+,;=:@", "/!$&'()*+,;=:@"},
		{"/%252F", "/%252F"},
		{"/%25zz", "/%25zz"},
		{"/100%25", "/100%25"},
		{"/a%0Ab", "/a%0Ab"},
		{"/a%2F...%5Cb", "/a%2F...%5Cb"},
	} {
		got, err := NormalizePath(c.raw)
		if err != nil || got != c.want {
			t.Errorf("NormalizePath(%q) = %q, %v, want %q", c.raw, got, err, c.want)
		}
		if again, err := NormalizePath(got); err != nil || again != got {
			t.Errorf("NormalizePath(%q) = %q, %v, want itself", got, again, err)
		}
	}
}

func TestNormalizePathRefusesWhatOthersReadDifferently(t *testing.T) {
	for _, c := range []struct {
		raw  string
		want error
	}{
		{"a", errPathStart},
		{"*", errPathStart},
		{"%2Fa", errPathStart},
		{`\a`, errPathStart},
		{"/%", errPathEscape},
		{"/%2", errPathEscape},
		{"/%2/a", errPathEscape},
		{"/%zz", errPathEscape},
		{"/a%g0", errPathEscape},
		{"/%u002e", errPathEscape},
		{"/../%", errPathEscape},
		{"/%00", errPathNUL},
		{"/a/%00/..", errPathNUL},
		{"/a b", errPathByte},
		{"/a\x00", errPathByte},
		{"/a\r\n", errPathByte},
		{"/\t", errPathByte},
		{"/\x7f", errPathByte},
		{"/a?b", errPathByte},
		{"/a#b", errPathByte},
		{"/..%2Fa", errPathHidden},
		{"/a%2f..", errPathHidden},
		{"/a%2F..%2Fb", errPathHidden},
		{"/a%2F%2e%2e%2Fb", errPathHidden},
		{"/%2e%2e%2f", errPathHidden},
		{"/.%2Fa", errPathHidden},
		{"/..%5Ca", errPathHidden},
		{"/%2e%2E%5ca", errPathHidden},
		{`/..\a`, errPathHidden},
		{`/a\..`, errPathHidden},
		{`/a\.\b`, errPathHidden},
		{"/..;/a", errPathHidden},
		{"/..;x=1/a", errPathHidden},
		{"/.;/a", errPathHidden},
		{"/%2e%2e;/a", errPathHidden},
		{"/..%3B/a", errPathHidden},
		{"/%252e%252e/a", errPathHidden},
		{"/.%252E/a", errPathHidden},
		{"/%25252e/a", errPathHidden},
		{"/%25%32%65/a", errPathHidden},
		{"/..%252Fa", errPathHidden},
		{"/..%255Ca", errPathHidden},
	} {
		if got, err := NormalizePath(c.raw); !errors.Is(err, c.want) {
			t.Errorf("NormalizePath(%q) = %q, %v, want %v", c.raw, got, err, c.want)
		}
	}
}

func TestNormalizePathDoesNotAllocateForNormalPaths(t *testing.T) {
	for _, path := range []string{"/", "/a/b.c/", "/.well-known/x", "/caf%C3%A9/a%20b", "/a%2Fb;v=1/%25"} {
		if n := testing.AllocsPerRun(100, func() {
			if got, err := NormalizePath(path); err != nil || got != path {
				t.Errorf("NormalizePath(%q) = %q, %v", path, got, err)
			}
		}); n != 0 {
			t.Errorf("NormalizePath(%q) allocates %v times", path, n)
		}
	}
}

func TestHasDotSegment(t *testing.T) {
	for path, want := range map[string]bool{
		"/": false, "/a/b": false, "/a//b": false, "/%41": false, "/.a/..b/...": false, "/a/;.": false,
		"/.": true, "/..": true, "/a/./b": true, "/a/%2e%2E/b": true, "/a/.%2e": true,
	} {
		if got := HasDotSegment(path); got != want {
			t.Errorf("HasDotSegment(%q) = %v, want %v", path, got, want)
		}
	}
}

var (
	validPath   = regexp.MustCompile(`^/([^%\x00-\x20\x7f?#]|%[0-9A-Fa-f]{2})*$`)
	anyEscape   = regexp.MustCompile(`%[0-9A-Fa-f]{2}`)
	lowerEscape = regexp.MustCompile(`%([a-f].|.[a-f])`)
	dotSegment  = regexp.MustCompile(`(^|[/\\])\.{1,2}(;[^/\\]*)?($|[/\\])`)
)

// naiveNormalize does the same in slow, separate passes.
func naiveNormalize(raw string) (string, bool) {
	if raw == "" {
		return "/", true
	}
	if !validPath.Match([]byte(toLatin(raw))) || strings.Contains(raw, "%00") {
		return "", false
	}
	var spelled strings.Builder
	for rest := raw; rest != ""; {
		b, n := rest[0], 1
		if b == '%' {
			decoded, _ := url.PathUnescape(rest[:3])
			b, n = decoded[0], 3
		}
		switch {
		case strings.IndexByte("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~", b) >= 0,
			n == 1 && strings.IndexByte("!$&'()*+,;=:@/", b) >= 0:
			spelled.WriteByte(b)
		case n == 3:
			spelled.WriteString(strings.ToUpper(rest[:3]))
		default:
			const hex = "0123456789ABCDEF"
			spelled.Write([]byte{'%', hex[b>>4], hex[b&15]})
		}
		rest = rest[n:]
	}
	var kept []string
	slash := false
	for _, s := range strings.Split(spelled.String(), "/") {
		slash = s == "" || s == "." || s == ".."
		if s == ".." && len(kept) > 0 {
			kept = kept[:len(kept)-1]
		}
		if slash {
			continue
		}
		// Decode again and again.
		full := s
		for {
			next := anyEscape.ReplaceAllStringFunc(full, func(e string) string { d, _ := url.PathUnescape(e); return d })
			if next == full {
				break
			}
			full = next
		}
		if dotSegment.MatchString(toLatin(full)) {
			return "", false
		}
		kept = append(kept, s)
	}
	normal := "/" + strings.Join(kept, "/")
	if slash && normal != "/" {
		normal += "/"
	}
	return normal, true
}

// toLatin makes each byte a character, so that an expression sees bytes.
func toLatin(s string) string {
	var b strings.Builder
	for i := range len(s) {
		b.WriteRune(rune(s[i]))
	}
	return b.String()
}

// meaning is a path's segments, decoded once, after dot segments and empty ones are resolved.
func meaning(path string) []string {
	var kept []string
	for _, s := range strings.Split(path, "/") {
		decoded, err := url.PathUnescape(s)
		if err != nil {
			return []string{"undecodable"}
		}
		switch decoded {
		case "", ".":
		case "..":
			if len(kept) > 0 {
				kept = kept[:len(kept)-1]
			}
		default:
			kept = append(kept, decoded)
		}
	}
	return kept
}

// The variants by which a path can be spelled to get past a rule for /admin, as docs/http1.md lists them: each compares as /admin/x, as
// something that no server takes for it, or is refused.
func TestVariantsOfAPath(t *testing.T) {
	for _, c := range []struct{ raw, normal string }{ // "": refused
		{"/admin/x", "/admin/x"},
		// escapes
		{"/%61dmin/x", "/admin/x"},
		{"/%61%64%6d%69%6E/x", "/admin/x"},
		{"/admin%2Fx", "/admin%2Fx"},
		{"/admin%2fx", "/admin%2Fx"},
		{"/%2Fadmin/x", "/%2Fadmin/x"},
		{"/admin%20/x", "/admin%20/x"},
		{"/admin%09/x", "/admin%09/x"},
		{"/admin%00/x", ""},
		{"/admin%/x", ""},
		{"/%u0061dmin/x", ""},
		// dot segments
		{"/./admin/x", "/admin/x"},
		{"/a/../admin/x", "/admin/x"},
		{"/../admin/x", "/admin/x"},
		{"/a/%2e%2e/admin/x", "/admin/x"},
		{"/a/%2E./admin/x", "/admin/x"},
		{"/admin/./x", "/admin/x"},
		{"/admin/y/../x", "/admin/x"},
		{"/admin/../x", "/x"},
		{"/admin./x", "/admin./x"},
		{"/.../admin/x", "/.../admin/x"},
		// slashes
		{"//admin/x", "/admin/x"},
		{"///admin///x", "/admin/x"},
		{"/admin//x", "/admin/x"},
		{"/a//../admin/x", "/admin/x"},
		// parameters
		{"/admin;v=1/x", "/admin;v=1/x"},
		{"/admin;/x", "/admin;/x"},
		{"/;/admin/x", "/;/admin/x"},
		{"/a/..;/admin/x", ""},
		{"/.;/admin/x", ""},
		{"/a/%2e%2e;v/admin/x", ""},
		{"/a/..%3b/admin/x", ""},
		// backslashes
		{`\admin/x`, ""},
		{`/\admin/x`, "/%5Cadmin/x"},
		{`/admin\x`, "/admin%5Cx"},
		{"/admin%5cx", "/admin%5Cx"},
		{`/a/..\admin/x`, ""},
		{"/a/..%5cadmin/x", ""},
		// case
		{"/Admin/x", "/Admin/x"},
		{"/ADMIN/x", "/ADMIN/x"},
		{"/%41dmin/x", "/Admin/x"},
		// decoded twice
		{"/%2561dmin/x", "/%2561dmin/x"},
		{"/a/%252e%252e/admin/x", ""},
		{"/a/%25%32%65./admin/x", ""},
		{"/a/..%252fadmin/x", ""},
		{"/admin%252Fx", "/admin%252Fx"},
		// UTF-8, well-formed and overlong
		{"/%C3%A4dmin/x", "/%C3%A4dmin/x"},
		{"/\u00e4dmin/x", "/%C3%A4dmin/x"},
		{"/%c1%a1dmin/x", "/%C1%A1dmin/x"},
		{"/a/%c0%ae%c0%ae/admin/x", "/a/%C0%AE%C0%AE/admin/x"},
		{"/%ef%bd%81dmin/x", "/%EF%BD%81dmin/x"},
		{"/\u200badmin/x", "/%E2%80%8Badmin/x"},
		// what ends a path elsewhere
		{"/admin/x?", ""},
		{"/admin/x#", ""},
		{"/admin/x%3f", "/admin/x%3F"},
		{"/admin/x%23", "/admin/x%23"},
		{"/admin/x ", ""},
		{"/admin/x\t", ""},
		{"/admin/x/", "/admin/x/"},
		{"/admin/x/.", "/admin/x/"},
	} {
		got, err := NormalizePath(c.raw)
		if (err != nil) != (c.normal == "") || got != c.normal {
			t.Errorf("NormalizePath(%q) = %q, %v, want %q", c.raw, got, err, c.normal)
		}
	}
}

func FuzzNormalizePath(f *testing.F) {
	for _, s := range []string{"/a/../b//c/%2e/%41%2f", "/%252e%252e/", "/..;/a", "/a\xff\\b", "", "/%%", "/%2%35%2e", "/a/%2e%2e;x%2f", "//..//.;"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		got, err := NormalizePath(raw)
		want, ok := naiveNormalize(raw)
		if (err == nil) != ok || got != want {
			t.Fatalf("NormalizePath(%q) = %q, %v, want %q, %v", raw, got, err, want, ok)
		}
		if err != nil {
			return
		}
		if again, err := NormalizePath(got); err != nil || again != got {
			t.Errorf("not idempotent: %q, then %q, %v", got, again, err)
		}
		if got[0] != '/' || strings.Contains(got, "//") || dotSegment.MatchString(got) || lowerEscape.MatchString(got) {
			t.Errorf("NormalizePath(%q) = %q is not normal", raw, got)
		}
		// The meaning is the same: segment by segment, except for dot segments and empty ones, it decodes to the same
		// bytes.
		if a, b := meaning(raw), meaning(got); !slices.Equal(a, b) {
			t.Errorf("NormalizePath(%q) = %q means %q, not %q", raw, got, b, a)
		}
		if HasDotSegment(got) {
			t.Errorf("NormalizePath(%q) = %q has a dot segment", raw, got)
		}
		if !HasDotSegment(raw) && strings.Count(strings.Trim(got, "/"), "/") > strings.Count(raw, "/") {
			t.Errorf("NormalizePath(%q) = %q has more segments", raw, got)
		}
	})
}
