package openapi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi2"
	"github.com/getkin/kin-openapi/openapi2conv"
	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"
)

// read reads the parts of a document that say which requests there are, as OpenAPI 3. Whatever is wrong with other
// parts, such as responses, does not matter.
func (m *mapper) read(document []byte) (*openapi3.T, error) {
	if len(document) > MaxBytes {
		return nil, fmt.Errorf("the document is larger than %d MiB: remove what it has besides paths, parameters and their schemas", MaxBytes>>20)
	}
	if !utf8.Valid(document) {
		return nil, errors.New("the document is not UTF-8 text: save it as UTF-8")
	}
	var root yaml.Node
	if err := yaml.Unmarshal(document, &root); err != nil {
		return nil, fmt.Errorf("the document is neither YAML nor JSON: %s", strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(root.Content) != 1 {
		return nil, errors.New("the document is empty")
	}
	r := &reader{mapper: m, left: maxNodes}
	tree, err := r.document(root.Content[0])
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(tree)
	if err != nil {
		return nil, fmt.Errorf("the document cannot be read: %w", err)
	}
	loader := openapi3.NewLoader() // which follows no references to other documents
	loader.IsExternalRefsAllowed = false
	var doc *openapi3.T
	if r.swagger {
		doc2 := &openapi2.T{}
		if err = json.Unmarshal(text, doc2); err == nil {
			doc, err = openapi2conv.ToV3WithLoader(doc2, loader, nil)
		}
	} else {
		doc, err = loader.LoadFromData(text)
	}
	if err != nil {
		return nil, fmt.Errorf("the document cannot be read: %w", err)
	}
	return doc, nil
}

// Extensions by which what a reference could not be followed to, and Swagger's collectionFormat, get through the parser.
const (
	extensionUnread    = "x-weir-unread"
	extensionSeparator = "x-weir-separator"
)

// reader cuts a document down to what matters here.
type reader struct {
	*mapper
	left    int
	swagger bool
	// siblings means that keywords beside $ref count (OpenAPI 3.1).
	siblings bool

	schemas, parameters, items map[string]bool
	// wanted are the schemas that are referred to.
	wanted []string
}

type tree = map[string]any

// fields returns the fields of a mapping, with YAML's merge keys resolved.
func (r *reader) fields(n *yaml.Node, where string, depth int) (map[string]*yaml.Node, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%s is nested too deeply, or is a part of itself", where)
	}
	n = resolve(n)
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s must be an object", where)
	}
	out := make(map[string]*yaml.Node, len(n.Content)/2)
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		if r.left--; r.left < 0 {
			return nil, fmt.Errorf("the document has more than %d values", maxNodes)
		}
		k, v := resolve(n.Content[i]), n.Content[i+1]
		switch {
		case k == nil || k.Kind != yaml.ScalarNode:
			return nil, fmt.Errorf("%s has a key that is no text, in line %d", where, n.Content[i].Line)
		case k.Tag == "!!merge":
			merged = append(merged, v)
		case out[k.Value] != nil:
			return nil, fmt.Errorf("%s has %q twice, the second in line %d", where, k.Value, k.Line)
		default:
			out[k.Value] = v
		}
	}
	for _, v := range merged {
		list := []*yaml.Node{v}
		if v := resolve(v); v != nil && v.Kind == yaml.SequenceNode {
			list = v.Content
		}
		for _, v := range list {
			more, err := r.fields(v, where, depth+1)
			if err != nil {
				return nil, err
			}
			for k, v := range more {
				if out[k] == nil {
					out[k] = v
				}
			}
		}
	}
	return out, nil
}

// resolve follows aliases.
func resolve(n *yaml.Node) *yaml.Node {
	for range maxDepth {
		if n == nil || n.Kind != yaml.AliasNode {
			return n
		}
		n = n.Alias
	}
	return nil
}

