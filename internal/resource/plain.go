package resource

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// An API server's messages about values are exact and hard to read: they name internal types, print expressions, and
// repeat themselves. The functions here reword them in plain language, with what to write instead. Finding.Server keeps
// the server's own words.

// fieldFinding is a finding of the rules of an API server about the object u.
func fieldFinding(code string, err *field.Error, u map[string]any) Finding {
	f := finding(code, err.Field, err.ErrorBody())
	if m := formatPath.FindStringSubmatch(err.Detail); m != nil {
		f.Ref.Field = m[1]
	}
	f.Server = f.Ref.Field + ": " + f.Message
	if m := oneForm.FindStringSubmatch(err.Detail); m != nil {
		f.Ref.Field, f.Message, f.Fix = m[1], "has none of the forms that the field allows, or several of them", "write it as the API's documentation says"
		f.General = true
		return f
	}
	if f.Ref.Field == "<nil>" {
		f.Ref.Field = ""
	}
	switch {
	case err.Type == field.ErrorTypeRequired:
		f.Message, f.Absent, f.Fix = "is missing", true, "add the field"
		if err.Detail != "" {
			f.Message += ": " + err.Detail
		}
	case err.Type == field.ErrorTypeTypeInvalid:
		plainType(&f, err, valueAt(u, f.Ref.Field))
	case err.Type == field.ErrorTypeNotSupported:
		plainEnum(&f, err)
	case err.Type == field.ErrorTypeDuplicate:
		f.Message, f.Fix = "occurs twice: "+short(err.BadValue), "remove or rename one of the two"
	case code == CodeMetadata:
		plainMetadata(&f, err)
	case code == CodeRule:
		f.Message = strings.TrimSuffix(matching.ReplaceAllStringFunc(err.Detail, inWords), ".")
		for _, r := range ruleFixes {
			if r.message.MatchString(f.Message) {
				f.Fix = r.message.ReplaceAllString(f.Message, r.fix)
				break
			}
		}
	case err.Type == field.ErrorTypeInvalid:
		plainInvalid(&f, err, valueAt(u, f.Ref.Field))
	}
	return f
}

// oneForm finds the field in the message of a schema about alternatives.
var oneForm = regexp.MustCompile(`^"([^"]+)" must validate `)

// schemaFinding is a finding of a schema.
func schemaFinding(err *field.Error, u map[string]any) Finding {
	return fieldFinding(schemaCode(err.Type), err, u)
}

// once drops findings that repeat others about the same value: a wrong type, and as a consequence the wrong format; a
// number too large for the field, and for the format of its type.
func once(findings []Finding) (out []Finding) {
	reported := make(map[string]int) // in out, by field
	for _, first := range []string{CodeType, CodeEnum, ""} {
		for _, f := range findings {
			early := f.Code == CodeType || f.Code == CodeEnum
			if n, ok := reported[f.Ref.Field]; f.Code != first && (first != "" || early) {
				continue
			} else if ok && (f.Code == CodeInvalid || f.Code == CodeListType || f.Code == CodeType || f.Code == CodeEnum || f.Code == CodeCoreInvalid) {
				out[n].Server += "\n" + f.Server
				continue
			}
			if _, ok := reported[f.Ref.Field]; !ok {
				reported[f.Ref.Field] = len(out)
			}
			out = append(out, f)
		}
	}
	return out
}

