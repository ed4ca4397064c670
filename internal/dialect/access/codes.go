package access

import (
	"slices"

	"github.com/weirmesh/weir/internal/resource"
)

const (
	codePortRoute        = "WR618"
	codeRoleNotFound     = "WR1001"
	codeResourceNotFound = "WR1002"
	codeSelectsNothing   = "WR1003"
	codeSubjectNotFound  = "WR1004"
	codeNotBound         = "WR1005"
	codeScope            = "WR1006"
	codeEmpty            = "WR1007"
	codePattern          = "WR1010"
	codePatternLarge     = "WR1011"
	codePatternNever     = "WR1012"
	codePatternDot       = "WR1013"
	codePatternOpen      = "WR1014"
	codeMethod           = "WR1015"
	codeDestination      = "WR1020"
	codeNoSources        = "WR1021"
	codeIdentityNotFound = "WR1022"
	codeRouteNotFound    = "WR1023"
	codeMatchNotFound    = "WR1024"
	codeMatch            = "WR1025"
	codeSPIFFE           = "WR1030"
	codeSelector         = "WR1031"
	codeAnnotation       = "WR1040"
	codeUnseen           = "WR1041"
	codeUnenforced       = "WR1042"
)

const yetToCome = " Ignore this if the pods are yet to come."

