package openapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// value is what the text of a value may be, as expressions that can be put one after the other.
type value struct {
	// exact is empty if there is no such value. typed allows all values of the type.
	exact, typed string
	example      string
	// text means that the value may be any text.
	text bool
}

var anyValue = value{exact: anyText, typed: anyText, example: "a", text: true}

// Expressions of types and formats.
const (
	integerForm  = `-?[0-9]+`
	naturalForm  = `[0-9]+`
	positiveForm = `[1-9][0-9]*`
	numberForm   = `-?[0-9]+(?:\.[0-9]+)?(?:[eE][+\-]?[0-9]+)?`
	booleanForm  = `(?:true|false)`
	dateForm     = `[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12][0-9]|3[01])`
	timeForm     = `(?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?(?:[zZ]|[+\-](?:[01][0-9]|2[0-3]):[0-5][0-9])`
	octetForm    = `(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])`
	labelForm    = `[0-9A-Za-z](?:[0-9A-Za-z\-]{0,61}[0-9A-Za-z])?`
)

// formats are the formats of texts that have an expression.
var formats = map[string]value{
	"uuid":      {exact: `[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}`, example: "00000000-0000-0000-0000-000000000000"},
	"date":      {exact: dateForm, example: "2020-01-01"},
	"time":      {exact: timeForm, example: "00:00:00Z"},
	"date-time": {exact: dateForm + `[tT]` + timeForm, example: "2020-01-01T00:00:00Z"},
	"ipv4":      {exact: octetForm + `(?:\.` + octetForm + `){3}`, example: "127.0.0.1"},
	"hostname":  {exact: labelForm + `(?:\.` + labelForm + `)*`, example: "a"},
	"byte":      {exact: `(?:[0-9A-Za-z+\-_=]|%2B)+`, example: "YQ=="},
}

// loose are formats whose characters alone are looked at.
var loose = map[string]value{
	"ipv6": {exact: `[0-9A-Fa-f:.]{2,45}`, example: "::1"},
}

// ignored are formats that say nothing about the text.
var ignored = []string{"", "password", "binary", "string"}

// parameterValue returns the expressions for a parameter as it stands in a path, with what its style puts before and between.
func parameterValue(p *openapi3.Parameter) (value, []string) {
	s := &schemas{}
	style, explode := cmp.Or(p.Style, "simple"), p.Explode != nil && *p.Explode
	var schema *openapi3.Schema
	if p.Schema != nil {
		schema = p.Schema.Value
	}
	separator := ","
	if f := extension(p.Extensions, extensionSeparator); f != "" {
		separator = map[string]string{"csv": ",", "ssv": "%20", "tsv": "%09", "pipes": "%7C"}[f]
		if separator == "" {
			s.note("collectionFormat %s does not exist in paths; it is read as csv", f)
			separator = ","
		}
	}
	name, ok := quoteValue(p.Name)
	if !ok {
		return value{}, s.notes
	}
	list := separator
	prefix, example := "", ""
	switch style {
	case "simple":
	case "label":
		prefix, example = `\.`, "."
		if list = "[,.]"; explode {
			list = `\.`
		}
	case "matrix":
		prefix, example = ";"+name+"=", ";"+p.Name+"="
		if explode {
			list = prefix
		}
	default:
		s.note("style %s does not exist in paths; it is read as simple", style)
	}
	v := s.value(schema, list, 0)
	if v.exact == "" {
		return v, s.notes
	}
	v.exact, v.typed, v.example = prefix+v.exact, prefix+v.typed, example+v.example
	return v, s.notes
}

// schemas maps the schemas of one parameter.
type schemas struct {
	notes []string
	left  int
}

func (s *schemas) note(format string, args ...any) {
	if n := fmt.Sprintf(format, args...); !slices.Contains(s.notes, n) && len(s.notes) < 16 {
		s.notes = append(s.notes, n)
	}
}

const (
	// maxSchemas bounds the schemas that one parameter is made of, with references followed.
	maxSchemas = 256
	// maxRepeat is the most repetitions that an expression counts.
	maxRepeat = 64
)

// value returns the values of a schema; separator is an expression for what is between elements of a list.
func (s *schemas) value(schema *openapi3.Schema, separator string, depth int) value {
	if s.left++; depth > 8 || s.left > maxSchemas {
		s.note("its schema is nested too deeply, so any text without a slash is allowed")
		return anyValue
	}
	if schema == nil {
		return anyValue
	}
	if why := extension(schema.Extensions, extensionUnread); why != "" {
		s.note("%s, so any text without a slash is allowed", why)
		return anyValue
	}
	if schema.Always != nil && !*schema.Always {
		return value{}
	}
	if schema.Not != nil {
		s.note(`"not" cannot be expressed; what it excludes is allowed`)
	}
	switch {
	case schema.Const != nil:
		return s.enum(schema, []any{schema.Const})
	case len(schema.Enum) > 0:
		return s.enum(schema, schema.Enum)
	}
	own := s.types(schema, separator, depth)
	for _, of := range []openapi3.SchemaRefs{schema.OneOf, schema.AnyOf} {
		if len(of) > 0 {
			own = s.narrow(own, s.any(of, separator, depth))
		}
	}
	for _, part := range schema.AllOf {
		if part != nil {
			own = s.narrow(own, s.value(part.Value, separator, depth+1))
		}
	}
	return own
}