// specific drops findings that follow from others: a rule that does not hold, or alternatives none of which fits, if
// another finding is about the very field. Rules about one mapping become one finding; those about a list are about its
// several entries.
func specific(findings []Finding, u map[string]any) []Finding {
	if len(findings) > 10*maxFindings {
		return findings // most of them will not be shown
	}
	findings = slices.Clone(findings)
	follows := make([]bool, len(findings))
	for i, f := range findings {
		if f.Code != CodeRule && !f.General {
			continue
		}
		for j := range findings {
			o := &findings[j]
			inside := strings.HasPrefix(o.Ref.Field, f.Ref.Field+".") && o.Code != CodeRule
			if i != j && inside && (f.General || containsFold(f.Message, lastName(o.Ref.Field))) {
				follows[i] = true
				o.Server += "\n" + f.Server
				break
			}
		}
	}
	var out []Finding
	for i, f := range findings {
		if follows[i] {
			continue
		}
		if f.Code == CodeRule {
			n := slices.IndexFunc(out, func(o Finding) bool { return o.Code == CodeRule && o.Ref.Field == f.Ref.Field })
			if _, list := valueAt(u, f.Ref.Field).([]any); n >= 0 && !list {
				out[n].Message += "; and " + lowerFirst(f.Message)
				out[n].Server += "\n" + f.Server
				out[n].Fix = ruleFix(out[n].Fix, f.Fix)
				continue
			}
		}
		out = append(out, f)
	}
	return out
}

// together returns the findings about unknown fields and the others. A misspelt field can cause other findings: a
// required field is missing, or a rule about the parent does not hold. These are joined with the finding about the
// misspelt field.
func together(unknown, others []Finding) []Finding {
	for i := range unknown {
		f := &unknown[i]
		if f.Meant == "" {
			continue
		}
		parent := strings.TrimSuffix(f.Ref.Field[:len(f.Ref.Field)-len(lastName(f.Ref.Field))], ".")
		at := strings.TrimPrefix(parent+"."+f.Meant, ".")
		under := func(field, of string) bool {
			rest, ok := strings.CutPrefix(field, of)
			return ok && (rest == "" || rest[0] == '.' || rest[0] == '[')
		}
		first := true
		others = slices.DeleteFunc(slices.Clone(others), func(o Finding) bool {
			missing := o.Absent && (under(o.Ref.Field, at) || under(at, o.Ref.Field)) || o.Code == CodeCoreInvalid && o.Ref.Field == at ||
				o.Absent && at == "stringData" && under(o.Ref.Field, "data")
			broken := o.Code == CodeRule && under(f.Ref.Field, o.Ref.Field) && (o.Ref.Field == parent || containsFold(o.Message, lastName(f.Meant))) ||
				o.General && under(o.Ref.Field, parent)
			if !missing && !broken {
				return false
			}
			switch {
			case !first:
				f.Server += "\n" + o.Server
				return true
			case missing:
				f.Message = fmt.Sprintf("unknown field, and the required %s is missing: the object is left out", o.Ref.Field)
			default:
				f.Message = "unknown field, so the object is left out: " + lowerFirst(o.Message)
			}
			first, f.Server = false, o.Server
			return true
		})
	}
	return append(unknown, others...)
}

// wrongType finds the types in the message of a schema.
var wrongType = regexp.MustCompile(`must be of type ([\w,]+): "([^"]*)"`)

// typeNames are the types of JSON in plain words.
var typeNames = map[string]string{
	"string": "text", "boolean": "true or false", "integer": "a whole number", "int32": "a whole number", "int64": "a whole number",
	"number": "a number", "float64": "a number", "array": "a list", "object": "a mapping", "null": "nothing",
}

