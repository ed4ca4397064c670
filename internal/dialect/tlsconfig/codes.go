package tlsconfig

import (
	"slices"

	"github.com/weirmesh/weir/internal/resource"
)

const (
	codeRefused     = "WR1301"
	codeNotInjected = "WR1302"
	codeNoPods      = "WR1303"
	codeSelector    = "WR1304"
	codeAnnotation  = "WR1305"
	codeUnseen      = "WR1306"
	codeMany        = "WR1307"
)

var codes = []resource.Code{
	{ID: codeRefused, Severity: resource.Error, Title: "subject name not permitted",
		Meaning: "A TLSConfig asks for a name that its namespace may not have. Certificates are signed without it.",
		Fix:     "Name a Service of the namespace, or have the name allowed (--mesh-subject-names)."},
	{ID: codeNotInjected, Severity: resource.Warning, Title: "TLSConfig with pods without a sidecar",
		Meaning: "A TLSConfig selects pods that have no sidecar. They have neither an identity nor its names, and serve plain text.",
		Fix:     "Replace pods that are older than the TLSConfig. For others the message names the reason, such as a label that opts out."},
	{ID: codeNoPods, Severity: resource.Info, Title: "TLSConfig without pods",
		Meaning: "No pods are known that the TLSConfig selects.",
		Fix:     "Correct the labels. Ignore this if the pods are yet to come."},
	{ID: codeSelector, Severity: resource.Error, Title: "invalid selector of a TLSConfig",
		Meaning: "The selector cannot be read. The TLSConfig selects nothing.",
		Fix:     "Write labels that pods may have."},
	{ID: codeAnnotation, Severity: resource.Warning, Title: "invalid annotation of a TLSConfig",
		Meaning: "The annotation weirmesh.github.io/permissive is neither true nor false. Plain text is refused.",
		Fix:     `Write "true" or "false", in quotes.`},
	{ID: codeUnseen, Severity: resource.Info, Title: "TLSConfig that only the cluster can judge",
		Meaning: "The manifests do not show whether a name is permitted.",
		Fix:     "Look at the object's status in the cluster."},
	{ID: codeMany, Severity: resource.Error, Title: "too many subject names",
		Meaning: "The TLSConfigs that select a pod have more names together than a certificate has. It is signed with the first of them, by the alphabet.",
		Fix:     "Give the pods fewer names."},
}

// Codes returns the codes of this package's findings, in order.
func Codes() []resource.Code { return slices.Clone(codes) }

var severities = resource.Severities(slices.Concat(resource.Codes(), codes))
