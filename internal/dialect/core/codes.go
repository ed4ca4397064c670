package core

import (
	"slices"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

const (
	codeNoEndpoints = "WR480"
	codeAppProtocol = "WR481"
	codeNoPorts     = "WR482"

	codeAnnotation        = "WR483"
	codeUnknownAnnotation = "WR484"
	codeRefusedName       = "WR485"
	codeRefusedAddress    = "WR486"
)

var codes = []resource.Code{
	{ID: codeNoEndpoints, Severity: resource.Warning, Title: "service without endpoints",
		Meaning: "A route or a split leads to a Service port that has no ready endpoint. Its requests are answered 503.",
		Fix: "Outside of a cluster, add an EndpointSlice with the label kubernetes.io/service-name, a port of the same name and a ready endpoint. " +
			"In a cluster, the slices come from the pods that the Service selects: find out why none of those pods is ready."},
	{ID: codeAppProtocol, Severity: resource.Warning, Title: "unknown appProtocol",
		Meaning: "A route or a split leads to a Service port whose appProtocol is not an HTTP protocol. Its requests are answered 500.",
		Fix:     "Use http, kubernetes.io/h2c, kubernetes.io/ws or, with a BackendTLSPolicy, https; or remove the field."},
	{ID: codeNoPorts, Severity: resource.Warning, Title: "service without ports",
		Meaning: "A route or a split leads to a Service without ports. Its requests are answered 500.",
		Fix:     "Add the port that the routes name; an ExternalName needs ports too."},
	{ID: codeAnnotation, Severity: resource.Warning, Title: "annotation without effect",
		Meaning: "One of Weir's annotations of a Service has an invalid value, or conflicts with the others. It is ignored, and the default applies.",
		Fix:     "Write a value of the kind that the message names; docs/resilience.md lists them."},
	{ID: codeUnknownAnnotation, Severity: resource.Warning, Title: "unknown annotation",
		Meaning: "A Service has an unknown annotation with Weir's prefix; its name may be misspelt.",
		Fix:     "Use one of the annotations in docs/resilience.md, or remove it."},
	{ID: codeRefusedName, Severity: resource.Error, Title: "host name refused",
		Meaning: "In a cluster, a Service of type ExternalName or an EndpointSlice of type FQDN has a host name that the controller does not allow: a name could lead anywhere, " +
			"also to other namespaces and to the proxy itself. The endpoint is left out; a Service without others answers 500.",
		Fix: "Write addresses into an EndpointSlice; or have the administrator allow the domain (externalNames.allow of the chart, --external-names of the controller)."},
	{ID: codeRefusedAddress, Severity: resource.Error, Title: "endpoint address refused",
		Meaning: "In a cluster, an EndpointSlice has an address that no backend can have: loopback, link-local, multicast, a cloud's metadata service, or an IPv6 address that stands for one of these. " +
			"The endpoint is left out; a Service without others answers 500.",
		Fix: "Write the backend's own address."},
}

// Codes documents the codes of this package's findings.
func Codes() []resource.Code { return slices.Clone(codes) }

var severities = resource.Severities(codes)

func (t *translator) report(code string, ref model.Ref, message, fix string) {
	t.asked = true
	t.findings = append(t.findings, t.set.About(ref, resource.Problem(code, "", ref.Field, message, fix), severities))
}
