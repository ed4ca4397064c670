package resource

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// The released API rejects a whole route if the share of a RequestMirror filter is out of range, while GEP-3171 says
// how to read such a filter. So these few constraints are removed from the schemas. checkMirrors reports their
// violations, and the rest of the object stays valid.

// tolerateMirrors takes the constraints on percent and fraction out of every requestMirror schema, and puts the GEP's
// default for a missing numerator in.
func tolerateMirrors(s *apiextensions.JSONSchemaProps) {
	if s == nil {
		return
	}
	for name, p := range s.Properties {
		if name == "requestMirror" {
			tolerateMirror(&p)
		} else {
			tolerateMirrors(&p)
		}
		s.Properties[name] = p
	}
	if s.Items != nil {
		tolerateMirrors(s.Items.Schema)
	}
	if s.AdditionalProperties != nil {
		tolerateMirrors(s.AdditionalProperties.Schema)
	}
}

func tolerateMirror(s *apiextensions.JSONSchemaProps) {
	withoutRule(s, "!(has(self.percent) && has(self.fraction))")
	if percent, ok := s.Properties["percent"]; ok {
		percent.Minimum, percent.Maximum = nil, nil
		s.Properties["percent"] = percent
	}
	fraction, ok := s.Properties["fraction"]
	if !ok {
		return
	}
	withoutRule(&fraction, "self.numerator <= self.denominator")
	fraction.Required = slices.DeleteFunc(fraction.Required, func(name string) bool { return name == "numerator" })
	numerator, denominator := fraction.Properties["numerator"], fraction.Properties["denominator"]
	hundred := apiextensions.JSON(int64(100))
	numerator.Minimum, numerator.Default = nil, &hundred
	denominator.Minimum, denominator.Default = nil, &hundred
	fraction.Properties["numerator"], fraction.Properties["denominator"] = numerator, denominator
	s.Properties["fraction"] = fraction
}

func withoutRule(s *apiextensions.JSONSchemaProps, rule string) {
	s.XValidations = slices.DeleteFunc(s.XValidations, func(r apiextensions.ValidationRule) bool { return r.Rule == rule })
}

// checkMirrors reports the shares of all RequestMirror filters of a route, before defaults are filled in. It ignores
// values of a wrong type, which the schema reports.
func checkMirrors(u map[string]any) []Finding {
	var findings []Finding
	spec, _ := u["spec"].(map[string]any)
	each(spec["rules"], "spec.rules", func(rule map[string]any, at string) {
		filter := func(f map[string]any, at string) {
			if mirror, ok := f["requestMirror"].(map[string]any); ok {
				findings = append(findings, checkMirror(mirror, at+".requestMirror")...)
			}
		}
		each(rule["filters"], at+".filters", filter)
		each(rule["backendRefs"], at+".backendRefs", func(ref map[string]any, at string) {
			each(ref["filters"], at+".filters", filter)
		})
	})
	return findings
}

func each(list any, at string, visit func(m map[string]any, at string)) {
	items, _ := list.([]any)
	for i, item := range items {
		if m, ok := item.(map[string]any); ok {
			visit(m, at+"["+strconv.Itoa(i)+"]")
		}
	}
}

func checkMirror(mirror map[string]any, at string) []Finding {
	var findings []Finding
	percent, hasPercent := mirror["percent"].(int64)
	fraction, hasFraction := mirror["fraction"].(map[string]any)
	if hasPercent && hasFraction {
		findings = append(findings, finding(CodeMirrorBoth, at,
			"percent and fraction are both set: the fraction counts here, but the released API rejects both together: "+
				`"Only one of percent or fraction may be specified in HTTPRequestMirrorFilter"`))
	}
	var bad *ShareError
	switch {
	case hasFraction:
		numerator, ok := share(fraction, "numerator")
		denominator, also := share(fraction, "denominator")
		if !ok || !also {
			return findings
		}
		if fraction["numerator"] == nil {
			findings = append(findings, finding(CodeMirrorReleased, at+".fraction",
				"the fraction has no numerator: it is 100 here, but the released API requires it"))
		}
		bad = judgeFraction(numerator, denominator)
	case hasPercent:
		bad = judgePercent(percent)
	}
	if bad != nil {
		findings = append(findings, finding(bad.code, at+bad.Field, bad.Message+inert))
	}
	return findings
}

// inert is what happens to a mirror whose share is out of range.
const inert = ": nothing is mirrored here, the rule is served"

// shareField finds fields of the share of a mirror.
var shareField = regexp.MustCompile(`\.requestMirror\.(percent|fraction)\b`)

// withRoute says what findings about the shares of mirrors mean in a route that is left out.
func withRoute(findings []Finding) []Finding {
	for i := range findings {
		f := &findings[i]
		message, tolerated := strings.CutSuffix(f.Message, inert)
		switch {
		case tolerated:
			f.Message = message + ": nothing would be mirrored"
		case f.Severity == Error && shareField.MatchString(f.Ref.Field):
			f.Message += ": the object is left out"
		}
	}
	return findings
}

// share reads a part of a fraction; a missing one is 100 (GEP-3171). ok is false if the type is wrong.
func share(fraction map[string]any, name string) (int64, bool) {
	v, written := fraction[name]
	if !written || v == nil {
		return 100, true
	}
	n, ok := v.(int64)
	return n, ok
}

// ShareError is why a RequestMirror filter mirrors nothing: its share is out of range.
type ShareError struct {
	// Field is inside of the filter's requestMirror, such as ".percent".
	Field        string
	Message, Fix string
	code         string
}

// MirrorShare returns which part of the requests a RequestMirror filter copies (GEP-3171), as it was written, not reduced: the fraction if there is one,
// also beside a percentage; the percentage; else all. One that is out of range is a finding of the Set.
func MirrorShare(f *gatewayv1.HTTPRequestMirrorFilter) (numerator, denominator uint32, bad *ShareError) {
	switch {
	case f.Fraction != nil:
		n, d := int64(f.Fraction.Numerator), int64(100)
		if f.Fraction.Denominator != nil {
			d = int64(*f.Fraction.Denominator)
		}
		if bad = judgeFraction(n, d); bad != nil {
			return 0, 0, bad
		}
		return uint32(n), uint32(d), nil
	case f.Percent != nil:
		if bad = judgePercent(int64(*f.Percent)); bad != nil {
			return 0, 0, bad
		}
		return uint32(*f.Percent), 100, nil
	}
	return 1, 1, nil
}

func shareError(code, field, message string, values ...any) *ShareError {
	f := finding(code, field, fmt.Sprintf(message, values...))
	return &ShareError{Field: field, Message: f.Message, Fix: f.Fix, code: code}
}

func judgePercent(percent int64) *ShareError {
	if percent < 0 || percent > 100 {
		return shareError(CodeMirrorPercent, ".percent", "percent %d is not 0 to 100", percent)
	}
	return nil
}

func judgeFraction(numerator, denominator int64) *ShareError {
	switch {
	case denominator < 1:
		return shareError(CodeMirrorDenominator, ".fraction.denominator", "denominator %d is below 1", denominator)
	case numerator < 0:
		return shareError(CodeMirrorNumerator, ".fraction.numerator", "numerator %d is negative", numerator)
	case numerator > denominator:
		return shareError(CodeMirrorNumerator, ".fraction.numerator", "numerator %d is above denominator %d", numerator, denominator)
	}
	return nil
}
