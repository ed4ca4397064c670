package kube

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/resource"
)

const ours = "weirmesh.github.io/gateway-controller"

// at returns a merger for statuses of a kind of Gateway API at some time.
func at(kind string, seconds int64) merger {
	return merger{ours, gateway.Kinds().Find(gatewayv1.GroupName, kind).Status, time.Unix(seconds, 0)}
}

// tree parses a status as the API server stores it.
func tree(t *testing.T, text string) map[string]any {
	t.Helper()
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		t.Fatal(err)
	}
	return whole(out).(map[string]any)
}

// whole converts numbers to the type that they have in Kubernetes' trees.
func whole(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for k := range v {
			v[k] = whole(v[k])
		}
	case []any:
		for i := range v {
			v[i] = whole(v[i])
		}
	case float64:
		return int64(v)
	}
	return v
}

func policyStatus(ancestors ...string) *resource.Status {
	s := &resource.Status{Generation: 3}
	for _, a := range ancestors {
		s.Ancestors = append(s.Ancestors, resource.AncestorStatus{
			AncestorRef: gatewayv1.ParentReference{Name: gatewayv1.ObjectName(a)}, ControllerName: ours,
			Conditions: []resource.Condition{{Type: "Accepted", Status: "True", Reason: "Accepted"}},
		})
	}
	return s
}

func TestAncestorsOfOthersLeaveRoomForSixteen(t *testing.T) {
	var others []string
	for i := range 10 {
		others = append(others, fmt.Sprintf(`{"ancestorRef":{"name":"o%d"},"controllerName":"example.com/o","conditions":[]}`, i))
	}
	old := tree(t, `{"ancestors":[`+strings.Join(others, ",")+`]}`)
	var names []string
	for i := range 10 {
		names = append(names, fmt.Sprintf("g%d", i))
	}
	got := at("BackendTLSPolicy", 5000).merge(old, policyStatus(names...))
	list := got["ancestors"].([]any)
	if len(list) != 16 {
		t.Fatalf("%d ancestors", len(list))
	}
	for i, o := range old["ancestors"].([]any) {
		if !sameTree(list[i], o) {
			t.Errorf("another's ancestor %d changed: %v", i, list[i])
		}
	}
	if ref := list[10].(map[string]any)["ancestorRef"].(map[string]any); ref["name"] != "g0" || ref["kind"] != "Gateway" || ref["group"] != gatewayv1.GroupName {
		t.Errorf("reference %v", ref)
	}
}

func TestMergingTwiceChangesNothing(t *testing.T) {
	old := tree(t, `{"ancestors":[{"ancestorRef":{"name":"x"},"controllerName":"example.com/o","conditions":[],"more":{"a":1}}],"unknown":[1]}`)
	once := at("BackendTLSPolicy", 5000).merge(old, policyStatus("g"))
	later := at("BackendTLSPolicy", 9000)
	if twice := later.merge(once, policyStatus("g")); !sameTree(once, twice) {
		t.Errorf("%v became %v", once, twice)
	}
	if !sameTree(once["unknown"], old["unknown"]) || !sameTree(once["ancestors"].([]any)[0], old["ancestors"].([]any)[0]) {
		t.Error("what is not known here was lost")
	}
	if back := later.release(once); !sameTree(back, old) {
		t.Errorf("released: %v", back)
	}
}

func TestConditionsOfOursThatNoLongerHoldGo(t *testing.T) {
	old := tree(t, `{"conditions":[
		{"type":"example.com/X","status":"True","reason":"R","message":"","lastTransitionTime":"1970-01-01T00:00:01Z"},
		{"type":"ResolvedRefs","status":"False","reason":"R","message":"","lastTransitionTime":"1970-01-01T00:00:01Z"},
		{"type":"Accepted","status":"True","reason":"Old","message":"","observedGeneration":1,"lastTransitionTime":"1970-01-01T00:00:01Z"}]}`)
	got := at("Gateway", 5000).merge(old, &resource.Status{Generation: 2, Conditions: []resource.Condition{
		{Type: "Programmed", Status: "False", Reason: "Pending"}, {Type: "Accepted", Status: "True", Reason: "New"},
	}})
	want := tree(t, `{"c":[
		{"type":"example.com/X","status":"True","reason":"R","message":"","lastTransitionTime":"1970-01-01T00:00:01Z"},
		{"type":"Accepted","status":"True","reason":"New","message":"","observedGeneration":2,"lastTransitionTime":"1970-01-01T00:00:01Z"},
		{"type":"Programmed","status":"False","reason":"Pending","message":"","observedGeneration":2,"lastTransitionTime":"1970-01-01T01:23:20Z"}]}`)
	if !sameTree(got["conditions"], want["c"]) {
		t.Errorf("got %v", got["conditions"])
	}
}

func TestTreesAreTheSameWithoutWhatIsEmpty(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{`{"a":[],"b":{}}`, `{}`, true},
		{`{}`, `{"a":"","b":null}`, true},
		{`{"a":0}`, `{}`, false},
		{`{"a":[1]}`, `{"a":[1,2]}`, false},
		{`{"a":{"b":1}}`, `{"a":[1]}`, false},
		{`{"a":"x"}`, `{"a":{"b":1}}`, false},
		{`{"a":[{"b":[]}]}`, `{"a":[{}]}`, true},
	} {
		a, b := tree(t, c.a), tree(t, c.b)
		if sameTree(a, b) != c.same || sameTree(b, a) != c.same {
			t.Errorf("%s and %s: want %v", c.a, c.b, c.same)
		}
	}
}

func TestLongMessagesAreCutBetweenCharacters(t *testing.T) {
	for most := 4; most < 12; most++ {
		if got := Cut(strings.Repeat("é", 10), most); len(got) > most || !utf8.ValidString(got) || !strings.HasSuffix(got, "...") {
			t.Errorf("%d: %q", most, got)
		}
	}
	if got := Cut("short", 5); got != "short" {
		t.Errorf("%q", got)
	}
}

// FuzzMerge looks for statuses that others may have left and that cannot be merged with.
func FuzzMerge(f *testing.F) {
	f.Add(`{"ancestors":[{"ancestorRef":{"name":"x"},"controllerName":"example.com/o"}]}`, "BackendTLSPolicy")
	f.Add(`{"conditions":[{"type":7}],"listeners":[7,{"name":"a","conditions":{}}]}`, "Gateway")
	f.Add(`{"parents":[{"controllerName":"weirmesh.github.io/gateway-controller","parentRef":[]}]}`, "HTTPRoute")
	f.Fuzz(func(t *testing.T, text, kind string) {
		var old map[string]any
		if json.Unmarshal([]byte(text), &old) != nil {
			return
		}
		old, _ = whole(old).(map[string]any)
		if of := gateway.Kinds().Find(gatewayv1.GroupName, kind); of == nil || of.Status == nil {
			return
		}
		want := policyStatus("a", "b")
		want.Listeners = []resource.ListenerStatus{{Name: "a", Conditions: want.Ancestors[0].Conditions}}
		want.Conditions = want.Ancestors[0].Conditions
		once := at(kind, 5000).merge(old, want)
		if twice := at(kind, 5000).merge(once, want); !sameTree(once, twice) {
			t.Fatalf("%v became %v", once, twice)
		}
		at(kind, 5000).release(once)
	})
}
