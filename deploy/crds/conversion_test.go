package crds_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	crvalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/api/convert"
	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/api/specs"
	"github.com/weirmesh/weir/api/split"
	"github.com/weirmesh/weir/test/size"
)

// writer makes objects that somebody might write: most of them valid, with what is hard to keep.
type writer struct{ *rand.Rand }

func (w writer) oneOf(all ...any) any { return all[w.IntN(len(all))] }

func (w writer) some(n int, make func() any) []any {
	out := []any{}
	for range w.IntN(n + 1) {
		out = append(out, make())
	}
	return out
}

func (w writer) with(u map[string]any, name string, value any) {
	if w.IntN(2) == 0 {
		u[name] = value
	}
}

func (w writer) weight(version string) any {
	if version == "v1alpha1" || version == split.Draft {
		return w.oneOf("500m", "1", "1e2", "0.5", "+3", "2k", "1Ki", "0", "1000000000000", "1m", "0m", "1e2147483647", "100n",
			int64(0), int64(100), 0.5, 2.25, "100", "100", "900m", fmt.Sprint(w.IntN(1000)))
	}
	return w.oneOf(int64(0), int64(1), int64(w.IntN(1000)), int64(split.MaxWeight))
}

// hostile are contents of annotations that a conversion did not write.
func (w writer) hostile() any {
	return w.oneOf("", "null", "[]", "{", "too large", `["1","500m"]`, `["1e2147483647"]`, `[{"kind":"HTTPRouteGroup","name":"g"}]`, `[{"kind":"","name":""}]`, `[1]`,
		`{"version":"v1beta1","spec":{}}`, `{"version":"v1alpha1","spec":{"objectRef":{}},"notes":{"rollouts.kruise.io/rolling-style":7}}`,
		`{"version":"v1beta1","spec":{"workloadRef":{"name":"x"},"strategy":7},"notes":{"rollouts.kruise.io/trafficrouting":"t"}}`,
		`[{"name":"a","headers":{"x":"y"}},{"name":"b"}]`, `[{"name":"a","headers":7}]`, `{"matches":{"ports":[80]}}`, `{"matches":{"ports":[70000]}}`,
		"0", "8080", `"8080"`, "65536", "true",
		"["+strings.Repeat(`{"kind":"a","name":"b"},`, 64)+`{"kind":"a","name":"b"}]`, strings.Repeat("x", 1000))
}

func (w writer) object(kind, version string) map[string]any {
	meta := map[string]any{"name": "o", "namespace": "ns", "uid": "1", "managedFields": []any{map[string]any{"manager": "m"}}}
	annotations := map[string]any{"example.com/unknown": "kept"}
	if w.IntN(60) == 0 {
		annotations["example.com/large"] = strings.Repeat("x", 262144-len("example.com/large")-len("example.com/unknown")-len("kept")-w.IntN(400))
	}
	w.with(meta, "annotations", annotations)
	u := map[string]any{"metadata": meta, "kind": kind}
	switch kind {
	case "TrafficSplit":
		u["apiVersion"] = split.Group + "/" + version
		spec := map[string]any{"service": "root"}
		spec["backends"] = append(w.some(4, func() any { return map[string]any{"service": "leaf", "weight": w.weight(version)} }), map[string]any{"service": "leaf", "weight": w.weight(version)})
		if version != "v1alpha1" && version != split.Draft {
			w.with(spec, "matches", w.some(3, func() any {
				m := map[string]any{"kind": "HTTPRouteGroup", "name": w.oneOf("g", "h")}
				w.with(m, "apiGroup", w.oneOf("", specs.Group))
				return m
			}))
		}
		u["spec"] = spec
		w.with(u, "status", map[string]any{"observedGeneration": int64(1)})
	case "HTTPRouteGroup":
		u["apiVersion"] = specs.Group + "/" + version
		in := map[string]any{}
		w.with(in, "matches", w.some(4, func() any {
			m := map[string]any{"name": w.oneOf("a", "b", "c")}
			w.with(m, "methods", []any{"GET", "*"})
			w.with(m, "pathRegex", w.oneOf("", "/x"))
			if version != "v1alpha1" {
				w.with(m, "headers", w.oneOf([]any{}, []any{map[string]any{"a": "b"}, map[string]any{"c": "d"}}, map[string]any{"a": "b"}, map[string]any{},
					strings.Repeat("junk", 1000*w.IntN(200)), int64(7), []any{"x"}))
			}
			return m
		}))
		if version == "v1alpha1" || version == "v1alpha2" {
			for k, v := range in {
				u[k] = v
			}
		} else {
			u["spec"] = in
		}
	case "Rollout":
		w.rollout(u, meta, version)
	case "TrafficTarget":
		w.target(u, meta, version)
	case "TCPRoute":
		u["apiVersion"] = specs.Group + "/" + version
		spec := map[string]any{}
		if version == "v1alpha4" {
			w.with(spec, "matches", w.oneOf(map[string]any{}, map[string]any{"name": "m"}, map[string]any{"ports": []any{int64(80)}}, map[string]any{"ports": []any{}}))
		}
		if version == "v1alpha3" || version == "v1alpha4" {
			w.with(u, "spec", spec)
		}
	}
	return u
}

