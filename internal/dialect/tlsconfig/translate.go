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
	// Excluded are the namespaces whose pods never have sidecars.
	Excluded []string
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
	labels := map[string]map[string]string{}
	for _, n := range set.Namespaces {
		labels[n.Name] = n.Labels
	}
	for namespace, list := range x.configs {
		many := 0 // names of all
		for _, c := range list {
			many += len(c.names)
		}
		in := &within{pods: pods[namespace], label: labels[namespace][injectLabel], partial: o.Partial, excluded: slices.Contains(o.Excluded, namespace)}
		if many > MaxNames {
			in.index = x
		}
		for _, c := range list {
			status, problems := c.report(in)
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

// injectLabel is the label of namespaces and pods about sidecars. Its value disabled keeps them without, whatever selects them.
const (
	injectLabel = "weirmesh.github.io/inject"
	disabled    = "disabled"
)

// within is what matters of a namespace.
type within struct {
	pods    []workload.Pods
	label   string // its injectLabel
	partial bool
	// excluded means that its pods never have sidecars.
	excluded bool
	index    *Index // nil if no pod can have more than MaxNames
}

// report is the status of a config, and what is wrong with it.
func (c *config) report(in *within) (resource.Status, []resource.Finding) {
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
	refused := c.unsigned(in)
	all = append(all, refused...)
	names := resource.True(condNames, "Signed", "")
	if len(refused) > 0 {
		names = resource.False(condNames, refused[0].Reason, resource.Texts(refused))
	}
	injected, p := c.injected(in)
	if p != nil {
		all = append(all, *p)
	}
	s.Conditions = []resource.Condition{accepted, names, injected}
	return s, all
}

// unsigned says which names certificates do not have, and why.
func (c *config) unsigned(in *within) (out []resource.Finding) {
	o := c.object
	for _, r := range c.refused {
		fix := fmt.Sprintf("name a Service of the namespace, or allow it with --mesh-subject-names %s=%s (in a cluster the chart's mesh.subjectNames)", o.Namespace, o.Spec.SubjectNames[r.at])
		code := codeRefused
		switch {
		case r.err == errAddress:
			fix = "write a DNS name"
		case in.partial: // its Service, or the list, may be in the cluster
			code = codeUnseen
		case r.err == errCluster:
			fix = "create the Service, or correct the name"
		}
		out = append(out, resource.Problem(code, "NotPermitted", model.FieldAt("spec.subjectNames", r.at),
			fmt.Sprintf("%q is not signed: %s", o.Spec.SubjectNames[r.at], r.err), fix))
	}
	if in.index == nil || c.err != nil {
		return out
	}
	for i := range in.pods {
		p := &in.pods[i]
		if !c.selector.Matches(labels.Set(p.PodLabels)) {
			continue
		}
		of := in.index.Of(o.Namespace, p.PodLabels)
		var dropped []string
		for _, name := range of.Dropped {
			if slices.Contains(c.names, name) {
				dropped = append(dropped, fmt.Sprintf("%q", name))
			}
		}
		if len(dropped) > 0 {
			return append(out, resource.Problem(codeMany, "TooManyNames", "spec.subjectNames",
				fmt.Sprintf("the TLSConfigs that select %s %s have %d names together, and a certificate has the first %d by the alphabet: %s not signed", p.Kind, p.Name, len(of.Names)+len(of.Dropped), MaxNames, list(dropped, "is", "are")),
				"give the pods fewer names"))
		}
	}
	return out
}

// list is "A, B and 3 more are", of at most maxNamed.
func list(all []string, is, are string) string {
	if len(all) == 1 {
		return all[0] + " " + is
	}
	return strings.Join(few(all), ", ") + " " + are
}

// few are the first of some, and how many more there are.
func few(all []string) []string {
	if more := len(all) - maxNamed; more > 0 {
		return append(slices.Clone(all[:maxNamed]), fmt.Sprintf("and %d more", more))
	}
	return all
}

// injected says how the pods stand that are selected. Those that are to come, of templates of which no pod is known and of
// manifests, get sidecars unless they opt out. Proxies of Gateways do not count: they have an identity without a sidecar.
func (c *config) injected(in *within) (resource.Condition, *resource.Finding) {
	selected, with, serving := 0, 0, 0
	var without, coming []string
	old := false
	for i := range in.pods {
		p := &in.pods[i]
		if c.err != nil || !c.selector.Matches(labels.Set(p.PodLabels)) || !p.Sidecar && ofGateway(p.PodLabels) {
			continue
		}
		name, why := p.Kind+" "+p.Name, in.why(p)
		switch {
		case p.Sidecar:
			selected++
			with++
			if p.Serving {
				serving++
			}
		case why == "" && (in.partial || p.Kind != model.KindPod):
			coming = append(coming, name)
		default:
			selected++
			old = old || why == ""
			without = append(without, name+why)
		}
	}
	counts := fmt.Sprintf("%d selected, %d with a sidecar, %d of these serve", selected, with, serving)
	switch {
	case selected == 0 && len(coming) > 0:
		return resource.Unknown(condInjected, "NoPods", "no pods run yet; those that are to come get sidecars: "+strings.Join(few(coming), ", ")), nil
	case selected == 0:
		p := resource.Problem(codeNoPods, "SelectsNothing", "spec.selector", "no pods are known that it selects", "correct the labels, or ignore this if the pods are yet to come")
		return resource.Unknown(condInjected, p.Reason, p.Text()), &p
	case with == selected:
		return resource.True(condInjected, "Injected", counts), nil
	}
	fix := "remove what keeps them without, or select others"
	switch {
	case in.excluded:
		fix = "run them in another namespace"
	case old:
		fix = "replace those that name no reason, which are older than the TLSConfig: kubectl -n " + c.object.Namespace + " rollout restart deployments,statefulsets,daemonsets"
	}
	p := resource.Problem(codeNotInjected, "NotInjected", "spec.selector", counts+"; without: "+strings.Join(few(without), ", "), fix)
	return resource.False(condInjected, p.Reason, p.Text()), &p
}

// why says what kept a pod from its sidecar, or will, as far as it can be seen: what the injection goes by, in its order.
func (in *within) why(p *workload.Pods) string {
	switch own := p.PodLabels[injectLabel]; {
	case own == disabled:
		return " (its label opts out)"
	case own == "" && in.label == disabled:
		return " (the namespace's label opts out)"
	case in.excluded:
		return " (pods of this namespace run the cluster or Weir's controller, and never have a sidecar)"
	case p.HostNetwork:
		return " (hostNetwork)"
	case p.Windows:
		return " (it runs on Windows)"
	case p.Static:
		return " (its node runs it from a file)"
	}
	return ""
}

// ofGateway reports whether pods have the labels of a Gateway's proxies, which opt them out.
func ofGateway(labels map[string]string) bool {
	return labels[injectLabel] == "" && labels["app.kubernetes.io/managed-by"] == "weir" && labels["gateway.networking.k8s.io/gateway-name"] != "" && labels["gateway.networking.k8s.io/gateway-class-name"] != ""
}
