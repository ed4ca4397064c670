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
	if e.Explanation == nil || e.Winner == nil || len(e.Backends) == 0 {
		return
	}
	rule := e.Decision.Rule.Rule
	seen := map[string]bool{}
	for _, m := range rule.Filters.Mirrors {
		seen[m.Ref.Field] = true
	}
	for _, b := range rule.Backends {
		for _, m := range b.Filters.Mirrors {
			seen[m.Ref.Field] = true
		}
	}
	for _, f := range findings {
		r := f.Ref
		at := strings.Index(r.Field, mirrorField)
		if r.Kind != rule.Ref.Kind || r.Namespace != rule.Ref.Namespace || r.Name != rule.Ref.Name || at < 0 || !strings.HasPrefix(r.Field, rule.Ref.Field+".") {
			continue
		}
		r.Field = r.Field[:at]
		if seen[r.Field] {
			continue // it works, or is listed already
		}
		seen[r.Field] = true
		e.MirrorsOff = append(e.MirrorsOff, OffMirror{Filter: r, Code: f.Code, Reason: f.Message, Fix: f.Fix})
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
