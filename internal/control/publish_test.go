package control

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	dialect "github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// gatewaysOn is a set with a Gateway for each name; those with a port listen on it.
func gatewaysOn(ports map[string]int32) *resource.Set {
	set := &resource.Set{GatewayClasses: []*gatewayv1.GatewayClass{{
		ObjectMeta: metav1.ObjectMeta{Name: "weir"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: dialect.ControllerName},
	}}}
	for _, name := range slices.Sorted(maps.Keys(ports)) {
		g := &gatewayv1.Gateway{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: gatewayv1.GatewaySpec{GatewayClassName: "weir"}}
		if port := ports[name]; port != 0 {
			g.Spec.Listeners = []gatewayv1.Listener{{Name: "http", Port: port, Protocol: gatewayv1.HTTPProtocolType}}
		}
		set.Gateways = append(set.Gateways, g)
	}
	return set
}

// fleet is where a test's configurations are published.
type fleet struct {
	mu      sync.Mutex
	calls   []map[model.Owner]*model.Config
	fail    map[model.Owner]error
	reports []Report
}

func (f *fleet) publish(configs map[model.Owner]*model.Config) map[model.Owner]error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, maps.Clone(configs))
	return maps.Clone(f.fail)
}

func (f *fleet) report(r Report) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports = append(f.reports, r)
}

func (f *fleet) failing(errs map[model.Owner]error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = errs
}

// last is what was published and reported last, and how often each was done.
func (f *fleet) last() (configs map[model.Owner]*model.Config, r Report, calls, reports int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[len(f.calls)-1], f.reports[len(f.reports)-1], len(f.calls), len(f.reports)
}

// is says how the Gateways stand: "name port Programmed", of those that have a configuration the port of its listener.
func standing(configs map[model.Owner]*model.Config, r Report) string {
	var all []string
	for _, s := range r.Statuses {
		if s.Ref.Kind != "Gateway" {
			continue
		}
		text := s.Ref.Name
		switch c := configs[model.GatewayOwner(s.Ref.Namespace, s.Ref.Name)]; {
		case c == nil:
			text += " -"
		case len(c.Listeners) == 0:
			text += " 0"
		default:
			text += fmt.Sprint(" ", c.Listeners[0].Port)
		}
		all = append(all, text+" "+string(s.Condition("Programmed").Status))
	}
	return strings.Join(all, ", ")
}

func TestAGatewayThatCannotBePublishedKeepsNoOtherBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, source := &fleet{}, newScripted()
		l := &Loop{Source: source, Options: InCluster(), Publish: f.publish, Report: f.report}
		done := make(chan error, 1)
		go func() { done <- l.Run(t.Context()) }()
		change := func(ports map[string]int32) {
			source.sets <- gatewaysOn(ports)
			synctest.Wait()
		}
		f.failing(map[model.Owner]error{"default/b": errors.New("no room")})
		change(map[string]int32{"a": 80, "b": 80, "bare": 0})
		first, r, _, _ := f.last()
		if got := standing(first, r); got != "a 80 True, b 80 False, bare 0 False" || r.Generation != 1 || !r.Changed || r.Err != nil {
			t.Fatalf("%s; report %+v", got, r)
		}
		if len(r.Findings) != 1 || r.Findings[0].Code != codeUnpublished || r.Findings[0].Ref.Name != "b" || r.Findings[0].Message != "no room" || r.Unpublished["default/b"] == nil {
			t.Errorf("findings %v", r.Findings)
		}

		// It is tried again, with the others as they are.
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		again, r, calls, _ := f.last()
		if calls != 2 || !maps.Equal(again, first) || r.Findings[0].Code != codeUnpublished {
			t.Errorf("%d calls, the last for %v; want one more with the same configurations", calls, again)
		}
		f.failing(nil)
		time.Sleep(time.Second)
		synctest.Wait()
		if configs, r, calls, _ := f.last(); calls != 3 || standing(configs, r) != "a 80 True, b 80 True, bare 0 False" || len(r.Findings) != 0 || len(r.Unpublished) != 0 {
			t.Errorf("%d calls; %s; %v", calls, standing(configs, r), r.Findings)
		}

		// A change of one leaves the others the same, and what is gone is no longer among them.
		change(map[string]int32{"a": 81, "b": 80})
		configs, r, calls, _ := f.last()
		if calls != 4 || standing(configs, r) != "a 81 True, b 80 True" || configs["default/b"] != first["default/b"] || len(configs) != 2 {
			t.Errorf("%d calls; %s; b the same: %v", calls, standing(configs, r), configs["default/b"] == first["default/b"])
		}

		// What would meet the same error again is not tried again before it is another, and then only once.
		f.failing(map[model.Owner]error{"default/a": Final(errors.New("too large"))})
		change(map[string]int32{"a": 82, "b": 80})
		_, _, calls, reports := f.last()
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, _, more, told := f.last(); more != calls || told != reports {
			t.Errorf("%d more calls and %d more reports for an error that is final", more-calls, told-reports)
		}
		change(map[string]int32{"a": 82, "b": 83})
		if configs, r, _, _ := f.last(); standing(configs, r) != "a 82 False, b 83 True" || r.Unpublished["default/a"] == nil {
			t.Errorf("%s", standing(configs, r))
		}
		change(map[string]int32{"a": 81, "b": 83}) // as it is served
		_, _, calls, _ = f.last()
		if configs, r, _, _ := f.last(); len(r.Findings) != 0 || !strings.HasPrefix(standing(configs, r), "a ") || r.Statuses[0].Condition("Programmed").Status != "True" {
			t.Errorf("what is served again is still said not to be: %v", r.Findings)
		}
		source.err = nil
		close(source.sets)
		synctest.Wait()
		if _, _, more, _ := f.last(); more != calls {
			t.Errorf("%d more calls", more-calls)
		}
	})
}

