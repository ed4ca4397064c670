package resource

import (
	"slices"
	"strings"
)

// Code documents the code of a finding. Codes are stable: one is never given another meaning. The hundreds say who
// finds it:
//
//	WR1xx  reading files and documents
//	WR2xx  the API's own schemas and rules
//	WR3xx  mirrors, where Weir reads more than the released API
//	WR4xx  Service, EndpointSlice, Secret, ConfigMap, Namespace
//	WR5xx  what Gateway API objects mean together (dialect/gateway)
//	WR6xx  what SMI objects mean together (dialect/smi)
//	WR7xx  what there is of Weir in a cluster (kube/inspect)
//	WR9xx  Rollouts (dialect/rollouts)
//	WR10xx access control (dialect/access)
//	WR11xx sidecars (dialect/sidecar)
//	WR12xx roles of Kubernetes about Traffic Metrics (dialect/roles)
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

// The codes of this package's findings.
const (
	CodeUnreadable      = "WR101"
	CodeSyntax          = "WR102"
	CodeNoObject        = "WR103"
	CodeVersion         = "WR104"
	CodeUnknownKind     = "WR105"
	CodeDuplicate       = "WR106"
	CodeDuplicateField  = "WR107"
	CodeUnknownField    = "WR108"
	CodeEmptyPath       = "WR109"
	CodeLastGood        = "WR110"
	CodeNoGroup         = "WR111"
	CodeRefused         = "WR112"
	CodeUnread          = "WR113"
	CodeMatchesEarly    = "WR114"
	CodeMisspelt        = "WR115"
	CodeMisspeltField   = "WR116"
	CodeStrict          = "WR117"
	CodeStar            = "WR118"
	CodeOtherVersion    = "WR119"
	CodeUnservedVersion = "WR120"

	CodeInvalid   = "WR201"
	CodeRequired  = "WR202"
	CodeEnum      = "WR203"
	CodeType      = "WR204"
	CodeTooMany   = "WR205"
	CodeListType  = "WR206"
	CodeRule      = "WR207"
	CodeMetadata  = "WR208"
	CodeUnchecked = "WR209"

	CodeMirrorPercent     = "WR301"
	CodeMirrorDenominator = "WR302"
	CodeMirrorNumerator   = "WR303"
	CodeMirrorBoth        = "WR304"
	CodeMirrorReleased    = "WR305"

	CodeCoreInvalid       = "WR401"
	CodeCoreType          = "WR402"
	CodeCoreData          = "WR403"
	CodeSliceOrphan       = "WR404"
	CodeEndpointsOld      = "WR405"
	CodeCertificate       = "WR406"
	CodeCertificateSoon   = "WR407"
	CodeCertificateUrgent = "WR408"
	CodeCertificateDates  = "WR409"

	CodeElsewhere = "WR487"
	CodeNotServed = "WR488"
)

const leftOut = "The object is left out, or stays as it last was valid; the rest is served."