func plainType(f *Finding, err *field.Error, value any) {
	m := wrongType.FindStringSubmatch(err.Detail)
	if m == nil {
		message, fix, _ := strings.Cut(cmp.Or(err.Detail, f.Message), "; ")
		f.Message, f.Fix = message, cmp.Or(fix, f.Fix)
		return
	}
	wanted := typeNames[m[1]]
	if types := strings.Split(m[1], ","); len(types) > 1 {
		for i, name := range types {
			types[i] = cmp.Or(typeNames[name], name)
		}
		wanted = strings.Join(types, " or ")
	}
	if wanted == "" { // a format, such as ipv4
		f.Message, f.Fix, f.General = fmt.Sprintf("%s is not of the form %s", short(value), m[1]), "write it in that form", true
		return
	}
	name := lastName(f.Ref.Field)
	f.Fix = "write " + wanted
	switch v := value.(type) {
	case nil:
		f.Message = fmt.Sprintf("is empty, but must be %s", wanted)
		f.Fix += ", or remove the field"
		return
	case string:
		f.Message = fmt.Sprintf("%s is text, but must be %s", short(v), wanted)
		switch {
		case wanted == "a whole number":
			f.Fix = wholeNumber(v)
		case wanted == "true or false" && (v == "true" || v == "false"):
			f.Fix = "remove the quotes: " + v
		case wanted == "a mapping" && name == "path" && strings.HasPrefix(v, "/"):
			f.Fix = "write a mapping: {type: PathPrefix, value: " + v + "}"
		case wanted == "a mapping":
			f.Fix = "write the fields of the mapping, one a line, or {field: value}"
		case wanted == "a list":
			f.Fix = "write a list: [" + v + "]"
		}
	case bool:
		f.Message = fmt.Sprintf("%v is a boolean, but must be %s", v, wanted)
		if wanted == "text" {
			f.Fix = "put it in quotes: YAML takes true, false, yes, no, on, off, y and n for booleans"
		}
	case int64:
		f.Message = fmt.Sprintf("%d is a number, but must be %s", v, wanted)
		if wanted == "text" {
			f.Fix = fmt.Sprintf("put it in quotes: %q", strconv.FormatInt(v, 10))
			switch {
			case durations[name]:
				f.Fix = fmt.Sprintf("write a duration with its unit: %ds", v)
			case name == "traffic": // of a step of a Rollout
				f.Fix = fmt.Sprintf("write a percentage: %d%%", v)
			}
		}
	case float64:
		text := strconv.FormatFloat(v, 'f', -1, 64)
		f.Message = fmt.Sprintf("%s is a number, but must be %s", text, wanted)
		switch {
		case wanted == "text":
			f.Fix = fmt.Sprintf("put it in quotes: %q", text)
		case wanted == "a whole number" && name == "percent":
			f.Message, f.Fix = text+" must be a whole number", fraction(text)
		case wanted == "a whole number" && name == "weight":
			f.Message = text + " must be a whole number"
			f.Fix = "write a whole number; only the proportion counts, so 1 and 500m can be 2 and 1"
		case wanted == "a whole number":
			f.Message = text + " must be a whole number"
		}
	case []any:
		f.Message = fmt.Sprintf("is a list, but must be %s", wanted)
		if wanted == "a mapping" {
			f.Fix = `write one mapping: remove "- "`
		}
	case map[string]any:
		f.Message = fmt.Sprintf("is a mapping, but must be %s", wanted)
		if wanted == "a list" {
			f.Fix = `write a list: put "- " before the first line of the mapping, and indent the others by two spaces`
		}
	}
}

// durations are fields of routes that hold one.
var durations = map[string]bool{"request": true, "backendRequest": true, "backoff": true, "absoluteTimeout": true, "idleTimeout": true}

// wholeNumber returns what to write instead of text.
func wholeNumber(text string) string {
	text = strings.TrimSpace(text)
	if _, err := strconv.ParseInt(text, 10, 64); err == nil {
		return "remove the quotes: " + text
	}
	bare := strings.TrimSpace(strings.TrimSuffix(text, "%"))
	if _, err := strconv.ParseInt(bare, 10, 64); err == nil && bare != text {
		return "write it without the percent sign: " + bare
	}
	if _, err := strconv.ParseFloat(bare, 64); err == nil && bare != text {
		return fraction(bare)
	}
	return "write a whole number"
}

// fraction returns how to write a mirror's percent that is not a whole number.
func fraction(percent string) string {
	whole, part, _ := strings.Cut(percent, ".")
	n, err := strconv.ParseInt(whole+part, 10, 32)
	denominator := 100 * math.Pow10(len(part))
	if err != nil || n < 0 || denominator > math.MaxInt32 {
		return "write a whole number"
	}
	return fmt.Sprintf("write fraction: {numerator: %d, denominator: %.0f} instead", n, denominator)
}

