package model

import (
	"net/url"
	"testing"
)

func TestPlainPathDecodesWhatMayStandUnescaped(t *testing.T) {
	for path, want := range map[string]string{
		"/": "/", "/a/b": "/a/b", "/users/a%40b": "/users/a@b", "/v1/x%3Adelete": "/v1/x:delete", "/%21%24%26%27%28%29%2A%2B%2C%3D": "/!$&'()*+,=",
		"/a%2Fb": "/a%2Fb", "/a%3Bb": "/a%3Bb", "/a%20b%40": "/a%20b@", "/%C3%A9": "/%C3%A9", "/%25%34%30": "/%25%34%30", "/a%3Fb": "/a%3Fb", "/%2": "/%2", "/x%": "/x%",
	} {
		got, scratch := PlainPath(path, []byte("kept"))
		if got != want || string(scratch[:4]) != "kept" {
			t.Errorf("%s: %s, want %s (%q)", path, got, want, scratch)
		}
	}
}

func FuzzPlainPath(f *testing.F) {
	for _, s := range []string{"/a%40b", "/%2540", "/a%3b%3B", "/..%2f", "/%", "/%4", "/é"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		normal, err := NormalizePath(raw)
		if err != nil {
			return
		}
		got, _ := PlainPath(normal, nil)
		if again, _ := PlainPath(got, nil); again != got {
			t.Fatalf("%q: %q, then %q", normal, got, again)
		}
		is, err1 := url.PathUnescape(got)
		was, err2 := url.PathUnescape(normal)
		if is != was || (err1 == nil) != (err2 == nil) {
			t.Fatalf("%q is %q, %q is %q", normal, was, got, is)
		}
	})
}
