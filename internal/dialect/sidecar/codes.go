package sidecar

import (
	"slices"

	"github.com/weirmesh/weir/internal/resource"
)

const (
	codePodNotFound  = "WR1101"
	codePortNotFound = "WR1102"
	codeOwnPort      = "WR1103"
	codeNotInbound   = "WR1104"
	codeForward      = "WR1105"
	codeTwoProtocols = "WR1106"
)

var codes = []resource.Code{
	{ID: codePodNotFound, Severity: resource.Error, Title: "pod of a sidecar not found",
		Meaning: "There is no Pod of the name for which this process is to be the sidecar, and nothing that runs pods has the name. Nothing is served.",
		Fix:     "Correct --as, or add the Pod or its Deployment to the files."},
	{ID: codePortNotFound, Severity: resource.Warning, Title: "unknown port of a pod",
		Meaning: "Connections are to be accepted for a port that the pod's containers do not have and no Service leads to. It is taken for a port of HTTP.",
		Fix:     "Add it to a container's ports, or correct the number."},
	{ID: codeOwnPort, Severity: resource.Error, Title: "sidecar in the application's place",
		Meaning: "A port would be accepted at the address where the application itself is to listen. It is not served.",
		Fix:     "Let the application or the sidecar listen elsewhere (--app, --inbound)."},
	{ID: codeNotInbound, Severity: resource.Info, Title: "pod without an address",
		Meaning: "The pod has ports, but no address is known at which to accept connections to them. Nothing is accepted for the pod.",
		Fix:     "Name an address with --inbound, or write status.podIP."},
	{ID: codeForward, Severity: resource.Error, Title: "Service of a forward not found",
		Meaning: "Connections are to be forwarded to a Service or a port that does not exist. The listener is left out.",
		Fix:     "Correct --forward, or create the Service."},
	{ID: codeTwoProtocols, Severity: resource.Warning, Title: "port with two protocols",
		Meaning: "Two Services lead to one port of a pod with a sidecar, and say different things about what it speaks. The sidecar goes by one of them: the last one by name. So requests may be judged and counted as connections, or connections be refused as no requests.",
		Fix:     "Write the same appProtocol into both, or give the port the same beginning of its name."},
}

// Codes returns the codes of this package's findings, in order.
func Codes() []resource.Code { return slices.Clone(codes) }

var severities = resource.Severities(slices.Concat(resource.Codes(), codes))
