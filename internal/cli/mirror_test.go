package cli_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestExplainSaysWhichMirrorsAreOff(t *testing.T) {
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(examples+"mirror-percent")); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "mirror-percent.yaml")
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	off := ""
	for _, fields := range []string{
		"backendRef: {name: shop-v2, port: 80}, percent: 0", "backendRef: {name: shop-v2, port: 80}, percent: 150",
		"backendRef: {name: nowhere, port: 80}", "backendRef: {name: shop-v2, namespace: other, port: 80}",
	} {
		off += "    - {type: RequestMirror, requestMirror: {" + fields + "}}\n"
	}
	before, after, _ := strings.Cut(string(text), "    filters:\n")
	if err := os.WriteFile(file, []byte(before+"    filters:\n"+off+after), 0o600); err != nil {
		t.Fatal(err)
	}
	weir("", "explain", dir, "--", "http://shop.example:8080/").want(t, 0,
		"mirrored to off     default/shop-v2:80  its share is 0: nothing is copied",
		"            42 %    default/shop-v2:80",
		"off     spec.rules[0].filters[1]", "WR301  percent 150", "fix: write a percent from 0 to 100",
		"off     spec.rules[0].filters[2]", "WR530  Service default/nowhere does not exist",
		"off     spec.rules[0].filters[3]", "WR511", "!filters[4]")
	weir("", "explain", "-o", "json", dir, "--", "http://shop.example:8080/").want(t, 0, `"mirrorsOff"`, `"code": "WR530"`)
}
