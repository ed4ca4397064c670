package openapi_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/openapi"
	"github.com/weirmesh/weir/test/size"
)

// kindOf is a kind of parameter: its fields besides name and in, values of it as they stand in a path, and such that it
// does not have.
type kindOf struct {
	// fields have the schema in "schema".
	fields string
	good   func(r *rand.Rand) string
	bad    []string
	// since is the first version of OpenAPI that has it: 2, 30 or 31.
	since int
	// alone means that it cannot share a segment.
	alone bool
}

func oneOf(values ...string) func(*rand.Rand) string {
	return func(r *rand.Rand) string { return values[r.IntN(len(values))] }
}

// text is a random text, escaped in one of the ways that clients have.
func text(least, most int) func(*rand.Rand) string {
	chars := []rune("aZ09-_~ éß€日😀@%'\"&+=:!$*()|^`<>[]\\"[:])
	return func(r *rand.Rand) string {
		var b strings.Builder
		b.WriteString("")
		for range least + r.IntN(most-least+1) {
			c := chars[r.IntN(len(chars))]
			if c == '\\' {
				c = 'q' // of which servers differ
			}
			escapeRune(&b, r, c)
		}
		return b.String()
	}
}

func escapeRune(b *strings.Builder, r *rand.Rand, c rune) {
	const bare = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~@'&+=:!$*()"
	if strings.ContainsRune(bare, c) && r.IntN(4) > 0 {
		b.WriteRune(c)
		return
	}
	for _, c := range []byte(string(c)) {
		fmt.Fprintf(b, []string{"%%%02X", "%%%02x"}[r.IntN(2)], c)
	}
}

func digits(r *rand.Rand) string { return fmt.Sprint(r.Int64N(1 << 40)) }

func signed(r *rand.Rand) string { return []string{"", "-"}[r.IntN(2)] + digits(r) }

func list(sep string, prefix string, item func(*rand.Rand) string) func(*rand.Rand) string {
	return func(r *rand.Rand) string {
		var items []string
		for range 1 + r.IntN(4) {
			items = append(items, item(r))
		}
		return prefix + strings.Join(items, sep)
	}
}

func kinds() []kindOf {
	number := []string{"a", "1a", "%20", "1,2", "--1"}
	return []kindOf{
		{`{"schema":{"type":"integer"}}`, signed, append(number, "1.5"), 2, false},
		{`{"schema":{"type":"integer","minimum":0}}`, digits, append(number, "-1"), 2, false},
		{`{"schema":{"type":"integer","minimum":1,"format":"int64"}}`, func(r *rand.Rand) string { return "1" + digits(r) }, append(number, "-1", "0"), 2, false},
		{`{"schema":{"type":"number"}}`, func(r *rand.Rand) string { return signed(r) + oneOf("", ".5", "e10", ".25E-3", "e+7")(r) }, append(number, "1."), 2, true},
		{`{"schema":{"type":"boolean"}}`, oneOf("true", "false"), []string{"yes", "1", "truefalse", "True"}, 2, false},
		{`{"schema":{"type":"string"}}`, text(1, 12), nil, 2, true},
		{`{"schema":{}}`, text(1, 12), nil, 30, true},
		{`{"schema":{"type":"string","enum":["a b","c.d","é","x@y","a+b|c"]}}`, oneOf("a%20b", "c.d", "c%2Ed", "%C3%A9", "%c3%a9", "x@y", "x%40y", "a+b%7Cc", "a%2Bb|c"), []string{"cxd", "a", "a%20bc", "aab"}, 2, true},
		{`{"schema":{"type":"integer","enum":[1,20]}}`, oneOf("1", "20"), []string{"2", "120", "a"}, 2, false},
		{`{"schema":{"const":"fixed"}}`, oneOf("fixed", "%66ixed"), []string{"fix", "fixedd"}, 31, false},
		{`{"schema":{"type":["integer","null"]}}`, digits, []string{"a"}, 31, false},
		{`{"schema":{"oneOf":[{"type":"integer"},{"enum":["me","all"]}]}}`, oneOf("12", "me", "all"), []string{"you", "1me"}, 30, false},
		{`{"schema":{"allOf":[{"type":"string"},{"pattern":"^v[0-9]$"}]}}`, oneOf("v1", "v9"), []string{"v", "w1", "v10"}, 30, false},
		{`{"schema":{"type":"string","pattern":"^[a-z]{2,4}-\\d+$"}}`, oneOf("ab-1", "abcd-999", "%61b-1"), []string{"a-1", "abcde-1", "ab-", "ab-1x", "AB-1"}, 2, false},
		{`{"schema":{"type":"string","pattern":"^(?:[^a/ ]|é){3}$"}}`, oneOf("bcd", "%E2%82%ACxy", "%C3%A9%C3%A9%C3%A9", "%F0%9F%98%80%22z"), []string{"bc", "abc", "b%20c", "bcde"}, 2, true},
		{`{"schema":{"type":"string","pattern":"20"}}`, oneOf("20", "a20b", "%E2%82%AC20"), []string{"%20", "2%200", "a%2520"[:1]}, 2, true},
		{`{"schema":{"type":"string","pattern":"^(?:a|b)$|^c*$"}}`, oneOf("a", "b", "c", "cc"), []string{"ab", "ac", "d"}, 2, false},
		{`{"schema":{"type":"string","pattern":"^[\\u00e0-\\u20ac]+$"}}`, oneOf("%C3%A0", "%E2%82%AC%C3%A9", "%D0%96"), []string{"a", "%C3%9F", "%E2%82%AD", "%F0%9F%98%80"}, 2, false},
		{`{"schema":{"type":"string","format":"uuid"}}`, oneOf("123e4567-e89b-12d3-a456-426614174000"), []string{"123e4567", "x23e4567-e89b-12d3-a456-426614174000"}, 2, false},
		{`{"schema":{"type":"string","format":"date"}}`, oneOf("2024-02-29", "1999-12-31"), []string{"2024-13-01", "2024-1-1", "today"}, 2, false},
		{`{"schema":{"type":"string","format":"date-time"}}`, oneOf("2024-02-29T23:59:60Z", "2024-02-29T10%3A00%3A00.5+01:00", "2024-02-29t10:00:00%2B01:00"), []string{"2024-02-29", "2024-02-29T25:00:00Z"}, 2, true},
		{`{"schema":{"type":"string","format":"ipv4"}}`, oneOf("127.0.0.1", "255.255.249.1"), []string{"256.0.0.1", "1.2.3", "1.2.3.4.5"}, 2, true},
		{`{"schema":{"type":"string","minLength":3,"maxLength":5}}`, text(3, 5), []string{"ab", "abcdef", "%E2%82%AC", "%E2%82%ACa"}, 2, true},
		{`{"schema":{"type":"string","minLength":2}}`, text(2, 9), []string{"a", "%C3%A9"}, 2, true},
		{`{"schema":{"type":"array","items":{"type":"integer"}}}`, list(",", "", signed), []string{"a", "1,", "1,,2", "1;2"}, 2, true},
		{`{"schema":{"type":"array","items":{"type":"string","enum":["a","b"]},"minItems":2,"maxItems":3}}`, oneOf("a,b", "a,a,b", "b%2Ca"), []string{"a", "a,b,c", "a,b,a,b"}, 2, true},
		{`{"style":"label","schema":{"type":"integer"}}`, func(r *rand.Rand) string { return "." + signed(r) }, []string{"1", ".a"}, 30, true},
		{`{"style":"label","explode":true,"schema":{"type":"array","items":{"type":"integer"}}}`, list(".", ".", signed), []string{"1", ".1,2"}, 30, true},
		{`{"style":"matrix","schema":{"type":"integer"}}`, nil, []string{"1", ";other=1"}, 30, true},
	}
}