// rollout writes a Rollout.
func (w writer) rollout(u, meta map[string]any, version string) {
	beta := version == "v1beta1"
	u["apiVersion"] = rollouts.Group + "/" + version
	if notes, ok := meta["annotations"].(map[string]any); ok && notes["example.com/large"] == nil {
		w.with(notes, rollouts.StyleAnnotation, w.oneOf("partition", "canary", "Partition", ""))
		w.with(notes, rollouts.TrafficRoutingAnnotation, w.oneOf("t", ""))
	}
	ref := map[string]any{"apiVersion": "apps/v1", "kind": w.oneOf("Deployment", "StatefulSet"), "name": "app"}
	plan := func() map[string]any {
		plan := map[string]any{}
		w.with(plan, "steps", w.some(4, func() any {
			step := map[string]any{}
			if beta {
				w.with(step, "traffic", w.oneOf("20%", "100%", "all"))
			} else {
				w.with(step, "weight", w.oneOf(int64(20), int64(0), int64(-1), int64(1000)))
			}
			w.with(step, "replicas", w.oneOf("20%", int64(3), "x"))
			w.with(step, "pause", w.oneOf(map[string]any{}, map[string]any{"duration": int64(10)}))
			w.with(step, "requestHeaderModifier", map[string]any{"set": []any{map[string]any{"name": "a", "value": "b"}}})
			w.with(step, "matches", w.some(3, func() any {
				match := map[string]any{}
				w.with(match, "headers", []any{map[string]any{"name": "x", "value": "y"}})
				if beta {
					w.with(match, "path", map[string]any{"value": "/a"})
					w.with(match, "queryParams", []any{map[string]any{"name": "q", "value": "y", "type": "Exact"}})
				}
				return match
			}))
			return step
		}))
		w.with(plan, "trafficRoutings", []any{map[string]any{"service": "svc", "gateway": map[string]any{"httpRouteName": "route"}}})
		w.with(plan, "failureThreshold", w.oneOf(int64(1), "10%"))
		w.with(plan, "disableGenerateCanaryService", w.IntN(2) == 0)
		if beta {
			w.with(plan, "trafficRoutingRef", w.oneOf("t", ""))
		}
		return plan
	}
	strategy := map[string]any{}
	w.with(strategy, "paused", w.IntN(2) == 0)
	canary := plan()
	w.with(canary, "patchPodTemplateMetadata", map[string]any{"labels": map[string]any{"a": "b"}})
	if beta {
		w.with(canary, "enableExtraWorkloadForCanary", w.IntN(2) == 0)
		w.with(strategy, "blueGreen", plan())
	}
	w.with(strategy, "canary", canary)
	spec := map[string]any{"strategy": strategy}
	w.with(spec, "disabled", w.IntN(2) == 0)
	if beta {
		spec["workloadRef"] = ref
	} else {
		spec["objectRef"] = map[string]any{"workloadRef": ref}
		w.with(spec, "rolloutID", w.oneOf("7", ""))
	}
	u["spec"] = spec
	w.with(u, "status", map[string]any{"phase": "Healthy", "currentStepIndex": int64(1), "canaryStatus": map[string]any{"nextStepIndex": int64(-1)}})
}

