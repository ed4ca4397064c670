package inspect

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/version"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

const install = "reinstall the chart or the manifests of Weir's release"

// Findings judges what was read. The findings are about the cluster; the translator finds what is wrong with objects by
// themselves.
func (c *Cluster) Findings(in Input, controllerName string) []resource.Finding {
	j := &judge{Cluster: c, found: slices.Concat(c.Roles, c.Rollouts)}
	j.definitions()
	j.release()
	j.controller()
	j.conversions()
	j.traffic()
	j.rollouts()
	j.sidecars(time.Now())
	j.classes(in.Set, controllerName)
	for _, name := range slices.Sorted(maps.Keys(c.Gateways)) {
		j.gateway(name, c.Gateways[name])
	}
	j.statuses(in, controllerName)
	if len(c.NotSeen) > 0 {
		var what []string
		for _, n := range c.NotSeen {
			what = append(what, n.What)
		}
		j.add(CodeNotSeen, model.Ref{}, "", "you may not read "+strings.Join(what, "; ")+". "+c.NotSeen[0].Reason, "ask for the right to read them, if you want them checked")
	}
	if !in.Complete {
		j.add(CodeNotSeen, model.Ref{}, "", "what the proxies run was not compared, because not all of their objects could be read",
			"see the other findings")
	}
	resource.SortFindings(j.found)
	return j.found
}

// classes reports that no class is Weir's, and classes that are deleted and in use.
func (j *judge) classes(set *resource.Set, controllerName string) {
	ours := false
	for _, c := range set.GatewayClasses {
		if !resource.OwnsClass(controllerName, c) {
			continue
		}
		ours = true
		if c.DeletionTimestamp == nil {
			continue
		}
		var users []string
		for _, g := range set.Gateways {
			if string(g.Spec.GatewayClassName) == c.Name {
				users = append(users, g.Namespace+"/"+g.Name)
			}
		}
		if n := len(users); n > 0 {
			slices.Sort(users)
			if n > 3 {
				users = append(users[:3], fmt.Sprintf("and %d more", n-3))
			}
			j.add(CodeClassEnds, model.Ref{Kind: "GatewayClass", Name: c.Name}, "metadata.deletionTimestamp",
				"it was deleted, and stays as long as Gateways use it: "+strings.Join(users, ", "), "delete them or give them another class to let it go")
		}
	}
	if !ours && !j.lacks("GatewayClass") {
		j.add(CodeClass, model.Ref{}, "", "no GatewayClass has spec.controllerName "+controllerName+", so no Gateway is Weir's",
			"create one, or let the chart do it (gatewayClass.create)")
	}
}

func (m Missing) compare(other Missing) int {
	return cmp.Or(cmp.Compare(m.Namespace, other.Namespace), m.Verb.Compare(other.Verb))
}

type judge struct {
	*Cluster
	found []resource.Finding
}

func (j *judge) add(code string, ref model.Ref, field, message, fix string) *resource.Finding {
	j.found = append(j.found, finding(code, ref, field, message, fix))
	return &j.found[len(j.found)-1]
}

func (j *judge) lacks(kind string) bool {
	return slices.ContainsFunc(j.Definitions, func(d Definition) bool {
		return d.Name == kind && d.Group == gatewayv1.GroupName && d.Version == ""
	})
}

func (j *judge) definitions() {
	for _, d := range j.Definitions {
		if d.Version != "" {
			continue
		}
		what, fix := d.Without, "install the definitions of "+d.API+", if you want it"
		switch {
		case d.Bundled:
			fix = "install the definitions of Weir's chart, if you want " + d.API
		case d.Group == gatewayv1.GroupName:
			fix = "install Gateway API " + Release + ", experimental channel"
		}
		message := "the kind is not installed: " + what
		field := ""
		if d.There {
			field = "spec.versions"
			message = fmt.Sprintf("none of the versions %s is served: %s", strings.Join(d.Versions, ", "), what)
		}
		j.add(CodeMissing, model.Ref{Kind: "CustomResourceDefinition", Name: d.Definition}, field, message, fix).Severity = d.Kind.Missing
	}
}

