package infra_test

import (
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

func balanced(name string, addresses ...string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer}}
	for _, a := range addresses {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: a})
	}
	return s
}

func internal(name string, addresses ...string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{Type: corev1.ServiceTypeClusterIP, ClusterIPs: addresses}}
}

func found(services ...*corev1.Service) infra.Found {
	f := infra.Found{Services: map[string]*corev1.Service{}, Deployment: deployment(1, 1)}
	for _, s := range services {
		f.Services[s.Name] = s
	}
	return f
}

func deployment(wanted, ready int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "edge-weir"}, Spec: appsv1.DeploymentSpec{Replicas: &wanted},
		Status: appsv1.DeploymentStatus{ReadyReplicas: ready, AvailableReplicas: ready},
	}
}

func TestProgrammedFollowsWhatRuns(t *testing.T) {
	runs := []infra.Proxy{{Name: "a", Version: "2"}}
	old := []infra.Proxy{{Name: "a", Version: "1"}}
	address := found(balanced("edge-weir", "192.0.2.1"))
	without := address
	without.Deployment = deployment(2, 0)
	half := address
	half.Deployment = deployment(2, 1)
	gone := address
	gone.Deployment = nil
	problem := func(f infra.Found, p infra.ObjectProblem) infra.Found {
		f.Problems = []infra.ObjectProblem{p}
		return f
	}
	yes := &resource.Condition{Type: "Programmed", Status: "True", Reason: "Programmed", Generation: 6}
	no := &resource.Condition{Type: "Programmed", Status: "False", Reason: "Pending", Generation: 6}
	lost := &resource.Condition{Type: "Programmed", Status: "False", Reason: "NoResources", Generation: 6}
	static := []gatewayv1.GatewaySpecAddress{{Value: "192.0.2.7"}, {Value: "192.0.2.8"}}
	seven, eight := balanced("edge-weir-192-0-2-7", "192.0.2.7"), balanced("edge-weir-192-0-2-8")

	for name, c := range map[string]struct {
		static []gatewayv1.GatewaySpecAddress
		before *resource.Condition
		state  infra.State
		// want is "Status Reason generation" and a part of the message.
		want, message string
		addresses     string
	}{
		"nothing is there":         {state: infra.State{Version: "2"}, want: "False AddressNotAssigned 0", message: "does not exist yet"},
		"no address yet":           {state: infra.State{Found: found(balanced("edge-weir")), Version: "2", Proxies: runs}, want: "False AddressNotAssigned 0", message: "assigned no address yet"},
		"no proxy yet":             {state: infra.State{Found: without, Version: "2"}, want: "False Pending 0", message: "Deployment edge-weir has 0 of 2 pods ready", addresses: "192.0.2.1"},
		"no Deployment":            {state: infra.State{Found: gone, Version: "2"}, want: "False Pending 0", message: "the Deployment does not exist", addresses: "192.0.2.1"},
		"a proxy runs it":          {state: infra.State{Found: address, Version: "2", Proxies: runs}, want: "True Programmed 0", addresses: "192.0.2.1"},
		"ClusterIP":                {state: infra.State{Found: found(internal("edge-weir", "10.96.0.9", "fd00::9")), Version: "2", Proxies: runs}, want: "True Programmed 0", addresses: "10.96.0.9 fd00::9"},
		"headless by mistake":      {state: infra.State{Found: found(internal("edge-weir", "None")), Version: "2", Proxies: runs}, want: "False AddressNotAssigned 0"},
		"the first is on its way":  {state: infra.State{Found: address, Version: "2", Proxies: old}, want: "False Pending 0", message: "0 of 1 proxies", addresses: "192.0.2.1"},
		"a change is on its way":   {before: yes, state: infra.State{Found: address, Version: "2", Proxies: old}, want: "True Programmed 6", addresses: "192.0.2.1"},
		"half the change is there": {before: yes, state: infra.State{Found: address, Version: "2", Proxies: append(old, runs...)}, want: "True Programmed 6", addresses: "192.0.2.1"},
		"it was not before":        {before: no, state: infra.State{Found: address, Version: "2", Proxies: append(old, runs...)}, want: "False Pending 0", message: "1 of 2 proxies", addresses: "192.0.2.1"},
		"the change is there":      {before: yes, state: infra.State{Found: address, Version: "2", Proxies: runs}, want: "True Programmed 0", addresses: "192.0.2.1"},
		"proxies come back to a new controller": {before: yes, state: infra.State{Found: address, Version: "2"},
			want: "True Programmed 6", addresses: "192.0.2.1"},
		"nobody knows what is there": {before: yes, state: infra.State{Version: "2"}, want: "True Programmed 6"},
		"all proxies are gone":       {before: yes, state: infra.State{Found: without, Version: "2"}, want: "False NoResources 0", message: "0 of 2", addresses: "192.0.2.1"},
		"they stay gone":             {before: lost, state: infra.State{Found: without, Version: "2"}, want: "False NoResources 0", message: "0 of 2", addresses: "192.0.2.1"},
		"gone, still connected":      {before: yes, state: infra.State{Found: without, Version: "2", Proxies: runs}, want: "False NoResources 0", message: "0 of 2", addresses: "192.0.2.1"},
		"the Deployment is gone":     {before: yes, state: infra.State{Found: gone, Version: "2", Proxies: runs}, want: "False NoResources 0", message: "the Deployment does not exist", addresses: "192.0.2.1"},
		"a proxy is back":            {before: lost, state: infra.State{Found: address, Version: "2", Proxies: runs}, want: "True Programmed 0", addresses: "192.0.2.1"},
		"back, not connected":        {before: lost, state: infra.State{Found: address, Version: "2"}, want: "False Pending 0", message: "no proxy is connected", addresses: "192.0.2.1"},
		"its pod is not ready":       {state: infra.State{Found: without, Version: "2", Proxies: runs}, want: "False Pending 0", message: "no proxy is ready: Deployment edge-weir has 0 of 2", addresses: "192.0.2.1"},
		"one of two pods is ready":   {state: infra.State{Found: half, Version: "2", Proxies: append(runs, infra.Proxy{Name: "b", Version: "2"})}, want: "True Programmed 0", addresses: "192.0.2.1"},
		"a rolling update":           {before: yes, state: infra.State{Found: half, Version: "2", Proxies: append(runs, infra.Proxy{Name: "b"})}, want: "True Programmed 6", addresses: "192.0.2.1"},
		"its address is lost":        {before: yes, state: infra.State{Found: found(balanced("edge-weir")), Version: "2", Proxies: runs}, want: "False AddressNotAssigned 0"},
		"one refuses": {before: yes, state: infra.State{Found: address, Version: "2", Proxies: []infra.Proxy{{Name: "a", Version: "2"}, {Name: "b", Version: "1", Err: "port 80 is taken"}}},
			want: "False Invalid 0", message: "proxy b: port 80 is taken", addresses: "192.0.2.1"},
		"a foreign object": {before: yes, state: infra.State{Found: problem(address, infra.ObjectProblem{Kind: "Deployment", Name: "edge-weir", Foreign: true}), Version: "2", Proxies: runs},
			want: "False NameConflict 0", message: "Deployment edge-weir in namespace shop", addresses: "192.0.2.1"},
		"the API server refuses": {state: infra.State{Found: problem(address, infra.ObjectProblem{Kind: "Deployment", Name: "edge-weir", Refused: true, Message: "affinity is wrong"}), Version: "2", Proxies: runs},
			want: "False Invalid 0", message: "affinity is wrong", addresses: "192.0.2.1"},
		"the API server is away": {state: infra.State{Found: problem(address, infra.ObjectProblem{Kind: "Deployment", Name: "edge-weir", Message: "timeout"}), Version: "2", Proxies: runs},
			want: "True Programmed 0", addresses: "192.0.2.1"},
		"static, one is missing": {static: static, state: infra.State{Found: found(seven, eight), Version: "2", Proxies: runs},
			want: "False AddressNotUsable 0", message: "192.0.2.8: the cluster's load balancers have assigned no address yet", addresses: "192.0.2.7"},
		"static, another was given": {static: static, state: infra.State{Found: found(seven, balanced("edge-weir-192-0-2-8", "192.0.2.99")), Version: "2", Proxies: runs},
			want: "False AddressNotUsable 0", message: "was given 192.0.2.99 instead", addresses: "192.0.2.7 192.0.2.99"},
		"static, refused": {static: static, state: infra.State{Found: problem(found(seven), infra.ObjectProblem{Kind: "Service", Name: "edge-weir-192-0-2-8", Refused: true, Message: "not in the range"}), Version: "2", Proxies: runs},
			want: "False AddressNotUsable 0", message: "192.0.2.8: not in the range", addresses: "192.0.2.7"},
		"static, all there": {static: static, state: infra.State{Found: found(seven, balanced("edge-weir-192-0-2-8", "192.0.2.8")), Version: "2", Proxies: runs},
			want: "True Programmed 0", addresses: "192.0.2.7 192.0.2.8"},
	} {
		t.Run(name, func(t *testing.T) {
			g := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge"}, Spec: gatewayv1.GatewaySpec{GatewayClassName: "weir", Addresses: c.static}}
			if c.before != nil {
				g.Status.Conditions = []metav1.Condition{{Type: "Programmed", Status: c.before.Status, Reason: c.before.Reason, ObservedGeneration: c.before.Generation}}
			}
			s := overlay(t, g, c.state)
			is := condition(t, s.Conditions)
			if got := string(is.Status) + " " + is.Reason + " " + string(rune('0'+is.Generation)); got != c.want || !strings.Contains(is.Message, c.message) {
				t.Errorf("%s %q, want %s %q", got, is.Message, c.want, c.message)
			}
			var addresses []string
			for _, a := range s.Addresses {
				addresses = append(addresses, a.Value)
			}
			if got := strings.Join(addresses, " "); got != c.addresses {
				t.Errorf("addresses %q, want %q", got, c.addresses)
			}
			if l := condition(t, s.Listeners[0].Conditions); l.Status != is.Status || l.Generation != is.Generation {
				t.Errorf("the listener does not follow: %+v", l)
			}
			if l := condition(t, s.Listeners[1].Conditions); l.Reason != "Invalid" {
				t.Errorf("a listener that is wrong by itself has changed: %+v", l)
			}
		})
	}
}