// elements returns the elements of a list.
func (r *reader) elements(n *yaml.Node, where string) ([]*yaml.Node, error) {
	n = resolve(n)
	if n == nil || n.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("%s must be a list", where)
	}
	if r.left -= len(n.Content); r.left < 0 {
		return nil, fmt.Errorf("the document has more than %d values", maxNodes)
	}
	return n.Content, nil
}

// plain returns a value as it is.
func (r *reader) plain(n *yaml.Node, where string, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("%s is nested too deeply, or is a part of itself", where)
	}
	if r.left--; r.left < 0 {
		return nil, fmt.Errorf("the document has more than %d values", maxNodes)
	}
	n = resolve(n)
	switch {
	case n == nil:
		return nil, fmt.Errorf("%s is an alias of itself", where)
	case n.Kind == yaml.MappingNode:
		f, err := r.fields(n, where, depth)
		if err != nil {
			return nil, err
		}
		return r.each(f, where, func(n *yaml.Node, where string) (any, error) { return r.plain(n, where, depth+1) })
	case n.Kind == yaml.SequenceNode:
		return r.list(n, where, func(n *yaml.Node, where string) (any, error) { return r.plain(n, where, depth+1) })
	}
	return scalar(n), nil
}

// scalar is a value of JSON. What YAML takes for a time is text.
func scalar(n *yaml.Node) any {
	switch n.Tag {
	case "!!null":
		return nil
	case "!!bool":
		var b bool
		if n.Decode(&b) == nil {
			return b
		}
	case "!!int", "!!float":
		var v any
		if n.Decode(&v) == nil {
			if f, ok := v.(float64); !ok || !math.IsInf(f, 0) && !math.IsNaN(f) {
				return v
			}
		}
	}
	return n.Value
}

type visit func(n *yaml.Node, where string) (any, error)

// each visits all of a mapping, in the order of the keys.
func (r *reader) each(f map[string]*yaml.Node, where string, visit visit) (tree, error) {
	out := make(tree, len(f))
	for _, k := range sortedKeys(f) {
		v, err := visit(f[k], below(where, "."+short(k)))
		if err != nil {
			return nil, err
		}
		if v != nil {
			out[k] = v
		}
	}
	return out, nil
}

// below is where a part is, as long as that is not too long.
func below(where, part string) string {
	if len(where) > maxWhere {
		return where
	}
	return where + part
}

func (r *reader) list(n *yaml.Node, where string, visit visit) ([]any, error) {
	elements, err := r.elements(n, where)
	if err != nil {
		return nil, err
	}
	out := make([]any, 0, len(elements))
	for i, n := range elements {
		v, err := visit(n, below(where, fmt.Sprintf("[%d]", i)))
		if err != nil {
			return nil, err
		}
		if v != nil {
			out = append(out, v)
		}
	}
	return out, nil
}

// pick visits some fields, if they are there and not null.
func (r *reader) pick(out tree, f map[string]*yaml.Node, where string, visits map[string]visit) error {
	for _, k := range sortedKeys(visits) {
		n := resolve(f[k])
		if n == nil || n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
			continue
		}
		v, err := visits[k](n, strings.TrimPrefix(below(where, "."+k), "."))
		if err != nil {
			return err
		}
		if v != nil {
			out[k] = v
		}
	}
	return nil
}

