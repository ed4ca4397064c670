package workload

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// games is a custom kind whose pods have their revision in a label of its own.
func games() *Kind { return custom("apps.example.com", "GameSet", "gamesets", "example.com/revision") }

// TestACustomKindIsHeldSteppedTakenBackAndLetGo: whatever its user wrote around the partition, at admission or later, is what it
// is in the end.
func TestACustomKindIsHeldSteppedTakenBackAndLetGo(t *testing.T) {
	strategies := []any{
		nil, map[string]any{}, map[string]any{"rollingUpdate": map[string]any{}}, map[string]any{"type": "InplaceUpdate", "own": "x"},
		map[string]any{"rollingUpdate": map[string]any{"partition": int64(1), "maxUnavailable": "20%"}}, map[string]any{"rollingUpdate": map[string]any{"partition": "20%"}},
	}
	for i, strategy := range strategies {
		for _, admitted := range []bool{true, false} {
			what := fmt.Sprintf("%v, admitted %t", strategy, admitted)
			kind := games()
			p := newPodset(t, kind, 5)
			p.prefix, p.letters = "db-", i%2 == 0
			if p.letters {
				p.any = rand.New(rand.NewPCG(1, uint64(i)))
			}
			setField(specOf(p.object), "updateStrategy", nil)
			if strategy != nil {
				specOf(p.object)["updateStrategy"] = runtime.DeepCopyJSONValue(strategy)
			}
			before := runtime.DeepCopyJSON(with(p.object, "r3"))
			next := func(revision string) {
				t.Helper()
				now := with(p.object, revision)
				if held := kind.Admit(p.object, now, p.record); admitted || p.record != nil {
					p.object = held
				}
				p.release(revision)
			}
			if next("r2"); admitted {
				if got, w := p.run(0), p.look(); strings.Count(got, "r1") != 5 || !w.Held || w.Marked {
					t.Errorf("%s: at admission: %s, %+v", what, got, w)
				}
				undone := kind.Do(p.seen(), p.look(), rollout.Action{Do: rollout.Resume})[0].Update
				if got := specOf(undone)["updateStrategy"]; !reflect.DeepEqual(got, strategy) {
					t.Errorf("%s: let go before anybody took it over: %v", what, got)
				}
			}
			p.do(rollout.Action{Do: rollout.Hold})
			if got, w := p.run(0), p.look(); strings.Count(got, "r1") != 5 || !w.Held || !w.Marked || w.Stable != "db-r1" || w.Update != "db-r2" || w.StableHash != "r1" || w.UpdateHash != "r2" || w.StableReady != 5 {
				t.Errorf("%s: held: %s, %+v", what, got, w)
			}
			p.do(rollout.Action{Do: rollout.Upgrade, Pods: 3})
			if got, w := p.run(1), p.look(); strings.Count(got, "r2") != 3 || w.Target != 3 || w.Ready != 3 || w.StableReady != 2 || w.Complete {
				t.Errorf("%s: three pods: %s, %+v", what, got, w)
			}
			p.do(rollout.Action{Do: rollout.Upgrade, Pods: 1})
			if got := p.run(1); strings.Count(got, "r2") != 1 || !p.letters && got != "r1 r1 r1 r1 r2" {
				t.Errorf("%s: one pod: %s", what, got)
			}
			next("r3")
			if got, w := p.run(1), p.look(); strings.Count(got, "r1") != 4 || w.Target != 0 || !w.Held {
				t.Errorf("%s: before it is told: %s, %+v", what, got, w)
			}
			p.do(rollout.Action{Do: rollout.Upgrade, Pods: 2})
			if got := p.run(1); strings.Count(got, "r3") != 2 || strings.Count(got, "r1") != 3 {
				t.Errorf("%s: another revision: %s", what, got)
			}
			p.do(rollout.Action{Do: rollout.Upgrade, Pods: 5})
			if got, w := p.run(1), p.look(); strings.Count(got, "r3") != 5 || !w.Complete || w.Stable != "db-r1" {
				t.Errorf("%s: all: %s, %+v", what, got, w)
			}
			text, err := p.record.Text()
			if err != nil {
				t.Fatal(err)
			}
			if p.record, err = ReadRecord(text); err != nil {
				t.Errorf("%s: %s: %v", what, text, err)
			}
			p.do(rollout.Action{Do: rollout.Release})
			delete(p.object, "status")
			delete(before, "status")
			if !reflect.DeepEqual(p.object, before) || p.record != nil {
				t.Errorf("%s: %v, want %v", what, p.object, before)
			}
		}
	}
}

// TestWhatIsWrittenBesideThePartitionStays: what surrounds it was not there before, and has something else in it now.
func TestWhatIsWrittenBesideThePartitionStays(t *testing.T) {
	p := newPodset(t, games(), 3)
	setField(specOf(p.object), "updateStrategy", nil)
	p.release("r2")
	p.do(rollout.Action{Do: rollout.Hold})
	setField(specOf(p.object), "updateStrategy.rollingUpdate.maxUnavailable", int64(2))
	p.do(rollout.Action{Do: rollout.Release})
	want := map[string]any{"rollingUpdate": map[string]any{"maxUnavailable": int64(2)}}
	if got := specOf(p.object)["updateStrategy"]; !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
}

