package resource

import "slices"

// Code documents the code of a finding. Codes are stable: one is never given another meaning. The hundreds say who
// finds it:
//
//	WR1xx  reading files and documents
//	WR2xx  the API's own schemas and rules
//	WR3xx  mirrors, where Weir reads more than the released API
//	WR4xx  Service, EndpointSlice, Secret, ConfigMap, Namespace
//	WR5xx  what Gateway API objects mean together (dialect/gateway)
type Code struct {
	ID       string
	Severity Severity
	// Title is a short name, Meaning says what is wrong and what Weir does then, Fix what to do about it.
	Title, Meaning, Fix string
}

// Codes returns the codes of this package's findings, in order.
func Codes() []Code { return slices.Clone(codes) }

// LookupCode returns the documentation of a code of this package.
func LookupCode(id string) (Code, bool) {
	i := slices.IndexFunc(codes, func(c Code) bool { return c.ID == id })
	if i < 0 {
		return Code{}, false
	}
	return codes[i], true
}

var codes = []Code{}