func (r *reader) document(n *yaml.Node) (tree, error) {
	f, err := r.fields(n, "the document", 0)
	if err != nil {
		return nil, err
	}
	version, label := "", "openapi"
	if n := resolve(f["swagger"]); n != nil {
		version, label, r.swagger = n.Value, "swagger", true
	} else if n := resolve(f["openapi"]); n != nil {
		version = n.Value
	}
	switch {
	case r.swagger && version == "2.0":
	case !r.swagger && (strings.HasPrefix(version, "3.0") || strings.HasPrefix(version, "3.1") || strings.HasPrefix(version, "3.2")):
		r.siblings = !strings.HasPrefix(version, "3.0")
	case version == "":
		return nil, errors.New(`the document has neither "openapi" nor "swagger", which says its version: is it an OpenAPI document?`)
	default:
		return nil, fmt.Errorf("%s: version %q is not known; there are 2.0, 3.0, 3.1 and 3.2", label, version)
	}
	out := tree{label: version, "info": tree{"title": "t", "version": "v"}}
	if r.swagger {
		return out, r.swaggerParts(out, f)
	}
	var components map[string]*yaml.Node
	if n := resolve(f["components"]); n != nil && n.Tag != "!!null" {
		if components, err = r.fields(n, "components", 0); err != nil {
			return nil, err
		}
	}
	kept := tree{}
	return out, r.parts(out, kept, f, components, "schemas", "components.", func() { out["components"] = kept })
}

func (r *reader) swaggerParts(out tree, f map[string]*yaml.Node) error {
	if err := r.pick(out, f, "", map[string]visit{"basePath": r.text}); err != nil {
		return err
	}
	return r.parts(out, out, f, f, "definitions", "", func() {})
}

// parts reads the paths, and of the components what they refer to.
func (r *reader) parts(out, kept tree, f, components map[string]*yaml.Node, schemas, where string, done func()) error {
	all := map[string]map[string]*yaml.Node{}
	for _, k := range []string{schemas, "parameters", "pathItems"} {
		if n := resolve(components[k]); n != nil && n.Tag != "!!null" && (k != "pathItems" || !r.swagger) {
			var err error
			if all[k], err = r.fields(n, where+k, 0); err != nil {
				return err
			}
		}
	}
	r.schemas, r.parameters, r.items = keys(all[schemas]), keys(all["parameters"]), keys(all["pathItems"])
	visits := map[string]visit{"paths": r.paths, "security": r.security}
	if !r.swagger {
		visits["servers"] = r.servers
	}
	if err := r.pick(out, f, "", visits); err != nil {
		return err
	}
	for k, visit := range map[string]visit{"parameters": r.component, "pathItems": r.pathItem} {
		if len(all[k]) == 0 {
			continue
		}
		v, err := r.each(all[k], where+k, visit)
		if err != nil {
			return err
		}
		kept[k] = v
	}
	made := tree{}
	for i := 0; i < len(r.wanted); i++ { // which grows
		name := r.wanted[i]
		v, err := r.schema(all[schemas][name], where+schemas+"."+name, 0)
		if err != nil {
			return err
		}
		made[name] = v
	}
	kept[schemas] = made
	done()
	return nil
}

func (r *reader) text(n *yaml.Node, where string) (any, error) {
	if n = resolve(n); n == nil || n.Kind != yaml.ScalarNode {
		return nil, fmt.Errorf("%s must be text", where)
	}
	return n.Value, nil
}

func (r *reader) scalarAt(n *yaml.Node, where string) (any, error) {
	if n = resolve(n); n == nil || n.Kind != yaml.ScalarNode {
		return nil, fmt.Errorf("%s must be a single value", where)
	}
	return scalar(n), nil
}

func (r *reader) asIs(n *yaml.Node, where string) (any, error) { return r.plain(n, where, 0) }

func (r *reader) paths(n *yaml.Node, where string) (any, error) {
	f, err := r.fields(n, where, 0)
	if err != nil {
		return nil, err
	}
	for k := range f {
		if strings.HasPrefix(k, "x-") {
			delete(f, k)
		}
	}
	return r.each(f, where, r.pathItem)
}