// release reports definitions of Gateway API that are of another release or channel, once for each.
func (j *judge) release() {
	type origin struct{ release, channel string }
	var first []Definition
	kinds := map[origin][]string{}
	for _, d := range j.Definitions {
		if d.Group != gatewayv1.GroupName || d.Version == "" || d.Release == "" {
			continue
		}
		o := origin{d.Release, d.Channel}
		if kinds[o] == nil {
			first = append(first, d)
		}
		kinds[o] = append(kinds[o], d.Name)
	}
	want := version.MustParseSemantic(Release)
	for _, d := range first {
		ref := model.Ref{Kind: "CustomResourceDefinition", Name: d.Definition}
		names := strings.Join(kinds[origin{d.Release, d.Channel}], ", ")
		fix := "install Gateway API " + Release + ", experimental channel"
		have, err := version.ParseSemantic(d.Release)
		switch {
		case err != nil || have.Major() == want.Major() && have.Minor() < want.Minor() || have.Major() < want.Major():
			j.add(CodeRelease, ref, "metadata.annotations", fmt.Sprintf("the definitions of %s are of Gateway API %s, Weir is built for %s: "+
				"the API server drops fields that came later", names, d.Release, Release), fix)
		case have.Major() != want.Major() || have.Minor() > want.Minor():
			f := j.add(CodeRelease, ref, "metadata.annotations", fmt.Sprintf("the definitions of %s are of Gateway API %s, Weir is built for %s: "+
				"fields that came later do nothing", names, d.Release, Release), "a newer release of Weir may know them")
			f.Severity = resource.Info
		case d.Channel == "standard":
			f := j.add(CodeRelease, ref, "metadata.annotations", fmt.Sprintf("the definitions of %s are of the standard channel: "+
				"the API server drops fields of the experimental one, such as sessions and retries", names), fix+", if you want them")
			f.Severity = resource.Info
		}
	}
}

func (j *judge) controller() {
	c := j.Controller
	if c == nil {
		if !slices.ContainsFunc(j.NotSeen, func(n NotSeen) bool { return strings.HasPrefix(n.What, "the controller's Deployment") }) {
			j.add(CodeController, model.Ref{Kind: "Deployment", Namespace: DefaultNamespace, Name: DefaultName}, "", "no controller found: no Deployment is labelled app.kubernetes.io/name=weir and app.kubernetes.io/component=controller",
				"helm install weir deploy/chart --namespace weir-system --create-namespace")
		}
		return
	}
	ref := model.Ref{Kind: "Deployment", Namespace: c.Namespace, Name: c.Name}
	look := fmt.Sprintf("kubectl -n %s describe pods -l app.kubernetes.io/component=controller", c.Namespace)
	switch {
	case c.Replicas == 0:
		j.add(CodeController, ref, "spec.replicas", "the controller is scaled to nothing", fmt.Sprintf("kubectl -n %s scale deployment/%s --replicas=2", c.Namespace, c.Name))
	case c.Ready == 0:
		j.add(CodeController, ref, "status.readyReplicas", fmt.Sprintf("none of %d replicas of the controller is ready", c.Replicas), look)
	case c.Ready < c.Replicas:
		f := j.add(CodeController, ref, "status.readyReplicas", fmt.Sprintf("%d of %d replicas of the controller are ready", c.Ready, c.Replicas), look)
		f.Severity = resource.Warning
	}
	if c.Elects && c.Leader == "" && c.Ready > 0 {
		j.add(CodeLease, model.Ref{Kind: "Lease", Namespace: c.Namespace, Name: c.Lease}, "spec.holderIdentity",
			"no replica of the controller leads: no statuses are written, and new Gateways get no proxies",
			fmt.Sprintf("wait a few seconds after a start, otherwise see: kubectl -n %s logs deployment/%s --all-pods", c.Namespace, c.Name))
	}
	account := model.Ref{Kind: "ServiceAccount", Namespace: c.Namespace, Name: c.ServiceAccount}
	of := map[Missing][]string{} // verbs, by all else
	for _, v := range j.Missing {
		what := v
		what.Verb.Verb = ""
		of[what] = append(of[what], v.Verb.Verb)
	}
	for _, what := range slices.SortedFunc(maps.Keys(of), Missing.compare) {
		text := "may not " + strings.Join(of[what], ", ") + what.Verb.String()
		if what.Namespace != "" && (len(c.Namespaces) > 0 || what.Namespace != c.Namespace) {
			text += " in namespace " + what.Namespace
		}
		j.add(CodePermission, account, "", text, install)
	}
	for _, name := range j.Unwatched {
		j.add(CodeUnwatched, name.Ref(), "", fmt.Sprintf(
			"the controller does not watch namespace %s, so nothing serves it; it watches only %s", name.Namespace(), strings.Join(c.Namespaces, ", ")),
			"add the namespace to the controller's --namespaces (the chart's namespaces), or move the Gateway")
	}
}

