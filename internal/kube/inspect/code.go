package inspect

import (
	"slices"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// The codes of findings about a cluster.
const (
	CodeMissing        = "WR701"
	CodeRelease        = "WR702"
	CodeController     = "WR703"
	CodeLease          = "WR704"
	CodePermission     = "WR705"
	CodeClass          = "WR706"
	CodeNotProgrammed  = "WR707"
	CodeObject         = "WR708"
	CodeProxies        = "WR709"
	CodeBehind         = "WR710"
	CodeStatus         = "WR711"
	CodeNotSeen        = "WR712"
	CodeConversion     = "WR714"
	CodeConverter      = "WR715"
	CodeNotConverted   = "WR716"
	CodeUnwatched      = "WR719"
	CodeClassEnds      = "WR713"
	CodeTraffic        = "WR720"
	CodeInjection      = "WR721"
	CodeSidecarRefused = "WR722"
	CodeSidecarless    = "WR723"
	CodeSidecarState   = "WR724"
	CodeRollouts       = "WR725"
)

// Codes documents them, in order.
func Codes() []resource.Code { return slices.Clone(codes) }

var codes = []resource.Code{
	{ID: CodeMissing, Severity: resource.Error, Title: "kind not installed",
		Meaning: "The cluster has no custom resource definition of a kind that Weir reads, or its definition serves none of the versions that Weir reads. Objects of it cannot be written. " +
			"It is an error for GatewayClass, Gateway and HTTPRoute, a warning for other kinds of Gateway API, a note for those of SMI.",
		Fix: "Install Gateway API of the release named, experimental channel; SMI's definitions come with Weir's chart."},
	{ID: CodeRelease, Severity: resource.Warning, Title: "another release of Gateway API",
		Meaning: "The definitions of Gateway API are of another release or channel than Weir is built for. The API server drops fields that they do not have; " +
			"fields that only they have do nothing. A newer release or the standard channel is a note.",
		Fix: "Install the release named, experimental channel."},
	{ID: CodeController, Severity: resource.Error, Title: "controller not running",
		Meaning: "Weir's controller is not installed, or not all of its replicas are ready (a warning, if some are). Without it proxies serve what they last had, and no change is served.",
		Fix:     "Install it, or check its pods."},
	{ID: CodeLease, Severity: resource.Warning, Title: "no leader",
		Meaning: "No replica of the controller holds the lease. Changes are served, but statuses are not written and new Gateways get no proxies.",
		Fix:     "Wait a few seconds after a start; otherwise see the controller's log."},
	{ID: CodePermission, Severity: resource.Error, Title: "permission missing",
		Meaning: "The controller's ServiceAccount lacks a permission that the controller needs.",
		Fix:     "Reinstall the roles of the chart, or the manifests of Weir's release."},
	{ID: CodeClass, Severity: resource.Warning, Title: "no GatewayClass",
		Meaning: "No GatewayClass names Weir's controller, so no Gateway is Weir's.",
		Fix:     "Create one with spec.controllerName weirmesh.github.io/gateway-controller."},
	{ID: CodeNotProgrammed, Severity: resource.Error, Title: "not served in the cluster",
		Meaning: "The object is fine by itself, but the cluster does not let it be served: something is wrong with its parameters, addresses, objects or proxies.",
		Fix:     "See what the message says."},
	{ID: CodeObject, Severity: resource.Error, Title: "object of a Gateway missing",
		Meaning: "One of the objects that each Gateway gets is missing. The controller recreates it when it can.",
		Fix:     "Look at the controller's log for the reason."},
	{ID: CodeProxies, Severity: resource.Error, Title: "proxies not ready",
		Meaning: "Proxies of a Gateway are not ready, or not connected to the controller. It is a warning if others are.",
		Fix:     "Look at the pods, their events and logs."},
	{ID: CodeBehind, Severity: resource.Warning, Title: "proxies behind",
		Meaning: "Proxies of a Gateway run a configuration other than the current one, or refuse it or parts of it (an error). They serve an earlier one, or the rest.",
		Fix:     "It clears within a second of a change; otherwise see the logs of the controller and of the proxies."},
	{ID: CodeStatus, Severity: resource.Warning, Title: "status out of date",
		Meaning: "The status of an object does not match what is written and runs now.",
		Fix:     "It clears within two seconds of a change; otherwise make sure that a controller leads, and see its log."},
	{ID: CodeConversion, Severity: resource.Error, Title: "versions not converted",
		Meaning: "A custom resource definition of SMI names no conversion webhook, or trusts certificates other than the controller's current ones. " +
			"Requests in versions other than the stored one fail; the stored one works. It is a warning where another webhook converts, a note where old versions are not served.",
		Fix: "Make sure that a controller leads; apply the definitions of Weir's release (deploy/crds), which Helm does not upgrade."},
	{ID: CodeConverter, Severity: resource.Error, Title: "conversion webhook missing",
		Meaning: "The Service of the conversion webhook does not exist, lacks the port, or has no ready endpoints. Requests in versions other than the stored one fail; the stored one works.",
		Fix:     "Check the controller's pods, or reinstall the chart or the manifests."},
	{ID: CodeNotConverted, Severity: resource.Error, Title: "conversion fails",
		Meaning: "Everything seems to be in place, but the API server cannot list objects in a version other than the stored one. The message is the API server's.",
		Fix:     "Let the API server reach the controller: check firewalls between it and the nodes, and NetworkPolicies (networkPolicies.conversionFrom)."},
	{ID: CodeUnwatched, Severity: resource.Warning, Title: "Gateway in a namespace that is not watched",
		Meaning: "A Gateway of one of Weir's classes is in a namespace that the controller does not read (--namespaces). It has no proxies of Weir's.",
		Fix:     "Add the namespace to the controller's --namespaces (the chart's namespaces), or move the Gateway."},
	{ID: CodeTraffic, Severity: resource.Error, Title: "Traffic Metrics not available",
		Meaning: "An APIService of Traffic Metrics exists, but the API server cannot use it, as its condition Available says; or the controller does not serve them. It is a warning where another Service answers. " +
			"Requests fail, kubectl warns, and namespaces that are deleted stay until it is available.",
		Fix: "Check the controller's pods, and that the API server reaches them; delete the APIService if nobody is to answer."},
	{ID: CodeInjection, Severity: resource.Error, Title: "sidecars not injected",
		Meaning: "A webhook configuration by which pods get sidecars is missing or does not name a namespace with TLSConfigs, or the ConfigMap weir-ca of a namespace with sidecars is missing, or is not the controller's. " +
			"It is a warning for a namespace whose label asks in vain: it has another value, or the namespace is one whose pods never have sidecars.",
		Fix: "See what the message says."},
	{ID: CodeSidecarRefused, Severity: resource.Error, Title: "pods with sidecars would be refused",
		Meaning: "A namespace that asks for sidecars, by its label or a TLSConfig, has a PodSecurity level, a ResourceQuota or a LimitRange by which the API server refuses pods that have one. It is a warning if a quota is used up, or if the namespace is in another mesh, too.",
		Fix:     "Change it, or what sidecars request and may use (mesh.sidecar of the chart). Leave the namespace to one mesh."},
	{ID: CodeSidecarless, Severity: resource.Warning, Title: "pods without sidecars",
		Meaning: "Pods run without the sidecar that they, their namespace or a TLSConfig ask for. They were created before that, or while the webhook was not installed. It is a note for pods that never have one, such as those with their node's network.",
		Fix:     "Create the pods anew."},
	{ID: CodeSidecarState, Severity: resource.Warning, Title: "sidecars that are not as they should be",
		Meaning: "Sidecars of a namespace are not connected to the controller, serve an old configuration, could not apply the newest one or cannot be sent all of it (an error), or have a certificate that should have been renewed (an error once it has ended). " +
			"It is a note for those of another image than new pods get.",
		Fix: "See what the message says."},
	{ID: CodeRollouts, Severity: resource.Warning, Title: "Rollouts not carried out",
		Meaning: "The controller is to carry Rollouts out (rollouts.enabled) and does not: OpenKruise's own controller is installed, so that two would write the same objects; or the API server does not have the kind. " +
			"A release that was under way stays where it was, and goes on when nothing is in the way any more.",
		Fix: "Keep one of the two controllers: set rollouts.enabled to false, or remove OpenKruise Rollouts with its definitions except that of Rollouts."},
	{ID: CodeNotSeen, Severity: resource.Info, Title: "not checked",
		Meaning: "You may not read something that the command checks. The rest was checked.",
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