func TestListenersThatOneProcessCannotServeAreOfTheirGateways(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, source := &fleet{}, newScripted()
		l := &Loop{Source: source, Publish: f.publish, Report: f.report}
		go l.Run(t.Context())
		set := gatewaysOn(map[string]int32{"a": 80, "b": 81})
		set.Gateways[1].Spec.Listeners = append(set.Gateways[1].Spec.Listeners, gatewayv1.Listener{Name: "more", Port: 82, Protocol: gatewayv1.HTTPProtocolType})
		unserved := func(listeners ...string) (out []finding.Unserved) {
			for _, name := range listeners {
				out = append(out, finding.Unserved{
					Listener: name, Ref: model.Ref{Kind: "Gateway", Namespace: "default", Name: strings.Split(name, "/")[1]}, Port: 80, Reason: "in use", Fix: "free it",
				})
			}
			return out
		}
		f.failing(finding.ByOwner(unserved("default/a/http@127.0.0.1", "default/b/http")))
		source.sets <- set
		synctest.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		configs, r, calls, _ := f.last()
		if calls != 1 || len(configs) != 1 || configs[""] == nil || r.Generation != 1 || r.Err != nil || r.Config != configs[""] {
			t.Fatalf("%d calls, of which the last is for %v; report %+v: who serves tries ports again", calls, configs, r)
		}
		conditions := func(r Report) string {
			var all []string
			for _, s := range r.Statuses {
				if s.Ref.Kind == "Gateway" {
					all = append(all, s.Ref.Name+" "+s.Condition("Programmed").Reason)
					for _, l := range s.Listeners {
						i := slices.IndexFunc(l.Conditions, func(c resource.Condition) bool { return c.Type == "Programmed" })
						all = append(all, l.Name+" "+l.Conditions[i].Reason)
					}
				}
			}
			return strings.Join(all, ", ")
		}
		if got := conditions(r); got != "a Invalid, http PortUnavailable, b Programmed, http PortUnavailable, more Programmed" || len(r.Findings) != 2 || r.Findings[0].Code != finding.CodePort {
			t.Errorf("%s; %v", got, r.Findings)
		}
		// What is found out later takes the place of what was known when it was published.
		later := r.WithUnpublished(finding.ByOwner(unserved("default/b/http", "default/b/more")))
		if got := conditions(later); got != "a Programmed, http Programmed, b Invalid, http PortUnavailable, more PortUnavailable" || len(later.Findings) != 2 {
			t.Errorf("%s; %v", got, later.Findings)
		}
		if got := conditions(later.WithUnpublished(nil)); strings.Contains(got, "PortUnavailable") {
			t.Error(got)
		}
	})
}

func TestEachGatewayIsGivenItsPartTheOneBeforeOrNothing(t *testing.T) {
	old, part := &model.Config{}, &model.Config{}
	invalid := map[model.Owner]error{"default/bad": errors.New("bad"), "default/new": errors.New("bad")}
	whole := &model.Config{}
	p := publishing{
		whole: whole, parts: map[model.Owner]*model.Config{"default/good": part},
		served: map[model.Owner]*model.Config{"default/bad": old, "default/bare": old, "default/gone": old, "default/good": old},
	}
	got := p.divide(whole, []model.Owner{"default/bad", "default/bare", "default/good", "default/new"}, invalid)
	want := map[model.Owner]*model.Config{"default/good": part, "default/bad": old, "default/bare": nothing}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v: what is new and invalid is not published, so that proxies wait", got, want)
	}
}

// TestWhatMeansTheSameIsTheSame holds that nobody behind the translation has to look for differences: of a set that means the same as the one before the
// same configuration is made, by its address, also where what is not sound was left out.
func TestWhatMeansTheSameIsTheSame(t *testing.T) {
	x := NewTranslator(InCluster())
	first, err := x.Translate(gatewaysOn(map[string]int32{"a": 80, "b": 81}))
	if err != nil {
		t.Fatal(err)
	}
	again, err := x.Translate(gatewaysOn(map[string]int32{"a": 80, "b": 81})) // other objects
	if err != nil || again.Config != first.Config || len(again.Findings) != len(first.Findings) {
		t.Errorf("%v; the same configuration: %v", err, again.Config == first.Config)
	}
	other, err := x.Translate(gatewaysOn(map[string]int32{"a": 80, "b": 82}))
	if err != nil || other.Config == first.Config || other.Config.Equal(first.Config) {
		t.Errorf("%v; another configuration: %v", err, other.Config != first.Config)
	}
}
