package cli

import (
	"net"
	"strconv"
	"strings"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/routing"
)

// forward is the request as a backend sees it.
func forward(r *clientRequest, rewrite *model.Rewrite, d routing.Decision) *forwarded {
	f := &forwarded{Method: r.Method, Target: r.path, Host: r.fields["host"]}
	if normal, err := routing.NormalizePath(r.path); err == nil {
		if hasDotSegment(r.path) {
			f.Target = normal
		}
		if rewrite != nil && rewrite.Path != nil {
			f.Target = patchPath(rewrite.Path, normal, d.Prefix)
		}
	}
	if rewrite != nil && rewrite.Hostname != "" {
		f.Host = rewrite.Hostname
	}
	if r.query != "" {
		f.Target += "?" + r.query
	}
	return f
}

// hasDotSegment says whether a path holds "." or ".." as a segment, escaped or not.
func hasDotSegment(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		switch strings.ReplaceAll(strings.ToLower(segment), "%2e", ".") {
		case ".", "..":
			return true
		}
	}
	return false
}

// patchPath replaces the whole path or the prefix that the match matched (Gateway API, HTTPPathModifier).
func patchPath(p *model.PathPatch, path, prefix string) string {
	if !p.Prefix {
		return p.Value
	}
	rest := strings.TrimPrefix(path, prefix)
	return cmpOr(strings.TrimSuffix(p.Value, "/")+rest, "/")
}

// redirectLocation is what a redirect filter answers with (Gateway API, HTTPRequestRedirectFilter): a port that is not
// given is that of a given scheme, else the listener's; the scheme's own is left out.
func redirectLocation(r *model.Redirect, e *explanation, d routing.Decision) string {
	scheme := cmpOr(r.Scheme, e.Request.scheme)
	host := cmpOr(r.Hostname, e.Request.host)
	port := r.Port
	known := map[string]int32{"http": 80, "https": 443}[scheme]
	if port == 0 && r.Scheme != "" {
		port = known
	}
	if port == 0 {
		port = e.Listener.Port
	}
	if port != known {
		host = net.JoinHostPort(host, strconv.Itoa(int(port)))
	}
	path := e.Request.path
	if r.Path != nil {
		path = patchPath(r.Path, e.Path, d.Prefix)
	}
	if e.Request.query != "" {
		path += "?" + e.Request.query
	}
	return scheme + "://" + host + path
}
