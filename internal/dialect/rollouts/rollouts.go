// Package rollouts reads Rollouts of OpenKruise and judges them: what they refer to, and whether their steps can be
// carried out as they are written. It makes nothing of the model: what a Rollout does is to change the objects that other
// dialects read, which internal/rollout decides.
//
// It is pure: it reads a resource.Set, which it does not change, and nothing else.
package rollouts

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/convert"
	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/deploy/crds"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout"
)

// List is where a Set has its Rollouts.
var List = resource.NewList[*rollouts.Rollout]()

// Kinds returns the kinds that are read.
func Kinds() resource.Kinds { return kinds[:len(kinds):len(kinds)] }

var kinds = resource.Kinds{{
	Group: rollouts.Group, Name: "Rollout", Plural: "rollouts", Versions: rollouts.Versions,
	Decoder: resource.Versioned(rollouts.Decode, nil), Objects: List,
	Definition: resource.Definition{Files: crds.Files, Name: rollouts.Group + "_rollouts.yaml"}, Conversion: conversion(),
	// In a cluster internal/kube/release reads them for itself: they are no part of the configuration.
	FilesOnly: true,
	API:       "OpenKruise Rollouts", Bundled: true, Missing: resource.Info, Without: "there are no Rollouts",
	Common: true, Effects: effects,
	About: "carried out by `weir run` on routes and splits that it serves, and by the controller; judged: what it refers to, and what its steps can be on the objects that route requests",
}}

// effects are those of missing fields: resource.Kind.Effects.
var effects = map[string]string{
	"disabled": "the Rollout is in force", "strategy.paused": "the release goes on by itself",
	"strategy.canary": "the release is no canary", "strategy.blueGreen": "the release is not blue-green",
	"steps": "the release has no steps", "steps.traffic": "no share of the requests is shifted", "steps.matches": "no requests are picked by what they are",
	"steps.replicas": "nothing says how many pods the step has", "steps.pause": "somebody has to approve the step", "pause.duration": "somebody has to approve the step",
	"matches.path": "the match takes every path", "matches.path.type": "the path is a prefix", "matches.path.value": "the match takes every path",
	"matches.headers": "the match looks at no header field", "matches.headers.type": "the value must match exactly",
	"matches.queryParams": "the match looks at no query parameter", "matches.queryParams.type": "the value must match exactly",
	"requestHeaderModifier": "requests reach the new version as they are", "requestHeaderModifier.set": "no field is set", "requestHeaderModifier.add": "no field is added",
	"requestHeaderModifier.remove": "no field is removed",
	"trafficRoutings":              "the release shifts no requests, and only replaces pods", "trafficRoutings.gracePeriodSeconds": "proxies get 3 seconds to take over a change",
	"trafficRoutings.ingress": "no Ingress is shifted", "ingress.classType": "the Ingress is one of nginx", "trafficRoutings.gateway": "no HTTPRoute is shifted",
	"gateway.httpRouteName": "no HTTPRoute is named", "trafficRoutings.customNetworkRefs": "no objects of other kinds are shifted",
	"failureThreshold": "as many of the new pods may be unavailable as the workload says", "trafficRoutingRef": "no TrafficRouting of OpenKruise is named",
	"disableGenerateCanaryService": "the new version has a Service of its own", "enableExtraWorkloadForCanary": "new pods replace stable ones",
	"patchPodTemplateMetadata": "the new pods have the metadata that the workload says", "patchPodTemplateMetadata.labels": "the new pods get no further labels",
	"patchPodTemplateMetadata.annotations": "the new pods get no further annotations",
}

func conversion() *convert.Kind {
	k := rollouts.Kinds()[0]
	return &k
}

// Options are settings that are not part of a set.
type Options struct {
	// Providers lay steps over objects.
	Providers rollout.Providers
	// Partial says that the set is a part of a cluster's objects, as manifests are.
	Partial bool
	// Cluster says that the set has all objects of a cluster that its Rollouts name, as their users wrote them.
	Cluster bool
}