func TestWhatACustomWorkloadLacksIsTold(t *testing.T) {
	kind := games()
	for want, change := range map[string]func(p *podset, s *Seen){
		"": func(*podset, *Seen) {},
		"GameSet db has no status.observedGeneration":                  func(_ *podset, s *Seen) { delete(s.Object["status"].(map[string]any), "observedGeneration") },
		"GameSet db has no status.currentRevision":                     func(_ *podset, s *Seen) { s.Object["status"].(map[string]any)["currentRevision"] = "" },
		"GameSet db has no spec.template":                              func(_ *podset, s *Seen) { delete(specOf(s.Object), "template") },
		"GameSet db has spec.updateStrategy.type OnDelete":             func(_ *podset, s *Seen) { setField(specOf(s.Object), typeField, "OnDelete") },
		"The pod db-1 of GameSet db has no label example.com/revision": func(_ *podset, s *Seen) { delete(s.Pods[1].Labels, "example.com/revision") },
	} {
		p := newPodset(t, kind, 2)
		s := p.seen()
		change(p, s)
		w, err := kind.Observe(s)
		if err != nil || (want == "") != (w.Unfit == "") || !strings.HasPrefix(w.Unfit, want) {
			t.Errorf("%q: %+v, %v", want, w, err)
		}
		s.Record = &Record{UID: "u1", Stable: "r1"}
		if w, err := kind.Observe(s); err != nil || w.Unfit != "" { // a release that has begun waits
			t.Errorf("%q, midway: %+v, %v", want, w, err)
		}
	}
	p := newPodset(t, kind, 2)
	s := p.seen()
	delete(s.Object, "status") // it has just been made
	if w, err := kind.Observe(s); err != nil || w.Unfit != "" || w.Settled {
		t.Errorf("%+v, %v", w, err)
	}
}

// definition has all that a release needs.
const definition = `
metadata: {name: gamesets.apps.example.com}
spec:
  group: apps.example.com
  names: {kind: GameSet, plural: gamesets}
  versions:
  - name: v1
    served: true
    subresources: {status: {}, scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              template: {type: object, x-kubernetes-preserve-unknown-fields: true}
              updateStrategy: {type: object, properties: {rollingUpdate: {type: object, properties: {partition: {type: integer, format: int32, minimum: 0}}}}}
          status:
            type: object
            properties: {observedGeneration: {type: integer}, updateRevision: {type: string}, currentRevision: {type: string}}
`

func TestWhatADefinitionLacksIsTold(t *testing.T) {
	kind := games()
	for _, c := range []struct{ old, new, want string }{
		{"", "", ""},
		{"{rollingUpdate: {type: object, properties: {partition: {type: integer, format: int32, minimum: 0}}}}", "{rollingUpdate: {type: object, x-kubernetes-preserve-unknown-fields: true}}", ""},
		{"type: integer, format: int32, minimum: 0", "x-kubernetes-int-or-string: true", ""},
		{"{observedGeneration: {type: integer}, updateRevision: {type: string}, currentRevision: {type: string}}", "{}\n            x-kubernetes-preserve-unknown-fields: true", ""},
		{"scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}", "", "lacks the scale subresource (subresources.scale): use"},
		{".spec.replicas", ".spec.size", "lacks its number of pods in spec.replicas (subresources.scale.specReplicasPath is .spec.size): use"},
		{"status: {}, ", "", "lacks the status subresource (subresources.status): use"},
		{"partition:", "part:", "A GameSet cannot be released step by step, as its definition (gamesets.apps.example.com, version v1) lacks spec.updateStrategy.rollingUpdate.partition: use"},
		{"type: integer, format: int32, minimum: 0", "type: string", "lacks spec.updateStrategy.rollingUpdate.partition as a whole number: use"},
		{"minimum: 0", "maximum: 100", "lacks spec.updateStrategy.rollingUpdate.partition without a maximum: use"},
		{"template:", "pods:", "lacks spec.template: use"},
		{"updateRevision: {type: string}, currentRevision: {type: string}", "hash: {type: string}", "lacks status.updateRevision, status.currentRevision: use"},
		{"    schema:\n", "    x:\n", "lacks spec.template, status.observedGeneration, status.updateRevision, status.currentRevision, spec.updateStrategy.rollingUpdate.partition: use"},
		{"kind: GameSet", "kind: GameRoom", "is of the kind GameRoom: correct the resource of GameSet in rollouts.workloads"},
		{"name: v1", "name: v2", "has no version v1 that is served: correct spec.workloadRef.apiVersion"},
		{"served: true", "served: false", "has no version v1 that is served"},
	} {
		crd := &apiextensionsv1.CustomResourceDefinition{}
		text := strings.Replace(definition, c.old, c.new, 1)
		if err := yaml.Unmarshal([]byte(text), crd); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if c.old != "" && text == definition {
			t.Errorf("%q is not in the definition", c.old)
		}
		if got := kind.Unfitting(crd, "v1"); (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%q in the place of %q: %q, want %q", c.new, c.old, got, c.want)
		}
	}
	if got := kind.Unfitting(nil, "v1"); !strings.Contains(got, "no definition gamesets.apps.example.com: correct the group or the resource of GameSet") {
		t.Errorf("none: %q", got)
	}
}