func (r *reader) pathItem(n *yaml.Node, where string) (any, error) {
	f, err := r.fields(n, where, 0)
	if err != nil {
		return nil, err
	}
	out := tree{}
	if ref := reference(f); ref != "" {
		name, ok := component(ref, "#/components/pathItems/")
		if !ok || !r.items[name] || r.swagger {
			r.leave(strings.TrimPrefix(where, "paths."), "the reference %s of its path item cannot be followed", ref)
			return nil, nil
		}
		out["$ref"] = ref
	}
	visits := map[string]visit{"parameters": r.params, "servers": r.servers}
	for _, method := range methods {
		visits[method] = r.operation
	}
	if r.swagger {
		delete(visits, "servers")
		delete(visits, "query")
		delete(visits, "trace")
	}
	if !r.swagger {
		visits["additionalOperations"] = func(n *yaml.Node, where string) (any, error) {
			f, err := r.fields(n, where, 0)
			if err != nil {
				return nil, err
			}
			return r.each(f, where, r.operation)
		}
	}
	return out, r.pick(out, f, where, visits)
}

// methods are the fields of a path item that are operations.
var methods = []string{"get", "put", "post", "delete", "options", "head", "patch", "trace", "query"}

func (r *reader) operation(n *yaml.Node, where string) (any, error) {
	f, err := r.fields(n, where, 0)
	if err != nil {
		return nil, err
	}
	out := tree{}
	visits := map[string]visit{
		"operationId": r.text, "parameters": r.params, "security": r.security, "servers": r.servers,
		"tags": func(n *yaml.Node, where string) (any, error) { return r.list(n, where, r.text) },
	}
	if r.swagger {
		delete(visits, "servers")
	}
	return out, r.pick(out, f, where, visits)
}

func (r *reader) security(n *yaml.Node, where string) (any, error) {
	return r.list(n, where, func(n *yaml.Node, where string) (any, error) {
		f, err := r.fields(n, where, 0)
		if err != nil {
			return nil, err
		}
		return r.each(f, where, func(n *yaml.Node, where string) (any, error) { return r.list(n, where, r.text) })
	})
}

func (r *reader) servers(n *yaml.Node, where string) (any, error) {
	return r.list(n, where, func(n *yaml.Node, where string) (any, error) {
		f, err := r.fields(n, where, 0)
		if err != nil {
			return nil, err
		}
		out := tree{}
		return out, r.pick(out, f, where, map[string]visit{"url": r.text, "variables": func(n *yaml.Node, where string) (any, error) {
			f, err := r.fields(n, where, 0)
			if err != nil {
				return nil, err
			}
			return r.each(f, where, func(n *yaml.Node, where string) (any, error) {
				f, err := r.fields(n, where, 0)
				if err != nil {
					return nil, err
				}
				out := tree{}
				return out, r.pick(out, f, where, map[string]visit{
					"default": r.text, "enum": func(n *yaml.Node, where string) (any, error) { return r.list(n, where, r.text) },
				})
			})
		}})
	})
}

func (r *reader) params(n *yaml.Node, where string) (any, error) {
	return r.list(n, where, r.parameter)
}

// component reads a parameter that is referred to, so that something must be there.
func (r *reader) component(n *yaml.Node, where string) (any, error) {
	v, err := r.parameter(n, where)
	if v == nil {
		v = tree{"name": "-", "in": "header", "schema": tree{}}
		if r.swagger {
			v = tree{"name": "-", "in": "header", "type": "string"}
		}
	}
	return v, err
}