// target writes a TrafficTarget.
func (w writer) target(u, meta map[string]any, version string) {
	u["apiVersion"] = access.Group + "/" + version
	field, port := version == "v1alpha1" || version == "v1alpha2", int64(1+w.IntN(65535))
	identity := func() map[string]any {
		i := map[string]any{"kind": "ServiceAccount", "name": w.oneOf("a", "b")}
		if w.IntN(3) == 0 {
			i["kind"], i["name"] = access.KindIdentityBinding, "a"
			if version != "v1alpha4" {
				i["name"] = "IdentityBinding:a"
			}
			w.with(i, "group", access.Group)
		}
		w.with(i, "namespace", w.oneOf("ns", "other"))
		w.with(i, "group", "")
		return i
	}
	destination := identity()
	switch notes, _ := meta["annotations"].(map[string]any); {
	case version == "v1alpha1":
		w.with(destination, "port", w.oneOf(port, fmt.Sprint(port)))
	case field:
		w.with(destination, "port", port)
	case notes != nil && notes["example.com/large"] == nil:
		w.with(notes, access.PortAnnotation, w.oneOf(fmt.Sprint(port), fmt.Sprintf("%q", fmt.Sprint(port))))
	}
	rule := func() any {
		r := map[string]any{"kind": w.oneOf("HTTPRouteGroup", "TCPRoute", "UDPRoute"), "name": "r"}
		w.with(r, "matches", w.oneOf([]any{}, []any{"m", "n"}))
		w.with(r, "group", w.oneOf("", specs.Group))
		return r
	}
	spec := map[string]any{"destination": destination, "sources": append(w.some(3, func() any { return identity() }), identity()), "rules": append(w.some(3, rule), rule())}
	w.with(u, "status", map[string]any{"observedGeneration": int64(1)})
	if version == "v1alpha1" {
		u["destination"], u["sources"], u["specs"] = spec["destination"], spec["sources"], spec["rules"]
		return
	}
	u["spec"] = spec
}

// writtenIn are the versions that people write.
func writtenIn(k convert.Kind) []string {
	return slices.DeleteFunc(k.All(), func(v string) bool { return k.Name == "TrafficSplit" && v == split.Draft })
}

