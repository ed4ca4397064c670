package gateway

import (
	"errors"
	"fmt"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// valueProblem is a problem of a value that package model refuses.
func valueProblem(field, value string, err error) resource.Finding {
	p := resource.Problem(codeNotSendable, "UnsupportedValue", field, err.Error(), "")
	var pattern *model.PatternError
	var bad *model.ValueError
	switch {
	case errors.As(err, &pattern):
		if p.Code, p.Fix = codeRegex, pattern.Fix; pattern.TooLarge {
			p.Code = codePatternLarge
		}
	case errors.As(err, &bad):
		p.Fix = bad.Fix
		if value != "" {
			p.Message = fmt.Sprintf("%.128q: %s", value, bad.Reason)
		}
	}
	return p
}

// report adds a finding about an object.
func (t *translator) report(ref model.Ref, p resource.Finding) {
	t.findings = append(t.findings, t.set.About(ref, p, severities))
}
