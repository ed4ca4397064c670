package admission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/rollout/workload"
)

const (
	shop      = `{apiVersion: apps/v1, kind: Deployment, metadata: {namespace: shop, name: web, uid: u1}, spec: {replicas: 3, strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1}}, template: {metadata: {labels: {v: "1"}}}}}`
	heldLabel = "rollouts.weirmesh.github.io/held"
)

// heldShop is what the controller makes of it.
var heldShop = strings.NewReplacer("uid: u1", `uid: u1, labels: {`+heldLabel+`: "true"}`, "type: RollingUpdate, rollingUpdate: {maxSurge: 1}", "type: Recreate", "replicas: 3", "replicas: 3, paused: true", `v: "1"`, `v: "2"`).Replace(shop)

// released are the Rollouts of the namespace, as YAML.
func released(t testing.TB, text string) func(context.Context, string) ([]map[string]any, error) {
	list := others(t, text)
	return func(ctx context.Context, namespace string) ([]map[string]any, error) { return list(ctx, "", namespace) }
}

// updated is the review of a Deployment's update.
func updated(t testing.TB, old, object string) []byte {
	body := string(review(t, "UPDATE", "v1", old, object))
	body = strings.Replace(body, `"kind":{"group":"rollouts.kruise.io","kind":"Rollout"`, `"kind":{"group":"apps","kind":"Deployment"`, 1)
	return []byte(strings.Replace(body, `"resource":{"group":"rollouts.kruise.io","resource":"rollouts"`, `"resource":{"group":"apps","resource":"deployments"`, 1))
}

// stored is the object after the answer to a review.
func stored(t testing.TB, v *Workloads, old, object string) (u map[string]any, r *admissionv1.AdmissionResponse) {
	t.Helper()
	text, err := v.Answer(t.Context(), updated(t, old, object))
	if err != nil {
		t.Fatal(err)
	}
	var out admissionv1.AdmissionReview
	if err := json.Unmarshal(text, &out); err != nil || out.Response == nil || !out.Response.Allowed {
		t.Fatalf("%s: %v", text, err)
	}
	if err := yaml.Unmarshal([]byte(object), &u); err != nil {
		t.Fatal(err)
	}
	if out.Response.Patch == nil {
		return u, out.Response
	}
	if *out.Response.PatchType != "JSONPatch" {
		t.Errorf("a patch of type %s", *out.Response.PatchType)
	}
	var all []operation
	if err := json.Unmarshal(out.Response.Patch, &all); err != nil || len(all) == 0 {
		t.Fatalf("%s: %v", out.Response.Patch, err)
	}
	return patched(t, u, all), out.Response
}