func plainEnum(f *Finding, err *field.Error) {
	var supported []string
	for _, m := range quoted.FindAllStringSubmatch(err.Detail, -1) {
		supported = append(supported, m[1])
	}
	if supported == nil {
		return
	}
	f.Message = fmt.Sprintf("%s is not one of %s", short(err.BadValue), strings.Join(supported, ", "))
	f.Fix = "write one of them"
	if near := nearest(strings.Trim(short(err.BadValue), `"`), supported); near != "" {
		f.Fix = `did you mean "` + near + `"?`
	}
}

var (
	mustMatch = regexp.MustCompile(` in body should match '(.*)'$`)
	mustLess  = regexp.MustCompile(` in body should be less than( or equal to)? (\S+)$`)
	mustMore  = regexp.MustCompile(` in body should be greater than( or equal to)? (\S+)$`)
	mustLong  = regexp.MustCompile(` in body should be at least (\d+) chars long$`)
	mustItems = regexp.MustCompile(` in body should have at least (\d+) items$`)
	mustForm  = regexp.MustCompile(`^Checked value must be of type (\w+) with format (\w+) in `)
)

// matching finds an expression in the message of a rule.
var matching = regexp.MustCompile(` \(matching (\^.*?\$)\)`)

// ruleFixes are what to do about rules of the API, by their messages.
var ruleFixes = []struct {
	message *regexp.Regexp
	fix     string
}{
	{regexp.MustCompile(`^filter\.(\w+) must be specified for \w+ filter\.type$`), "add $1, the settings of the filter"},
	{regexp.MustCompile(`^filter\.(\w+) must be nil if the filter\.type is not (\w+)$`), writeType + ": $2, or remove $1"},
	{regexp.MustCompile(`^(\w+) must be specified when (?:type|protocol) is set to '\w+'$`), "add $1"},
	{regexp.MustCompile(`^(type|protocol) must be '(\w+)' when (\w+) is set$`), "write $1: $2, or remove $3"},
	{regexp.MustCompile(`^Must have port for Service reference$`), "add port, one of the Service's ports"},
	{regexp.MustCompile(`^(\w+) filter cannot be repeated$`), "keep one filter $1"},
	{regexp.MustCompile(`^RequestRedirect filter must not be used together with backendRefs$`), "remove backendRefs, or the filter RequestRedirect"},
}

const writeType = "write type"

// ruleFix is what to do if two rules about one mapping do not hold. If its type is not the one of its settings, the right
// type can heal both.
func ruleFix(a, b string) string {
	general, _ := LookupCode(CodeRule)
	if a == lowerFirst(general.Fix) || strings.HasPrefix(b, writeType) {
		return b
	}
	return a
}

// inWords returns the meaning of an expression, or "".
func inWords(text string) string {
	if form, ok := forms[matching.FindStringSubmatch(text)[1]]; ok {
		return " (" + form + ")"
	}
	return ""
}

// quantity is the expression of quantities that are not below 0.
const quantity = `^\+?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?[0-9]+))?$`

