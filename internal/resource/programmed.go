package resource

import (
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
)

// Programmed is the type of the condition that says whether a Gateway, a ListenerSet or a listener is served. A
// translator sets it as far as it knows; the component that serves them corrects it with Judge.
const Programmed = string(gatewayv1.GatewayConditionProgrammed)

// Verdict is what the component that serves a Gateway found out about it. The zero value means that the Gateway is
// served as the translator says.
type Verdict struct {
	// Whole, if not nil, is the Gateway's condition Programmed. Its listeners and ListenerSets that could be served follow it.
	Whole *Condition
	// Unserved is why single listeners are not served, by their names in the model.
	Unserved map[string]string
	// None, if not nil, is the Gateway's condition if Unserved leaves it without a served listener.
	None *Condition
}

// Judge returns the statuses with Programmed corrected by verdicts: for Gateways, their listeners, and their
// ListenerSets. It asks for a verdict about each Gateway that has a status. It does not change its input.
func (s *Set) Judge(statuses []Status, verdict func(gateway model.Owner, is *Status) Verdict) []Status {
	out := slices.Clone(statuses)
	verdicts := map[model.Owner]*judged{}
	for i := range out {
		if is := &out[i]; is.Ref.Kind == "Gateway" {
			name := model.GatewayOwner(is.Ref.Namespace, is.Ref.Name)
			j := &judged{Verdict: verdict(name, is), gateway: is}
			verdicts[name] = j
			j.whole()
			j.listeners(is, string(name))
		}
	}
	if len(s.ListenerSets) > 0 {
		parents := parentsOf(s.ListenerSets)
		for i := range out {
			is := &out[i]
			at := is.Ref.Namespace + "/" + is.Ref.Name
			if is.Ref.Kind != "ListenerSet" {
				continue
			}
			if j := verdicts[parents[at]]; j != nil {
				j.follow(is)
				j.listeners(is, string(parents[at])+"/"+at)
			}
		}
	}
	for _, j := range verdicts {
		if j.None != nil && j.missed && !j.served {
			j.gateway.setProgrammed(*j.None)
		}
	}
	return out
}

// parentsOf returns the Gateway of each ListenerSet, "namespace/name".
func parentsOf(sets []*gatewayv1.ListenerSet) map[string]model.Owner {
	out := make(map[string]model.Owner, len(sets))
	for _, l := range sets {
		if parent, ok := ParentOf(l); ok {
			out[l.Namespace+"/"+l.Name] = model.GatewayOwner(parent.Namespace, parent.Name)
		}
	}
	return out
}

// judged is a Gateway with its verdict.
type judged struct {
	Verdict
	gateway *Status
	// missed reports that a servable listener is not served, served that one is.
	missed, served bool
}

// whole sets the Gateway's condition. If that changes the condition, the listeners follow.
func (j *judged) whole() {
	before := j.gateway.Condition(Programmed)
	if j.Whole == nil || before == nil || *before == *j.Whole {
		return
	}
	j.gateway.setProgrammed(*j.Whole)
	j.gateway.followers(*j.Whole)
}

// follow makes a ListenerSet that could be served follow its Gateway.
func (j *judged) follow(set *Status) {
	if j.Whole == nil {
		return
	}
	gateway := *j.Whole
	gateway.Generation = 0 // it is not the ListenerSet's
	if c := set.Condition(Programmed); c != nil && c.Status == metav1.ConditionTrue && gateway.Status != metav1.ConditionTrue {
		set.setProgrammed(False(Programmed, string(gatewayv1.ListenerSetReasonPending), "the Gateway is not programmed; see its status"))
	}
	set.followers(gateway)
}

// followers makes the listeners of an object that could be served follow the Gateway.
func (s *Status) followers(gateway Condition) {
	s.Listeners = slices.Clone(s.Listeners)
	for i := range s.Listeners {
		l := &s.Listeners[i]
		was := FindCondition(l.Conditions, Programmed)
		if was == nil || was.Status != metav1.ConditionTrue {
			continue
		}
		c := *was
		if c.Generation = gateway.Generation; gateway.Status != metav1.ConditionTrue {
			c = False(Programmed, string(gatewayv1.ListenerReasonPending), "the Gateway is not programmed; see its condition")
		}
		l.Conditions = WithCondition(l.Conditions, c)
	}
}

// listeners marks the listeners of an object that could be served and that Unserved names. prefix begins their names in
// the model.
func (j *judged) listeners(of *Status, prefix string) {
	why := map[string]string{} // by listener
	for name, reason := range j.Unserved {
		if rest, ok := strings.CutPrefix(name, prefix+"/"); ok && !strings.Contains(rest, "/") {
			section, _, _ := strings.Cut(rest, "@") // one of several addresses
			if why[section] != "" && why[section] < reason {
				reason = why[section]
			}
			why[section] = reason
		}
	}
	if len(why) > 0 {
		of.Listeners = slices.Clone(of.Listeners)
	}
	for i := range of.Listeners {
		l := &of.Listeners[i]
		c := FindCondition(l.Conditions, Programmed)
		if c == nil || c.Status != metav1.ConditionTrue {
			continue
		}
		reason, missed := why[l.Name]
		if !missed {
			j.served = true
			continue
		}
		j.missed = true
		l.Conditions = WithCondition(l.Conditions, False(Programmed, string(gatewayv1.ListenerReasonPortUnavailable), reason))
	}
}

// Condition returns the condition of a type, or nil. The caller must not change it.
func (s *Status) Condition(kind string) *Condition { return FindCondition(s.Conditions, kind) }

// setProgrammed replaces the condition, if the status has one.
func (s *Status) setProgrammed(c Condition) { s.Conditions = WithCondition(s.Conditions, c) }
