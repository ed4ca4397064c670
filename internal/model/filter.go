package model

import (
	"fmt"
	"slices"
	"strings"
)

// Check validates filters, except for their mirrors: everything in them must be valid in a message as it is written.
// field is the invalid part, beginning with a dot. An error is a *ValueError.
func (f *Filters) Check() (field string, err error) {
	if f.Redirect == nil && f.Rewrite == nil && f.RequestHeaders == nil && f.ResponseHeaders == nil && f.CORS == nil {
		return "", nil // most rules have no filters
	}
	if f.Redirect != nil && f.Rewrite != nil {
		return "", &ValueError{"has both a redirect and a rewrite", "keep one of them"}
	}
	if field, err := f.RequestHeaders.Check(); err != nil {
		return ".requestHeaders" + field, err
	}
	if field, err := f.ResponseHeaders.Check(); err != nil {
		return ".responseHeaders" + field, err
	}
	if field, err := f.Redirect.check(); err != nil {
		return ".redirect" + field, err
	}
	if r := f.Rewrite; r != nil {
		if r.Hostname != "" {
			if err := CheckHostname(r.Hostname, true); err != nil {
				return ".rewrite.hostname", err
			}
		}
		if err := r.Path.Check(); err != nil {
			return ".rewrite.path.value", err
		}
	}
	if field, err := f.CORS.check(); err != nil {
		return ".cors" + field, err
	}
	return "", nil
}

// Check validates a modifier; field is the invalid part, beginning with a dot. It works on nil. An error is a
// *ValueError.
func (e *HeaderEdit) Check() (field string, err error) {
	if e == nil {
		return "", nil
	}
	for _, list := range []struct {
		name   string
		values []HeaderValue
	}{{".set", e.Set}, {".add", e.Add}} {
		for i, h := range list.values {
			if err := CheckFieldName(h.Name); err != nil {
				return FieldAt(list.name, i) + ".name", err
			}
			err := CheckFieldValue(h.Value)
			if err == nil && list.name == ".set" && strings.EqualFold(h.Name, "Host") {
				err = CheckHostname(h.Value, true)
			}
			if err != nil {
				return FieldAt(list.name, i) + ".value", err
			}
		}
	}
	for i, name := range e.Remove {
		if err := CheckFieldName(name); err != nil {
			return FieldAt(".remove", i), err
		}
	}
	return "", nil
}

// Check validates the replacement of a path; see TargetPath. It works on nil. An error is a *ValueError.
func (p *PathPatch) Check() error {
	if p == nil {
		return nil
	}
	_, err := TargetPath(p.Value)
	return err
}

func (r *Redirect) check() (field string, err error) {
	if r == nil {
		return "", nil
	}
	if r.Status < 300 || r.Status > 399 {
		return ".status", &ValueError{fmt.Sprintf("%d is not a redirection", r.Status), "use 301, 302, 303, 307 or 308"}
	}
	if !slices.Contains([]string{"", "http", "https"}, r.Scheme) {
		return ".scheme", &ValueError{fmt.Sprintf("scheme %q is not supported", brief(r.Scheme)), "use http or https"}
	}
	if r.Hostname != "" {
		if err := CheckHostname(r.Hostname, false); err != nil {
			return ".hostname", err
		}
	}
	if r.Port < 0 || r.Port > 65535 {
		return ".port", &ValueError{fmt.Sprintf("%d is not a port", r.Port), "use 1 to 65535"}
	}
	if err := r.Path.Check(); err != nil {
		return ".path.value", err
	}
	return "", nil
}

func (c *CORS) check() (field string, err error) {
	if c == nil {
		return "", nil
	}
	for _, list := range []struct {
		name   string
		values []string
	}{{".allowMethods", c.AllowMethods}, {".allowHeaders", c.AllowHeaders}, {".exposeHeaders", c.ExposeHeaders}} {
		for i, name := range list.values {
			if err := CheckFieldName(name); err != nil { // methods are tokens, as names are
				return FieldAt(list.name, i), err
			}
		}
	}
	if c.MaxAge < 0 {
		return ".maxAge", &ValueError{fmt.Sprintf("%d is negative", c.MaxAge), "use a number of seconds"}
	}
	return "", nil
}

// Check validates the share of a mirror. An error is a *ValueError.
func (m *Mirror) Check() error {
	if m.Denominator == 0 || m.Numerator > m.Denominator {
		return &ValueError{fmt.Sprintf("%d/%d is not a fraction between 0 and 1", m.Numerator, m.Denominator), "use a numerator up to the denominator, which is at least 1"}
	}
	return nil
}

// ownFields are header fields that the proxy writes by itself, since the framing of messages and the connections depend on them: a modifier does
// not change them.
var ownFields = []string{
	"Connection", "Content-Length", "Host", "HTTP2-Settings", "Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Transfer-Encoding", "Upgrade",
}

// ownRequestFields are further fields of the proxy in requests. It finds loops by them.
var ownRequestFields = []string{"Via", "Weir-Via"}

// Ignored returns the parts of a modifier that have no effect because the field belongs to the proxy. Each is named by
// its field, such as "set[0].name". request is true for a modifier of requests, where Host can be set. It works on nil.
func (e *HeaderEdit) Ignored(request bool) (fields []IgnoredField) {
	if e == nil {
		return nil
	}
	isProxyField := func(name string) bool {
		is := func(x string) bool { return strings.EqualFold(x, name) }
		return slices.ContainsFunc(ownFields, is) || request && slices.ContainsFunc(ownRequestFields, is)
	}
	for i, h := range e.Set {
		if isProxyField(h.Name) && !(request && strings.EqualFold(h.Name, "Host")) {
			fields = append(fields, IgnoredField{FieldAt("set", i) + ".name", h.Name})
		}
	}
	for i, h := range e.Add {
		if isProxyField(h.Name) {
			fields = append(fields, IgnoredField{FieldAt("add", i) + ".name", h.Name})
		}
	}
	for i, name := range e.Remove {
		if isProxyField(name) {
			fields = append(fields, IgnoredField{FieldAt("remove", i), name})
		}
	}
	return fields
}

// IgnoredField is a part of a modifier that has no effect.
type IgnoredField struct{ Field, Name string }