// narrow returns the narrower one of two sets of values that both apply.
func (s *schemas) narrow(a, b value) value {
	switch {
	case a.text:
		return b
	case b.text || a.exact == b.exact:
		return a
	case a.exact == "" || b.exact == "":
		return value{}
	}
	if a.exact == a.typed && b.exact != b.typed { // of a only the type is known
		a, b = b, a
	}
	if a.typed != b.typed || b.exact != b.typed {
		s.note("several schemas apply at once; only one of them is checked")
	}
	return a
}

// any is one of several.
func (s *schemas) any(of openapi3.SchemaRefs, separator string, depth int) value {
	var out value
	var exact, typed []string
	for _, part := range of {
		if part == nil {
			continue
		}
		if part.Value != nil && part.Value.Type.Is("null") {
			continue
		}
		v := s.value(part.Value, separator, depth+1)
		if v.exact == "" {
			continue
		}
		out.example, out.text = cmp.Or(out.example, v.example), out.text || v.text
		exact, typed = appendNew(exact, v.exact), appendNew(typed, v.typed)
	}
	if out.text {
		return anyValue
	}
	out.exact, out.typed = alternatives(exact), alternatives(typed)
	return out
}

func appendNew(list []string, s string) []string {
	if slices.Contains(list, s) {
		return list
	}
	return append(list, s)
}

func alternatives(list []string) string {
	switch len(list) {
	case 0:
		return ""
	case 1:
		return list[0]
	}
	return group(strings.Join(list, "|"))
}

// types is what a schema says by its types and their keywords.
func (s *schemas) types(schema *openapi3.Schema, separator string, depth int) value {
	types := schema.Type.Slice()
	if len(types) == 0 {
		switch {
		case schema.Pattern != "" || schema.MinLength > 0 || schema.MaxLength != nil || schema.Format != "":
			return s.text(schema)
		case schema.Items != nil:
			return s.list(schema, separator, depth)
		}
		if schema.Min != nil || schema.Max != nil || schema.ExclusiveMin.IsSet() || schema.ExclusiveMax.IsSet() {
			s.note("its minimum and maximum are not checked, as it has no type")
		}
		return anyValue
	}
	var out value
	var exact, typed []string
	for _, t := range types {
		var v value
		switch t {
		case "null":
			continue
		case "integer":
			v = s.number(schema, true)
		case "number":
			v = s.number(schema, false)
		case "boolean":
			v = value{exact: booleanForm, typed: booleanForm, example: "true"}
		case "string":
			v = s.text(schema)
		case "array":
			v = s.list(schema, separator, depth)
		case "object":
			s.note("it is an object, for which any text without a slash is allowed")
			v = anyValue
		default:
			s.note("type %s is unknown, so any text without a slash is allowed", t)
			v = anyValue
		}
		if v.exact == "" {
			continue
		}
		out.example, out.text = cmp.Or(out.example, v.example), out.text || v.text
		exact, typed = appendNew(exact, v.exact), appendNew(typed, v.typed)
	}
	if out.text {
		return anyValue
	}
	out.exact, out.typed = alternatives(exact), alternatives(typed)
	return out
}

func (s *schemas) number(schema *openapi3.Schema, integer bool) value {
	form, example, exact := numberForm, "1", false
	if integer {
		form = integerForm
	}
	limited := schema.Max != nil || schema.ExclusiveMax.IsSet()
	// In OpenAPI 3.0, exclusiveMinimum says how minimum is meant; since 3.1, it is a minimum.
	least, above := schema.Min, schema.ExclusiveMin.Bool != nil && *schema.ExclusiveMin.Bool
	if v := schema.ExclusiveMin.Value; v != nil && (least == nil || *v >= *least) {
		least, above = v, true
	}
	if least != nil && *least >= 0 {
		form = strings.TrimPrefix(form, "-?")
	}
	switch {
	case least == nil, *least == 0 && !above:
	case integer && (*least == 0 || *least == 1 && !above):
		form, exact = positiveForm, true
	default:
		limited = true
	}
	if limited {
		s.note("only the sign of its minimum and maximum is checked")
	}
	if exact {
		return value{exact: form, typed: naturalForm, example: example}
	}
	return value{exact: form, typed: form, example: example}
}