func condition(t *testing.T, all []resource.Condition) resource.Condition {
	t.Helper()
	for _, c := range all {
		if c.Type == "Programmed" {
			return c
		}
	}
	t.Fatal("no condition Programmed")
	return resource.Condition{}
}

func statuses() []resource.Status {
	is := func(status metav1.ConditionStatus, reason string) []resource.Condition {
		return []resource.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted"}, {Type: "Programmed", Status: status, Reason: reason}}
	}
	listeners := []resource.ListenerStatus{{Name: "http", Conditions: is("True", "Programmed")}, {Name: "tls", Conditions: is("False", "Invalid")}}
	return []resource.Status{
		{Ref: model.Ref{Kind: "Gateway", Namespace: "shop", Name: "edge"}, Generation: 7, Conditions: is("True", "Programmed"), Listeners: listeners},
		{Ref: model.Ref{Kind: "ListenerSet", Namespace: "team", Name: "more"}, Generation: 2, Conditions: is("True", "Programmed"), Listeners: listeners[:1]},
	}
}

func overlay(t *testing.T, g *gatewayv1.Gateway, state infra.State) resource.Status {
	t.Helper()
	fleet := infra.Fleet{ControllerName: gateway.ControllerName}
	return run(t, &fleet, g, state)[0]
}

