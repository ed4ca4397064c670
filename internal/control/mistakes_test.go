package control_test

import (
	"bytes"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/resource/rules"
	"github.com/weirmesh/weir/test/size"
)

func init() { resource.CheckRules(rules.Compile) }

// unreadable is what no message may hold: empty values of Go, its types, expressions without words.
var unreadable = regexp.MustCompile(`<nil>|<no value>|%!|\bv1(alpha|beta)?\d*\.[A-Z]|map\[string|interface ?\{|\[\]interface|\bGo (value|struct)|unmarshal|\[\^|\]\*|\)\?\$|\(\?:|\^\[|json:|int32\b|int64\b|float64\b|reflect\.|runtime error|in body`)

// consequences are second errors that one mistake may have, by code: each tells somebody else what it means for him, or what is served now.
var consequences = map[string]string{
	"WR506":  "a Gateway that is served now, or in another way, is in conflict with another",
	"WR509":  "the listener has no certificate any more, or it is not found",
	"WR511":  "the grant does not say so any more",
	"WR513":  "the Secret is not found",
	"WR515":  "the authorities are not found",
	"WR303":  "what counts instead of the numerator is too large",
	"WR516":  "the Gateway does not let the ListenerSet in any more",
	"WR525":  "the listener lets routes in that are in conflict",
	"WR531":  "what the group made of the kind is not said any more",
	"WR535":  "the selector that was meant is not there",
	"WR613":  "the group has no matches any more",
	"WR520":  "the parent is not found",
	"WR522":  "the listener has another name now",
	"WR523":  "the listener does not let the route in any more, or the namespace has no labels",
	"WR524":  "the listener has another host name now",
	"WR530":  "the Service is not found",
	"WR532":  "the Service has another port now",
	"WR533":  "the Service's port speaks something else",
	"WR538":  "the policy does not apply any more",
	"WR543":  "the policy does not apply any more",
	"WR550":  "the Service or its port is not found",
	"WR552":  "the ConfigMap is not found",
	"WR1001": "the role is not found",
	"WR1003": "the pods are not found",
	"WR1006": "the role is of another namespace now",
	"WR1012": "the path is another one now",
	"WR1020": "the target is in another namespace now",
	"WR1022": "the IdentityBinding is not found",
	"WR1023": "the route is not found",
	"WR1024": "the match is not found",
	"WR901":  "the Service that a Rollout names is not found",
	"WR903":  "the route that a Rollout names is not found",
	"WR905":  "the route does not lead to the Rollout's Service any more",
	"WR906":  "the route cannot carry a step of the Rollout out any more",
	"WR601":  "the root is not found",
	"WR604":  "the backend is not found",
	"WR611":  "the group is not found",
}

// mistake is one change of one value of one object.
type mistake struct {
	path string // of the value, with the kind in front and without indices
	what string
	do   func(parent *yaml.Node, at int)
	// known says that it is an error whatever the field.
	known bool
}

// mistakesAt lists what can be done to the entry of a mapping, or of a list, at a place of its content.
func mistakesAt(parent *yaml.Node, at int, path string) (all []mistake) {
	value := parent.Content[at]
	set := func(text string) func(*yaml.Node, int) {
		return func(parent *yaml.Node, at int) {
			var doc yaml.Node
			if err := yaml.Unmarshal([]byte(text), &doc); err != nil {
				panic(err)
			}
			parent.Content[at] = doc.Content[0]
		}
	}
	add := func(what, text string) { all = append(all, mistake{path: path, what: what, do: set(text)}) }
	if parent.Kind == yaml.MappingNode && !strings.Contains(path, "labels.") && !strings.Contains(path, "annotations.") && !strings.Contains(path, "ata.") && !strings.Contains(path, "elector.") && !strings.Contains(path, "matches.headers.") {
		name := parent.Content[at-1].Value
		all = append(all, mistake{path: path, what: "misspelt", known: true, do: func(parent *yaml.Node, at int) {
			n := *parent.Content[at-1]
			n.Value = misspell(name)
			parent.Content[at-1] = &n
		}})
	}
	switch value.Kind {
	case yaml.ScalarNode:
		add("a list", "[x]")
		add("a mapping", "{x: y}")
		add("nothing", "null")
		if value.Tag == "!!str" {
			add("a number", "7")
			add("a fraction", "0.5")
			add("a boolean", "true")
			add("other text", "Bogus Value!")
			add("empty text", `""`)
		} else {
			add("text", "many")
			add("a quoted value", `"`+value.Value+`"`)
			add("a fraction", "0.5")
			add("below zero", "-1")
			add("too large", "99999999999")
			add("per cent", `"5%"`)
		}
	case yaml.MappingNode:
		add("a list", "[x]")
		add("text", "x")
		add("a number", "7")
		add("nothing", "null")
		add("empty", "{}")
	case yaml.SequenceNode:
		add("a mapping", "{x: y}")
		add("text", "x")
		add("nothing", "null")
		add("empty", "[]")
		add("a list of numbers", "[1]")
	}
	return all
}

// misspell swaps the last two letters, or doubles the last.
func misspell(name string) string {
	n := len(name)
	if n < 2 || name[n-1] == name[n-2] {
		return name + name[n-1:]
	}
	return name[:n-2] + name[n-1:] + name[n-2:n-1]
}

