package gateway

import (
	"fmt"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// filterSet is the filters of a rule or a backend, translated.
type filterSet struct {
	model.Filters
	// problems make the rule invalid.
	problems []resource.Finding
	// closed is a filter that cannot be applied and must not be passed by: what it stands on answers an error.
	closed *resource.Finding
}

// filters translates the filters of a rule or a backendRef; field is the path of their parent.
func (t *translator) filters(r *route, field string, written []gatewayv1.HTTPRouteFilter) filterSet {
	var out filterSet
	seen := map[gatewayv1.HTTPRouteFilterType]bool{}
	for i := range written {
		f := &written[i]
		at := model.FieldAt(field+".filters", i)
		fail := func(code, reason, field, message, fix string) {
			out.problems = append(out.problems, resource.Problem(code, reason, at+field, message, fix))
		}
		repeatable := f.Type == gatewayv1.HTTPRouteFilterRequestMirror || f.Type == gatewayv1.HTTPRouteFilterExtensionRef
		if seen[f.Type] && !repeatable {
			fail(codeFilterClash, "IncompatibleFilters", ".type", fmt.Sprintf("filter %s occurs twice", f.Type), "keep one of them")
			continue
		}
		seen[f.Type] = true
		// judge reports values that could not be sent.
		judge := func(written model.Filters) {
			if field, err := written.Check(); err != nil {
				text := ""
				if patch := pathPatchOf(written); patch != nil && strings.HasSuffix(field, ".path.value") {
					text = patch.Value
				}
				p := valueProblem(filterField(field, written), text, err)
				fail(p.Code, p.Reason, p.Ref.Field, p.Message, p.Fix)
			}
		}
		switch {
		case f.Type == gatewayv1.HTTPRouteFilterRequestHeaderModifier && f.RequestHeaderModifier != nil:
			out.RequestHeaders = headerEdit(f.RequestHeaderModifier)
			judge(model.Filters{RequestHeaders: out.RequestHeaders})
			t.ignoredHeaders(r, at+".requestHeaderModifier", out.RequestHeaders, true)
		case f.Type == gatewayv1.HTTPRouteFilterResponseHeaderModifier && f.ResponseHeaderModifier != nil:
			out.ResponseHeaders = headerEdit(f.ResponseHeaderModifier)
			judge(model.Filters{ResponseHeaders: out.ResponseHeaders})
			t.ignoredHeaders(r, at+".responseHeaderModifier", out.ResponseHeaders, false)
		case f.Type == gatewayv1.HTTPRouteFilterRequestRedirect && f.RequestRedirect != nil:
			redirect, p := redirect(f.RequestRedirect)
			if out.Redirect = redirect; p != nil {
				fail(p.Code, p.Reason, ".requestRedirect"+p.Ref.Field, p.Message, p.Fix)
			} else {
				judge(model.Filters{Redirect: redirect})
			}
		case f.Type == gatewayv1.HTTPRouteFilterURLRewrite && f.URLRewrite != nil:
			path, p := pathPatch(f.URLRewrite.Path)
			out.Rewrite = &model.Rewrite{Hostname: string(value(f.URLRewrite.Hostname, "")), Path: path}
			if p != nil {
				fail(p.Code, p.Reason, ".urlRewrite"+p.Ref.Field, p.Message, p.Fix)
			} else {
				judge(model.Filters{Rewrite: out.Rewrite})
			}
		case f.Type == gatewayv1.HTTPRouteFilterCORS && f.CORS != nil:
			out.CORS = cors(f.CORS)
			judge(model.Filters{CORS: out.CORS})
		case f.Type == gatewayv1.HTTPRouteFilterRequestMirror && f.RequestMirror != nil:
			if m := t.mirror(r, at, f.RequestMirror); m != nil {
				out.Mirrors = append(out.Mirrors, *m)
			}
		case f.Type == gatewayv1.HTTPRouteFilterExtensionRef && f.ExtensionRef != nil:
			ref := f.ExtensionRef
			out.close(resource.Problem(codeFilterUnsupported, "InvalidKind", at+".extensionRef",
				fmt.Sprintf("unknown filter %s %s", kindName(string(ref.Group), string(ref.Kind)), ref.Name), "remove the filter"))
		default:
			out.close(resource.Problem(codeFilterUnsupported, "UnsupportedValue", at+".type",
				fmt.Sprintf("filter %s is not supported or has no settings", f.Type), "remove the filter"))
		}
	}
	if out.Redirect != nil && out.Rewrite != nil {
		out.problems = append(out.problems, resource.Problem(codeFilterClash, "IncompatibleFilters", field+".filters",
			"RequestRedirect and URLRewrite exclude each other", "keep one of them"))
	}
	if out.Redirect != nil {
		for _, m := range out.Mirrors {
			t.report(r.ref, resource.Problem(codeMirrorRedirect, "", m.Ref.Field+".requestMirror",
				"the RequestRedirect filter answers the requests, so none is mirrored", "remove one of the two filters"))
		}
		out.Mirrors = nil
	}
	return out
}

// ignoredHeaders reports header fields that a modifier names and cannot change.
func (t *translator) ignoredHeaders(r *route, field string, edit *model.HeaderEdit, request bool) {
	for _, x := range edit.Ignored(request) {
		fix := "remove it from the filter: the proxy sets " + x.Name + " by itself"
		if request && strings.EqualFold(x.Name, "Host") {
			fix = "to send another host, use set, or a URLRewrite filter with hostname"
		}
		t.report(r.ref, resource.Problem(codeHeaderIgnored, "", field+"."+x.Field, fmt.Sprintf("a filter cannot change the header %s, so this has no effect", x.Name), fix))
	}
}

// filterField translates the field of a filter of the model, which has a single filter, to the field of the route.
func filterField(field string, f model.Filters) string {
	value := ".path.replaceFullPath"
	if patch := pathPatchOf(f); patch != nil && patch.Prefix {
		value = ".path.replacePrefixMatch"
	}
	return strings.NewReplacer(".requestHeaders", ".requestHeaderModifier", ".responseHeaders", ".responseHeaderModifier",
		".redirect", ".requestRedirect", ".rewrite", ".urlRewrite", ".path.value", value).Replace(field)
}

// pathPatchOf is the single path modifier of filters; nil if there is none.
func pathPatchOf(f model.Filters) *model.PathPatch {
	switch {
	case f.Redirect != nil:
		return f.Redirect.Path
	case f.Rewrite != nil:
		return f.Rewrite.Path
	}
	return nil
}

// close keeps the first reason; one that is a plain unsupported value is the graver.
func (f *filterSet) close(p resource.Finding) {
	if f.closed == nil || f.closed.Reason != "UnsupportedValue" && p.Reason == "UnsupportedValue" {
		f.closed = &p
	}
}

func headerEdit(f *gatewayv1.HTTPHeaderFilter) *model.HeaderEdit {
	values := func(all []gatewayv1.HTTPHeader) []model.HeaderValue {
		var out []model.HeaderValue
		for _, h := range all {
			out = append(out, model.HeaderValue{Name: string(h.Name), Value: h.Value})
		}
		return out
	}
	return &model.HeaderEdit{Set: values(f.Set), Add: values(f.Add), Remove: slices.Clone(f.Remove)}
}

// redirect translates HTTPRequestRedirectFilter. Without a port, the model and the API derive it in the same way.
func redirect(f *gatewayv1.HTTPRequestRedirectFilter) (*model.Redirect, *resource.Finding) {
	path, p := pathPatch(f.Path)
	out := &model.Redirect{
		Scheme:   value(f.Scheme, ""),
		Hostname: string(value(f.Hostname, "")),
		Port:     value(f.Port, 0),
		Path:     path,
		Status:   value(f.StatusCode, 302),
	}
	if !slices.Contains([]string{"", "http", "https"}, out.Scheme) {
		p = new(resource.Problem(codeValue, "UnsupportedValue", ".scheme", fmt.Sprintf("scheme %q is not supported", out.Scheme), "use http or https"))
	}
	if !slices.Contains([]int{301, 302, 303, 307, 308}, out.Status) {
		p = new(resource.Problem(codeValue, "UnsupportedValue", ".statusCode", fmt.Sprintf("status code %d is not supported", out.Status),
			"use 301, 302, 303, 307 or 308"))
	}
	return out, p
}

func pathPatch(f *gatewayv1.HTTPPathModifier) (*model.PathPatch, *resource.Finding) {
	switch {
	case f == nil:
		return nil, nil
	case f.Type == gatewayv1.FullPathHTTPPathModifier:
		return &model.PathPatch{Value: value(f.ReplaceFullPath, "")}, nil
	case f.Type == gatewayv1.PrefixMatchHTTPPathModifier:
		return &model.PathPatch{Prefix: true, Value: value(f.ReplacePrefixMatch, "")}, nil
	default:
		return nil, new(resource.Problem(codeValue, "UnsupportedValue", ".path.type", fmt.Sprintf("type %q is not known", f.Type),
			"use ReplaceFullPath or ReplacePrefixMatch"))
	}
}

// prefixProblems finds a ReplacePrefixMatch whose rule matches anything but path prefixes
// (HTTPPathModifier.replacePrefixMatch).
func prefixProblems(field string, f model.Filters, matches []model.Match) []resource.Finding {
	replaces := f.Redirect != nil && f.Redirect.Path != nil && f.Redirect.Path.Prefix ||
		f.Rewrite != nil && f.Rewrite.Path != nil && f.Rewrite.Path.Prefix
	if !replaces || !slices.ContainsFunc(matches, func(m model.Match) bool { return m.Path.Type != model.Prefix }) {
		return nil
	}
	return []resource.Finding{resource.Problem(codeFilterClash, "IncompatibleFilters", field, "ReplacePrefixMatch needs matches of type PathPrefix",
		"use PathPrefix in all matches of the rule, or ReplaceFullPath")}
}

// cors translates HTTPCORSFilter; the default of maxAge is its own.
func cors(f *gatewayv1.HTTPCORSFilter) *model.CORS {
	out := &model.CORS{
		AllowOrigins:     texted(f.AllowOrigins),
		AllowCredentials: value(f.AllowCredentials, false),
		AllowMethods:     texted(f.AllowMethods),
		AllowHeaders:     texted(f.AllowHeaders),
		ExposeHeaders:    texted(f.ExposeHeaders),
		MaxAge:           f.MaxAge,
	}
	if out.MaxAge == 0 {
		out.MaxAge = 5
	}
	return out
}

func texted[T ~string](all []T) []string {
	var out []string
	for _, s := range all {
		out = append(out, string(s))
	}
	return out
}

// mirror translates HTTPRequestMirrorFilter. A mirror with an invalid share copies nothing, one with an invalid
// reference is dropped; neither affects the primary. The share is kept as written, not reduced.
func (t *translator) mirror(r *route, field string, f *gatewayv1.HTTPRequestMirrorFilter) *model.Mirror {
	at := field + ".requestMirror"
	n, d, bad := resource.MirrorShare(f)
	if bad != nil { // a finding of the set, too, hence no code
		r.partial = append(r.partial, resource.Problem("", "UnsupportedValue", at+bad.Field, bad.Message, bad.Fix))
	}
	name, p := t.backend(r, f.BackendRef, at+".backendRef")
	if p != nil {
		r.unresolved = append(r.unresolved, *p)
	}
	if bad != nil || p != nil {
		return nil
	}
	m := &model.Mirror{Ref: r.ref, Service: name, Numerator: n, Denominator: d}
	m.Ref.Field = field
	if n == 0 {
		where := at
		switch {
		case f.Fraction != nil:
			where += ".fraction.numerator"
		default:
			where += ".percent"
		}
		t.report(r.ref, resource.Problem(codeMirrorNothing, "", where, "no request is mirrored", "raise it, or remove the filter"))
	}
	return m
}
