package model_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// aWorkload is a pod of namespace shop, which a Deployment runs and two Services lead to.
func aWorkload() model.Workload {
	return model.Workload{
		Ref: model.Ref{Kind: "Pod", Namespace: "shop", Name: "web-1"}, Account: "web", Addresses: []string{"10.0.0.1", "fd00::1"},
		Groups: []model.Group{
			{Kind: "Pod", Name: "web-1"}, {Kind: "Deployment", Name: "web"}, {Kind: "Service", Name: "web", Ports: []int32{8081, 8080}},
			{Kind: "Service", Name: "low", Ports: []int32{80, 8080}}, {Kind: "Service", Name: "nowhere", Ports: []int32{}},
		},
	}
}

// aPolicy is a valid policy for it.
func aPolicy() model.Policy {
	return model.Policy{
		Ref: model.Ref{Kind: "TrafficRole", Namespace: "shop", Name: "r", Field: "rules[0]"}, Binding: model.Ref{Kind: "TrafficRoleBinding", Namespace: "shop", Name: "b"},
		Match:   model.Ref{Kind: "HTTPRouteGroup", Namespace: "shop", Name: "g"},
		Targets: []model.Target{{Namespace: "shop", Kind: "Deployment", Name: "web"}}, Sources: []model.Source{{Kind: "ServiceAccount", Namespace: "shop", Name: "cart"}},
		Traffic: model.TrafficHTTP, Ports: []int32{1, 65535}, Methods: []string{"GET"}, Paths: []string{"/a"},
		Headers: []model.ValueMatch{{Type: model.Regex, Name: "x-team", Value: "a|b"}},
	}
}

func TestATargetNamesWorkloads(t *testing.T) {
	w := aWorkload()
	for _, c := range []struct {
		target model.Target
		ok     bool
		ports  []int32
	}{
		{model.Target{}, true, nil},
		{model.Target{Namespace: "shop"}, true, nil},
		{model.Target{Namespace: "other"}, false, nil},
		{model.Target{Kind: "Pod"}, true, nil},
		{model.Target{Kind: "Pod", Name: "web-1"}, true, nil},
		{model.Target{Kind: "Pod", Name: "web-2"}, false, nil},
		{model.Target{Kind: "Pod", Name: "web"}, false, nil},
		{model.Target{Name: "web"}, false, nil}, // a name without a kind is no group's
		{model.Target{Kind: "Deployment"}, true, nil},
		{model.Target{Kind: "Deployment", Name: "web"}, true, nil},
		{model.Target{Kind: "Deployment", Name: "low"}, false, nil},
		{model.Target{Kind: "StatefulSet"}, false, nil},
		{model.Target{Kind: "Service", Name: "web"}, true, []int32{8080, 8081}},
		{model.Target{Kind: "Service", Name: "nowhere"}, true, []int32{}},
		{model.Target{Kind: "Service"}, true, []int32{80, 8080, 8081}},
	} {
		ports, ok := c.target.Names(&w)
		if ok != c.ok || !reflect.DeepEqual(ports, c.ports) {
			t.Errorf("%s: %v %t, want %v %t", c.target.String(), ports, ok, c.ports, c.ok)
		}
		if p := (model.Policy{Targets: []model.Target{{Kind: "Job"}, c.target}}); p.Names(&w) != c.ok {
			t.Errorf("a policy of %s names it: %t", c.target.String(), !c.ok)
		}
	}
}

func TestWhatTrafficAllows(t *testing.T) {
	for traffic, want := range map[model.Traffic][3]bool{
		model.TrafficHTTP: {true, false, false}, model.TrafficTCP: {true, true, false}, model.TrafficUDP: {false, false, true}, model.TrafficAny: {true, true, true}, "": {}, "quic": {},
	} {
		if got := [3]bool{traffic.Requests(), traffic.Connections(), traffic.Datagrams()}; got != want {
			t.Errorf("%q allows requests, connections and datagrams: %v, want %v", traffic, got, want)
		}
	}
}

func TestAWorkloadIsFoundByItsName(t *testing.T) {
	other := aWorkload()
	other.Ref.Name = "web-2"
	c := model.Config{Workloads: []model.Workload{aWorkload(), other}}
	for i := range c.Workloads {
		if got := c.Workload("shop/Pod/web-" + string(rune('1'+i))); got != &c.Workloads[i] {
			t.Errorf("workload %d is %v", i, got)
		}
	}
	if got := c.Workload("shop/Pod/web-3"); got != nil {
		t.Errorf("a workload that is not there is %v", got)
	}
}