func run(t *testing.T, fleet *infra.Fleet, g *gatewayv1.Gateway, state infra.State) []resource.Status {
	t.Helper()
	namespace := gatewayv1.Namespace("shop")
	set := &resource.Set{
		GatewayClasses: []*gatewayv1.GatewayClass{{ObjectMeta: metav1.ObjectMeta{Name: "weir"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: gateway.ControllerName}}},
		Gateways:       []*gatewayv1.Gateway{g},
		ListenerSets: []*gatewayv1.ListenerSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "more"},
			Spec: gatewayv1.ListenerSetSpec{ParentRef: gatewayv1.ParentGatewayReference{Namespace: &namespace, Name: "edge"}}}},
	}
	given := statuses()
	out := fleet.Overlay(set, given, func(name model.Owner) infra.State {
		if name != "shop/edge" {
			t.Errorf("asked for %s", name)
		}
		return state
	})
	if condition(t, given[0].Conditions).Status != "True" || given[0].Addresses != nil || condition(t, given[0].Listeners[0].Conditions).Status != "True" {
		t.Error("the statuses given were changed")
	}
	return out
}

// The last reported condition counts, not the one that a cache still shows.
func TestFleetRemembersWhatItSaid(t *testing.T) {
	fleet := infra.Fleet{ControllerName: gateway.ControllerName}
	g := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge"}, Spec: gatewayv1.GatewaySpec{GatewayClassName: "weir"}}
	state := infra.State{Found: found(balanced("edge-weir", "192.0.2.1")), Version: "1"}
	out := run(t, &fleet, g, state)
	if c := condition(t, out[0].Conditions); c.Status != "False" {
		t.Errorf("%+v", c)
	}
	if c := condition(t, out[1].Conditions); c.Status != "False" || c.Reason != "Pending" {
		t.Errorf("the ListenerSet does not follow: %+v", c)
	}
	state.Proxies = []infra.Proxy{{Name: "a", Version: "1"}}
	out = run(t, &fleet, g, state)
	if c := condition(t, out[0].Conditions); c.Status != "True" {
		t.Errorf("%+v", c)
	}
	if c := condition(t, out[1].Listeners[0].Conditions); c.Status != "True" || c.Generation != 0 {
		t.Errorf("the listener of the ListenerSet does not follow: %+v", c)
	}
	state.Version = "2"
	out = run(t, &fleet, g, state)
	if c := condition(t, out[0].Conditions); c.Status != "True" || c.Generation != 7 {
		t.Errorf("%+v", c)
	}
}

