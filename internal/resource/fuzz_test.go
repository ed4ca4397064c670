package resource

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzRead feeds text to the whole way from a file's content to a Set.
func FuzzRead(f *testing.F) {
	files, err := filepath.Glob("testdata/findings/*")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range files {
		content, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content, false)
	}
	f.Add([]byte(`{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}} {"kind": 5}`), true)
	f.Fuzz(func(t *testing.T, content []byte, isJSON bool) {
		r := newReader(everything, nil)
		r.files[stdinPath] = newFile(content, isJSON)
		set := r.set(list(nil))
		for _, o := range set.HTTPRoutes {
			if o.Name == "" || o.Namespace == "" {
				t.Errorf("route without name: %+v", o.ObjectMeta)
			}
		}
		for _, finding := range set.Findings {
			if _, ok := LookupCode(finding.Code); !ok || finding.Message == "" || finding.Fix == "" || finding.Origin.Line < 1 {
				t.Errorf("incomplete finding %+v", finding)
			}
		}
	})
}