func (j *judge) gateway(name model.Owner, g *Gateway) {
	namespace, short, ref := name.Namespace(), name.Name(), name.Ref()
	pods := fmt.Sprintf("kubectl -n %s describe pods -l %s=%s", namespace, gatewayv1.GatewayNameLabelKey, short)
	if len(g.Missing) > 0 {
		fix := "the controller makes it when it can; see its log, and the Gateway's conditions"
		j.add(CodeObject, ref, "", "missing: "+strings.Join(g.Missing, ", "), fix)
	}
	if d := g.Deployment; d != nil {
		of := model.Ref{Kind: "Deployment", Namespace: d.Namespace, Name: d.Name}
		switch want, ready := replicas(d), d.Status.ReadyReplicas; {
		case want == 0:
			f := j.add(CodeProxies, of, "spec.replicas", fmt.Sprintf("the proxies of Gateway %s are scaled to nothing", name), "scale it up")
			f.Severity = resource.Warning
		case ready == 0:
			j.add(CodeProxies, of, "status.readyReplicas", fmt.Sprintf("none of %d proxies of Gateway %s is ready", want, name), pods)
		case ready < want:
			f := j.add(CodeProxies, of, "status.readyReplicas", fmt.Sprintf("%d of %d proxies of Gateway %s are ready", ready, want, name), pods)
			f.Severity = resource.Warning
		case j.Seen && int(ready) > len(g.Proxies):
			f := j.add(CodeProxies, of, "", fmt.Sprintf("%d of %d proxies of Gateway %s are connected to the controller; the others serve what they last had",
				len(g.Proxies), ready, name), "see their logs: "+strings.Replace(pods, "describe pods", "logs", 1))
			f.Severity = resource.Warning
		}
	}
	for _, p := range g.Proxies {
		pod := model.Ref{Kind: "Pod"}
		pod.Namespace, pod.Name, _ = strings.Cut(p.Name, "/")
		switch {
		case p.Err != "" && g.Version != "" && p.Version == g.Version:
			f := j.add(CodeBehind, pod, "", fmt.Sprintf("serves the newest configuration of Gateway %s except for parts of it: %s", name, p.Err), "give it the controller's version; otherwise please report this")
			f.Severity = resource.Error
		case p.Err != "":
			f := j.add(CodeBehind, pod, "", fmt.Sprintf("refuses the newest configuration of Gateway %s and serves an earlier one: %s", name, p.Err), "please report this")
			f.Severity = resource.Error
		case g.Version != "" && p.Version != g.Version:
			j.add(CodeBehind, pod, "", fmt.Sprintf("runs configuration %s of Gateway %s, the newest is %s", short8(p.Version), name, short8(g.Version)),
				"look again; if it stays, see the logs of the controller and of the pod")
		}
	}
}

// short8 is the beginning of a version.
func short8(v string) string {
	if v == "" {
		return "none"
	}
	return v[:min(8, len(v))]
}

// statuses reports errors of the cluster that prevent serving, and statuses that are not as expected.
func (j *judge) statuses(in Input, controllerName string) {
	if j.Controller == nil || j.Controller.Ready == 0 {
		return // no controller writes them
	}
	for i, s := range j.Expected(in, controllerName) {
		for _, of := range []gatewayv1.GatewayConditionType{gatewayv1.GatewayConditionAccepted, gatewayv1.GatewayConditionProgrammed} {
			is, alone := condition(s.Conditions, string(of)), condition(in.Statuses[i].Conditions, string(of))
			if is != nil && alone != nil && is.Status == "False" && alone.Status == "True" {
				j.add(CodeNotProgrammed, s.Ref, "", fmt.Sprintf("%s is False (%s): %s", is.Type, is.Reason, is.Message), mend(s.Ref, is.Reason))
			}
		}
		if !in.Complete {
			continue
		}
		if field, message := stale(in.Set, controllerName, &s, j.Seen); message != "" {
			j.add(CodeStatus, s.Ref, field, message, "look again; if it stays, make sure that a controller leads, and see its log")
		}
	}
}

// mend returns what to do about a condition that is False for the reason.
func mend(ref model.Ref, reason string) string {
	made := fmt.Sprintf("-l %s=%s", gatewayv1.GatewayNameLabelKey, ref.Name)
	switch reason {
	case string(gatewayv1.GatewayReasonPending), string(gatewayv1.GatewayReasonNoResources):
		return fmt.Sprintf("if it stays, see: kubectl -n %s describe deployments,pods %s", ref.Namespace, made)
	case string(gatewayv1.GatewayReasonAddressNotAssigned):
		return fmt.Sprintf("see: kubectl -n %s describe services %s; where nothing assigns addresses to load balancers, set service.type in the parameters", ref.Namespace, made)
	case string(gatewayv1.GatewayReasonInvalidParameters):
		return "correct the ConfigMap that parametersRef names"
	}
	return "do what the message says"
}

func condition(all []resource.Condition, kind string) *resource.Condition {
	if i := slices.IndexFunc(all, func(c resource.Condition) bool { return c.Type == kind }); i >= 0 {
		return &all[i]
	}
	return nil
}

// Passing reports whether some finding may be about a change that is on its way, so that it is worth reading again.
func Passing(findings []resource.Finding) bool {
	return slices.ContainsFunc(findings, func(f resource.Finding) bool {
		return f.Code == CodeBehind || f.Code == CodeStatus || f.Code == CodeObject ||
			f.Code == CodeConversion || f.Code == CodeConverter || f.Code == CodeNotConverted || f.Code == CodeTraffic || f.Code == CodeInjection
	})
}