// Translate judges the Rollouts of a set. Uses are the objects that they name and that can carry steps out, whether or not
// others read them.
func Translate(set *resource.Set, o Options) (findings []resource.Finding, uses []resource.Key) {
	t := &translator{set: set, options: o, workloads: map[string]string{}}
	for _, r := range List.In(set) {
		t.rollout(r)
	}
	resource.SortFindings(t.findings)
	return t.findings, t.uses
}

// Steps judges the steps of one Rollout by themselves, whatever they are laid over. Fields are named as the version names them.
func Steps(set *resource.Set, version string, r *rollouts.Rollout) []resource.Finding {
	t := &translator{set: set, version: version}
	t.ignored(r)
	t.steps(r, r.Spec.Strategy.Plan(), r.Spec.Strategy.Field())
	resource.SortFindings(t.findings)
	return t.findings
}

type translator struct {
	set      *resource.Set
	options  Options
	findings []resource.Finding
	uses     []resource.Key
	// version is the one in which the Rollout is written that is judged.
	version string
	// workloads are the Rollouts by their workload.
	workloads map[string]string
}

func (t *translator) report(r *rollouts.Rollout, code, field, message, fix string) {
	ref := model.Ref{Kind: "Rollout", Namespace: r.Namespace, Name: r.Name}
	t.findings = append(t.findings, t.set.About(ref, resource.Problem(code, "", rollouts.Field(t.version, field), message, fix), severities))
}

// Version is the one in which a Rollout of a set is written.
func Version(set *resource.Set, r *rollouts.Rollout) string {
	u, _ := set.Written(resource.Key{Group: rollouts.Group, Kind: "Rollout", Namespace: r.Namespace, Name: r.Name})
	apiVersion, _ := u["apiVersion"].(string)
	_, version := rollout.SplitVersion(apiVersion)
	return cmp.Or(version, rollouts.Versions[0])
}

func (t *translator) rollout(r *rollouts.Rollout) {
	t.version = Version(t.set, r)
	w := r.Spec.WorkloadRef
	id := r.Namespace + " " + w.Key()
	if other, twice := t.workloads[id]; twice {
		t.report(r, codeWorkloadTaken, "spec.workloadRef", fmt.Sprintf("Rollout %s/%s has the %s %s already", r.Namespace, other, w.Kind, w.Name), "delete one of the two")
	} else {
		t.workloads[id] = r.Name
	}
	kind := w.GroupKind()
	if t.options.Cluster && Written(t.set, r.Namespace)(kind.Group, kind.Kind, w.Name) == nil {
		t.report(r, codeWorkloadNotFound, "spec.workloadRef.name", fmt.Sprintf("%s %s/%s does not exist, so the Rollout does nothing", w.Kind, r.Namespace, w.Name), "create it, correct the name, or delete the Rollout")
	}
	if !t.options.Cluster && !slices.Contains(rollouts.Workloads, kind) {
		t.report(r, codeKindNamed, "spec.workloadRef.kind", fmt.Sprintf("the kind %s is released in a cluster if rollouts.workloads of Weir's chart names it", kind), "name it there, if it is replaced by a partition as a StatefulSet is")
	}
	plan, field := r.Spec.Strategy.Plan(), r.Spec.Strategy.Field()
	t.ignored(r)
	t.steps(r, plan, field)
	traffic := plan.Traffic()
	t.clashes(r, traffic)
	if traffic == nil {
		return
	}
	t.service(r, codeServiceNotFound, traffic.Service, field+".trafficRoutings[0].service", "")
	if canary := plan.CanaryService(); canary != traffic.Service && !t.options.Partial && !t.options.Cluster {
		t.service(r, codeCanaryNotFound, canary, field+".trafficRoutings[0].service", ": without a cluster nothing makes it")
	}
	t.targets(r, field)
}

