package demo

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/routing"
)

// weir-demo does not check rules that compare fields, so its users' objects may break them. These tests do the same.
func init() { resource.CheckRules(nil) }

// TestObjectsThatBreakRulesAreServedAsFarAsTheyGo reads objects that no API server would admit.
func TestObjectsThatBreakRulesAreServedAsFarAsTheyGo(t *testing.T) {
	paths, err := filepath.Glob("../resource/testdata/findings/*.yaml")
	if err != nil || len(paths) < 10 {
		t.Fatalf("%d files, %v", len(paths), err)
	}
	serve := func(set *resource.Set) control.Result {
		result, err := control.Options{}.Translate(set)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := routing.Compile(result.Config, nil); err != nil {
			t.Fatal(err)
		}
		return result
	}
	for _, path := range paths {
		set, err := resource.Load(dialect.Kinds(), []string{path}, nil)
		if err != nil {
			t.Fatal(err)
		}
		serve(set)
	}
	files, err := NewOptions().manifests()
	if err != nil {
		t.Fatal(err)
	}
	for _, filter := range []string{
		"type: RequestMirror", "type: RequestRedirect", "type: URLRewrite", "type: RequestHeaderModifier", "type: ResponseHeaderModifier", "type: CORS", "type: ExtensionRef",
		"type: RequestRedirect, urlRewrite: {hostname: a.example}", "type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath}}",
		"type: RequestRedirect, requestRedirect: {path: {type: ReplacePrefixMatch}}", "type: URLRewrite, urlRewrite: {path: {type: ReplacePrefixMatch, replaceFullPath: /x}}",
	} {
		set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(files["demo.yaml"]+"\n---\n"+files["services.yaml"]+fmt.Sprintf(`
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: broken}
spec:
  parentRefs: [{name: edge}]
  rules:
  - matches: [{path: {type: Exact, value: x/../y}}]
    filters: [{%s}]
    backendRefs: [{name: shop-v1}]
`, filter)))
		if err != nil {
			t.Fatal(err)
		}
		result := serve(set)
		if len(result.Findings) == 0 || len(result.Config.Routes) == 0 {
			t.Errorf("%s: %d findings, %d routes", filter, len(result.Findings), len(result.Config.Routes))
		}
	}
}