func TestAdminPortIsTheOneThatNoListenerMayHave(t *testing.T) {
	if infra.AdminPort != gateway.AdminPort {
		t.Errorf("%d and %d", infra.AdminPort, gateway.AdminPort)
	}
}

// TestListenersThatProxiesDoNotServeAreNotProgrammed has proxies that cannot bind some ports, of Gateways and of ListenerSets.
func TestListenersThatProxiesDoNotServeAreNotProgrammed(t *testing.T) {
	g := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "edge"}, Spec: gatewayv1.GatewaySpec{GatewayClassName: "weir"}}
	l := &gatewayv1.ListenerSet{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "more"}}
	ns := gatewayv1.Namespace("shop")
	l.Spec.ParentRef.Name, l.Spec.ParentRef.Namespace = "edge", &ns
	set := &resource.Set{
		GatewayClasses: []*gatewayv1.GatewayClass{{ObjectMeta: metav1.ObjectMeta{Name: "weir"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: gateway.ControllerName}}},
		Gateways:       []*gatewayv1.Gateway{g}, ListenerSets: []*gatewayv1.ListenerSet{l},
	}
	good := func() []resource.Condition {
		return []resource.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted"}, {Type: "Programmed", Status: "True", Reason: "Programmed"}}
	}
	listeners := func() []resource.ListenerStatus {
		return []resource.ListenerStatus{{Name: "http", Conditions: good()}, {Name: "admin", Conditions: good()}}
	}
	statuses := []resource.Status{
		{Ref: model.Ref{Kind: "Gateway", Namespace: "shop", Name: "edge"}, Conditions: good(), Listeners: listeners()},
		{Ref: model.Ref{Kind: "ListenerSet", Namespace: "team", Name: "more"}, Conditions: good(), Listeners: listeners()},
	}
	unserved := func(names ...string) (out []infra.Unserved) {
		for _, n := range names {
			out = append(out, infra.Unserved{Listener: n, Reason: "port 80: permission denied"})
		}
		return out
	}
	f := infra.Fleet{ControllerName: gateway.ControllerName}
	for _, c := range []struct {
		proxies []infra.Proxy
		want    string
	}{
		{[]infra.Proxy{{Name: "a", Version: "1"}}, ""},
		{[]infra.Proxy{{Name: "a", Version: "1", Unserved: unserved("shop/edge/admin")}}, "Gateway admin: proxy a cannot serve it: port 80: permission denied\n"},
		{[]infra.Proxy{{Name: "a", Version: "1", Unserved: unserved("shop/edge/admin")}, {Name: "b", Version: "1", Unserved: unserved("shop/edge/admin")}},
			"Gateway admin: proxy a cannot serve it: port 80: permission denied, proxy b cannot serve it: port 80: permission denied\n"},
		{[]infra.Proxy{{Name: "a", Version: "1", Unserved: unserved("shop/edge/team/more/http")}}, "ListenerSet http: proxy a cannot serve it: port 80: permission denied\n"},
		{[]infra.Proxy{{Name: "a", Version: "1", Unserved: unserved("other/edge/http", "shop/edge/nothing", "http")}}, ""}, // what is not its own
		{[]infra.Proxy{{Name: "a", Version: "1"}}, ""}, // and back
	} {
		out := f.Overlay(set, statuses, func(model.Owner) infra.State {
			return infra.State{Found: found(balanced("edge-weir", "192.0.2.1")), Version: "1", Proxies: c.proxies}
		})
		var got strings.Builder
		for _, s := range out {
			for _, l := range s.Listeners {
				for _, c := range l.Conditions {
					if c.Type == "Programmed" && c.Status != "True" {
						if c.Reason != "PortUnavailable" {
							t.Errorf("reason %s", c.Reason)
						}
						got.WriteString(s.Ref.Kind + " " + l.Name + ": " + c.Message + "\n")
					}
				}
			}
			for _, c := range s.Conditions {
				if c.Status != "True" {
					t.Errorf("%s %s=%s: %s", s.Ref.Kind, c.Type, c.Status, c.Message)
				}
			}
		}
		if got.String() != c.want {
			t.Errorf("got:\n%swant:\n%s", got.String(), c.want)
		}
	}
}
