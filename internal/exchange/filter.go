package exchange

import (
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
)

// filters are the prepared filters of a rule or of a backend; nil parts are absent.
type filters struct {
	request  *headerEdit
	response *headerEdit
	redirect *model.Redirect
	rewrite  *model.Rewrite
	cors     *cors
}

func compileFilters(f *model.Filters) filters {
	return filters{
		request:  compileRequestEdit(f.RequestHeaders),
		response: compileEdit(f.ResponseHeaders),
		redirect: compileRedirect(f.Redirect),
		rewrite:  compileRewrite(f.Rewrite),
		cors:     compileCORS(f.CORS),
	}
}

func compileRedirect(r *model.Redirect) *model.Redirect {
	if r == nil || sendable(r.Path) == r.Path {
		return r
	}
	c := *r
	c.Path = sendable(r.Path)
	return &c
}

func compileRewrite(r *model.Rewrite) *model.Rewrite {
	if r == nil || sendable(r.Path) == r.Path {
		return r
	}
	return &model.Rewrite{Hostname: r.Hostname, Path: sendable(r.Path)}
}

// headerEdit is a header modifier: it removes fields by name, then adds others.
type headerEdit struct {
	drop []string // fields removed and fields set
	add  []http1.Field
	// request marks an edit of a request. It also drops irregular fields that a backend may confuse with the fields of
	// drop, and keeps hops.
	request bool
	// likened are the irregular fields in drop that the edit sets. A backend may confuse a regular field with one of
	// them, too.
	likened []string
	// host is the value set for Host, which is not an ordinary field.
	host string
}

// framing fields belong to the proxy: a filter that changed them would break the framing of messages.
var framing = []http1.FieldID{
	http1.FieldConnection, http1.FieldContentLength, http1.FieldHost, http1.FieldHTTP2Settings, http1.FieldKeepAlive,
	http1.FieldProxyConnection, http1.FieldTE, http1.FieldTrailer, http1.FieldTransferEncoding, http1.FieldUpgrade,
}

// compileRequestEdit is compileEdit for requests. Filters cannot change the fields that count the request's hops,
// because the proxy detects loops with them.
func compileRequestEdit(e *model.HeaderEdit) *headerEdit {
	c := compileEdit(e)
	if c == nil {
		return nil
	}
	c.request = true
	hop := func(name string) bool {
		id := http1.Identify(name)
		return id == http1.FieldVia || id == http1.FieldWeirVia
	}
	c.drop = slices.DeleteFunc(c.drop, hop)
	c.add = slices.DeleteFunc(c.add, func(f http1.Field) bool { return hop(f.Name) })
	for _, h := range e.Set {
		if http1.Identify(h.Name) == http1.FieldIrregular {
			c.likened = append(c.likened, h.Name)
		}
	}
	return c
}

// compileEdit prepares a modifier (Gateway API, HTTPHeaderFilter): remove, then set, then add. It leaves out fields
// that cannot be sent.
func compileEdit(e *model.HeaderEdit) *headerEdit {
	if e == nil {
		return nil
	}
	c := &headerEdit{}
	own := func(name string) bool {
		return !http1.ValidFieldName(name) || slices.Contains(framing, http1.Identify(name))
	}
	field := func(h model.HeaderValue) {
		if v := strings.Trim(h.Value, " \t"); !own(h.Name) && http1.ValidFieldValue(v) {
			id := http1.Identify(h.Name)
			if id == http1.FieldIrregular {
				id = http1.FieldOther // it is meant
			}
			c.add = append(c.add, http1.Field{Name: h.Name, Value: v, ID: id})
		}
	}
	for _, name := range e.Remove {
		if !own(name) {
			c.drop = append(c.drop, name)
		}
	}
	for _, h := range e.Set {
		if http1.Identify(h.Name) == http1.FieldHost && http1.ValidAuthority(h.Value) {
			c.host = h.Value
		}
		if !own(h.Name) {
			c.drop = append(c.drop, h.Name)
		}
		field(h)
	}
	for _, h := range e.Add {
		field(h)
	}
	return c
}

// apply edits fields in place; a nil edit does nothing.
func (e *headerEdit) apply(fields []http1.Field) []http1.Field {
	if e == nil {
		return fields
	}
	if len(e.drop) > 0 {
		n := 0
		for i := range fields {
			if !e.drops(&fields[i]) {
				fields[n] = fields[i]
				n++
			}
		}
		fields = fields[:n]
	}
	return append(fields, e.add...)
}

func (e *headerEdit) drops(f *http1.Field) bool {
	for _, d := range e.drop {
		if len(d) == len(f.Name) && (http1.EqualFold(d, f.Name) || f.ID == http1.FieldIrregular && e.request && http1.SameVariable(d, f.Name)) {
			return true
		}
	}
	for _, d := range e.likened {
		if http1.SameVariable(d, f.Name) {
			return true
		}
	}
	return false
}

// touches reports whether the edit changes fields of f's name. A trailer of that name would bypass the edit. A nil edit
// touches no field.
func (e *headerEdit) touches(f *http1.Field) bool {
	if e == nil {
		return false
	}
	if e.drops(f) {
		return true
	}
	for i := range e.add {
		if name := e.add[i].Name; len(name) == len(f.Name) && (http1.EqualFold(name, f.Name) || e.request && http1.SameVariable(name, f.Name)) {
			return true
		}
	}
	return false
}