// document is a random document, and what is in it.
type document struct {
	tree  map[string]any
	bases []string
	ops   []op
}

type op struct {
	method string
	// segments are lists of parts.
	segments [][]part
}

type part struct {
	literal string
	name    string
	kind    *kindOf
}

func (o *op) path(r *rand.Rand, bad int) (path string, changed bool) {
	n := 0
	for _, s := range o.segments {
		path += "/"
		for _, p := range s {
			if p.kind == nil {
				path += p.literal
				continue
			}
			if n == bad && len(p.kind.bad) > 0 {
				path += p.kind.bad[r.IntN(len(p.kind.bad))]
				changed = true
			} else if p.kind.good != nil {
				path += p.kind.good(r)
			} else {
				path += ";" + p.name + "=" + digits(r)
			}
			n++
		}
	}
	return path, changed
}

func randomDocument(r *rand.Rand) *document {
	version := []int{2, 30, 31}[r.IntN(3)]
	all := kinds()
	d := &document{tree: map[string]any{"info": map[string]any{"title": "t", "version": "1"}}}
	components := map[string]any{}
	schemas := map[string]any{}
	at := "#/components/"
	switch version {
	case 2:
		d.tree["swagger"] = "2.0"
		d.bases = []string{[]string{"", "/v1", "/a%20b/c"}[r.IntN(3)]}
		if d.bases[0] != "" {
			d.tree["basePath"] = strings.ReplaceAll(d.bases[0], "%20", " ")
		}
		at = "#/"
	default:
		d.tree["openapi"] = map[int]string{30: "3.0.3", 31: "3.1.0"}[version]
		switch r.IntN(4) {
		case 0:
			d.bases = []string{""}
		case 1:
			d.tree["servers"], d.bases = []any{map[string]any{"url": "https://a.example/v1/"}, map[string]any{"url": "/x.y"}}, []string{"/v1", "/x.y"}
		case 2:
			d.tree["servers"] = []any{map[string]any{"url": "https://{host}:{port}/{stage}/api", "variables": map[string]any{
				"host": map[string]any{"default": "a"}, "port": map[string]any{"enum": []any{"1", "2"}, "default": "1"}, "stage": map[string]any{"enum": []any{"dev", "prod"}, "default": "dev"},
			}}}
			d.bases = []string{"/dev/api", "/prod/api"}
		case 3:
			d.tree["servers"], d.bases = []any{map[string]any{"url": "http://a.example"}}, []string{""}
		}
	}
	paths := map[string]any{}
	for i := range 1 + r.IntN(6) {
		item := map[string]any{}
		var params []any
		segments := [][]part{{{literal: fmt.Sprintf("op%d", i)}}}
		template := fmt.Sprintf("/op%d", i)
		for j := range r.IntN(4) {
			template += "/"
			if r.IntN(3) == 0 {
				lit := []string{"b.c", "d-e", "@f", "g~", "(h)"}[r.IntN(5)]
				segments, template = append(segments, []part{{literal: lit}}), template+lit
				continue
			}
			var s []part
			for k := range 1 + r.IntN(2) {
				kind := &all[r.IntN(len(all))]
				if kind.since > version || kind.alone && k > 0 {
					continue
				}
				if k > 0 {
					s, template = append(s, part{literal: "."}), template+"."
				}
				name := fmt.Sprintf("p%d_%d", j, k)
				s, template = append(s, part{name: name, kind: kind}), template+"{"+name+"}"
				param := map[string]any{}
				if err := json.Unmarshal([]byte(kind.fields), &param); err != nil {
					panic(err)
				}
				if version == 2 {
					for k, v := range param["schema"].(map[string]any) {
						param[k] = v
					}
					delete(param, "schema")
				} else if r.IntN(3) == 0 {
					ref := fmt.Sprintf("S%d_%s", i, name)
					schemas[ref] = param["schema"]
					param["schema"] = map[string]any{"$ref": "#/components/schemas/" + ref}
				}
				param["name"], param["in"], param["required"] = name, "path", true
				if r.IntN(3) == 0 {
					ref := fmt.Sprintf("P%d_%s", i, name)
					components[ref] = param
					param = map[string]any{"$ref": at + "parameters/" + ref}
				}
				params = append(params, param)
				if kind.alone {
					break
				}
			}
			if len(s) == 0 {
				s, template = []part{{literal: "n"}}, template+"n"
			}
			segments = append(segments, s)
		}
		for _, m := range [][]string{{"get"}, {"get", "post"}, {"delete", "head"}}[r.IntN(3)] {
			o := map[string]any{"tags": []any{[]string{"x", "Y y", "ß"}[r.IntN(3)]}, "responses": map[string]any{"200": map[string]any{"$ref": "elsewhere.yaml"}}}
			if r.IntN(2) == 0 {
				o["parameters"] = params
			} else {
				item["parameters"] = params
			}
			item[m] = o
			d.ops = append(d.ops, op{strings.ToUpper(m), segments})
		}
		paths[template] = item
	}
	d.tree["paths"] = paths
	if version == 2 {
		d.tree["parameters"] = components
	} else {
		d.tree["components"] = map[string]any{"parameters": components, "schemas": schemas}
	}
	return d
}