var codes = []Code{
	{CodeUnreadable, Error, "unreadable path",
		"A file or folder could not be read, is no file or folder (a pipe, a device, a part of /proc), or is beyond the bounds in docs/limits.md. Its last readable content is still served.",
		"Check that the path exists, that Weir may read it, and that a symbolic link leads to no more than the configuration."},
	{CodeSyntax, Error, "syntax error",
		"A document is neither YAML nor JSON. The other documents of the file are read; objects that the file held before stay as they were.",
		"Correct the syntax at the named line; indentation and a missing quote are the usual causes."},
	{CodeNoObject, Error, "not an object",
		"A document is not a Kubernetes object: it is not a mapping, or lacks apiVersion, kind or name.",
		"Give it apiVersion, kind and metadata.name, or keep it out of the folder."},
	{CodeVersion, Error, "unknown version",
		"Weir does not support this version of the kind.  " + leftOut,
		"Write one of the versions that the message names."},
	{CodeUnknownKind, Info, "kind ignored",
		"Weir does not read this kind. The finding names the kind once, not each object. There is none for manifests meant for a cluster, where such kinds are common.",
		"Check the kind and the apiVersion, if Weir should read it."},
	{CodeDuplicate, Error, "object defined twice",
		"Two documents define one object. The first in the order of file names and lines counts, the other is left out.",
		"Remove or rename one of the two."},
	{CodeDuplicateField, Warning, "field written twice",
		"A mapping has the same key twice. The last one counts.",
		"Remove one of the two."},
	{CodeUnknownField, Warning, "unknown field",
		"The API has no such field at this place. It has no effect.",
		"Correct its name or its indentation, or remove it."},
	{CodeEmptyPath, Warning, "nothing found",
		"A path given on the command line holds no document.",
		"Check the path; in folders, files named *.yaml, *.yml and *.json count, hidden ones do not."},
	{CodeLastGood, Warning, "last valid version served",
		"The object is not valid as written now, so its last valid version is still served.",
		"Correct the errors reported for the object or its file."},
	{CodeNoGroup, Warning, "apiVersion incomplete",
		"An SMI object has no apiVersion, or one without a group, as in the specification's examples. Weir accepts that; an API server does not.",
		"Write the apiVersion that the message names."},
	{CodeRefused, Error, "resource not permitted",
		"The API server does not let Weir read a kind of object. Objects of it are not served; the rest is.",
		"Grant the verbs that the message names to the account that Weir runs as."},
	{CodeUnread, Error, "reference not readable",
		"A Secret or ConfigMap that an object refers to could not be read. Its last version counts, or it is missing; Weir tries again.",
		"See the reason in the message: the API server may refuse access or be unreachable."},
	{CodeMatchesEarly, Warning, "matches in an early version",
		"A TrafficSplit of v1alpha2 has matches, which the specification added in v1alpha3. Weir applies them; other readers of v1alpha2 ignore them and split all requests.",
		"Write apiVersion: split.smi-spec.io/v1alpha4."},
	{CodeMisspelt, Error, "kind or group misspelt",
		"A document's kind or group is unknown but close to a known one, so it is probably misspelt. The document is left out.",
		"Write the kind and the apiVersion that the message names."},
	{CodeMisspeltField, Error, "field misspelt",
		"An object has an unknown field with a name close to a known one. The field has no effect; kubectl rejects the object. Weir does so too with Rollouts and with objects of SMI, which may mean more without the field: such an object is left out, or stays as it last was valid.",
		"Write the field that the message names."},

	{CodeStrict, Error, "unknown field in access control",
		"An object of access control has a field that the API does not know, or one that is null. Without it the object would allow more. " + leftOut,
		"Correct the field's name or indentation, or write a value; a field that should not restrict is left out."},
	{CodeStar, Warning, "asterisk without quotes",
		"A value is *, without quotes, which YAML takes for the name of an anchor. The document is no YAML, and other programs reject it. Weir reads the text \"*\".",
		"Write \"*\"."},
	{CodeOtherVersion, Error, "field of another version",
		"An object of SMI has a field that its version lacks and another one has. Without it the object means more: a split without matches is of all requests. " + leftOut,
		"Write the apiVersion that the message names, and the other fields as that version has them."},
	{CodeUnservedVersion, Warning, "version not served",
		"An object is of a version that the first SMI specification has and no API server serves. Weir reads it from files.",
		"Write the apiVersion that the message names."},

	{CodeInvalid, Error, "invalid value",
		"A value violates the API's schema: a range, a pattern, a length. " + leftOut,
		"Write a value within the limits that the message names."},
	{CodeRequired, Error, "missing field",
		"A field that the API's schema requires is missing. " + leftOut,
		"Add the field."},
	{CodeEnum, Error, "unsupported value",
		"A value is not one of those that the API's schema allows. " + leftOut,
		"Write one of the values that the message lists."},
	{CodeType, Error, "wrong type",
		"A value has another type than the API's schema says. " + leftOut,
		"Write a value of that type; text that YAML takes for a number or a boolean needs quotes."},
	{CodeTooMany, Error, "too many or too long",
		"A list, map or text is longer than the API's schema allows. " + leftOut,
		"Shorten it, or split the object into several."},
	{CodeListType, Error, "entries not unique",
		"Two entries of a list that must be unique by value or by key are the same. " + leftOut,
		"Remove or rename one of the two."},
	{CodeRule, Error, "rule broken",
		"A validation rule (CEL) of the API does not hold. " + leftOut,
		"Change the object so that the rule in the message holds."},
	{CodeMetadata, Error, "invalid metadata",
		"The object's metadata is not valid: its name, namespace, labels or annotations. " + leftOut,
		"Write names, labels and annotations in the form that the message names."},
	{CodeUnchecked, Info, "rules not checked",
		"The API's validation rules were not run, as other errors come first.",
		"Correct the other errors of the object; the next check may show more."},

	{CodeMirrorPercent, Error, "mirror percent out of range",
		"The percent of a RequestMirror filter is not 0 to 100. The mirror is inert; the rule is served.",
		"Write a percent from 0 to 100."},
	{CodeMirrorDenominator, Error, "mirror denominator not positive",
		"The denominator of a RequestMirror filter's fraction is below 1. The mirror is inert; the rule is served.",
		"Write a denominator of 1 or more."},
	{CodeMirrorNumerator, Error, "mirror numerator out of range",
		"The numerator of a RequestMirror filter's fraction is negative or above the denominator. The mirror is inert; the rule is served.",
		"Write a numerator from 0 to the denominator."},
	{CodeMirrorBoth, Warning, "mirror percent and fraction",
		"A RequestMirror filter has both percent and fraction. Here the fraction counts; an API server with the released API rejects the object.",
		"Remove percent or fraction."},
	{CodeMirrorReleased, Warning, "mirror fraction without numerator",
		"The fraction of a RequestMirror filter has no numerator. Here it is 100; an API server with the released API rejects the object.",
		"Write the numerator."},

	{CodeCoreInvalid, Error, "invalid core object",
		"A Service, EndpointSlice, Endpoints, Secret, ConfigMap or Namespace has an invalid value. " + leftOut,
		"Write a value as the message describes."},
	{CodeCoreType, Error, "core object of wrong form",
		"A field of a core object has another type than the API says. " + leftOut,
		"Write a value of that type; text that YAML takes for a number or a boolean needs quotes."},
	{CodeCoreData, Error, "invalid data",
		"A value under data (Secret) or binaryData (ConfigMap) is not base64. " + leftOut,
		"Encode the value with base64, or write it under stringData (Secret) or data (ConfigMap)."},
	{CodeSliceOrphan, Warning, "EndpointSlice of no Service",
		"An EndpointSlice has no label kubernetes.io/service-name, so it belongs to no Service and is not used.",
		"Add the label kubernetes.io/service-name with the Service's name."},
	{CodeEndpointsOld, Info, "Endpoints beside EndpointSlices",
		"A Service has both Endpoints and EndpointSlices. The slices count.",
		"Remove the Endpoints object."},
	{CodeCertificate, Warning, "certificate not usable",
		"A Secret of type kubernetes.io/tls does not hold a certificate with its key, or the ca.crt of a ConfigMap does not hold certificates; or they are not valid now while those of the previous version are. " +
			"The previous version, if any, is still served. An API server would accept the object.",
		"Put the certificate and those of its chain in PEM form into tls.crt and the key that fits into tls.key; authorities into ca.crt."},
	{CodeCertificateSoon, Info, "certificate to be renewed",
		"A certificate in use, or one of its chain, expires within 30 days; if it is valid for less than 90, within a third of that.",
		"Renew it."},
	{CodeCertificateUrgent, Warning, "certificate about to expire",
		"A certificate in use, or one of its chain, expires within 7 days; if it is valid for less than 70, within a tenth of that. Or one of its chain has expired, and some peers reject it.",
		"Renew it now."},
	{CodeCertificateDates, Error, "certificate expired",
		"A certificate in use has expired or is not valid yet. It is served, as there is no better one, but peers refuse it.",
		"Renew it, or set the machine's clock."},

	{CodeElsewhere, Info, "object not among the files",
		"In manifests for a cluster, something refers to an object that is not among them. What depends on it was not checked; a cluster that has the object serves it all.",
		"Nothing, if the object is in the cluster or will be created there. Otherwise create it or correct the name."},
	{CodeNotServed, Warning, "kind not served",
		"Weir reads other kinds of the same API, but not this one, so its objects have no effect. The finding names the kind once, not each object.",
		"Write it with the kinds that Weir reads, or have something else serve it."},
}

// finding makes a finding with the severity and the usual fix of its code.
func finding(code, field, message string) Finding {
	c, _ := LookupCode(code)
	f := Finding{Code: code, Severity: c.Severity, Message: message, Fix: lowerFirst(c.Fix)}
	f.Ref.Field = field
	return f
}

// lowerFirst makes a sentence of the documentation into the tail of a message.
func lowerFirst(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToLower(s[:1]) + strings.TrimSuffix(s[1:], ".")
}

// Severities maps the IDs of codes to their severities.
func Severities(codes []Code) map[string]Severity {
	m := make(map[string]Severity, len(codes))
	for _, c := range codes {
		m[c.ID] = c.Severity
	}
	return m
}
