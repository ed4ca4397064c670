package resource

import "strings"

// FieldEffects is Kind.Effects of the kinds of Gateway API, SMI and Kubernetes. Effects say what a field's absence comes to, so that
// whoever misspells its name knows what happens now. Keys are ends of paths without indices, with the kind in front where it matters; the
// longest that fits counts. Each completes the sentence "without FIELD ...". Fields that must be there are not among them: without these
// the object is left out.
var FieldEffects = map[string]string{
	"parentRefs":             "the route is attached to nothing",
	"parentRefs.sectionName": "the route attaches to every listener of its parent",
	"parentRefs.port":        "the route attaches to listeners of every port",
	"parentRefs.namespace":   "the parent is looked for in the route's own namespace",
	"parentRefs.kind":        "the parent is a Gateway",
	"useDefaultGateways":     "no Gateway is the default",
	"hostnames":              "the route takes every host of its listeners",
	"rules":                  "the route has one rule, which answers every request 500",
	"GRPCRoute.rules":        "the route serves nothing",

	"rules.matches":                   "the rule takes every request",
	"rules.matches.path":              "the match takes every path",
	"rules.matches.path.value":        "the match takes every path",
	"rules.matches.path.type":         "the path is a prefix",
	"rules.matches.method":            "the match takes every method",
	"rules.matches.headers":           "the match looks at no header field",
	"rules.matches.headers.type":      "the value must match exactly",
	"rules.matches.queryParams":       "the match looks at no query parameter",
	"rules.matches.queryParams.type":  "the value must match exactly",
	"GRPCRoute.rules.matches.method":  "the match takes every method of every service",
	"rules.matches.method.method":     "the match takes every method of the service",
	"rules.matches.method.service":    "the match takes the method of every service",
	"rules.matches.method.type":       "the names must match exactly",
	"rules.backendRefs":               "the rule answers every request 500",
	"TCPRoute.rules.backendRefs":      "connections are reset",
	"backendRefs.weight":              "the backend has the weight 1",
	"backendRefs.namespace":           "the Service is looked for in the route's own namespace",
	"backendRefs.kind":                "the backend is a Service",
	"backendRefs.port":                "the backend answers 500 for its share",
	"backendRefs.filters":             "no filter is applied to what the backend gets",
	"rules.filters":                   "no filter is applied to the requests of the rule",
	"rules.timeouts":                  "the rule sets no time limit",
	"rules.timeouts.request":          "the rule sets no time limit for a request",
	"rules.timeouts.backendRequest":   "the rule sets no time limit for a single try",
	"rules.retry":                     "only requests that were not sent are retried",
	"rules.retry.attempts":            "the number of retries is the default",
	"rules.retry.backoff":             "a retry does not wait",
	"rules.retry.codes":               "no answer is retried",
	"rules.sessionPersistence":        "clients are not kept at one backend",
	"sessionPersistence.sessionName":  "the session has a name that Weir chooses",
	"sessionPersistence.type":         "sessions are kept in a cookie",
	"sessionPersistence.cookieConfig": "the cookie ends with the browser's session",
	"cookieConfig.lifetimeType":       "the cookie ends with the browser's session",
	"absoluteTimeout":                 "a session has no end",

	"requestMirror.fraction":             "the mirror copies 100 % of the requests",
	"requestMirror.percent":              "the mirror copies 100 % of the requests",
	"requestMirror.fraction.numerator":   "it is 100",
	"requestMirror.fraction.denominator": "it is 100",
	"requestMirror.backendRef.namespace": "the Service is looked for in the route's own namespace",
	"requestMirror.backendRef.kind":      "the mirror is a Service",
	"requestMirror.backendRef.port":      "nothing is mirrored",

	"filters.requestMirror":          "nothing is mirrored",
	"filters.requestRedirect":        "nothing is redirected",
	"filters.urlRewrite":             "nothing is rewritten",
	"filters.requestHeaderModifier":  "no field of the request is changed",
	"filters.responseHeaderModifier": "no field of the response is changed",
	"filters.cors":                   "browsers of other origins are not allowed",
	"HeaderModifier.set":             "no field is set",
	"HeaderModifier.add":             "no field is added",
	"HeaderModifier.remove":          "no field is removed",
	"requestRedirect.scheme":         "the scheme stays",
	"requestRedirect.hostname":       "the host name stays",
	"requestRedirect.path":           "the path stays",
	"requestRedirect.port":           "the port is that of the scheme or of the listener",
	"requestRedirect.statusCode":     "the status is 302",
	"urlRewrite.hostname":            "the host name stays",
	"urlRewrite.path":                "the path stays",
	"path.replaceFullPath":           "the path has no replacement",
	"path.replacePrefixMatch":        "the prefix has no replacement",
	"cors.allowOrigins":              "no other origin is allowed",
	"cors.allowMethods":              "other origins may use simple methods only",
	"cors.allowHeaders":              "other origins may send simple header fields only",
	"cors.allowCredentials":          "browsers send no credentials",
	"cors.exposeHeaders":             "scripts see simple header fields only",
	"cors.maxAge":                    "browsers ask again after 5 seconds",

	"addresses":                        "the Gateway listens on all addresses",
	"addresses.type":                   "it is an IP address",
	"addresses.value":                  "Weir chooses the address",
	"listeners.hostname":               "the listener takes every host",
	"listeners.tls":                    "the listener has no certificate",
	"listeners.tls.certificateRefs":    "the listener has no certificate",
	"listeners.tls.mode":               "the listener ends TLS itself",
	"certificateRefs.kind":             "it is a Secret",
	"certificateRefs.namespace":        "the Secret is looked for in the object's own namespace",
	"clientCertificateRef.kind":        "it is a Secret",
	"clientCertificateRef.namespace":   "the Secret is looked for in the Gateway's own namespace",
	"caCertificateRefs.namespace":      "the ConfigMap is looked for in the Gateway's own namespace",
	"listeners.allowedRoutes":          "only routes of the same namespace may attach",
	"allowedRoutes.kinds":              "routes of every kind that fits the protocol may attach",
	"allowedRoutes.namespaces":         "only routes of the same namespace may attach",
	"allowedRoutes.namespaces.from":    "only routes of the same namespace may attach",
	"allowedListeners":                 "no ListenerSet may attach",
	"allowedListeners.namespaces":      "no ListenerSet may attach",
	"allowedListeners.namespaces.from": "no ListenerSet may attach",
	"namespaces.selector":              "no namespace is selected",
	"selector.matchLabels":             "the selector asks for no labels",
	"selector.matchExpressions":        "the selector has no expressions",
	"matchExpressions.values":          "the expression has no values",
	"defaultScope":                     "the Gateway is not a default Gateway",
	"infrastructure":                   "its proxies run with default settings",
	"infrastructure.labels":            "the objects made for the Gateway get no such labels",
	"infrastructure.annotations":       "the objects made for the Gateway get no such annotations",
	"parametersRef":                    "its proxies run with default settings",
	"parametersRef.namespace":          "the parameters are not found",
	"Gateway.tls":                      "clients' certificates are not checked, and backends get none",
	"tls.backend":                      "backends get no client certificate",
	"tls.backend.clientCertificateRef": "backends get no client certificate",
	"tls.frontend":                     "clients' certificates are not checked",
	"tls.frontend.perPort":             "every port has the default",
	"default.validation":               "clients' certificates are not checked",
	"tls.validation":                   "clients' certificates are not checked on the port",
	"validation.mode":                  "clients must have a valid certificate",
	"parentRef.kind":                   "the parent is a Gateway",
	"parentRef.namespace":              "the Gateway is looked for in the ListenerSet's own namespace",

	"ReferenceGrant.to.name":             "every object of the kind may be referred to",
	"targetRefs.sectionName":             "the policy is for all ports of the Service",
	"validation.caCertificateRefs":       "no authority is trusted",
	"validation.wellKnownCACertificates": "the authorities of the system are not trusted",
	"validation.subjectAltNames":         "the certificate must have the policy's hostname",
	"subjectAltNames.hostname":           "the name is empty",
	"subjectAltNames.uri":                "the name is empty",

	"TrafficSplit.matches":             "all requests are split",
	"TrafficSplit.matches.apiGroup":    "the kind's own group is used",
	"HTTPRouteGroup.matches":           "the group matches nothing",
	"HTTPRouteGroup.matches.headers":   "the match looks at no header field",
	"HTTPRouteGroup.matches.methods":   "the match takes every method",
	"HTTPRouteGroup.matches.pathRegex": "the match takes every path",

	"Service.spec.selector":             "no controller makes EndpointSlices for the Service",
	"Service.spec.type":                 "the Service has a cluster IP and no host name of its own",
	"Service.spec.externalName":         "the Service leads nowhere",
	"Service.ports.targetPort":          "pods are reached on the Service's port",
	"Service.ports.appProtocol":         "the port speaks HTTP/1.1",
	"Service.ports.protocol":            "the port speaks TCP",
	"EndpointSlice.ports":               "the slice has no port",
	"EndpointSlice.ports.name":          "the port belongs to a port of the Service without a name",
	"EndpointSlice.ports.port":          "the port is the Service's target port",
	"EndpointSlice.endpoints":           "the slice has no endpoints",
	"EndpointSlice.conditions":          "the endpoint counts as ready",
	"EndpointSlice.conditions.ready":    "the endpoint counts as ready",
	"EndpointSlice.endpoints.addresses": "the endpoint has no address",
}