func asJSON(t *testing.T, u map[string]any) string {
	t.Helper()
	text, err := json.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// again is the object as it comes from the wire.
func again(t *testing.T, u map[string]any) (out map[string]any) {
	t.Helper()
	if err := kjson.UnmarshalCaseSensitivePreserveInts([]byte(asJSON(t, u)), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func short(text string) string { return fmt.Sprintf("%.1500s", text) }

// TestConversionsLoseNothing writes objects in one version, has them stored and read again: they are what they were, byte for byte, and
// at each step what the schema of the version admits. From the stored version there is a way to every other, whatever somebody wrote.
func TestConversionsLoseNothing(t *testing.T) {
	schemas := map[string]crvalidation.SchemaValidator{}
	schema := func(kind, version string) crvalidation.SchemaValidator {
		if schemas[kind+version] == nil {
			schemas[kind+version] = schemaOf(t, kind, version)
		}
		return schemas[kind+version]
	}
	for _, k := range slices.Concat(split.Kinds(), specs.Kinds(), access.Kinds(), rollouts.Kinds()) {
		t.Run(k.Name, func(t *testing.T) {
			seed := rand.Uint64()
			w := writer{rand.New(rand.NewPCG(seed, 0))}
			converted, identical := 0, 0
			objects := size.Of(40, 400)
			for range objects {
				from := writtenIn(k)[w.IntN(len(writtenIn(k)))]
				u := w.object(k.Name, from)
				hostile := w.IntN(4) == 0
				if hostile {
					meta := u["metadata"].(map[string]any)
					meta["annotations"] = map[string]any{w.oneOf(split.MatchesAnnotation, split.WeightsAnnotation, specs.KeptAnnotation, rollouts.KeptAnnotation, access.PortAnnotation, access.PortTextAnnotation).(string): w.hostile()}
				}
				if len(crvalidation.ValidateCustomResource(nil, u, schema(k.Name, from))) > 0 {
					continue
				}
				before := asJSON(t, u)
				for _, to := range k.All() {
					what := fmt.Sprintf("seed %d: %s to %s", seed, short(before), to)
					out, err := k.Convert(u, to)
					if asJSON(t, u) != before {
						t.Fatalf("%s: the input was changed", what)
					}
					if err != nil {
						if from == k.Hub {
							t.Fatalf("%s: %v: one object keeps all from being listed", what, err)
						}
						continue
					}
					converted++
					out = again(t, out)
					if errs := crvalidation.ValidateCustomResource(nil, out, schema(k.Name, to)); len(errs) > 0 {
						t.Fatalf("%s: %s is not valid: %v", what, short(asJSON(t, out)), errs)
					}
					metadataStays(t, what, u, out)
					back, err := k.Convert(out, from)
					if err != nil && strings.Contains(err.Error(), "do not fit") {
						continue
					}
					if err != nil {
						t.Fatalf("%s and back: %v", what, err)
					}
					if full := strings.Contains(before, "example.com/large") || strings.Contains(asJSON(t, out), convert.TooLarge); hostile || full {
						continue // what a conversion did not write may go, and what does not fit
					}
					if got := asJSON(t, again(t, back)); got != before {
						t.Fatalf("%s and back is\n%s\nwas\n%s", what, short(got), short(before))
					}
					identical++
				}
				if !hostile && !strings.Contains(before, "example.com/large") {
					wanders(t, w, k, u, fmt.Sprintf("seed %d: %s", seed, short(before)))
				}
			}
			if converted < objects/2 || identical < objects/4 {
				t.Errorf("only %d conversions, %d of them compared", converted, identical)
			}
		})
	}
}

// wanders takes an object through some versions, and back.
func wanders(t *testing.T, w writer, k convert.Kind, u map[string]any, what string) {
	t.Helper()
	_, from, _ := strings.Cut(u["apiVersion"].(string), "/")
	if _, err := k.Convert(u, k.Hub); err != nil {
		return // it is not valid
	}
	now, way := u, []string{from}
	for i := range 4 {
		to := k.All()[w.IntN(len(k.All()))]
		if i == 3 {
			to = from
		}
		next, err := k.Convert(now, to)
		switch way = append(way, to); {
		case err != nil && strings.Contains(err.Error(), "do not fit"):
			return
		case err != nil:
			t.Fatalf("%s by %v: %v", what, way, err)
		}
		now = again(t, next)
	}
	if got := asJSON(t, now); got != asJSON(t, u) && !strings.Contains(got, convert.TooLarge) {
		t.Fatalf("%s by %v is\n%s", what, way, short(got))
	}
}

// metadataStays holds what an API server demands of a conversion.
func metadataStays(t *testing.T, what string, u, out map[string]any) {
	t.Helper()
	before, after := runtime.DeepCopyJSON(u["metadata"].(map[string]any)), runtime.DeepCopyJSON(out["metadata"].(map[string]any))
	notes := map[string]string{}
	all, _ := after["annotations"].(map[string]any)
	for name, v := range all {
		notes[name] = v.(string)
	}
	if err := apivalidation.ValidateAnnotationsSize(notes); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
	if was, ok := before["annotations"].(map[string]any); ok && was["example.com/unknown"] != all["example.com/unknown"] {
		t.Fatalf("%s: an annotation of somebody else is %v", what, all["example.com/unknown"])
	}
	delete(before, "annotations")
	delete(after, "annotations")
	if !reflect.DeepEqual(before, after) || !reflect.DeepEqual(u["status"], out["status"]) || u["kind"] != out["kind"] {
		t.Fatalf("%s: metadata, status or kind changed: %v", what, after)
	}
}
