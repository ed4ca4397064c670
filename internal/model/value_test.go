package model

import (
	"errors"
	"strings"
	"testing"
)

func TestPathsOfTheConfigurationAreSentAsTheyWereWritten(t *testing.T) {
	for value, want := range map[string]string{
		"": "", "/": "/", "/a/b": "/a/b", "/a/b/": "/a/b/", "a": "/a", "/a//b": "/a//b", "/a%20b": "/a%20b", "/%7e%2f": "/%7e%2f", "/a;v=1": "/a;v=1",
		"/one page": "/one%20page", "/caf\u00e9": "/caf%C3%A9", "/{a}|": "/%7Ba%7D%7C", `/a\b`: "/a%5Cb", "/100%25": "/100%25",
		"/a/../b": "/b", "/a/%2e%2E/b": "/b", "/a/.": "/a/",
	} {
		if got, err := TargetPath(value); err != nil || got != want {
			t.Errorf("%q is sent as %q, %v; want %q", value, got, err, want)
		}
	}
	for _, value := range []string{"/100%", "/%zz", "/a%2", "%", "/x%00", "/a?b", "/a#b", "/a\r\nb", "/a\x00", "/a\x7f", "/a/..;b", "/a/..%5cb", "/%252e%252e", "/a/..%2f", "?"} {
		_, err := TargetPath(value)
		var bad *ValueError
		if !errors.As(err, &bad) || bad.Reason == "" || bad.Fix == "" {
			t.Errorf("%q: %v", value, err)
		}
	}
}

func FuzzTargetPath(f *testing.F) {
	for _, s := range []string{"/a/../b//c/%2e/%41%2f", "/100%", "/a b", "caf\u00e9", "/..;/a", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, value string) {
		got, err := TargetPath(value)
		if err != nil || value == "" {
			return
		}
		// The sent form is a path that every server, and this one, accepts.
		if !validPath.MatchString(got) || HasDotSegment(got) || strings.ContainsFunc(got, func(c rune) bool { return c >= 0x80 }) {
			t.Errorf("%q is sent as %q", value, got)
		}
		if _, err := NormalizePath(got); err != nil {
			t.Errorf("%q is sent as %q: %v", value, got, err)
		}
		if again, err := TargetPath(got); err != nil || again != got {
			t.Errorf("%q, then %q, %v", got, again, err)
		}
	})
}

func TestHostnamesHeadersAndChecks(t *testing.T) {
	for _, host := range []string{"a", "a.example", "A-1_b.example.", "10.0.0.1", "[::1]"} {
		if err := CheckHostname(host, false); err != nil {
			t.Errorf("%q: %v", host, err)
		}
		if err := CheckHostname(strings.TrimSuffix(host, ".")+":8080", true); err != nil {
			t.Errorf("%q with a port: %v", host, err)
		}
	}
	for _, host := range []string{"", ".", "a..b", ".a", "a b", "a/b", "a\r\nb", "a:80", "http://a", "a%20", "user@a", "[::1", "[10.0.0.1]", "[fe80::1%eth0]", "*.a", "caf\u00e9", strings.Repeat("a", 64), strings.Repeat("a.", 128)} {
		if CheckHostname(host, false) == nil {
			t.Errorf("%q is taken", host)
		}
	}
	for _, host := range []string{"a:", "a:0", "a:65536", "a:x", ":80", "[::1]:", "::1"} {
		if CheckHostname(host, true) == nil {
			t.Errorf("%q is taken", host)
		}
	}
	for _, value := range []string{"", "a", "a\tb", "\u00e9", " a "} {
		if err := CheckFieldValue(value); err != nil {
			t.Errorf("%q: %v", value, err)
		}
	}
	for _, value := range []string{"a\r\nb: c", "a\nb", "a\rb", "a\x00", "\x7f"} {
		if CheckFieldValue(value) == nil {
			t.Errorf("%q is taken", value)
		}
	}
	for path, want := range map[string]bool{
		"/": true, "/healthz?a=b": true, "/a?b?c": true, "/%25?x=%41": true, "/a?": true,
		"": false, "a": false, "?a": false, "/a b": false, "/100%": false, "/a?x=%": false, "/a?x=%zz": false, "/a#b": false, "/a?b#c": false, "/a?\u00e9": false, "/\u00e9": false, "/x%00": false, "/../a": false,
	} {
		if ValidCheckPath(path) != want {
			t.Errorf("%q: %t", path, !want)
		}
	}
}