// patched applies a JSON Patch of operations on fields.
func patched(t testing.TB, u map[string]any, all []operation) map[string]any {
	u = runtime.DeepCopyJSON(normal(t, u))
	for _, o := range all {
		m, names := u, strings.Split(strings.TrimPrefix(o.Path, "/"), "/")
		for i := range names {
			names[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(names[i])
		}
		for _, name := range names[:len(names)-1] {
			m = m[name].(map[string]any)
		}
		last := names[len(names)-1]
		switch _, there := m[last]; {
		case there == (o.Op == "add"):
			t.Fatalf("%+v: the field is there: %t", o, there)
		case o.Op == "remove":
			delete(m, last)
		default:
			m[last] = o.Value
		}
	}
	return u
}

// normal has numbers as JSON has them.
func normal(t testing.TB, u map[string]any) (out map[string]any) {
	text, err := json.Marshal(u)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestWorkloadsAreHeldWhenTheirTemplateChanges(t *testing.T) {
	record := `{"uid":"u1","stable":"a","pods":0,"was":{"paused":null,"strategy.type":"RollingUpdate","strategy.rollingUpdate":{"maxSurge":1}}}`
	remembering := strings.Replace(valid, "name: web}\n", "name: web, annotations: {rollouts.weirmesh.github.io/workload: '"+record+"'}}\n", 1)
	next := strings.Replace(shop, `v: "1"`, `v: "2"`, 1)
	applied := strings.Replace(next, "uid: u1", `uid: u1, labels: {`+heldLabel+`: "true"}`, 1)
	for what, c := range map[string]struct {
		rollouts, old, object string
		held, warned          bool
	}{
		"a new template":                      {valid, shop, next, true, false},
		"another field":                       {valid, shop, strings.Replace(shop, "replicas: 3", "replicas: 4", 1), false, false},
		"no Rollout":                          {"", shop, next, false, false},
		"a Rollout of another":                {strings.Replace(valid, "kind: Deployment, name: web", "kind: Deployment, name: other", 1), shop, next, false, false},
		"one that is not valid":               {strings.Replace(valid, "20%", "900%", 1), shop, next, false, false},
		"one that cannot be carried out":      {strings.Replace(valid, "traffic: 20%", "matches: [{path: {value: api}}]", 1), shop, next, false, false},
		"the same, midway":                    {strings.Replace(remembering, "traffic: 20%", "matches: [{path: {value: api}}]", 1), heldShop, applied, true, true},
		"one that is disabled":                {strings.Replace(valid, "spec:\n", "spec:\n  disabled: true\n", 1), shop, next, false, false},
		"one that is being deleted":           {strings.Replace(valid, "name: web}\n", `name: web, deletionTimestamp: "2026-01-01T00:00:00Z"}`+"\n", 1), shop, next, false, false},
		"paused by its user":                  {valid, shop, strings.Replace(next, "replicas: 3", "replicas: 3, paused: true", 1), false, false},
		"the file again, midway":              {remembering, heldShop, applied, true, true},
		"the file again, without label":       {remembering, heldShop, next, true, true},
		"the same, and disabled meanwhile":    {strings.Replace(remembering, "spec:\n", "spec:\n  disabled: true\n", 1), heldShop, applied, true, true},
		"of two Rollouts the one that has it": {strings.Replace(valid, "name: web}\n", "name: first}\n", 1) + "---\n" + remembering, heldShop, applied, true, true},
		"held, as it stays":                   {remembering, heldShop, heldShop, false, false},
		"what is remembered is lost":          {strings.Replace(remembering, `{"uid"`, `{"uid`, 1), shop, next, true, false},
	} {
		v := &Workloads{Kinds: workload.Fixed(), Rollouts: released(t, c.rollouts)}
		u, r := stored(t, v, c.old, c.object)
		spec := u["spec"].(map[string]any)
		labels, _ := u["metadata"].(map[string]any)["labels"].(map[string]any)
		if changed := r.Patch != nil; changed != c.held || changed && (spec["paused"] != true || labels[heldLabel] == nil) || c.warned != (len(r.Warnings) == 1) {
			t.Errorf("%s: %s, warnings %q", what, r.Patch, r.Warnings)
		}
		if answered, held := v.Stats(); answered != 1 || (held == 1) != c.held {
			t.Errorf("%s: counted %d, %d", what, answered, held)
		}
		if c.warned && spec["strategy"].(map[string]any)["type"] != "Recreate" {
			t.Errorf("%s: the strategy is %v", what, spec["strategy"])
		}
		// The answer to what it made is that nothing has to be changed.
		text, err := json.Marshal(u)
		if err != nil {
			t.Fatal(err)
		}
		if _, r := stored(t, v, c.old, string(text)); r.Patch != nil {
			t.Errorf("%s: asked again: %s", what, r.Patch)
		}
	}
}

// TestAKindThatIsNamedIsHeldIfItCanBe: a GameSet by its partition, unless its definition or its status lacks something.
func TestAKindThatIsNamedIsHeldIfItCanBe(t *testing.T) {
	kinds, err := workload.Named([]string{"GameSet:gamesets.apps.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	const game = `{apiVersion: apps.example.com/v1, kind: GameSet, metadata: {namespace: shop, name: web, uid: u1}, spec: {replicas: 3, template: {v: "1"}}, status: {observedGeneration: 1, updateRevision: a, currentRevision: a}}`
	names := strings.Replace(valid, "apiVersion: apps/v1, kind: Deployment", "apiVersion: apps.example.com/v1, kind: GameSet", 1)
	next := strings.Replace(game, `v: "1"`, `v: "2"`, 1)
	for what, c := range map[string]struct {
		kinds      workload.Kinds
		unfit      string
		old, now   string
		held, fail bool
	}{
		"all is there":            {kinds, "", game, next, true, false},
		"sent without its status": {kinds, "", game, next[:strings.Index(next, ", status")] + "}", true, false},
		"it is not named":         {workload.Fixed(), "", game, next, false, false},
		"no partition":            {kinds, "no partition", game, next, false, false},
		"no revision":             {kinds, "", strings.Replace(game, "updateRevision: a, ", "", 1), next, false, false},
		"replaced by nobody":      {kinds, "", game, strings.Replace(next, "replicas: 3", "replicas: 3, updateStrategy: {type: OnDelete}", 1), false, false},
		"nobody knows":            {kinds, "fails", game, next, false, true},
	} {
		v := &Workloads{Kinds: c.kinds, Rollouts: released(t, names), Unfit: func(_ context.Context, k *workload.Kind, version string) (string, error) {
			if k.Name != "GameSet" || version != "v1" || c.unfit == "fails" {
				return "", errors.New("nobody knows")
			}
			return c.unfit, nil
		}}
		body := strings.NewReplacer(`"group":"apps","kind":"Deployment"`, `"group":"apps.example.com","kind":"GameSet"`, `"group":"apps","resource":"deployments"`, `"group":"apps.example.com","resource":"gamesets"`).Replace(string(updated(t, c.old, c.now)))
		text, err := v.Answer(t.Context(), []byte(body))
		if c.fail != (err != nil) {
			t.Errorf("%s: %s, %v", what, text, err)
		}
		var out admissionv1.AdmissionReview
		if err != nil {
			continue
		}
		if err := json.Unmarshal(text, &out); err != nil || !out.Response.Allowed {
			t.Fatalf("%s: %s, %v", what, text, err)
		}
		if patch := string(out.Response.Patch); c.held != strings.Contains(patch, `{"rollingUpdate":{"partition":2147483647}}`) || c.held != strings.Contains(patch, `"without-updateStrategy"`) || !c.held && patch != "" {
			t.Errorf("%s: %s", what, patch)
		}
	}
}

func TestWhatIsNotKnownIsLeftToTheAPIServer(t *testing.T) {
	v := &Workloads{Kinds: workload.Fixed(), Rollouts: func(context.Context, string) ([]map[string]any, error) { return nil, errors.New("not read yet") }}
	if text, err := v.Answer(t.Context(), updated(t, shop, strings.Replace(shop, `v: "1"`, `v: "2"`, 1))); err == nil {
		t.Errorf("answered %s", text)
	}
	if text, err := v.Answer(t.Context(), updated(t, "{metadata: {}}", "{spec: 7}")); err == nil {
		t.Errorf("answered %s", text)
	}
	// Other kinds and operations need no answer about Rollouts.
	for _, body := range []string{
		strings.ReplaceAll(string(updated(t, shop, shop)), "Deployment", "ReplicaSet"), strings.Replace(string(updated(t, shop, shop)), "UPDATE", "CREATE", 1),
		strings.Replace(string(updated(t, shop, shop)), `"uid":"u-1"`, `"uid":"u-1","subResource":"scale"`, 1),
	} {
		if text, err := v.Answer(t.Context(), []byte(body)); err != nil || !strings.Contains(string(text), `"allowed":true`) || strings.Contains(string(text), "patch") {
			t.Errorf("%s: %s, %v", body, text, err)
		}
	}
}

// TestAPatchMakesOneObjectOfAnother compares with objects made at random.
func TestAPatchMakesOneObjectOfAnother(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var some func(depth int) any
	object := func(depth int) map[string]any {
		m := map[string]any{}
		for range random.IntN(4) {
			m[[]string{"a", "b", "c/d", "e~f", "~1", ""}[random.IntN(6)]] = some(depth - 1)
		}
		return m
	}
	some = func(depth int) any {
		switch n := random.IntN(7); {
		case n < 3 && depth > 0:
			return object(depth)
		case n == 3:
			return nil
		case n == 4:
			return []any{"x", float64(random.IntN(2))}
		}
		return fmt.Sprint(random.IntN(2))
	}
	for range 5000 {
		from, to := object(3), object(3)
		text, err := json.Marshal(patchOf([]operation{}, "", from, to))
		if err != nil {
			t.Fatal(err)
		}
		var all []operation
		if err := json.Unmarshal(text, &all); err != nil {
			t.Fatal(err)
		}
		if got := patched(t, from, all); !reflect.DeepEqual(got, to) {
			t.Fatalf("%v with %s is %v, want %v", from, text, got, to)
		}
		if strings.Count(string(text), `"op":"remove"`) != strings.Count(string(text), `"op"`)-strings.Count(string(text), `"value":`) {
			t.Fatalf("an operation without a value: %s", text)
		}
	}
}

// FuzzHold looks for a body that ends the process.
func FuzzHold(f *testing.F) {
	f.Add(updated(f, shop, strings.Replace(shop, `v: "1"`, `v: "2"`, 1)))
	f.Add(updated(f, heldShop, shop))
	f.Add(updated(f, "{metadata: {labels: 7}, spec: {template: null}}", "{metadata: {labels: {a: 7}}, spec: {strategy: []}}"))
	v := &Workloads{Kinds: workload.Fixed(), Rollouts: released(f, valid)}
	f.Fuzz(func(t *testing.T, body []byte) {
		text, err := v.Answer(t.Context(), body)
		var out admissionv1.AdmissionReview
		if err == nil && (json.Unmarshal(text, &out) != nil || out.Response == nil || !out.Response.Allowed) {
			t.Fatalf("%s is not read", text)
		}
	})
}
