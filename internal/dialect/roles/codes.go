package roles

import (
	"slices"

	"github.com/weirmesh/weir/internal/resource"
)

const (
	codeNamespaces = "WR1201"
	codeResource   = "WR1202"
	codeNothing    = "WR1203"
	codeVerb       = "WR1204"
	codeVersion    = "WR1205"
)

var codes = []resource.Code{
	{ID: codeNamespaces, Severity: resource.Warning, Title: "role: edges of namespaces",
		Meaning: "A rule about Traffic Metrics lists `namespaces/edges` (or `namespaces/tap`), which never matches: an API server reads the path /namespaces/NAME/edges as a list of the resource `edges` in that namespace. " +
			"There is no finding if the role also permits that.",
		Fix: "Also list `edges` in resources, with the verb list."},
	{ID: codeResource, Severity: resource.Warning, Title: "role: unknown resource of Traffic Metrics",
		Meaning: "A rule lists a resource that Traffic Metrics do not have. An API server accepts it, and it never matches.",
		Fix:     "Write the plural, in lower case, of one of the kinds in docs/traffic-api.md."},
	{ID: codeNothing, Severity: resource.Warning, Title: "role: resource without effect",
		Meaning: "A resource of a rule about Traffic Metrics permits nothing: the rule lacks the verb with which it is served, has resourceNames where only lists are served or permitted, or is in a Role and the resource in no namespace.",
		Fix:     "See what the message says."},
	{ID: codeVerb, Severity: resource.Info, Title: "role: verb without effect",
		Meaning: "Nothing is served with a verb of a rule about Traffic Metrics: they are read with get and list, and cannot be watched or written. The other verbs have their effect.",
		Fix:     "Remove the verb, or ignore this."},
	{ID: codeVersion, Severity: resource.Warning, Title: "role: group with a version",
		Meaning: "A rule names an API group of Traffic Metrics together with its version. An API server accepts it, and it never matches.",
		Fix:     "Write the group alone."},
}

// Codes documents the codes of this package's findings.
func Codes() []resource.Code { return slices.Clone(codes) }

var severities = resource.Severities(slices.Concat(resource.Codes(), codes))
