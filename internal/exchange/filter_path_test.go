package exchange

import (
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
)

// FuzzPathMeansTheSameWhereverItIsUsed checks every path that the proxy accepts: it forwards, rewrites and redirects to
// the path that it matched.
func FuzzPathMeansTheSameWhereverItIsUsed(f *testing.F) {
	for _, s := range []string{"/admin/x", "/%61dmin/x", "//admin//x/", "/a/../admin/./x", "/admin;v/x", "/ad|min/{x}", "/admin%2Fx/y", "/%2e%2e/admin/x", `/ad\min/x`, "/admin"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		valid, unescaped := http1.CheckTarget(raw)
		if !valid || !strings.HasPrefix(raw, "/") || strings.Contains(raw, "?") {
			return
		}
		ex := &Exchange{from: Origin{Peer: &Peer{Scheme: "http"}}, req: Request{Path: raw, Target: raw, Authority: "a", host: "a"}}
		if unescaped {
			ex.escapeTarget()
		}
		matched, err := routing.NormalizePath(raw)
		again, errAgain := routing.NormalizePath(ex.req.Path)
		if matched != again || (err == nil) != (errAgain == nil) {
			t.Fatalf("%q is matched as %q, %v, and as %q, %v once it is escaped", raw, matched, err, again, errAgain)
		}
		if err != nil {
			return
		}
		ex.match.Path = matched
		same := func(what, got, want string) {
			t.Helper()
			normal, err := routing.NormalizePath(got)
			if err != nil || normal != want || routing.HasDotSegment(got) {
				t.Fatalf("%q was matched as %q, but is %s as %q, which is %q, %v; want %q", raw, matched, what, got, normal, err, want)
			}
			if valid, unescaped := http1.CheckTarget(got); !valid || unescaped {
				t.Fatalf("%q is %s as %q, which is no target", raw, what, got)
			}
		}
		same("forwarded", ex.forwardPath(), matched)
		if !unescaped && !routing.HasDotSegment(raw) && ex.forwardPath() != raw {
			t.Fatalf("%q is forwarded as %q", raw, ex.forwardPath())
		}
		first, _, _ := strings.Cut(matched[1:], "/")
		if first == "" {
			return
		}
		rest := strings.TrimPrefix(matched, "/"+first)
		if rest == "/" {
			return // Gateway API decides whether a slash stays at the end
		}
		ex.decision.Prefix = "/" + first
		same("rewritten", ex.patchPath(&model.PathPatch{Prefix: true, Value: "/new/place"}), "/new/place"+rest)
		same("rewritten to the root", ex.patchPath(&model.PathPatch{Prefix: true, Value: "/"}), "/"+strings.TrimPrefix(rest, "/"))
	})
}