var codes = []resource.Code{
	{ID: codePortRoute, Severity: resource.Info, Title: "route of ports without effect",
		Meaning: "An SMI TCPRoute or UDPRoute names ports for access rules, and no TrafficTarget names it.",
		Fix:     "Name it in the rules of a TrafficTarget, or delete it."},
	{ID: codeRoleNotFound, Severity: resource.Error, Title: "traffic role not found",
		Meaning: "A binding names a TrafficRole or ClusterTrafficRole that does not exist, or is left out because it is not valid. The binding allows nothing.",
		Fix:     "Create or correct the role, or correct roleRef."},
	{ID: codeResourceNotFound, Severity: resource.Warning, Title: "resource of a rule not found",
		Meaning: "A TrafficRole names an object, or a TrafficTarget a destination, that does not exist in its namespace. Nothing is allowed there.",
		Fix:     "Correct the name, or create the object."},
	{ID: codeSelectsNothing, Severity: resource.Warning, Title: "rule without pods",
		Meaning: "A role, a TrafficTarget's destination or an IdentityBinding names objects of which no pods are known. It concerns nobody; that is never read as everybody.",
		Fix:     "Correct the names or labels." + yetToCome},
	{ID: codeSubjectNotFound, Severity: resource.Info, Title: "client of a rule not found",
		Meaning: "A subject of a binding, or a source of a TrafficTarget, is not known. It is nobody until it exists.",
		Fix:     "Correct its kind, name or namespace." + yetToCome},
	{ID: codeNotBound, Severity: resource.Info, Title: "role not bound",
		Meaning: "No binding gives the role to anybody. The workloads that a TrafficRole names are governed nevertheless: what nothing allows is denied.",
		Fix:     "Write a TrafficRoleBinding or ClusterTrafficRoleBinding."},
	{ID: codeScope, Severity: resource.Warning, Title: "role bound outside of its scope",
		Meaning: "All resources of a ClusterTrafficRole are of other namespaces than the TrafficRoleBinding that names it. The binding allows nothing.",
		Fix:     "Bind the role in the namespaces that its resources name, or by a ClusterTrafficRoleBinding."},
	{ID: codeEmpty, Severity: resource.Warning, Title: "empty list",
		Meaning: "A list is there and has nothing in it. It names nothing, so the rule allows nothing. A key that is left out restricts nothing.",
		Fix:     `Name something, write "*" for everything, or remove the key.`},
	{ID: codePattern, Severity: resource.Error, Title: "invalid path expression",
		Meaning: "A path is not a regular expression in RE2 syntax. It is left out, and allows nothing.",
		Fix:     "Write it in RE2 syntax, which has neither look-around nor back-references."},
	{ID: codePatternLarge, Severity: resource.Error, Title: "path expression too large",
		Meaning: "A path would compile to more instructions than are allowed for it, or for its object. It is left out, and allows nothing.",
		Fix:     "Repeat less, or split the object in two."},
	{ID: codePatternNever, Severity: resource.Warning, Title: "path expression matches nothing",
		Meaning: "No path can match the expression: it does not begin with a slash, or has what no path has in the form in which paths are compared.",
		Fix:     "Write the path from its slash on, without escapes of characters that may stand in a path."},
	{ID: codePatternDot, Severity: resource.Warning, Title: "unescaped dot",
		Meaning: "A dot in a path stands for any character, so the rule allows more paths than it seems to.",
		Fix:     `Write \. for a dot.`},
	{ID: codePatternOpen, Severity: resource.Info, Title: "path expression without an end",
		Meaning: "Paths are anchored at their start alone. The rule also allows every path that begins like this one.",
		Fix:     "End the expression with $, unless that is meant."},
	{ID: codeMethod, Severity: resource.Info, Title: "method that is not registered",
		Meaning: "A rule of a role allows a method that IANA's registry of HTTP methods does not have, so it was most likely meant to be another one.",
		Fix:     "Correct the method; ignore this if clients do send it."},
	{ID: codeDestination, Severity: resource.Error, Title: "destination in another namespace",
		Meaning: "A TrafficTarget has a destination outside of its own namespace, for which it cannot speak. It has no effect.",
		Fix:     "Write it in the namespace of the destination."},
	{ID: codeNoSources, Severity: resource.Warning, Title: "TrafficTarget without sources",
		Meaning: "None of the sources of a TrafficTarget is anybody. It allows nothing, and its destination is governed.",
		Fix:     "Name a ServiceAccount, or an IdentityBinding that selects pods."},
	{ID: codeIdentityNotFound, Severity: resource.Warning, Title: "IdentityBinding not found",
		Meaning: "A source of a TrafficTarget names an IdentityBinding that does not exist. It is nobody.",
		Fix:     "Create the IdentityBinding or correct the name."},
	{ID: codeRouteNotFound, Severity: resource.Error, Title: "route of a rule not found",
		Meaning: "A rule of a TrafficTarget names an HTTPRouteGroup, a TCPRoute or a UDPRoute that does not exist in its namespace. The rule allows nothing.",
		Fix:     "Create the route or correct the name."},
	{ID: codeMatchNotFound, Severity: resource.Error, Title: "match of a rule not found",
		Meaning: "A rule of a TrafficTarget names a match that its HTTPRouteGroup does not have.",
		Fix:     "Correct the name."},
	{ID: codeMatch, Severity: resource.Error, Title: "invalid match",
		Meaning: "A match of an HTTPRouteGroup that a TrafficTarget names has a method or a header that is not valid. It allows nothing.",
		Fix:     "Correct it as the message says."},
	{ID: codeSPIFFE, Severity: resource.Error, Title: "invalid SPIFFE identity",
		Meaning: "An IdentityBinding names an identity that is no SPIFFE ID, or one of another namespace of the own trust domain, for which it cannot speak. It is left out.",
		Fix:     "Write spiffe://TRUST-DOMAIN/PATH; write the identities of a namespace into an IdentityBinding of that namespace."},
	{ID: codeSelector, Severity: resource.Error, Title: "invalid pod selector",
		Meaning: "A selector of an IdentityBinding is not valid. It selects nothing.",
		Fix:     "Correct the selector."},
	{ID: codeAnnotation, Severity: resource.Error, Title: "invalid annotation of a Namespace",
		Meaning: "An annotation about access has an unknown value. The strict one holds.",
		Fix:     "Write one of the values that the message names."},
	{ID: codeUnseen, Severity: resource.Info, Title: "object of access control not seen",
		Meaning: "Access control names something in a namespace that the controller does not watch, or of a kind that it may not read. Whether it exists, and which pods are meant, is not known.",
		Fix:     "Let the controller watch the namespace, or grant it the permission."},
	{ID: codeUnenforced, Severity: resource.Warning, Title: "access control not enforced",
		Meaning: "A cluster has objects of access control, and no proxy stands in front of the pods that they are about. The objects are judged and their statuses written, and nothing is denied.",
		Fix:     "Give the pods sidecars (docs/mesh.md)."},
}

// Codes returns the codes of this package's findings, in order.
func Codes() []resource.Code { return slices.Clone(codes) }

var severities = resource.Severities(slices.Concat(resource.Codes(), codes))