// TestWhatIsDocumentedIsAllowedAndNothingElse judges requests by the roles of random documents.
func TestWhatIsDocumentedIsAllowedAndNothingElse(t *testing.T) {
	for seed := range size.Of(60, 1500) {
		r := rand.New(rand.NewPCG(uint64(seed), 28))
		d := randomDocument(r)
		text, err := json.MarshalIndent(d.tree, "", " ")
		if err != nil {
			t.Fatal(err)
		}
		made, err := openapi.Generate(text, openapi.Options{Resource: foo, Namespace: "shop", Bind: []openapi.Bind{client}})
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, text)
		}
		if made.LeftOut > 0 || len(made.Notes) > 0 {
			t.Fatalf("seed %d: %v\n%s", seed, made.Notes, text)
		}
		may := judge(t, made.YAML())
		fail := func(what, method, path string) {
			t.Helper()
			t.Fatalf("seed %d: %s: %s %s\n%s\n%s", seed, what, method, path, text, made.YAML())
		}
		for _, o := range d.ops {
			for _, base := range d.bases {
				for range 4 {
					path, _ := o.path(r, -1)
					if !allows(t, may, o.method, base+path) {
						fail("documented, not allowed", o.method, base+path)
					}
					cut := path[:strings.LastIndexByte(path, '/')]
					for what, other := range map[string]string{
						"extra segment": base + path + "/x", "missing segment": base + cut, "trailing slash": base + path + "/", "other base path": "/zz" + path, "segment before": "/zz" + base + path,
						"without base path": map[bool]string{true: "/", false: path}[base == ""],
					} {
						if allows(t, may, o.method, other) {
							fail(what, o.method, other)
						}
					}
					if may(o.method, "/"+base+path) || may(o.method, base+path[:1]+path) { // not in normal form
						fail("double slash", o.method, base+path)
					}
					for _, method := range []string{"PUT", "OPTIONS", "get"} {
						if allows(t, may, method, base+path) {
							fail("other method", method, base+path)
						}
					}
					if o.method == "GET" && allows(t, may, "HEAD", base+path) {
						fail("HEAD by GET", "HEAD", base+path)
					}
				}
				for i := range 6 {
					if path, changed := o.path(r, i); changed && allows(t, may, o.method, base+path) {
						fail("wrong value", o.method, base+path)
					}
				}
			}
		}
	}
}