// TestOneMistakeIsOneErrorInPlainWords makes every kind of mistake in every field of the examples and the golden
// inputs, once, and checks that there is one error about it, which can be read without knowing Go.
func TestOneMistakeIsOneErrorInPlainWords(t *testing.T) {
	t.Parallel()
	files := corpus(t)
	done := map[string]bool{}
	met, made := 0, 0
	step := size.Of(23, 1) // shares nothing with the numbers of mistakes of a field, so that all kinds are made
	// The examples come first: nothing else is wrong with them.
	names := slices.SortedFunc(maps.Keys(files), func(a, b string) int {
		return strings.Compare(rank(a)+a, rank(b)+b)
	})
	for i, name := range names {
		docs := documents(t, files[name])
		wrong := map[string]bool{} // objects that have errors as they are
		before := sync.OnceValue(func() map[string]bool {
			errs := map[string]bool{}
			for _, f := range findingsOf(t, docs) {
				if f.Severity == resource.Error {
					errs[f.Code+f.Ref.String()+f.Message] = true
					wrong[f.Ref.Kind+" "+f.Ref.Name] = true
				}
				plain(t, name, f)
			}
			return errs
		})
		if i%size.Of(4, 1) == 0 {
			before() // if no mistake is made in it, too
		}
		for _, doc := range docs {
			kind := text1(entry(doc, "kind"))
			var walk func(n *yaml.Node, path string)
			walk = func(n *yaml.Node, path string) {
				for at := range n.Content {
					below := path
					if n.Kind == yaml.MappingNode {
						if at%2 == 0 {
							continue
						}
						below = path + "." + n.Content[at-1].Value
					}
					if strings.Contains(below, ".status") {
						continue
					}
					for _, m := range mistakesAt(n, at, below) {
						if done[m.path+" "+m.what] {
							continue
						}
						done[m.path+" "+m.what] = true
						if met++; met%step != 0 {
							continue
						}
						made++
						were, old := before(), slices.Clone(n.Content)
						had := wrong[kind+" "+text1(entry(entry(doc, "metadata"), "name"))]
						m.do(n, at)
						m.known = m.known && resourceKinds[kind]
						check(t, m, were, had, findingsOf(t, docs))
						n.Content = old
					}
					walk(n.Content[at], below)
				}
			}
			if _, ok := resourceKinds[kind]; ok {
				walk(doc, kind)
			}
		}
	}
	if made < 2000/step {
		t.Errorf("only %d mistakes were made", made)
	}
}

// resourceKinds are all kinds; of false ones only a part is read, and other fields are not known.
var resourceKinds = func() map[string]bool {
	all := map[string]bool{}
	for _, k := range dialect.Kinds().InCluster() {
		all[k.Name] = !k.Excerpt()
	}
	return all
}()

func rank(name string) string {
	if strings.Contains(name, "examples") {
		return "0"
	}
	return "1"
}

func documents(t *testing.T, text string) (docs []*yaml.Node) {
	d := yaml.NewDecoder(strings.NewReader(text))
	for {
		var doc yaml.Node
		if d.Decode(&doc) != nil {
			return docs
		}
		if len(doc.Content) > 0 && doc.Content[0].Kind == yaml.MappingNode {
			docs = append(docs, doc.Content[0])
		}
	}
}

func findingsOf(t *testing.T, docs []*yaml.Node) []resource.Finding {
	t.Helper()
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	for _, doc := range docs {
		if err := e.Encode(doc); err != nil {
			t.Fatal(err)
		}
	}
	set, err := resource.Load(dialect.Kinds(), []string{"-"}, &b)
	if err != nil {
		t.Fatal(err)
	}
	result, err := control.Options{}.Translate(set)
	if err != nil {
		t.Fatal(err)
	}
	return result.Findings
}

func plain(t *testing.T, where string, f resource.Finding) {
	t.Helper()
	for _, text := range []string{f.Message, f.Fix} {
		if bad := unreadable.FindString(text); bad != "" && f.Code != "WR534" { // that shows the user's own expression
			t.Errorf("%s: %q in: %s", where, bad, f)
		}
	}
	if strings.HasPrefix(f.Fix, "nothing") && f.Severity == resource.Error {
		t.Errorf("%s: there is something to do: %s", where, f)
	}
}

// check looks at the findings after a mistake. Of an object that was wrong before, as the golden inputs of errors are, they say
// more or something else than before.
func check(t *testing.T, m mistake, before map[string]bool, wrong bool, findings []resource.Finding) {
	t.Helper()
	where := fmt.Sprintf("%s %s", m.path, m.what)
	var errs []resource.Finding
	for _, f := range findings {
		plain(t, where, f)
		if f.Severity != resource.Error || before[f.Code+f.Ref.String()+f.Message] {
			continue
		}
		if strings.Contains(f.Message, "is left out, because it is not valid") {
			continue // somebody else refers to the object, and learns what to mend
		}
		errs = append(errs, f)
	}
	if len(errs) > 1 {
		first := errs
		errs = slices.DeleteFunc(slices.Clone(errs), func(f resource.Finding) bool { return consequences[f.Code] != "" })
		if len(errs) == 0 {
			errs = first[:1]
		}
	}
	if len(errs) > 1 && !slices.ContainsFunc(errs, func(f resource.Finding) bool { return !strings.HasPrefix(f.Message, "is missing") }) {
		errs = errs[:1] // each names a field of its own
	}
	if len(errs) > 1 && !wrong || len(errs) == 0 && m.known && len(before) == 0 {
		t.Errorf("%s: %d errors", where, len(errs))
		for _, f := range errs {
			t.Logf("    %s", f)
		}
	}
}
