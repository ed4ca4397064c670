package inspect

import (
	"slices"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// The codes of findings about a cluster.
const (
	CodeMissing       = "WR701"
	CodeRelease       = "WR702"
	CodeController    = "WR703"
	CodeLease         = "WR704"
	CodePermission    = "WR705"
	CodeClass         = "WR706"
	CodeNotProgrammed = "WR707"
	CodeObject        = "WR708"
	CodeProxies       = "WR709"
	CodeBehind        = "WR710"
	CodeStatus        = "WR711"
	CodeNotSeen       = "WR712"
	CodeConversion    = "WR714"
	CodeConverter     = "WR715"
	CodeNotConverted  = "WR716"
	CodeUnwatched     = "WR719"
	CodeClassEnds     = "WR713"
)

// Codes documents them, in order.
func Codes() []resource.Code { return slices.Clone(codes) }

var codes = []resource.Code{
	{ID: CodeMissing, Severity: resource.Error, Title: "kind not installed",
		Meaning: "The cluster has no custom resource definition of a kind that Weir reads, or one that serves none of the versions read. Objects of it cannot be written. " +
			"It is an error for GatewayClass, Gateway and HTTPRoute, a warning for other kinds of Gateway API, a note for those of SMI.",
		Fix: "Install Gateway API of the release named, experimental channel; SMI's definitions come with Weir's chart."},
	{ID: CodeRelease, Severity: resource.Warning, Title: "another release of Gateway API",
		Meaning: "The definitions of Gateway API are of another release or channel than Weir is built for. The API server drops fields that they do not have; " +
			"fields that only they have do nothing. A newer release or the standard channel is a note.",
		Fix: "Install the release named, experimental channel."},
	{ID: CodeController, Severity: resource.Error, Title: "controller not running",
		Meaning: "Weir's controller is not installed, or not all of its replicas are ready (a warning, if some are). Without it proxies serve what they last had, and no change is served.",
		Fix:     "Install it, or look at its pods."},
	{ID: CodeLease, Severity: resource.Warning, Title: "no leader",
		Meaning: "No replica of the controller holds the lease. Changes are served, but statuses are not written and new Gateways get no proxies.",
		Fix:     "Wait for some seconds after a start; else look at the controller's log."},
	{ID: CodePermission, Severity: resource.Error, Title: "permission missing",
		Meaning: "The controller's ServiceAccount may not do something that it does.",
		Fix:     "Install the roles of the chart or the manifests of Weir's release anew."},
	{ID: CodeClass, Severity: resource.Warning, Title: "no GatewayClass",
		Meaning: "No GatewayClass names Weir's controller, so no Gateway is Weir's.",
		Fix:     "Create one with spec.controllerName weirmesh.github.io/gateway-controller."},
	{ID: CodeNotProgrammed, Severity: resource.Error, Title: "not served in the cluster",
		Meaning: "The object is fine by itself, but the cluster does not let it be served: parameters, addresses, objects or proxies are not as they must be.",
		Fix:     "See what the message says."},
	{ID: CodeObject, Severity: resource.Error, Title: "object of a Gateway missing",
		Meaning: "Something that each Gateway gets is not there. The controller makes it anew when it can.",
		Fix:     "Look at the controller's log for the reason."},
	{ID: CodeProxies, Severity: resource.Error, Title: "proxies not ready",
		Meaning: "Proxies of a Gateway are not ready, or not connected to the controller. It is a warning if others are.",
		Fix:     "Look at the pods, their events and logs."},
	{ID: CodeBehind, Severity: resource.Warning, Title: "proxies behind",
		Meaning: "Proxies of a Gateway run another configuration than what is written now means, or refuse it or parts of it (an error). They serve an earlier one, or the rest.",
		Fix:     "It passes within a second of a change; else look at the logs of the controller and of the proxies."},
	{ID: CodeStatus, Severity: resource.Warning, Title: "status out of date",
		Meaning: "The status of an object is not what it should be by what is written and runs now.",
		Fix:     "It passes within a second or two of a change; else see that a controller leads, and its log."},
	{ID: CodeConversion, Severity: resource.Error, Title: "versions not converted",
		Meaning: "A definition of SMI does not tell the API server how versions are converted: it names no webhook, or not by certificates that are the controller's now. " +
			"Requests in versions that differ from the stored one fail; that one is served. It is a warning where another webhook converts, a note where old versions are not served.",
		Fix: "See that a controller leads; apply the definitions of Weir's release (deploy/crds), which Helm does not upgrade."},
	{ID: CodeConverter, Severity: resource.Error, Title: "conversion webhook missing",
		Meaning: "The Service by which the API server has versions converted does not exist, lacks the port, or has no ready endpoints. Requests in versions that differ from the stored one fail; that one is served.",
		Fix:     "Look at the controller's pods, or install the chart or the manifests anew."},
	{ID: CodeNotConverted, Severity: resource.Error, Title: "conversion fails",
		Meaning: "All seems to be there, but the API server cannot list objects in a version that differs from the stored one. The message is the API server's.",
		Fix:     "Let the API server reach the controller: firewalls between it and the nodes, NetworkPolicies (networkPolicies.conversionFrom)."},
	{ID: CodeUnwatched, Severity: resource.Warning, Title: "Gateway in a namespace that is not watched",
		Meaning: "A Gateway of one of Weir's classes is in a namespace that the controller does not read (--namespaces). It has no proxies of Weir's.",
		Fix:     "Add the namespace to the controller's --namespaces (the chart's namespaces), or move the Gateway."},
	{ID: CodeNotSeen, Severity: resource.Info, Title: "not looked at",
		Meaning: "Something could not be looked at, as you may not read it. The rest was.",
		Fix:     "Ask for the right to read it."},
	{ID: CodeClassEnds, Severity: resource.Warning, Title: "GatewayClass being deleted",
		Meaning: "A GatewayClass of Weir's was deleted, but Gateways use it. They are served as before, and it goes with the last of them.",
		Fix:     "Delete the Gateways, or give them another class; then one of that name can be created anew."},
}

// finding makes one with the usual severity of its code.
func finding(code string, ref model.Ref, field, message, fix string) resource.Finding {
	i := slices.IndexFunc(codes, func(c resource.Code) bool { return c.ID == code })
	ref.Field = field
	return resource.Finding{Code: code, Severity: codes[i].Severity, Ref: ref, Message: message, Fix: fix}
}