func TestARevisionIsNamedAsTheStatusDoes(t *testing.T) {
	pod := func(value string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"example.com/revision": value, "z": "db-r2"}}}
	}
	of := games().RevisionsOf("db-r1", "db-r2", "other-r2", "db-r1")
	for value, want := range map[string]string{"db-r1": "db-r1", "r1": "db-r1", "r2": "r2", "r3": "r3", "db-r3": "db-r3", "": ""} {
		if got := of(pod(value)); got != want {
			t.Errorf("%q: %q, want %q", value, got, want)
		}
	}
	if got := statefulSet.RevisionsOf("db-r1")(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{revisionLabel: "r1"}}}); got != "r1" {
		t.Errorf("of a StatefulSet: %q", got)
	}
	object := map[string]any{"status": map[string]any{"updateRevision": "db-r1", "currentRevision": "db-r1"}}
	ref := rollouts.Ref{APIVersion: "apps.example.com/v1", Kind: "GameSet", Name: "db"}
	for value, want := range map[string]string{"r1": "example.com/revision", "r9": revisionLabel} {
		if k := Guess(ref, object, []*corev1.Pod{pod(value)}); k.Label != want || k.Group != "apps.example.com" || k.Name != "GameSet" {
			t.Errorf("%q: %+v, want the label %s", value, k, want)
		}
	}
}

func TestKindsAreNamed(t *testing.T) {
	all, err := Named([]string{"GameSet:gamesets.apps.example.com", "Fleet:fleets.games.example.com:games.example.com/revision"})
	if err != nil || len(all) != len(Fixed())+2 {
		t.Fatalf("%v, %v", all, err)
	}
	k, ok := all.For(rollouts.Ref{APIVersion: "games.example.com/v2", Kind: "Fleet", Name: "a"})
	if !ok || k.Definition() != "fleets.games.example.com" || k.Label != "games.example.com/revision" {
		t.Errorf("%+v", k)
	}
	if _, ok := Fixed().For(rollouts.Ref{APIVersion: "games.example.com/v2", Kind: "Fleet"}); ok {
		t.Error("it is a fixed one")
	}
	for text, want := range map[string]string{
		"": "the kind \"\" is none", "GameSet": "the resource \"\" is none", "GameSet:gamesets": "the group \"\" is Kubernetes' own", "Job:jobs.batch": "the group \"batch\" is Kubernetes' own",
		"Gateway:gateways.gateway.networking.k8s.io": "the group \"gateway.networking.k8s.io\" is Kubernetes' own", "GameSet:Gamesets.apps.example.com": "the resource \"Gamesets\" is none",
		"GameSet:gamesets.apps..example.com": "the definition", "GameSet:gamesets.apps.example.com:": "the label \"\" is none", "GameSet:gamesets.apps.example.com:a b": "the label \"a b\" is none",
		"CloneSet:clonesets.apps.kruise.io": "is named twice, or released without being named", "Game Set:gamesets.apps.example.com": "the kind \"Game Set\" is none",
	} {
		if _, err := Named([]string{text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := Named([]string{"GameSet:gamesets.apps.example.com", "GameSet:gamesets.apps.example.com"}); err == nil {
		t.Error("one is named twice")
	}
}

// FuzzCustom looks for a text that names a kind and means another one when it is written again.
func FuzzCustom(f *testing.F) {
	for _, text := range []string{"GameSet:gamesets.apps.example.com", "Fleet:fleets.games.example.com:games.example.com/revision", "a:b.c.d:e:f", "::", "A:a.k8s.io"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		k, err := Custom(text)
		if err != nil {
			return
		}
		again, err := Custom(k.Name + ":" + k.Definition() + ":" + k.Label)
		if err != nil || again.Group != k.Group || again.Name != k.Name || again.Plural != k.Plural || again.Label != k.Label {
			t.Errorf("%q is %+v, and written again %+v: %v", text, k, again, err)
		}
		if strings.Contains(k.Definition(), "*") || !rollouts.MayBeNamed((rollouts.Ref{APIVersion: k.Group + "/v1", Kind: k.Name}).GroupKind()) {
			t.Errorf("%q names %s of %s", text, k.Plural, k.Group)
		}
	})
}

func TestOnlyDeploymentsAreReleasedBlueGreen(t *testing.T) {
	for _, k := range append(Fixed(), custom("apps.example.com", "GameSet", "gamesets", revisionLabel)) {
		partition, green := k.Unfit(nil, rollouts.Partition, nil), k.Unfit(nil, rollouts.BlueGreenStyle, nil)
		if partition != "" || (green == "") != (k == &deployment) {
			t.Errorf("%s of %s: %q, %q", k.Name, k.Group, partition, green)
		}
	}
}