// forms are the meanings of the expressions of the definitions, each with an example.
var forms = map[string]string{
	`^[a-zA-Z]([-a-zA-Z0-9]*[a-zA-Z0-9])?$`:                                                                           `a kind, such as Service: letters, digits and "-"`,
	`^$|^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`:                                            `an API group, such as gateway.networking.k8s.io: lower-case letters, digits, "-" and "."`,
	`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`:                                                                                 `a name such as shop-1: lower-case letters, digits and "-"`,
	`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`:                                               `a DNS name, such as shop.example: lower-case letters, digits, "-" and "."`,
	"^[A-Za-z0-9!#$%&'*+\\-.^_\\x60|~]+$":                                                                             "the name of a header field or a query parameter",
	`^[!-~]+([\t ]?[!-~]+)*$`:                                                                                         "the value of a header field: visible ASCII characters, with single spaces between them",
	`^(\*\.)?[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`:                                        "a host name, such as shop.example or *.example",
	`^[A-Za-z_][A-Za-z_0-9]*$`:                                                                                        "a name of letters, digits and underscores",
	`^(?i)\.?[a-z_][a-z_0-9]*(\.[a-z_][a-z_0-9]*)*$`:                                                                  "a name such as shop.Cart",
	`^([0-9]{1,5}(h|m|s|ms)){1,4}$`:                                                                                   "a duration, such as 500ms, 10s or 1h30m",
	`^(\*|[A-Z][A-Z0-9_-]*)$`:                                                                                         `a method in upper case, or "*"`,
	`^(?:[-A-Za-z0-9/._~!$&'()*+,;=:@]|[%][0-9a-fA-F]{2})+$`:                                                          "a path, in which other characters are escaped as %20",
	`(^\*$)|(^(http(s)?):\/\/(((\*\.)?([a-zA-Z0-9\-]+\.)*[a-zA-Z0-9-]+|\*)(:([0-9]{1,5}))?)$)`:                        `an origin, such as https://shop.example or https://*.example:8443, or "*"`,
	`^(([^:/?#]+):)(//([^/?#]*))([^?#]*)(\?([^#]*))?(#(.*))?`:                                                         "a URI, such as spiffe://example/service",
	`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\/[A-Za-z0-9\/\-._~%!$&'()*+,;=:]+$`:             "a domain and a path, such as example.com/name",
	`^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$`: "a key, such as example.com/name",
	quantity: "a quantity, such as 1, 500m or 1e3",
}

func plainInvalid(f *Finding, err *field.Error, written any) {
	value := short(err.BadValue)
	switch d := err.Detail; {
	case mustMatch.MatchString(d):
		form, ok := forms[mustMatch.FindStringSubmatch(d)[1]]
		if !ok {
			f.Message = value + " does not have the form that the field requires"
		} else {
			f.Message = fmt.Sprintf("%s is not %s", value, form)
			f.Fix = "write it in that form"
		}
		if v, text := err.BadValue.(string); text && negativeQuantity(d, v) {
			f.Message, f.Fix = value+" is below 0", "write at least 0"
		}
		if lowerMatches(err) {
			written, _ := err.BadValue.(string)
			f.Fix = "write it in lower case: " + strings.ToLower(written)
		} else if v, text := err.BadValue.(string); text && v == "*" && lastName(strings.TrimRight(f.Ref.Field, "[]0123456789")) == "hostnames" {
			f.Fix = "remove hostnames: the route then serves any host"
		}
	case mustLess.MatchString(d):
		m := mustLess.FindStringSubmatch(d)
		f.Message, f.Fix = fmt.Sprintf("%s is too large", value), "write "+atMost(m[1])+m[2]
	case mustMore.MatchString(d):
		m := mustMore.FindStringSubmatch(d)
		f.Message, f.Fix = fmt.Sprintf("%s is too small", value), "write "+atLeast(m[1])+m[2]
	case mustLong.MatchString(d):
		f.Message, f.Fix = "is empty or too short", "write at least "+mustLong.FindStringSubmatch(d)[1]+" characters"
		if err.BadValue == "" {
			f.Message = "is empty"
		}
	case mustItems.MatchString(d):
		f.Message, f.Fix = "has too few entries", "write at least "+mustItems.FindStringSubmatch(d)[1]
	case mustForm.MatchString(d):
		plainRange(f, written, mustForm.FindStringSubmatch(d)[2])
	case d != "":
		f.Message = fmt.Sprintf("%s is not valid: %s", value, Plain(d))
	}
}

// negativeQuantity reports whether a value that should be a quantity is one, but for its sign.
func negativeQuantity(detail, value string) bool {
	amount, negative := strings.CutPrefix(value, "-")
	return negative && mustMatch.FindStringSubmatch(detail)[1] == quantity && regexp.MustCompile(quantity).MatchString(amount)
}

