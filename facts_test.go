package weir_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// decisions are facts that one file decides and all others are handed: the text by which a file would decide it again, and where that may stand.
// A test that fails here means that a second place judges the same thing: call what stands in the file that is named instead.
var decisions = []struct {
	fact, text string
	in         []string
}{
	{"whose a GatewayClass is", `Spec\.ControllerName\)? *[!=]=|[!=]= *(string\()?\w+\.Spec\.ControllerName`, []string{"internal/resource/class.go"}},
	{"that listeners follow a Gateway that is not Programmed", `the Gateway is not programmed; see its`, []string{"internal/resource/programmed.go"}},
	{"what the text of an owner is", `"workload/|model\.Owner\([^)]*\+`, []string{"internal/model/owner.go"}},
	{"what is published for which owner", `\.ByOwner\(\)\n`, []string{"internal/control/publish.go", "internal/kube/inspect/cluster.go"}},
	{"what part of the requests a mirror gets", `f\.Percent\b|f\.Fraction\.Numerator\b`, []string{"internal/resource/mirror.go"}},
	{"which Services routes refer to", `\.Spec\.Rules \{`, []string{
		"internal/dialect/gateway/grpcroute.go", "internal/dialect/gateway/route.go", "internal/dialect/gateway/tcproute.go", "internal/resource/uses.go",
	}},
	{"what may refer to another namespace", `\.Spec\.From\b`, []string{"internal/resource/refer.go"}},
	{"which object a reference names", `\*(ref|p)\.Namespace|value\(ref\.Namespace`, []string{
		"internal/resource/class.go", "internal/resource/refer.go", "internal/resource/uses.go",
	}},
	{"which Gateway a ListenerSet names", `Spec\.ParentRef\b`, []string{"internal/resource/class.go"}},
}

// TestEachFactIsDecidedInOnePlace holds that for what is built.
func TestEachFactIsDecidedInOnePlace(t *testing.T) {
	found := make([][]string, len(decisions))
	var texts []*regexp.Regexp
	for _, d := range decisions {
		texts = append(texts, regexp.MustCompile(d.text))
	}
	err := filepath.WalkDir("internal", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.Contains(path, "goldentest") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for i := range decisions {
			if texts[i].Match(text) {
				found[i] = append(found[i], filepath.ToSlash(path))
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, d := range decisions {
		if !slices.Equal(found[i], d.in) {
			t.Errorf("%s is decided in %v, want %v", d.fact, found[i], d.in)
		}
	}
}