func (s *schemas) text(schema *openapi3.Schema) value {
	lengths := schema.MinLength > 1 || schema.MaxLength != nil
	if schema.Pattern != "" {
		exact, err := ecmaPattern(schema.Pattern)
		switch {
		case err == errNothing:
			s.note("pattern %q cannot be used: %v", short(schema.Pattern), err)
			return value{}
		case err == nil:
			if lengths || formats[schema.Format].exact != "" {
				s.note("only its pattern is checked, its format and lengths are not")
			}
			return value{exact: exact, typed: anyText, example: "a"}
		}
		s.note("pattern %q cannot be expressed: %v; the parameter falls back to its type", short(schema.Pattern), err)
	}
	f := schema.Format
	if v := cmp.Or(formats[f], loose[f]); v.exact != "" {
		if loose[f].exact != "" {
			s.note("only the characters of format %s are checked", f)
		}
		if lengths {
			s.note("only its format is checked, its lengths are not")
		}
		v.typed = anyText
		return v
	}
	if !slices.Contains(ignored, f) {
		s.note("format %s cannot be expressed; the parameter falls back to its type", short(f))
	}
	if !lengths {
		return anyValue
	}
	least, most := max(schema.MinLength, 1), schema.MaxLength
	if most != nil && *most < least {
		return value{}
	}
	if least > maxRepeat || most != nil && *most > maxRepeat {
		s.note("lengths beyond %d are not checked", maxRepeat)
		if least = min(least, maxRepeat); most != nil && *most > maxRepeat {
			most = nil
		}
		if least == 1 && most == nil {
			return anyValue
		}
	}
	return value{exact: oneChar + times(least, most), typed: anyText, example: strings.Repeat("a", int(least))}
}

// times is a repetition.
func times(least uint64, most *uint64) string {
	switch {
	case most == nil && least == 1:
		return "+"
	case most == nil && least == 0:
		return "*"
	case most == nil:
		return fmt.Sprintf("{%d,}", least)
	case *most == least:
		return fmt.Sprintf("{%d}", least)
	}
	return fmt.Sprintf("{%d,%d}", least, *most)
}

func (s *schemas) list(schema *openapi3.Schema, separator string, depth int) value {
	item := anyValue
	if schema.Items != nil {
		item = s.value(schema.Items.Value, separator, depth+1)
	}
	if item.exact == "" {
		return value{}
	}
	if item.text && len(separator) == 1 {
		item.exact, item.typed = `[^/`+separator+`]+`, `[^/`+separator+`]+`
	}
	least, most := max(schema.MinItems, 1), schema.MaxItems
	if most != nil && *most < least {
		return value{}
	}
	if least > maxRepeat || most != nil && *most > maxRepeat {
		s.note("numbers of items beyond %d are not checked", maxRepeat)
		if least = min(least, maxRepeat); most != nil && *most > maxRepeat {
			most = nil
		}
	}
	count := "*"
	if least > 1 || most != nil {
		var more *uint64
		if most != nil {
			n := *most - 1
			more = &n
		}
		count = times(least-1, more)
	}
	plain := strings.NewReplacer(`\`, "", "[,.]", ",").Replace(separator)
	return value{
		exact: item.exact + group(separator+item.exact) + count, typed: item.typed + group(separator+item.typed) + "*",
		example: item.example + strings.Repeat(plain+item.example, int(least-1)),
	}
}

func (s *schemas) enum(schema *openapi3.Schema, values []any) value {
	typed := s.types(&openapi3.Schema{Type: schema.Type}, ",", maxRepeat)
	var exact []string
	out := value{typed: typed.typed}
	size := 0
	for _, v := range values {
		text, ok := textOf(v)
		if v == nil {
			continue
		}
		quoted, fits := quoteValue(text)
		if !ok || !fits {
			s.note("value %q of its enum is left out: no segment of a path can have it", short(text))
			continue
		}
		if size += len(quoted); size > 1<<16 {
			s.note("its enum is too long; the parameter falls back to its type")
			return typed
		}
		exact, out.example = append(exact, quoted), cmp.Or(out.example, text)
	}
	slices.Sort(exact)
	out.exact = alternatives(slices.Compact(exact))
	return out
}

// textOf is a single value as it stands in a path.
func textOf(v any) (string, bool) {
	switch v := v.(type) {
	case string:
		return v, true
	case bool:
		return strconv.FormatBool(v), true
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
			return strconv.FormatInt(int64(v), 10), true
		}
		return strconv.FormatFloat(v, 'g', -1, 64), true
	case int:
		return strconv.Itoa(v), true
	case int64:
		return strconv.FormatInt(v, 10), true
	case uint64:
		return strconv.FormatUint(v, 10), true
	case json.Number:
		return v.String(), true
	}
	text, _ := json.Marshal(v)
	return string(text), false
}

// short is text for a message.
func short(text string) string { return brief(text, 80) }

// brief is the beginning of a text, of at most as many bytes.
func brief(text string, most int) string {
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}
