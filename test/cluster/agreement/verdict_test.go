package agreement

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/resource"
)

// verdict is what one side says of a document.
type verdict struct {
	accepted bool
	// errors are "field: message", sorted.
	errors []string
	// unknown are the fields that the API does not have, sorted.
	unknown []string
	// cut says that there are more unknown fields than the API server names.
	cut bool
	// duplicates says that a field is written twice.
	duplicates bool
	// unchecked says that rules were not run because of other errors.
	unchecked bool
	// unlocated says that the object could not be decoded or its version is not served, for which the API server names no
	// field.
	unlocated bool
	// bounded says that Weir tells of the first findings alone.
	bounded bool
	// told is everything, for the report.
	told string
}

// uncheckedMessage is the API server's; its field is "<nil>".
const uncheckedMessage = "some validation rules were not checked because the object was invalid"

// online asks the API server to create the document without keeping it, once to learn of each error and warning, and
// once strictly.
func online(t *testing.T, ctx context.Context, d document, to target) (warned verdict, strictlyAccepted bool) {
	t.Helper()
	ask := func(strictness string) answer {
		a, err := send(ctx, http.MethodPost, to.path+"?dryRun=All&fieldManager=agreement&fieldValidation="+strictness, d.text)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	a := ask("Warn")
	v := verdict{accepted: taken(a.code), told: strconv.Itoa(a.code)}
	switch a.code {
	case http.StatusBadRequest, http.StatusNotFound:
		v.unlocated = true
		v.told += " " + string(a.body)
	case http.StatusUnprocessableEntity:
		var status metav1.Status
		if err := json.Unmarshal(a.body, &status); err != nil {
			t.Fatalf("%d %s: %v", a.code, a.body, err)
		}
		v.told += " " + status.Message
		for _, cause := range status.Details.Causes {
			v.add(cause, to)
		}
		// An object is not to blame for where it is served.
		v.accepted = len(v.errors) == 0 && !v.unchecked
	default:
		if a.code == http.StatusInternalServerError && bytes.Contains(a.body, []byte("conversion webhook for")) {
			v.unlocated = true // it cannot be stored: the field is in the text alone
			v.told += " " + string(a.body)
		} else if !v.accepted {
			t.Fatalf("%d %s", a.code, a.body)
		}
	}
	for _, w := range a.warnings {
		v.told += "\n  warning: " + w
		if m := unknownField.FindStringSubmatch(w); m != nil {
			v.unknown = append(v.unknown, m[1])
		}
		v.duplicates = v.duplicates || duplicateField.MatchString(w)
	}
	v.cut = utf8.RuneCountInString(strings.Join(a.warnings, "")) > maxWarnings
	slices.Sort(v.errors)
	slices.Sort(v.unknown)
	if strict := ask("Strict"); v.accepted && strict.code == http.StatusUnprocessableEntity {
		strictlyAccepted = true // it is invalid for what add leaves out, and only looked at when there is no unknown field
	} else {
		strictlyAccepted = taken(strict.code)
	}
	return v, strictlyAccepted
}

// maxWarnings is a little less than what the API server says at most in all warnings together (k8s.io/apiserver
// pkg/endpoints/filters/warning.go).
const maxWarnings = 4<<10 - 256

// taken says whether the object is valid. One that exists was found to be before its name was looked up.
func taken(code int) bool { return code == http.StatusCreated || code == http.StatusConflict }

func (v *verdict) add(cause metav1.StatusCause, to target) {
	switch {
	case strings.Contains(cause.Message, uncheckedMessage):
		v.unchecked = true
	case to.core && loopback.MatchString(cause.Message):
		// Endpoints on loopback make sense where Weir runs without a cluster.
	default:
		v.errors = append(v.errors, cause.Field+": "+cause.Message)
	}
}

var (
	slicePort       = regexp.MustCompile(`^ports\[\d+\]\.port$`)
	headerCondition = regexp.MustCompile(`^spec\.matches\[\d+\]\.headers\[`)
	familyPath      = regexp.MustCompile(`\.addresses\[\d+\]$`)
	loopback        = regexp.MustCompile(`may not be in the loopback range`)
	unknownField    = regexp.MustCompile(`^unknown field "(.*)"$`)
	duplicateField  = regexp.MustCompile(`already set in map|^duplicate field `)
	warningValue    = regexp.MustCompile(`^299 \S+ "(.*)"$`)
	escaped         = regexp.MustCompile(`\\(.)`)
)

// warnings are the texts of the Warning fields (RFC 9111 §5.5).
func warnings(header http.Header) []string {
	var all []string
	for _, value := range header.Values("Warning") {
		if m := warningValue.FindStringSubmatch(value); m != nil {
			value = escaped.ReplaceAllString(m[1], "$1")
		}
		all = append(all, value)
	}
	return all
}

// stricter says whether Weir rejects what the API server lets pass at a field: port numbers of EndpointSlices, to which
// nothing can connect, and conditions on headers, of which SMI's definition says only that they are there.
func stricter(kind, field string) bool {
	return kind == endpointSlice && slicePort.MatchString(field) ||
		kind == httpRouteGroup && headerCondition.MatchString(field)
}

// offline is what Weir says. The findings about mirrors, where it says more than the API server on purpose, come apart.
func offline(t *testing.T, d document, to target) (v verdict, mirrors []resource.Finding) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "in.yaml")
	if err := os.WriteFile(file, []byte(d.text), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := resource.Load(dialect.Kinds(), []string{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	v.accepted = len(set.Origins) > 0
	own := false
	for _, f := range set.Findings {
		v.told += "\n  " + strings.TrimPrefix(f.String(), file)
		if message, more := strings.CutSuffix(f.Message, " (there are more findings, of this kind and others; correct these first)"); more {
			f.Message, v.bounded = message, true
		}
		switch f.Code {
		case resource.CodeUnknownField, resource.CodeMisspeltField, resource.CodeOtherVersion:
			own = own || f.Severity == resource.Error // an API server takes it unless it is asked for strictness, Weir may not
			v.unknown = append(v.unknown, f.Ref.Field)
			if f.Server != "" { // what follows from it is not told twice
				v.errors = append(v.errors, strings.Split(f.Server, "\n")...)
			}
		case resource.CodeUnservedVersion:
			// The corpus is judged by versions that are served.
		case resource.CodeDuplicateField:
			v.duplicates = true
		case resource.CodeUnchecked:
			v.unchecked = true
		case resource.CodeMirrorPercent, resource.CodeMirrorDenominator, resource.CodeMirrorNumerator, resource.CodeMirrorBoth, resource.CodeMirrorReleased:
			mirrors = append(mirrors, f)
		case resource.CodeSliceOrphan, resource.CodeEndpointsOld, resource.CodeCertificate:
			// Not about validity, or not about what an API server looks at.
		default:
			if stricter(to.kind, f.Ref.Field) {
				own = true
				continue
			}
			v.errors = append(v.errors, strings.Split(cmp.Or(f.Server, f.Ref.Field+": "+f.Message), "\n")...)
		}
	}
	v.accepted = v.accepted || own && len(v.errors) == 0
	slices.Sort(v.errors)
	slices.Sort(v.unknown)
	return v, mirrors
}

// formatPath is in the message of a format error, whose path the API server leaves out and Weir puts back.
var formatPath = regexp.MustCompile(`^<nil>: (.*Checked value must be .* in (\S+))$`)

// located moves the paths of format errors to where Weir has them.
func located(errors []string) []string {
	var all []string
	for _, e := range errors {
		if m := formatPath.FindStringSubmatch(e); m != nil {
			e = m[2] + ": " + m[1]
		}
		all = append(all, e)
	}
	slices.Sort(all)
	return all
}

// owner is what an API server before 1.37 says of a field that an owner reference lacks: not which reference it is, and not
// that the field is required, so that it runs the rules all the same. Weir has the words of 1.37.
var owner = struct{ before, since *regexp.Regexp }{
	before: regexp.MustCompile(`^metadata\.ownerReferences\.\w+: Invalid value: "": must not be empty$`),
	since:  regexp.MustCompile(`^metadata\.ownerReferences\[\d+\](\.\w+: )Required value: must not be empty$`),
}

// asBefore returns ours as a server of theirs' age would have it.
func asBefore(theirs, ours verdict) verdict {
	if !slices.ContainsFunc(theirs.errors, owner.before.MatchString) {
		return ours
	}
	for i, e := range ours.errors {
		ours.errors[i] = owner.since.ReplaceAllString(e, `metadata.ownerReferences${1}Invalid value: "": must not be empty`)
	}
	slices.Sort(ours.errors)
	ours.unchecked = theirs.unchecked
	return ours
}

// fields are the paths of errors, each once.
func fields(errors []string) []string {
	var all []string
	for _, e := range errors {
		field, _, _ := strings.Cut(e, ": ")
		all = append(all, field)
	}
	slices.Sort(all)
	return slices.Compact(all)
}
