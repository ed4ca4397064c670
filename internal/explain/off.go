package explain

import (
	"strings"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// OffMirror is a mirror filter of the winning rule, or of one of its backends, that copies nothing because it is wrong.
type OffMirror struct {
	Filter model.Ref `json:"filter"`
	Code   string    `json:"code"`
	Reason string    `json:"reason"`
	Fix    string    `json:"fix,omitempty"`
}

const mirrorField = ".requestMirror"

// mirrorsOff fills in the mirrors of the winning rule that the configuration lacks; findings are why.
func (e *Explanation) mirrorsOff(findings []resource.Finding) {
	if e.Explanation == nil || e.Winner == nil {
		return
	}
	if redirected := e.Answer != nil && e.Answer.Location != ""; len(e.Backends) == 0 && !redirected {
		return
	}
	rule := e.Decision.Rule.Rule
	works := map[string]bool{}
	for _, m := range rule.Filters.Mirrors {
		works[m.Ref.Field] = true
	}
	for _, b := range rule.Backends {
		for _, m := range b.Filters.Mirrors {
			works[m.Ref.Field] = true
		}
	}
	whys := map[string][]resource.Finding{}
	var fields []string
	for _, f := range findings {
		r := f.Ref
		at := strings.Index(r.Field, mirrorField)
		if r.Kind != rule.Ref.Kind || r.Namespace != rule.Ref.Namespace || r.Name != rule.Ref.Name || at < 0 || !strings.HasPrefix(r.Field, rule.Ref.Field+".") {
			continue
		}
		field := r.Field[:at]
		if works[field] {
			continue
		}
		if whys[field] == nil {
			fields = append(fields, field)
		}
		whys[field] = append(whys[field], f)
	}
	for _, field := range fields {
		f := gravest(whys[field])[0] // a warning beside an error does not turn the mirror off
		f.Ref.Field = field
		e.MirrorsOff = append(e.MirrorsOff, OffMirror{Filter: f.Ref, Code: f.Code, Reason: f.Message, Fix: f.Fix})
	}
}

// offLines describes the mirrors that are off.
func (p *printer) offLines(off []OffMirror) (lines []string) {
	for _, o := range off {
		line := o.Code + "  " + o.Reason
		lines = append(lines, "off     "+o.Filter.Field+p.where(o.Filter), "        "+line)
		if o.Fix != "" {
			lines = append(lines, "        fix: "+o.Fix)
		}
	}
	return lines
}
