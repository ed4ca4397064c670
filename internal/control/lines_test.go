package control_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/test/size"
)

// corpus are the inputs of the golden tests and the examples, by file.
func corpus(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	add := func(pattern string, take func(name, text string)) {
		paths, err := filepath.Glob(pattern)
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: nothing there, %v", pattern, err)
		}
		for _, p := range paths {
			text, err := os.ReadFile(p)
			if err != nil {
				t.Fatal(err)
			}
			take(strings.NewReplacer("/", "_", ".", "").Replace(p), string(text))
		}
	}
	part := regexp.MustCompile(`(?m)^-- (\S+) --\n`)
	golden := func(name, text string) {
		at := part.FindAllStringSubmatchIndex(text, -1)
		for i, m := range at {
			end := len(text)
			if i+1 < len(at) {
				end = at[i+1][0]
			}
			if file := text[m[2]:m[3]]; strings.HasSuffix(file, ".yaml") {
				files[name+"/"+file] = text[m[1]:end]
			}
		}
	}
	whole := func(name, text string) {
		text, _, _ = strings.Cut(text, "# --- expected ---\n")
		files[name+"/in.yaml"] = text
	}
	add("../dialect/gateway/testdata/*.golden", golden)
	add("../dialect/smi/testdata/*.golden", golden)
	add("../resource/testdata/findings/*.yaml", whole)
	add("../../examples/*/*.yaml", whole)
	return files
}

// written is a parsed object and where a field of it is.
type written struct {
	key  string
	node *yaml.Node
}

// objects finds the objects of a file with the lines of the whole file, whose documents it does not cut.
func objects(text string) (all []written) {
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var doc yaml.Node
		if d.Decode(&doc) != nil {
			return all
		}
		if len(doc.Content) == 0 {
			continue
		}
		list := []*yaml.Node{doc.Content[0]}
		if items := entry(doc.Content[0], "items"); items != nil && items.Kind == yaml.SequenceNode {
			list = items.Content
		}
		for _, n := range list {
			group, _, found := strings.Cut(text1(entry(n, "apiVersion")), "/")
			if !found {
				group = ""
			}
			meta := entry(n, "metadata")
			kind, namespace := text1(entry(n, "kind")), text1(entry(meta, "namespace"))
			if kind == "TCPRoute" && group == "specs.smi-spec.io" {
				kind = resource.PortsKind
			}
			if kind == "Canary" {
				kind = "TrafficSplit"
			}
			if namespace == "" && kind != "GatewayClass" && kind != "Namespace" {
				namespace = "default"
			}
			all = append(all, written{kind + " " + namespace + "/" + text1(entry(meta, "name")), n})
		}
	}
}

func entry(n *yaml.Node, key string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i].Value == key {
			return n.Content[i+1]
		}
	}
	return nil
}

func text1(n *yaml.Node) string {
	if n == nil {
		return ""
	}
	return n.Value
}

var step = regexp.MustCompile(`\[[^]]*\]|[^.[]+`)

// line is that of the innermost part of a path that is written, and how many of its steps are not.
func (w written) line(path string) (line, missing int) {
	n, line := w.node, w.node.Line
	steps := step.FindAllString(path, -1)
	for i, s := range steps {
		var next *yaml.Node
		for n.Kind == yaml.AliasNode {
			n = n.Alias
		}
		switch index, err := strconv.Atoi(strings.Trim(s, "[]")); {
		case n.Kind == yaml.SequenceNode && err == nil && index < len(n.Content):
			next = n.Content[index]
			line = next.Line
		case n.Kind == yaml.MappingNode:
			for j := 0; j < len(n.Content); j += 2 {
				if n.Content[j].Value == strings.Trim(s, "[]") {
					next, line = n.Content[j+1], n.Content[j].Line
				}
			}
		}
		if next == nil && i == 0 && s == "spec" {
			continue // of early versions without one
		}
		if next == nil {
			return line, len(steps) - i
		}
		n = next
	}
	return line, 0
}

// TestFindingsGiveTheLineOfTheirField holds, for everything that is found in all golden inputs and examples, that the line is that of the
// field: as they are written, and as one List in JSON.
func TestFindingsGiveTheLineOfTheirField(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	check := func(t *testing.T, texts map[string]string) {
		dir := t.TempDir()
		for name, text := range texts {
			if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		set, err := resource.Load(dialect.Kinds(), []string{dir}, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range []control.Options{{}, control.Options{}.For(control.TargetCluster)} {
			result, err := o.Translate(set)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range result.Findings {
				if f.Ref.Field == "" || f.Ref.Kind == "" || f.Origin.File == "" {
					continue
				}
				all := objects(texts[filepath.Base(f.Origin.File)])
				at := slices.IndexFunc(all, func(w written) bool { return w.key == key(f.Ref) })
				if at < 0 {
					continue // what is not YAML any more, or has a name of another type
				}
				seen[f.Code] = true
				line, missing := all[at].line(f.Ref.Field)
				if f.Origin.Line != line {
					t.Errorf("%s: the field is in line %d", f, line)
				}
				if missing > 1 && !strings.Contains(f.Message, "missing") && f.Code != "WR539" && f.Code != "WR509" {
					t.Errorf("%s: %d steps of the path are not written", f, missing)
				}
			}
		}
	}
	cases := map[string]map[string]string{}
	for path, text := range corpus(t) {
		name, file := filepath.Split(path)
		if cases[name] == nil {
			cases[name] = map[string]string{}
		}
		cases[name][file] = text
	}
	for i, name := range slices.Sorted(maps.Keys(cases)) {
		texts := cases[name]
		t.Run(name, func(t *testing.T) {
			check(t, texts)
			if i%size.Of(10, 1) != 0 {
				return
			}
			asList := map[string]string{}
			for file, text := range texts {
				if list, ok := jsonList(text); ok {
					asList[strings.TrimSuffix(file, ".yaml")+".json"] = list
				}
			}
			check(t, asList)
		})
	}
	for _, code := range strings.Fields("WR108 WR116 WR201 WR202 WR204 WR301 WR401 WR481 WR487 WR502 WR505 WR509 WR511 WR520 WR522 WR524 WR530 WR532 WR534 WR539 WR541 WR601 WR604 WR606 WR612") {
		if !seen[code] {
			t.Errorf("the corpus has no %s with a field", code)
		}
	}
}

func key(r model.Ref) string { return fmt.Sprintf("%s %s/%s", r.Kind, r.Namespace, r.Name) }

// jsonList is the same objects as a List in JSON, indented by tabs, as the line of a field is a matter of the text.
func jsonList(text string) (string, bool) {
	var list struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Items      []any  `json:"items"`
	}
	list.APIVersion, list.Kind = "v1", "List"
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var v any
		if err := d.Decode(&v); err != nil {
			break
		}
		if v != nil {
			list.Items = append(list.Items, v)
		}
	}
	out, err := json.MarshalIndent(list, "", "  ")
	return string(bytes.TrimSpace(out)), err == nil && len(list.Items) > 0
}
