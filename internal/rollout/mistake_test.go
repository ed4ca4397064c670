package rollout_test

import (
	"fmt"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// stepping is a valid Rollout with a step of one match, and with what routes requests.
func stepping(t *testing.T, routing, match string) *rollouts.Rollout {
	t.Helper()
	text := fmt.Sprintf(`{metadata: {name: shop}, spec: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: shop}, strategy: {canary: {trafficRoutings: [{service: shop, %s}],
  steps: [{traffic: 10%%, replicas: 1}, {replicas: 1, matches: [%s]}]}}}}`, routing, match)
	var u map[string]any
	if err := yaml.Unmarshal([]byte(text), &u); err != nil {
		t.Fatal(err)
	}
	r, errs := rollouts.Decode("v1beta1", u)
	if len(errs) > 0 {
		t.Fatalf("%s: %v", match, errs)
	}
	return r
}

func TestMistakesOfAStep(t *testing.T) {
	const (
		route   = "gateway: {httpRouteName: shop}"
		nginx   = "ingress: {name: shop}"
		higress = "ingress: {name: shop, classType: higress}"
		at      = "spec.strategy.canary.steps[1].matches[0]."
	)
	for _, c := range []struct{ routing, match, field, text string }{
		{route, `{path: {value: /api}}`, "", ""},
		{route, `{path: {}}`, "", ""},
		{route, `{path: {value: /}}`, "", ""},
		{route, `{path: {type: Exact, value: "/a%20b/c.d/..e"}}`, "", ""},
		{route, `{path: {type: RegularExpression, value: "api//x?"}}`, "", ""},
		{route, `{path: {value: api}}`, "path.value", `"api" does not begin with a slash, so no path matches it: write "/api"`},
		{route, `{path: {type: Exact, value: api}}`, "path.value", "does not begin with a slash"},
		{route, `{path: {value: ""}}`, "path.value", "is empty"},
		{route, `{path: {value: /api//x}}`, "path.value", "//"},
		{route, `{path: {value: /api/../x}}`, "path.value", "segment . or .."},
		{route, `{path: {value: /api/.}}`, "path.value", "segment . or .."},
		{route, `{path: {value: /api%2fx}}`, "path.value", "escaped slash"},
		{route, `{path: {value: /api%2Fx}}`, "path.value", "escaped slash"},
		{route, `{path: {value: "/api#x"}}`, "path.value", "the character #"},
		{route, `{path: {value: "/api?x=1"}}`, "path.value", "queryParams"},
		{route, `{path: {value: "/a b"}}`, "path.value", "write it as %20"},
		{route, `{path: {value: "/ä"}}`, "path.value", "write it as %C3%A4"},
		{route, `{path: {value: "/100%"}}`, "path.value", "%25"},
		{route, `{path: {value: "/a\nb"}}`, "path.value", "write it as %0A"},
		{route, `{path: {value: "` + strings.Repeat("a", 1000) + `"}}`, "path.value", "..."},
		{route, `{headers: [{name: x, value: "1"}, {name: z, value: "1"}, {name: X, value: "2"}]}`, "headers[2].name", "headers[0]"},
		{route, `{headers: [{name: x, type: RegularExpression, value: "("}]}`, "headers[0].value", "does not compile"},
		{route, `{queryParams: [{name: x, value: "1"}, {name: X, type: RegularExpression, value: "a(?=b)"}]}`, "queryParams[1].value", "look-around"},
		{higress, `{headers: [{name: x, type: RegularExpression, value: "a(?=b)"}]}`, "headers[0].value", "look-around"},
		{nginx, `{headers: [{name: x, type: RegularExpression, value: "a(?=b)\\1"}]}`, "", ""}, // nginx has it
		{nginx, `{headers: [{name: x, type: RegularExpression, value: "a("}]}`, "headers[0].value", "does not compile"},
		{nginx + ", " + route, `{headers: [{name: x, type: RegularExpression, value: "a(?=b)"}]}`, "headers[0].value", "look-around"},
	} {
		r := stepping(t, c.routing, c.match)
		all := rollout.Mistakes(r)
		if c.field == "" {
			if len(all) > 0 || rollout.LeftAlone(r) != "" {
				t.Errorf("%s: %v", c.match, all)
			}
			continue
		}
		if len(all) != 1 || all[0].Field != at+c.field || all[0].Step != 1 || !strings.Contains(all[0].String(), c.text) || len(all[0].String()) > 500 {
			t.Errorf("%s: %v, want %s: %s", c.match, all, c.field, c.text)
		}
		if why := rollout.LeftAlone(r); !strings.HasPrefix(why, "it is not valid, and is left alone: "+at+c.field+": ") {
			t.Errorf("%s: %s", c.match, why)
		}
		r.Spec.Disabled = true
		if why := rollout.LeftAlone(r); why != "" {
			t.Errorf("what a Rollout changed that is disabled is not put back: %s", why)
		}
	}
}

// TestWhatIsLeftAloneSaysSoOnce: the status goes on saying what it said, and Decide takes the rest back out.
func TestWhatIsLeftAloneSaysSoOnce(t *testing.T) {
	s := rollouts.Status{Phase: rollouts.PhaseHealthy, Message: "Nothing is being released."}
	first, event := rollout.Leave(&s, "of a")
	if event == nil || !event.Warning || first.Message != "Nothing is being released. Weir cannot carry out the Rollout: of a." || s.Message != "Nothing is being released." {
		t.Errorf("%+v, %+v", first, event)
	}
	if again, event := rollout.Leave(&first, "of a"); event != nil || again.Message != first.Message {
		t.Errorf("%+v, %+v", again, event)
	}
	if other, event := rollout.Leave(&first, "of b"); event == nil || other.Message != "Nothing is being released. Weir cannot carry out the Rollout: of b." {
		t.Errorf("%+v, %+v", other, event)
	}
	if fresh, event := rollout.Leave(&rollouts.Status{}, "of a"); event == nil || fresh.Phase != rollouts.PhaseInitial {
		t.Errorf("%+v, %+v", fresh, event)
	}
}
