package resource_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/resource"
)

func TestObjectsAreLaidOverThoseOfASet(t *testing.T) {
	dir := t.TempDir()
	text := `apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: other}
spec: {ports: [{port: 80}]}
`
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := resource.Load(dialect.Kinds(), []string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	key := func(name string) resource.Key { return resource.Key{Kind: "Service", Namespace: "default", Name: name} }
	port := func(s *resource.Set, name string) int32 {
		if o := s.Service("default", name); o != nil {
			return o.Spec.Ports[0].Port
		}
		return 0
	}
	laid, _ := set.Written(key("shop"))
	laid["spec"].(map[string]any)["ports"].([]any)[0].(map[string]any)["port"] = int64(81)
	added := runtime.DeepCopyJSON(laid)
	added["metadata"].(map[string]any)["name"] = "shop-canary"
	broken := runtime.DeepCopyJSON(laid)
	broken["metadata"].(map[string]any)["name"] = "other"
	broken["spec"] = map[string]any{"ports": []any{map[string]any{"port": int64(0)}}}
	unread := map[string]any{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": map[string]any{"name": "x", "namespace": "default"}}

	over, findings := set.With(laid, added, broken, unread)
	if port(over, "shop") != 81 || port(over, "shop-canary") != 81 || port(over, "other") != 80 || len(over.Services) != 3 {
		t.Errorf("laid over: %v", over.Services)
	}
	if port(set, "shop") != 80 || len(set.Services) != 2 {
		t.Errorf("the Set was changed: %v", set.Services)
	}
	if over.Service("default", "other") != set.Service("default", "other") {
		t.Error("an object that nothing was laid over is another one")
	}
	if u, _ := over.Written(key("shop")); u["spec"].(map[string]any)["ports"].([]any)[0].(map[string]any)["port"] != int64(80) {
		t.Errorf("written: %v", u)
	}
	if at := over.Origins[key("shop")]; at.Line != 1 {
		t.Errorf("origin %v", at)
	}
	var told []string
	for _, f := range findings {
		told = append(told, f.Ref.String()+": "+f.Message)
	}
	if all := strings.Join(told, "\n"); len(told) != 2 || !strings.Contains(all, "Service default/other spec.ports[0].port") || !strings.Contains(all, "no Thing of example.com/v1 is read") {
		t.Errorf("findings:\n%s", all)
	}
	if again, _ := set.With(); again != set {
		t.Error("nothing laid over makes another Set")
	}
}