// plainRange describes a number that does not fit the format of its field.
func plainRange(f *Finding, written any, format string) {
	least, most := int64(math.MinInt32), int64(math.MaxInt32)
	if format == "int64" {
		least, most = math.MinInt64, math.MaxInt64
	}
	if shareField.MatchString(f.Ref.Field) { // their limits are not in the schema any more
		switch lastName(f.Ref.Field) {
		case "percent":
			least, most = 0, 100
		case "numerator":
			least = 0
		case "denominator":
			least = 1
		}
	}
	value := short(written)
	if n, ok := written.(float64); ok {
		value = strconv.FormatFloat(n, 'f', -1, 64)
	}
	if strings.HasPrefix(value, "-") {
		f.Message, f.Fix = value+" is too small", fmt.Sprintf("write at least %d", least)
		return
	}
	f.Message, f.Fix = value+" is too large", fmt.Sprintf("write at most %d", most)
}

func atMost(orEqual string) string {
	if orEqual == "" {
		return "less than "
	}
	return "at most "
}

func atLeast(orEqual string) string {
	if orEqual == "" {
		return "more than "
	}
	return "at least "
}

// usedForValidation ends the messages of apimachinery.
var usedForValidation = regexp.MustCompile(`,? ?\((e\.g\.|regex).*$`)

// Plain is a message of Kubernetes' own validation without the expressions it ends with.
func Plain(detail string) string {
	return strings.NewReplacer("a lowercase RFC 1123 subdomain must", "a name must", "a lowercase RFC 1123 label must", "a name must",
		"lower case alphanumeric", "lower-case alphanumeric").Replace(usedForValidation.ReplaceAllString(detail, ""))
}

func plainMetadata(f *Finding, err *field.Error) {
	detail := Plain(err.Detail)
	if err.Type != field.ErrorTypeInvalid || detail == "" {
		return
	}
	f.Message = fmt.Sprintf("%s is not valid: %s", short(err.BadValue), detail)
	if name, ok := err.BadValue.(string); ok && err.Field == "metadata.name" {
		if better := strings.Trim(notInNames.ReplaceAllString(strings.ToLower(name), "-"), "-."); better != "" && better != name {
			f.Fix = "write, for instance, " + better
		}
	}
}

var notInNames = regexp.MustCompile(`[^a-z0-9.-]+`)

// short prints a value, cut where it is long.
func short(value any) string {
	text := fmt.Sprintf("%v", value)
	if reflect.ValueOf(value).Kind() == reflect.String {
		value = reflect.ValueOf(value).String() // it may have any string type
	}
	switch v := value.(type) {
	case string:
		text = strconv.Quote(v)
	case map[string]any:
		var parts []string
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, fmt.Sprintf("%s %v", k, v[k]))
		}
		text = strings.Join(parts, ", ")
	}
	if len(text) > 100 {
		return strings.ToValidUTF8(text[:100], "") + "..."
	}
	return text
}

// valueAt follows a field path as the API server writes it; nil where it leads nowhere.
func valueAt(u map[string]any, path string) any {
	var at any = u
	for path != "" {
		path = strings.TrimPrefix(path, ".")
		switch v := at.(type) {
		case []any:
			index, rest, ok := cutIndex(path)
			i, err := strconv.Atoi(index)
			if !ok || err != nil || i < 0 || i >= len(v) {
				return nil
			}
			at, path = v[i], rest
		case map[string]any:
			longest := -1
			var next any
			rest := ""
			for k, value := range v {
				if len(k) > longest && strings.HasPrefix(path, k) && (len(path) == len(k) || path[len(k)] == '.' || path[len(k)] == '[') {
					longest, next, rest = len(k), value, path[len(k):]
				}
			}
			if longest < 0 {
				return nil
			}
			at, path = next, rest
		default:
			return nil
		}
	}
	return at
}
