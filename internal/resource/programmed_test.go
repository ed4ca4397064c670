package resource

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/model"
)

// TestProgrammedFollowsTheVerdict has a Gateway with two listeners, one of which the translator refuses, and a ListenerSet with one, and another
// Gateway that nothing is found out about.
func TestProgrammedFollowsTheVerdict(t *testing.T) {
	parent := gatewayv1.Namespace("shop")
	set := &Set{ListenerSets: []*gatewayv1.ListenerSet{{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "set"}, Spec: gatewayv1.ListenerSetSpec{ParentRef: gatewayv1.ParentGatewayReference{Namespace: &parent, Name: "edge"}},
	}}}
	is := func(status metav1.ConditionStatus) []Condition {
		return []Condition{{Type: Programmed, Status: status, Reason: "R"}}
	}
	statuses := func() []Status {
		return []Status{
			{Ref: model.Ref{Kind: "Gateway", Namespace: "shop", Name: "edge"}, Conditions: is("True"), Listeners: []ListenerStatus{{Name: "a", Conditions: is("True")}, {Name: "b", Conditions: is("False")}}},
			{Ref: model.Ref{Kind: "Gateway", Namespace: "shop", Name: "other"}, Conditions: is("True"), Listeners: []ListenerStatus{{Name: "a", Conditions: is("True")}}},
			{Ref: model.Ref{Kind: "ListenerSet", Namespace: "team", Name: "set"}, Conditions: is("True"), Listeners: []ListenerStatus{{Name: "a", Conditions: is("True")}}},
		}
	}
	no := &Condition{Type: Programmed, Status: "False", Reason: "No"}
	for name, c := range map[string]struct {
		verdict Verdict
		want    string
	}{
		"nothing":                    {Verdict{}, "edge R a R b R, other R a R, set R a R"},
		"the whole Gateway":          {Verdict{Whole: no}, "edge No a Pending b R, other R a R, set Pending a Pending"},
		"one listener":               {Verdict{Unserved: map[string]string{"shop/edge/a": "", "shop/edge/b": "", "other/edge/a": "", "a": ""}, None: no}, "edge R a PortUnavailable b R, other R a R, set R a R"},
		"one of a ListenerSet":       {Verdict{Unserved: map[string]string{"shop/edge/team/set/a": ""}, None: no}, "edge R a R b R, other R a R, set R a PortUnavailable"},
		"all listeners":              {Verdict{Unserved: map[string]string{"shop/edge/team/set/a": "", "shop/edge/a@::1": ""}, None: no}, "edge No a PortUnavailable b R, other R a R, set R a PortUnavailable"},
		"all, which says no more":    {Verdict{Unserved: map[string]string{"shop/edge/team/set/a": "", "shop/edge/a": ""}}, "edge R a PortUnavailable b R, other R a R, set R a PortUnavailable"},
		"a listener that it has not": {Verdict{Unserved: map[string]string{"shop/edge/c": ""}, None: no}, "edge R a R b R, other R a R, set R a R"},
	} {
		before := statuses()
		var got []string
		for _, s := range set.Judge(before, func(g model.Owner, _ *Status) Verdict {
			if g == "shop/edge" {
				return c.verdict
			}
			return Verdict{}
		}) {
			text := s.Ref.Name + " " + s.Condition(Programmed).Reason
			for _, l := range s.Listeners {
				text += " " + l.Name + " " + l.Conditions[0].Reason
			}
			got = append(got, text)
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		for i, s := range statuses() {
			if before[i].Conditions[0] != s.Conditions[0] || before[i].Listeners[0].Conditions[0] != s.Listeners[0].Conditions[0] {
				t.Errorf("%s: the statuses given were changed", name)
			}
		}
	}
}
