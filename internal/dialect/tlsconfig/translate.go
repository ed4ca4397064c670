// Package tlsconfig reads SMI's TLSConfigs: which pods they select, which names these pods' certificates have, and whether
// they refuse clients in plain text; and it reports in statuses, events and findings what became of each. docs/mesh.md says
// what it makes of what the draft leaves open.
//
// It is pure: it reads a resource.Set, which it does not change, and nothing else. The controller signs and serves by it.
package tlsconfig

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/weirmesh/weir/api/tlsconfig"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
)

// Types of conditions.
const (
	condAccepted = "Accepted"     // its selector can be read
	condNames    = "SubjectNames" // the pods may have all of its names
	condInjected = "Injected"     // all pods that it selects have a sidecar
)

// Options are settings that are not part of a set.
type Options struct {
	// Grants allow names beside those of Services.
	Grants []Grant
	// Partial means that the set is a part of a cluster's objects: Services and pods may be elsewhere.
	Partial bool
}

// Translate returns the status of every TLSConfig, the events about them and the findings. The order of the objects in
// the set has no influence.
func Translate(set *resource.Set, o Options) (statuses []resource.Status, events []resource.Event, findings []resource.Finding) {
	x := NewIndex(set, o.Grants)
	if len(x.configs) == 0 {
		return nil, nil, nil
	}
	pods := map[string][]workload.Pods{}
	for _, p := range workload.Of(set) {
		pods[p.Namespace] = append(pods[p.Namespace], p)
	}
	for namespace, list := range x.configs {
		for _, c := range list {
			status, problems := c.report(pods[namespace], o.Partial)
			statuses = append(statuses, status)
			for _, p := range problems {
				ref := status.Ref
				f := set.About(ref, p, severities)
				findings = append(findings, f)
				if f.Severity != resource.Info {
					events = append(events, resource.Event{Ref: ref, Type: "Warning", Reason: p.Reason, Message: p.Text()})
				}
			}
		}
	}
	resource.SortStatuses(statuses)
	slices.SortStableFunc(events, func(a, b resource.Event) int {
		if n := a.Ref.Compare(b.Ref); n != 0 {
			return n
		}
		return strings.Compare(a.Message, b.Message)
	})
	resource.SortFindings(findings)
	return statuses, events, findings
}

// maxNamed is how many pods a message names.
const maxNamed = 5

// report is the status of a config, given what runs pods in its namespace, and what is wrong with it.
func (c *config) report(pods []workload.Pods, partial bool) (resource.Status, []resource.Finding) {
	o := c.object
	s := resource.Status{Ref: model.Ref{Kind: kindName, Namespace: o.Namespace, Name: o.Name}, Generation: o.Generation}
	var all []resource.Finding
	accepted := resource.True(condAccepted, "Accepted", "")
	if c.err != nil {
		p := resource.Problem(codeSelector, "InvalidSelector", "spec.selector", c.err.Error(), "write labels that pods may have")
		all = append(all, p)
		accepted = resource.False(condAccepted, p.Reason, p.Text())
	}
	if value, there := o.Annotations[tlsconfig.PermissiveAnnotation]; there && value != "true" && value != "false" {
		all = append(all, resource.Problem(codeAnnotation, "InvalidAnnotation", "metadata.annotations["+tlsconfig.PermissiveAnnotation+"]",
			fmt.Sprintf("%.64q is not a value of it, and plain text is refused", value), `write "true" or "false", in quotes`))
	}
	var refused []resource.Finding
	for _, r := range c.refused {
		fix := fmt.Sprintf("name a Service of the namespace, or allow it with --mesh-subject-names %s=%s (the chart's mesh.subjectNames)", o.Namespace, o.Spec.SubjectNames[r.at])
		code := codeRefused
		switch {
		case r.err == errAddress:
			fix = "write a DNS name"
		case partial: // its Service, or the list, may be in the cluster
			code = codeUnseen
		case r.err == errCluster:
			fix = "create the Service, or correct the name"
		}
		refused = append(refused, resource.Problem(code, "NotPermitted", model.FieldAt("spec.subjectNames", r.at),
			fmt.Sprintf("%q is not signed: %s", o.Spec.SubjectNames[r.at], r.err), fix))
	}
	all = append(all, refused...)
	names := resource.True(condNames, "Signed", "")
	if len(refused) > 0 {
		names = resource.False(condNames, refused[0].Reason, resource.Texts(refused))
	}
	injected, p := c.injected(pods, partial)
	if p != nil {
		all = append(all, *p)
	}
	s.Conditions = []resource.Condition{accepted, names, injected}
	return s, all
}

// injected says how the pods stand that are selected: those that run, and templates of which no pod is known.
func (c *config) injected(pods []workload.Pods, partial bool) (resource.Condition, *resource.Finding) {
	selected, with, running := 0, 0, 0
	var without []string
	for i := range pods {
		p := &pods[i]
		if c.err != nil || !c.selector.Matches(labels.Set(p.PodLabels)) {
			continue
		}
		switch selected++; {
		case p.Sidecar:
			with++
			if len(p.Addresses) > 0 {
				running++
			}
		default:
			without = append(without, p.Kind+" "+p.Name+why(p))
		}
	}
	counts := fmt.Sprintf("%d selected, %d with a sidecar, %d of these have an address", selected, with, running)
	switch {
	case selected == 0:
		p := resource.Problem(codeNoPods, "SelectsNothing", "spec.selector", "no pods are known that it selects", "correct the labels, or ignore this if the pods are yet to come")
		return resource.Unknown(condInjected, p.Reason, p.Text()), &p
	case with == selected:
		return resource.True(condInjected, "Injected", counts), nil
	}
	if more := len(without) - maxNamed; more > 0 {
		without = append(without[:maxNamed], fmt.Sprintf("and %d more", more))
	}
	code := codeNotInjected
	if partial {
		code = codeUnseen
	}
	p := resource.Problem(code, "NotInjected", "spec.selector", counts+"; without: "+strings.Join(without, ", "),
		"give the namespace or the pods' template the label weirmesh.github.io/inject: enabled, and replace the pods")
	return resource.False(condInjected, p.Reason, p.Text()), &p
}

// why says what kept a pod from its sidecar, as far as it can be seen.
func why(p *workload.Pods) string {
	switch {
	case p.HostNetwork:
		return " (hostNetwork)"
	case p.PodLabels["weirmesh.github.io/inject"] == "disabled":
		return " (its label opts out)"
	}
	return ""
}
