package resource_test

import (
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/resource"
)

func TestObjectsAreHadAsTheyAreWritten(t *testing.T) {
	dir := t.TempDir()
	text := `# a comment
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {ports: [{port: 80}], unknown: 1}
---
apiVersion: networking.istio.io/v1beta1
kind: VirtualService
metadata:
  name: shop
  namespace: store
spec:
  http: [{route: [{destination: {host: shop}}]}]
---
apiVersion: v1
kind: List
items:
- apiVersion: apps/v1
  kind: DeploymentList
  items:
  - metadata: {name: shop}
    spec: {replicas: 3}
---
apiVersion: networking.istio.io/v1beta1
kind: VirtualService
spec: {}
`
	if err := os.WriteFile(filepath.Join(dir, "all.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := resource.Load(dialect.Kinds(), []string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key  resource.Key
		want map[string]any
		at   string
		line int
	}{
		{resource.Key{Kind: "Service", Namespace: "default", Name: "shop"}, map[string]any{
			"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "shop", "namespace": "default"},
			"spec": map[string]any{"ports": []any{map[string]any{"port": int64(80)}}, "unknown": int64(1)},
		}, "spec.ports[0].port", 5},
		{resource.Key{Group: "networking.istio.io", Kind: "VirtualService", Namespace: "store", Name: "shop"}, map[string]any{
			"apiVersion": "networking.istio.io/v1beta1", "kind": "VirtualService", "metadata": map[string]any{"name": "shop", "namespace": "store"},
			"spec": map[string]any{"http": []any{map[string]any{"route": []any{map[string]any{"destination": map[string]any{"host": "shop"}}}}}},
		}, "spec.http[0]", 13},
		{resource.Key{Group: "apps", Kind: "Deployment", Namespace: "default", Name: "shop"}, map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"name": "shop", "namespace": "default"}, "spec": map[string]any{"replicas": int64(3)},
		}, "spec.replicas", 22},
		{resource.Key{Group: "apps", Kind: "Deployment", Namespace: "default", Name: "other"}, nil, "spec", 0},
	} {
		got, fields := set.Written(c.key)
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s is\n%v\nwant\n%v", c.key, got, c.want)
		}
		if line := fields.Line(c.at); line != c.line {
			t.Errorf("%s of %s is in line %d, want %d", c.at, c.key, line, c.line)
		}
	}
	first, _ := set.Written(resource.Key{Kind: "Service", Namespace: "default", Name: "shop"})
	first["spec"] = nil
	if again, _ := set.Written(resource.Key{Kind: "Service", Namespace: "default", Name: "shop"}); again["spec"] == nil {
		t.Error("an object that a caller changed is changed for others")
	}
}