// parameter reads a parameter of a path; others are nil.
func (r *reader) parameter(n *yaml.Node, where string) (any, error) {
	f, err := r.fields(n, where, 0)
	if err != nil {
		return nil, err
	}
	if ref := reference(f); ref != "" {
		at := "#/components/parameters/"
		if r.swagger {
			at = "#/parameters/"
		}
		if name, ok := component(ref, at); !ok || !r.parameters[name] {
			r.note(where, "the reference %s cannot be followed", ref)
			return nil, nil
		}
		return tree{"$ref": ref}, nil
	}
	if in := resolve(f["in"]); in == nil || in.Value != "path" {
		return nil, nil
	}
	out := tree{"in": "path", "required": true}
	if r.swagger {
		visits := r.keywords(0)
		for _, k := range []string{"oneOf", "anyOf", "allOf", "not", "const"} {
			delete(visits, k)
		}
		visits["name"] = r.text
		if err := r.pick(out, f, where, visits); err != nil {
			return nil, err
		}
		if n := resolve(f["collectionFormat"]); n != nil {
			out[extensionSeparator] = n.Value
		}
		return out, nil
	}
	visits := map[string]visit{
		"name": r.text, "style": r.text, "explode": r.scalarAt,
		"schema": func(n *yaml.Node, where string) (any, error) { return r.schema(n, where, 0) },
	}
	if f["content"] != nil && f["schema"] == nil {
		out["schema"] = tree{extensionUnread: "its content is not read"}
	}
	return out, r.pick(out, f, where, visits)
}

// keywords are those that say what a value's text may be.
func (r *reader) keywords(depth int) map[string]visit {
	schema := func(n *yaml.Node, where string) (any, error) { return r.schema(n, where, depth+1) }
	schemas := func(n *yaml.Node, where string) (any, error) { return r.list(n, where, schema) }
	out := map[string]visit{
		"type": r.asIs, "enum": r.asIs, "const": r.asIs, "oneOf": schemas, "anyOf": schemas, "allOf": schemas, "not": func(*yaml.Node, string) (any, error) { return tree{}, nil },
		"items": func(n *yaml.Node, where string) (any, error) {
			if n.Kind == yaml.SequenceNode { // of older JSON Schemas
				return tree{}, nil
			}
			return schema(n, where)
		},
	}
	for _, k := range []string{"format", "pattern"} {
		out[k] = r.text
	}
	for _, k := range []string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minLength", "maxLength", "minItems", "maxItems"} {
		out[k] = r.scalarAt
	}
	return out
}

func (r *reader) schema(n *yaml.Node, where string, depth int) (any, error) {
	if n = resolve(n); n != nil && n.Kind == yaml.ScalarNode && n.Tag == "!!bool" {
		return scalar(n), nil
	}
	f, err := r.fields(n, where, depth)
	if err != nil {
		return nil, err
	}
	out := tree{}
	var target tree
	if ref := reference(f); ref != "" {
		at := "#/components/schemas/"
		if r.swagger {
			at = "#/definitions/"
		}
		name, ok := component(ref, at)
		if ok && r.schemas[name] {
			if !slices.Contains(r.wanted, name) {
				r.wanted = append(r.wanted, name)
			}
			target = tree{"$ref": ref}
		} else {
			target = tree{extensionUnread: "the reference " + short(ref) + " cannot be followed"}
		}
		if !r.siblings {
			return target, nil
		}
	}
	if err := r.pick(out, f, where, r.keywords(depth)); err != nil {
		return nil, err
	}
	switch {
	case target == nil:
		return out, nil
	case len(out) == 0:
		return target, nil
	}
	return tree{"allOf": []any{target, out}}, nil
}

func reference(f map[string]*yaml.Node) string {
	if n := resolve(f["$ref"]); n != nil && n.Kind == yaml.ScalarNode {
		return n.Value
	}
	return ""
}

// component returns the name that a reference to a component of the document has (RFC 6901).
func component(ref, at string) (name string, ok bool) {
	name, ok = strings.CutPrefix(ref, at)
	return name, ok && name != "" && !strings.ContainsAny(name, "/~%")
}

func keys(f map[string]*yaml.Node) map[string]bool {
	out := make(map[string]bool, len(f))
	for k := range f {
		out[k] = true
	}
	return out
}

// extension is a text that read wrote.
func extension(extensions map[string]any, name string) string {
	switch v := extensions[name].(type) {
	case string:
		return v
	case json.RawMessage:
		var s string
		if json.Unmarshal(bytes.TrimSpace(v), &s) == nil {
			return s
		}
	}
	return ""
}
