package resource

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestStarsWithoutQuotesAreText has values that are exactly *, in every place that YAML has for values, and texts that are not values.
func TestStarsWithoutQuotesAreText(t *testing.T) {
	for _, c := range []struct {
		text, want string
		lines      []int
	}{
		{"a: *", `{"a":"*"}`, []int{0}},
		{"a:\n- *\n- b\n- * # all\n", `{"a":["*","b","*"]}`, []int{1, 3}},
		{"a: [*]", `{"a":["*"]}`, []int{0}},
		{"a: [ * ,*, GET,*]\r\nb: *\r\n", `{"a":["*","*","GET","*"],"b":"*"}`, []int{0, 0, 0, 1}},
		{"- {name: *, kind: *}\n- name: *\n  kind: Node", `[{"kind":"*","name":"*"},{"kind":"Node","name":"*"}]`, []int{0, 0, 1}},
		{"a:\n  *\nb: c", `{"a":"*","b":"c"}`, []int{1}},
		{"- - *\n  - *", `[["*","*"]]`, []int{0, 1}},
		{"ä: [ö, *]\nb: *", `{"b":"*","ä":["ö","*"]}`, []int{0, 1}},
		// The others stay as they are.
		{"a: |\n  name: *\n  - *\nb: *", `{"a":"name: *\n- *\n","b":"*"}`, []int{3}},
		{"a: >-\n  [*]\nb: *", `{"a":"[*]","b":"*"}`, []int{2}},
		{"a: 'x,\n  *, y'\nb: [*]", `{"a":"x, *, y","b":["*"]}`, []int{2}},
		{"a: \"x: *\n  [*]\"\nb: *", `{"a":"x: * [*]","b":"*"}`, []int{2}},
		{"a: x\n  - *\nb: *", `{"a":"x - *","b":"*"}`, []int{2}},
		{"# - *\na: * # [*]\n", `{"a":"*"}`, []int{1}},
		{"a: \"*\"\nb: *\nc: '*'", `{"a":"*","b":"*","c":"*"}`, []int{1}},
		{"a: &x 1\nb: *x\nc: *", `{"a":1,"b":1,"c":"*"}`, []int{2}},
	} {
		quoted, lines := quoteStars([]byte(c.text))
		got, err := yaml.YAMLToJSON(quoted)
		if err != nil || string(got) != c.want || fmt.Sprint(lines) != fmt.Sprint(c.lines) {
			t.Errorf("%q: %s, %v, lines %v; want %s, %v", c.text, got, err, lines, c.want, c.lines)
		}
	}
	// These remain what they are: no YAML, or none with such a value.
	for _, text := range []string{"a: *b", "a: **", "a: * b", "a: *, b", "a:*", "{a:*", "a: [*", "*: a\nb: [", "a: b\n\t- *", "", "*a", "a: *#b"} {
		if quoted, lines := quoteStars([]byte(text)); len(lines) > 0 {
			t.Errorf("%q is read as %s", text, quoted)
		}
	}
}

// TestStarsAreReadOnlyWhereADocumentDoesNotParse holds that a finding tells each, at its line, and that the lines of others stay right.
func TestStarsAreReadOnlyWhereADocumentDoesNotParse(t *testing.T) {
	const text = "kind: Namespace\napiVersion: v1\nmetadata:\n  name: a\n---\n# x\nkind: ClusterTrafficRoleBinding\napiVersion: v1beta1\nmetadata:\n  name: b\nsubjects:\n- name: *\n  kind: Node\n- kind: Nod\n  name: c\n" +
		"roleRef:\n  kind: ClusterTrafficRole\n  name: r\n---\nkind: Namespace\napiVersion: v1\nmetadata:\n  name: *x\n---\n- *\n"
	set, err := Load(everything, []string{"-"}, strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range set.Findings {
		got = append(got, fmt.Sprintf("%s:%d", f.Code, f.Origin.Line))
	}
	if want := "[WR209:7 WR111:8 WR118:12 WR203:14 WR102:20 WR103:25 WR118:25]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s: %v", got, want, set.Findings)
	}
}

// TestQuotingStarsChangesNothingElse writes random documents, and takes the quotes away.
func TestQuotingStarsChangesNothingElse(t *testing.T) {
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	words := []string{"a", `"*"`, "'*'", "x y", "[b, \"*\"]", "{c: \"*\", d: e}", "|\n      name: *\n      [*]\n", "'x, *, y'", "# *\n    z"}
	for range 500 {
		var b strings.Builder
		for i := range 1 + random.IntN(6) {
			fmt.Fprintf(&b, "k%d:\n", i)
			for range 1 + random.IntN(3) {
				fmt.Fprintf(&b, "  - %s\n", words[random.IntN(len(words))])
			}
		}
		whole := b.String()
		want, err := yaml.YAMLToJSON([]byte(whole))
		if err != nil {
			t.Fatalf("seed %d: %q: %v", seed, whole, err)
		}
		bare := strings.ReplaceAll(whole, `"*"`, "*")
		quoted, lines := quoteStars([]byte(bare))
		if len(lines) == 0 {
			quoted = []byte(bare)
		}
		if got, err := yaml.YAMLToJSON(quoted); err != nil || string(got) != string(want) || string(quoted) != whole {
			t.Fatalf("seed %d: %q is quoted as %q (%v)", seed, bare, quoted, err)
		}
	}
}
