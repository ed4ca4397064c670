package cli_test

import "testing"

func TestExplainSaysWhatPathPoliciesRefuse(t *testing.T) {
	explain := func(url string, args ...string) result {
		return weir("", append(append([]string{"explain"}, args...), "--", "http://shop.example:8080"+url)...)
	}
	policy, plain := examples+"path-policy", examples+"canary"
	explain("/admin%2Fx", policy).want(t, 0, "path policy strict: refused", "the path has an escaped slash (%2F)",
		"read so it is /admin/x, which leads to HTTPRoute default/shop spec.rules[2]", "answered by 400, ambiguous_path", "!gets GET")
	explain("/ADMIN", policy).want(t, 0, "path policy strict: refused", "letters whose case differs", "read so it is /admin, which leads to")
	explain("/admin.", policy).want(t, 0, "a dot at the end of a segment", "read so it is /admin, which leads to")
	explain("/Admin.", policy).want(t, 0, "characters that servers ignore", "read so it is /admin, which leads to")
	explain("/shop", policy).want(t, 0, "path policy strict\n", "!refused", "default/shop-v1:80")
	explain("/packages/@a%2Fb", policy).want(t, 0, "path policy as-written; strict would refuse it", "read so it is /packages/@a/b", "default/shop-v2:80")
	explain("/admin;x", policy, "-o", "json").want(t, 0, `"policy": "strict"`, `"refused": "path_parameter"`, `"path": "/admin"`)
	explain("/a", plain).want(t, 0, "!path policy")
	explain("/a;b", plain).want(t, 0, "path policy as-written; strict would refuse it")
	explain("/a;b", plain, "--path-policy", "strict").want(t, 0, "path policy strict: refused")
	explain("/packages/a;b", policy, "--path-policy", "strict").want(t, 0, "path policy as-written; strict would refuse it")
	explain("/a", plain, "--path-policy", "Strict").want(t, 2, "stderr:want as-written or strict")
	weir("", "dump", "--path-policy", "strict", plain).want(t, 0, `"pathPolicy": "strict"`)
	weir("", "dump", plain).want(t, 0, "!pathPolicy")
	weir("", "dump", "--path-policy", "strict", examples+"split-birds").want(t, 0, `"pathPolicy": "strict"`)
	weir("", "dump", "--path-policy", "strict", examples+"tcp-route").want(t, 0, "!pathPolicy")
	weir("", "check", policy).want(t, 0)
}