// ignored reports fields that have no effect, whatever the steps.
func (t *translator) ignored(r *rollouts.Rollout) {
	if r.Spec.IgnoresMetadata() {
		why, fix, _ := strings.Cut(rollout.MetadataIgnored, ": ")
		t.report(r, codeMetadataIgnored, rollout.MetadataField, why, fix)
	}
	field := r.Spec.Strategy.Field()
	if r.Spec.Strategy.Plan().TrafficRoutingRef != "" {
		t.report(r, codeFieldIgnored, field+".trafficRoutingRef", "has no effect, as there is no kind TrafficRouting here", "write in trafficRoutings what the TrafficRouting says")
	}
	written := t.version == rollouts.Versions[0] || r.Annotations[rollouts.StyleAnnotation] != "" // v1alpha1 has it as its default
	if c := r.Spec.Strategy.Canary; c != nil && c.EnableExtraWorkloadForCanary && written && r.Spec.Style() != rollouts.ExtraPods {
		t.report(r, codeFieldIgnored, field+".enableExtraWorkloadForCanary", "has no effect, as new pods of a "+r.Spec.WorkloadRef.Kind+" replace stable ones", "remove it, or release a Deployment")
	}
}

// clashes reports labels of extra pods that the workload or the Service would not select. The traffic may be nil.
func (t *translator) clashes(r *rollouts.Rollout, traffic *rollouts.TrafficRouting) {
	m := r.Spec.ExtraMetadata()
	if m == nil {
		return
	}
	written := Written(t.set, r.Namespace)
	var service map[string]any
	if traffic != nil {
		service = written("", "Service", traffic.Service)
	}
	for _, c := range rollout.Clashes(m, written(r.Spec.WorkloadRef.GroupKind().Group, "Deployment", r.Spec.WorkloadRef.Name), service) {
		t.report(r, codeMetadataClash, c.Field(), c.Why, c.Fix)
	}
}

// steps judges the steps by themselves.
func (t *translator) steps(r *rollouts.Rollout, plan *rollouts.Plan, field string) {
	t.mistakes(r)
	last, share := 0, rollouts.Share(t.version)
	for i := range plan.Steps {
		s, at := &plan.Steps[i], fmt.Sprintf("%s.steps[%d]", field, i)
		t.everything(r, s.Matches, at)
		t.cookies(r, s.Matches, at)
		if s.Traffic != nil && len(s.Matches) > 0 {
			t.report(r, codeTrafficAndMatches, at+".traffic", "has no effect beside matches, which alone say what goes to the canary", "remove it, or make two steps of it")
			continue
		}
		if s.RequestHeaderModifier != nil && !s.Shifts() {
			t.report(r, codeModifierAlone, at+".requestHeaderModifier", "has no effect without "+share+" or matches", "write "+share+" or matches, or remove it")
		}
		if plan.Traffic() == nil && s.Shifts() {
			t.report(r, codeNoRouting, at, "says which requests go to the canary, but nothing that routes requests is named", "write "+field+".trafficRoutings")
		}
		if n, ok := s.Percent(); ok {
			if n < last {
				t.report(r, codeTrafficFalls, at+".traffic", fmt.Sprintf("is less than in the steps before (%d%%), so requests go back to the stable version", last), "write a greater percentage, if that is not meant")
			}
			last = n
		}
	}
}

// mistakes reports what keeps the Rollout from being carried out.
func (t *translator) mistakes(r *rollouts.Rollout) {
	code := map[rollout.MistakeKind]string{rollout.InvalidPath: codePath, rollout.InvalidExpression: codeExpression, rollout.RepeatedHeader: codeHeaderTwice}
	for _, m := range rollout.Mistakes(r) {
		t.report(r, code[m.Kind], m.Field, m.Message, m.Fix)
	}
}