func TestValidateNamesWhatIsWrongWithAccessControl(t *testing.T) {
	const w, p = "Pod shop/web-1", "TrafficRole shop/r rules[0]"
	for want, change := range map[string]func(w *model.Workload, p *model.Policy){
		"":                                      func(*model.Workload, *model.Policy) {},
		"Pod shop/: ref: has no kind":           func(w *model.Workload, _ *model.Policy) { w.Ref.Name = "" },
		" shop/web-1: ref: has no kind":         func(w *model.Workload, _ *model.Policy) { w.Ref.Kind = "" },
		"Pod web-1: ref: has no kind":           func(w *model.Workload, _ *model.Policy) { w.Ref.Namespace = "" },
		w + `: deny: "some" is unknown`:         func(w *model.Workload, _ *model.Policy) { w.Deny = "some" },
		w + `: addresses[1]: "a" is not an IP`:  func(w *model.Workload, _ *model.Policy) { w.Addresses[1] = "a" },
		w + ": groups[1]: has no kind or name":  func(w *model.Workload, _ *model.Policy) { w.Groups[1].Kind = "" },
		w + ": groups[2]: has no kind or name":  func(w *model.Workload, _ *model.Policy) { w.Groups[2].Name = "" },
		w + ": groups[3]: port 0 is not from 1": func(w *model.Workload, _ *model.Policy) { w.Groups[3].Ports[0] = 0 },
		": ref: has no name":                    func(_ *model.Workload, p *model.Policy) { p.Ref.Name = "" },
		p + `: traffic: "" is unknown`:          func(_ *model.Workload, p *model.Policy) { p.Traffic, p.Methods, p.Paths, p.Headers = "", nil, nil, nil },
		p + `: traffic: "tcp" cannot be`:        func(_ *model.Workload, p *model.Policy) { p.Traffic, p.Paths, p.Headers = model.TrafficTCP, nil, nil },
		p + `: traffic: "udp" cannot be`:        func(_ *model.Workload, p *model.Policy) { p.Traffic, p.Methods, p.Headers = model.TrafficUDP, nil, nil },
		p + `: traffic: "any" cannot be`:        func(_ *model.Workload, p *model.Policy) { p.Traffic, p.Methods, p.Paths = model.TrafficAny, nil, nil },
		p + ": ports: port 65536 is not from":   func(_ *model.Workload, p *model.Policy) { p.Ports[1] = 65536 },
		p + ": ports: port -1 is not from":      func(_ *model.Workload, p *model.Policy) { p.Ports[0] = -1 },
		p + ": methods[0]: is empty":            func(_ *model.Workload, p *model.Policy) { p.Methods[0] = "" },
		p + ": paths[0]: ":                      func(_ *model.Workload, p *model.Policy) { p.Paths[0] = "(" },
		p + ": headers[0].value: ":              func(_ *model.Workload, p *model.Policy) { p.Headers[0].Value = "(" },
		p + ": sources[0]: has no SPIFFE ID":    func(_ *model.Workload, p *model.Policy) { p.Sources[0] = model.Source{Kind: model.KindSPIFFE} },
		p + ": sources[0]: has a name and no":   func(_ *model.Workload, p *model.Policy) { p.Sources[0].Kind = "" },
		p + ": targets[0]: has a name and no":   func(_ *model.Workload, p *model.Policy) { p.Targets[0].Kind = "" },
	} {
		workload, policy := aWorkload(), aPolicy()
		change(&workload, &policy)
		c := model.Config{Workloads: []model.Workload{workload}, Policies: []model.Policy{policy}}
		err := c.Validate()
		if want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	// What names everything is valid, and so is a policy that allows nothing.
	every := model.Policy{Ref: aPolicy().Ref, Traffic: model.TrafficUDP, Targets: []model.Target{{}}, Sources: []model.Source{{}, {Kind: model.KindSPIFFE, Name: "spiffe://t/a"}}, Methods: nil, Void: "for a test"}
	deny := aWorkload()
	deny.Deny = model.DenyAll
	if err := (&model.Config{Workloads: []model.Workload{deny}, Policies: []model.Policy{every}}).Validate(); err != nil {
		t.Error(err)
	}
}

// Sound must not open a workload: an invalid one is closed, and an invalid policy governs what it names.
func TestSoundClosesWhatIsNotValidOfAccessControl(t *testing.T) {
	with := func(ref model.Ref) model.Workload {
		w := aWorkload()
		w.Ref, w.Addresses = ref, []string{"?"}
		return w
	}
	policy := aPolicy()
	policy.Paths = []string{"("}
	policy.Targets = append(policy.Targets, model.Target{Name: "web"}, model.Target{Kind: "Pod"}, model.Target{})
	nameless := aPolicy()
	nameless.Ref.Name = ""
	ref := aWorkload().Ref
	c := model.Config{
		Workloads: []model.Workload{aWorkload(), with(ref), with(model.Ref{Kind: "Pod", Namespace: "shop"}), with(model.Ref{Kind: "Pod", Name: "a"}), with(model.Ref{Namespace: "shop", Name: "a"})},
		Policies:  []model.Policy{aPolicy(), policy, nameless},
	}
	sound, left := c.Sound()
	if want := []model.Workload{aWorkload(), {Ref: ref, Deny: model.DenyAll}}; !reflect.DeepEqual(sound.Workloads, want) {
		t.Errorf("workloads are %+v", sound.Workloads)
	}
	void := func(ref model.Ref, targets ...model.Target) model.Policy {
		return model.Policy{Ref: ref, Binding: policy.Binding, Match: policy.Match, Targets: targets, Traffic: model.TrafficAny, Void: "it is not valid"}
	}
	if want := []model.Policy{aPolicy(), void(policy.Ref, policy.Targets[0], policy.Targets[2], policy.Targets[3]), void(model.Ref{Kind: "Policy", Name: "unnamed"}, policy.Targets[0])}; !reflect.DeepEqual(sound.Policies, want) {
		t.Errorf("policies are %+v", sound.Policies)
	}
	var told []string
	for _, o := range left {
		told = append(told, o.Reason[strings.LastIndex(o.Reason, "; ")+2:])
	}
	denied, nothing := "everything is denied there", "it allows nothing"
	if want := []string{denied, denied, denied, denied, nothing, nothing}; !reflect.DeepEqual(told, want) {
		t.Errorf("told %q", left)
	}
	if err := sound.Validate(); err != nil {
		t.Error(err)
	}
	if policy.Targets[1] != (model.Target{Name: "web"}) {
		t.Error("the configuration was changed")
	}
}

func TestEachOwnerHasItsWorkloadsAndTheirPolicies(t *testing.T) {
	second := aWorkload()
	second.Ref.Name, second.Groups = "db-1", []model.Group{{Kind: "Deployment", Name: "db"}}
	unused := aWorkload()
	unused.Ref.Name = "web-2"
	ofDB := aPolicy()
	ofDB.Ref.Name, ofDB.Targets[0].Name = "s", "db"
	elsewhere := aPolicy()
	elsewhere.Ref.Name, elsewhere.Targets[0].Name = "t", "elsewhere"
	first := aWorkload()
	listener := func(name string, owner model.Owner, workload string) model.Listener {
		return model.Listener{Name: name, Owner: owner, Port: 80, Protocol: model.HTTP, Workload: workload}
	}
	c := model.Config{
		Listeners: []model.Listener{listener("a", "web", first.Name()), listener("b", "db", ""), listener("c", "db", second.Name()), listener("d", "edge", "")},
		Workloads: []model.Workload{second, first, unused},
		Policies:  []model.Policy{aPolicy(), ofDB, elsewhere},
	}
	parts := c.ByOwner()
	for owner, want := range map[model.Owner]string{"web": "shop/Pod/web-1 r", "db": "shop/Pod/db-1 s", "edge": ""} {
		var got []string
		for _, w := range parts[owner].Workloads {
			got = append(got, w.Name())
		}
		for _, p := range parts[owner].Policies {
			got = append(got, p.Ref.Name)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s has %q, want %q", owner, got, want)
		}
	}
}

func TestSourcesInWords(t *testing.T) {
	for _, c := range []struct {
		source       model.Source
		short, words string
	}{
		{model.Source{}, "* */*", "everybody of the trust domain"},
		{model.Source{Namespace: "shop"}, "* shop/*", "everybody of namespace shop"},
		{model.Source{Kind: "Pod"}, "Pod */*", "any Pod"},
		{model.Source{Kind: "Pod", Namespace: "shop"}, "Pod shop/*", "any Pod of namespace shop"},
		{model.Source{Kind: "Pod", Name: "cart"}, "Pod */cart", "Pod cart of any namespace"},
		{model.Source{Kind: "Pod", Namespace: "shop", Name: "cart"}, "Pod shop/cart", "Pod shop/cart"},
		{model.Source{Kind: "Node"}, "Node *", "any Node"},
		{model.Source{Kind: "Node", Namespace: "shop"}, "Node *", "any Node"},
		{model.Source{Kind: "Node", Name: "n1"}, "Node n1", "Node n1"},
		{model.Source{Kind: "SPIFFE", Name: "spiffe://t/a"}, "spiffe://t/a", "spiffe://t/a"},
	} {
		if c.source.String() != c.short || c.source.Words() != c.words {
			t.Errorf("%+v is %q, in words %q", c.source, c.source.String(), c.source.Words())
		}
	}
}
