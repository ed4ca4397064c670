package main

import (
	"fmt"
	"strings"
)

// variants are at least 5,000 spellings by which a client could try to reach /admin past a rule for it, the same each time.
func variants() []string {
	seen := map[string]bool{}
	var all []string
	add := func(p string) {
		if !seen[p] && strings.HasPrefix(p, "/") && !strings.ContainsAny(p, " \t\r\n") {
			seen[p] = true
			all = append(all, p)
		}
	}
	inserts := []string{
		";", ";a=b", "%3b", "/", "//", "/.", "/./", "/..", "/x/..", "/../", "%2f", "%2F", "/%2e/", "/%2e%2e/", "..;/", "/x/..;/", "/;/", `\`, "%5c", `\..\`, "%2e", ".", "..",
		"%20", "%09", "%0a", "%0d", "%00", "%3f", "%23", "%25", "%252f", "%255c", "%252e", "%c0%af", "%c0%ae", "%e0%80%af", "%ff", "%c2%a0", "+", "~", "%7f",
	}
	changes := []func(string, int) string{
		func(p string, i int) string { return p[:i] + strings.ToUpper(p[i:i+1]) + p[i+1:] },
		func(p string, i int) string { return p[:i] + fmt.Sprintf("%%%02x", p[i]) + p[i+1:] },
		func(p string, i int) string { return p[:i] + fmt.Sprintf("%%%02X", p[i]) + p[i+1:] },
		func(p string, i int) string { return p[:i] + fmt.Sprintf("%%25%02x", p[i]) + p[i+1:] },
		func(p string, i int) string {
			return p[:i] + fmt.Sprintf("%%25%%%02x%%%02x", "0123456789abcdef"[p[i]>>4], "0123456789abcdef"[p[i]&15]) + p[i+1:]
		},
		func(p string, i int) string {
			return p[:i] + fmt.Sprintf("%%c%d%%%02x", p[i]>>6, p[i]&63|128) + p[i+1:]
		},
		func(p string, i int) string { return p[:i] + fmt.Sprintf("%%%02x", p[i]&^32) + p[i+1:] },
		func(p string, i int) string { return p[:i] + fmt.Sprintf("%%u00%02x", p[i]) + p[i+1:] },
	}
	var once []string
	for _, base := range []string{"/admin", "/admin/", "/admin/x", "/ADMIN/x", "/a/../admin/x", "/a/b/admin/x"} {
		add(base)
		for i := range base {
			for _, change := range changes {
				add(change(base, i))
			}
		}
		for i := 1; i <= len(base); i++ {
			for _, s := range inserts {
				add(base[:i] + s + base[i:])
			}
		}
		for _, s := range inserts {
			add("/" + strings.ReplaceAll(base[1:], "/", s))
			add(s + base)
		}
	}
	once = append(once, all...)
	// A second change to every third of them, at three places.
	for n, p := range once {
		if n%3 != 0 {
			continue
		}
		for k := range 3 {
			i := 1 + (n*7+k*5)%len(p)
			add(p[:i] + inserts[(n+k*11)%len(inserts)] + p[i:])
			if i < len(p) {
				add(changes[(n+k)%len(changes)](p, i))
			}
		}
	}
	return all
}