// everything reports matches that take every request.
func (t *translator) everything(r *rollouts.Rollout, matches []rollouts.Match, step string) {
	for i, m := range matches {
		if p := m.Path; p == nil || len(m.Headers)+len(m.QueryParams) > 0 || p.Value != nil && *p.Value != "/" || p.Type != nil && *p.Type != gatewayv1.PathMatchPathPrefix {
			continue
		}
		t.report(r, codeEveryRequest, fmt.Sprintf("%s.matches[%d].path", step, i), "takes every request, so all of them go to the canary", "write another path, headers or queryParams; if all are meant, traffic: 100% in place of matches")
	}
}

// cookies reports matches that compare all cookies of a client with one.
func (t *translator) cookies(r *rollouts.Rollout, matches []rollouts.Match, step string) {
	for i, m := range matches {
		for j, h := range m.Headers {
			if strings.EqualFold(string(h.Name), "cookie") && (h.Type == nil || *h.Type == gatewayv1.HeaderMatchExact) {
				t.report(r, codeExactCookie, fmt.Sprintf("%s.matches[%d].headers[%d].value", step, i, j), "is compared with all cookies of a client together, so a client that has a further one does not match",
					"use the type RegularExpression with (.*;\\s*)?"+regexp.QuoteMeta(h.Value)+"(;.*)?")
			}
		}
	}
}

// service reports a Service that is not there.
func (t *translator) service(r *rollouts.Rollout, code, name, field, effect string) {
	if t.set.Service(r.Namespace, name) != nil {
		return
	}
	code, why, fix := t.set.Absent(code, resource.Key{Kind: "Service", Namespace: r.Namespace, Name: name}, t.options.Partial)
	t.report(r, code, field, fmt.Sprintf("Service %s/%s %s%s", r.Namespace, name, why, effect), fix)
}

// targets reports what is wrong with the objects that route requests, and what the steps cannot be on them.
func (t *translator) targets(r *rollouts.Rollout, field string) {
	about := map[string]bool{} // what was reported of a target, whatever the step
	stages := t.options.Providers.Plan(r, Written(t.set, r.Namespace))
	for _, stage := range stages {
		for _, part := range stage.Parts {
			target := part.Target
			switch {
			case part.Provider == "" && !about[target.Field]:
				t.report(r, codeNoProvider, target.Field, fmt.Sprintf("%s (%s) is no kind that steps can be laid over", target.Kind, strings.TrimPrefix(target.Group+"/"+target.Version, "/")), "name an object of a kind that docs/rollouts.md lists")
			case part.Provider != "" && part.Before == nil && !about[target.Field]:
				code, why, fix := t.set.Absent(codeTargetNotFound, resource.Key{Group: target.Group, Kind: target.Kind, Namespace: r.Namespace, Name: target.Name}, t.options.Partial)
				t.report(r, code, target.Field, fmt.Sprintf("%s %s/%s %s", target.Kind, r.Namespace, target.Name, why), fix)
			}
			if part.Provider != "" && part.Before != nil && !about[target.Field] {
				t.uses = append(t.uses, resource.Key{Group: target.Group, Kind: target.Kind, Namespace: r.Namespace, Name: target.Name})
			}
			about[target.Field] = true
			for _, told := range part.Laid.Told {
				code := codeStepNote
				switch {
				case told.Object && about[told.Message]:
					continue
				case told.Object:
					about[told.Message] = true
					code = codeTarget
				case told.Short:
					code = codeStepShort
				}
				t.report(r, code, told.At(target, fmt.Sprintf("%s.steps[%d]", field, stage.Step)), told.Message, told.Fix)
			}
		}
	}
}

// Written returns objects of a namespace as files have them, for rollout.Providers.Plan.
func Written(set *resource.Set, namespace string) func(group, kind, name string) map[string]any {
	return func(group, kind, name string) map[string]any {
		u, _ := set.Written(resource.Key{Group: group, Kind: kind, Namespace: namespace, Name: name})
		return u
	}
}
