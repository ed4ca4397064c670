package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDiffOfTwoFolders(t *testing.T) {
	old, changed := t.TempDir(), t.TempDir()
	for _, name := range []string{"canary.yaml", "services.yaml"} {
		text, err := os.ReadFile(filepath.Join(examples+"canary", name))
		if err != nil {
			t.Fatal(err)
		}
		text2 := strings.NewReplacer("weight: 90", "weight: 80", "weight: 10", "weight: 20").Replace(string(text))
		for dir, content := range map[string]string{old: string(text), changed: text2} {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	weir("", "diff", old, old).want(t, 0, "no difference in")
	weir("", "diff", old, changed).want(t, 1, "GET http://shop.example:8080/\n", "before  90 %  default/shop-v1:80", "after   80 %  default/shop-v1:80",
		"HTTPRoute default/shop spec.rules[0]  ("+changed+"/canary.yaml:25)", "1 difference in")
	weir("", "diff", "-o", "json", old, changed).want(t, 1, `"differ": [`, `"backends"`, `"path": "/"`)
	weir("", "diff", "-o", "markdown", old, changed).want(t, 1, "| <code>GET http://shop.example:8080/</code>", "<code>80 %  default/shop-v1:80</code>")
	weir("", "diff", old).want(t, 2, "stderr:two paths")
	weir("", "diff", old, filepath.Join(old, "nothing")).want(t, 2, "stderr:cannot be read")
}
