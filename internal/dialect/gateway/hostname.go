package gateway

import "strings"

// intersect returns the hostnames that both of two hostnames stand for; "" is any, "*.suffix" every name that ends in
// .suffix (HTTPRouteSpec.hostnames). Both are in lower case.
func intersect(a, b string) (string, bool) {
	switch {
	case a == b || b == "":
		return a, true
	case a == "" || within(b, a):
		return b, true
	case within(a, b):
		return a, true
	default:
		return "", false
	}
}

// within reports whether the wildcard wide covers everything that narrow covers.
func within(narrow, wide string) bool {
	suffix, ok := strings.CutPrefix(wide, "*")
	return ok && len(narrow) > len(suffix) && strings.HasSuffix(narrow, suffix)
}