// effect says what the lack of the field that was meant comes to, as the end of a sentence; empty if that is not known. The path is
// that of the misspelt field; meant may be "parent.child". The kind is nil for metadata.
func (k *Kind) effect(path, meant string) string {
	if k == nil {
		return ""
	}
	kind := k.Name
	var parts []string
	for _, part := range splitPath(path) {
		if part[0] != '[' {
			parts = append(parts, part)
		}
	}
	parts = append([]string{kind}, parts...)
	parts[len(parts)-1] = meant
	if parts[1] == "spec" && kind != "Service" {
		parts = append(parts[:1], parts[2:]...)
	}
	best := ""
	for end := range k.Effects {
		if (len(end) > len(best) || len(end) == len(best) && end < best) && ends(strings.Join(parts, "."), end, kind) {
			best = end
		}
	}
	if best == "" {
		return ""
	}
	return ": without " + lastName(meant) + " " + k.Effects[best]
}

// ends reports whether a path, which begins with the kind, ends with a key of effects.
func ends(path, key, kind string) bool {
	if rest, ok := strings.CutPrefix(key, kind+"."); ok && !strings.HasPrefix(path, key) {
		return strings.HasSuffix(path, "."+rest) && rest != ""
	}
	before, ok := strings.CutSuffix(path, key)
	return ok && (before == "" || strings.HasSuffix(before, ".") || strings.HasPrefix(key, "HeaderModifier."))
}
