package rollouts

import (
	"slices"

	"github.com/weirmesh/weir/internal/resource"
)

const (
	codeServiceNotFound   = "WR901"
	codeCanaryNotFound    = "WR902"
	codeTargetNotFound    = "WR903"
	codeNoProvider        = "WR904"
	codeTarget            = "WR905"
	codeStepShort         = "WR906"
	codeStepNote          = "WR907"
	codeTrafficAndMatches = "WR908"
	codeTrafficFalls      = "WR909"
	codeNoRouting         = "WR910"
	codeModifierAlone     = "WR911"
	codeWorkloadTaken     = "WR912"
	codeExpression        = "WR913"
	codeExactCookie       = "WR914"
	codeMetadataIgnored   = "WR915"
	codeMetadataClash     = "WR916"
	codeFieldIgnored      = "WR917"
	codeKindNamed         = "WR918"
	codePath              = "WR919"
	codeHeaderTwice       = "WR920"
	codeEveryRequest      = "WR921"
	codeWorkloadNotFound  = "WR922"
)

var codes = []resource.Code{
	{ID: codeServiceNotFound, Severity: resource.Error, Title: "rollout: Service not found",
		Meaning: "The Service of the stable version, which trafficRoutings names, does not exist, or is left out because it is not valid. No step can shift requests.",
		Fix:     "Create or correct the Service, or correct the name."},
	{ID: codeCanaryNotFound, Severity: resource.Warning, Title: "rollout: canary Service not found",
		Meaning: "There is no Service of the canary's pods, which is called like the stable one with \"-canary\" behind it. In a cluster it is made for each release. Without a cluster nothing makes it, and the Rollout waits for it.",
		Fix:     "Write the Service, with endpoints of the new version."},
	{ID: codeTargetNotFound, Severity: resource.Error, Title: "rollout: route not found",
		Meaning: "An object that trafficRoutings names, such as an HTTPRoute, an Ingress or a VirtualService, does not exist, or is left out because it is not valid. No step can shift requests by it.",
		Fix:     "Create or correct the object, or correct the name."},
	{ID: codeNoProvider, Severity: resource.Error, Title: "rollout: kind that cannot be shifted",
		Meaning: "trafficRoutings names an object of a kind for which there is no provider. No step can shift requests by it.",
		Fix:     "Name an object of one of the kinds of docs/rollouts.md."},
	{ID: codeTarget, Severity: resource.Error, Title: "rollout: route cannot be shifted",
		Meaning: "An object that trafficRoutings names cannot carry any step out, as the message says: for instance, it does not lead to the Service.",
		Fix:     "Correct the object, or name another one."},
	{ID: codeStepShort, Severity: resource.Error, Title: "rollout: step that cannot be carried out as written",
		Meaning: "The object that routes requests cannot express a part of a step. The message says what is done instead.",
		Fix:     "Write the step as the message says, or route by an object that can express it: docs/rollouts.md has a table."},
	{ID: codeStepNote, Severity: resource.Info, Title: "rollout: note on a step",
		Meaning: "A step is carried out as written, with the particularity that the message names.",
		Fix:     "Nothing, if that is meant."},
	{ID: codeTrafficAndMatches, Severity: resource.Warning, Title: "rollout: traffic beside matches",
		Meaning: "A step has traffic and matches. Only the matches have an effect.",
		Fix:     "Remove one of the two, or make two steps of it."},
	{ID: codeTrafficFalls, Severity: resource.Warning, Title: "rollout: falling percentage",
		Meaning: "A step shifts less traffic to the new version than one before it.",
		Fix:     "Write a greater percentage, if that is not meant."},
	{ID: codeNoRouting, Severity: resource.Warning, Title: "rollout: nothing routes",
		Meaning: "A step says which requests go to the new version, but the Rollout names nothing that routes requests. Pods alone decide.",
		Fix:     "Write trafficRoutings."},
	{ID: codeModifierAlone, Severity: resource.Warning, Title: "rollout: modifier without effect",
		Meaning: "A step modifies requests of the new version, but sends none there by traffic or matches.",
		Fix:     "Write traffic or matches, or remove requestHeaderModifier."},
	{ID: codeWorkloadTaken, Severity: resource.Error, Title: "rollout: workload taken",
		Meaning: "Two Rollouts name one workload. They would work against each other.",
		Fix:     "Delete one of the two."},
	{ID: codeExpression, Severity: resource.Error, Title: "rollout: invalid regular expression",
		Meaning: "A match of a step has a regular expression that does not compile, or is too large. The Rollout is left alone until it is corrected. Where only an Ingress of nginx routes requests, expressions may have the syntax of PCRE, too.",
		Fix:     "Write it in RE2 syntax, which has neither look-around nor back-references."},
	{ID: codeExactCookie, Severity: resource.Warning, Title: "rollout: all cookies compared as one",
		Meaning: "A match of a step wants the header Cookie to be exactly a text. That header has all cookies of a client, so a client with a further one does not match: the cookie of a session, which the first answer sets, takes it back to the stable version.",
		Fix:     "Use the type RegularExpression, which must match the whole header: (.*;\\s*)?NAME=VALUE(;.*)?"},
	{ID: codeMetadataIgnored, Severity: resource.Warning, Title: "rollout: metadata without effect",
		Meaning: "patchPodTemplateMetadata is for extra pods (enableExtraWorkloadForCanary, of a Deployment). Pods that replace stable ones stay when the release is over, and would keep labels and annotations that the workload does not have.",
		Fix:     "Remove it, set enableExtraWorkloadForCanary, or write the metadata in the workload's template."},
	{ID: codeMetadataClash, Severity: resource.Error, Title: "rollout: label that selectors do not match",
		Meaning: "With a label of patchPodTemplateMetadata the extra pods would not be selected any more by their Deployment, or by the Service that trafficRoutings names.",
		Fix:     "Use another label, or remove it from the Service's selector."},
	{ID: codeFieldIgnored, Severity: resource.Warning, Title: "rollout: field without effect",
		Meaning: "A field of the Rollout has no effect: trafficRoutingRef (in v1alpha1 the annotation rollouts.kruise.io/trafficrouting), as Weir has no kind TrafficRouting; or enableExtraWorkloadForCanary for another workload than a Deployment, whose new pods replace stable ones.",
		Fix:     "Write trafficRoutings in place of trafficRoutingRef; remove enableExtraWorkloadForCanary."},
	{ID: codeKindNamed, Severity: resource.Info, Title: "rollout: kind that has to be named",
		Meaning: "The workload is of a kind that Weir's controller releases only where whoever runs it has named the kind (rollouts.workloads of the chart), and whose definition has what a release needs. Otherwise the Rollout is refused when it is written, or its status says what is missing.",
		Fix:     "Nothing, if the kind is named in the cluster. See docs/rollouts.md, Workloads of other kinds."},
	{ID: codePath, Severity: resource.Error, Title: "rollout: invalid path",
		Meaning: "A match of a step has a path that no route accepts, or that no request has: one that does not begin with a slash, or has an empty segment, a segment . or .., an escaped slash, a query, a fragment, or a character that paths have only escaped. The rules are those of the Gateway API for the types Exact and PathPrefix. The Rollout is left alone until the path is corrected.",
		Fix:     "Write the path as requests have it, such as /api."},
	{ID: codeHeaderTwice, Severity: resource.Error, Title: "rollout: two conditions on one header",
		Meaning: "A match of a step names a header twice. Names of headers do not differ by case. Routes have one condition on a header, so the other would have no effect. The Rollout is left alone until one of the two is gone.",
		Fix:     "Remove one of the two. To take requests that fulfil either, write two matches."},
	{ID: codeEveryRequest, Severity: resource.Warning, Title: "rollout: match that takes every request",
		Meaning: "A match of a step has the path / alone, as a prefix. Every path begins so, and all requests go to the new version.",
		Fix:     "Write another path, headers or queryParams. If all requests are meant, write traffic: 100%."},
	{ID: codeWorkloadNotFound, Severity: resource.Warning, Title: "rollout: workload not found",
		Meaning: "The workload that a Rollout of a cluster names does not exist there. The Rollout does nothing until it does.",
		Fix:     "Create the workload, correct spec.workloadRef, or delete the Rollout."},
}

// Codes documents the codes of this package's findings.
func Codes() []resource.Code { return slices.Clone(codes) }

var severities = resource.Severities(slices.Concat(resource.Codes(), codes))
