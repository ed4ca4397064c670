package rollouts

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

const (
	// gamesGroup is that of kinds that are not OpenKruise's or Kubernetes' own.
	gamesGroup = "apps.example.com"
	// gamesLabel has the revision of their pods.
	gamesLabel = "apps.example.com/revision"
)

// released are the kinds that controllers here may release. A GameSet has all that this takes, a GameRoom no partition; a GameHall
// is not named.
var released = func() workload.Kinds {
	all, err := workload.Named([]string{"GameSet:gamesets." + gamesGroup + ":" + gamesLabel, "GameRoom:gamerooms." + gamesGroup})
	if err != nil {
		panic(err)
	}
	return all
}()

// games is the definition of a kind that is replaced as a StatefulSet is.
const games = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: PLURAL.apps.example.com}
spec:
  group: apps.example.com
  scope: Namespaced
  names: {kind: KIND, plural: PLURAL, listKind: KINDList}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            required: [template]
            properties:
              replicas: {type: integer, format: int32, minimum: 0}
              selector: {type: object, properties: {matchLabels: {type: object, additionalProperties: {type: string}}}}
              template: {type: object, x-kubernetes-preserve-unknown-fields: true}
              updateStrategy:
                type: object
                properties:
                  type: {type: string, enum: [RollingUpdate, InplaceUpdate, OnDelete]}
                  rollingUpdate:
                    type: object
                    properties:
                      maxUnavailable: {x-kubernetes-int-or-string: true}
                      partition: {type: integer, format: int32, minimum: 0}
          status:
            type: object
            properties:
              replicas: {type: integer, format: int32}
              selector: {type: string}
              observedGeneration: {type: integer, format: int64}
              updateRevision: {type: string}
              currentRevision: {type: string}
`

// defineGames installs the definition of a kind of games with changes of its text, and waits until it is served.
func defineGames(t *testing.T, kind string, change ...string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	text := strings.NewReplacer(append(change, "KIND", kind, "PLURAL", strings.ToLower(kind)+"s")...).Replace(games)
	if err := yaml.UnmarshalStrict([]byte(text), crd); err != nil {
		t.Fatal(err)
	}
	if err := admin.Create(t.Context(), crd); err != nil {
		t.Fatal(err)
	}
	err := within(t.Context(), func() error {
		kinds, err := admin.Serves(t.Context(), gamesGroup)
		if err == nil && !kinds[kind] {
			err = errors.New("it is not served yet")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return crd
}

const gameSteps = "{canary: {" + route + ", steps: [{traffic: 30%, replicas: 1}, {traffic: 60%, replicas: 2}]}}"

// TestAKindThatIsNamedIsReleased: to the end, taken back, replaced and deleted midway, while its controllers are killed; and by one
// that is asked nothing at admission, and by commands. Whatever its user wrote around the partition is there in the end.
func TestAKindThatIsNamedIsReleased(t *testing.T) {
	t.Parallel()
	defineGames(t, "GameSet")
	t.Run("held at admission", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, "GameSet.v1."+gamesGroup, "replicas: 3", gameSteps)
		w.runs()
		w.settled("v1")
		before := w.written()
		c := w.start(7, true)
		if !testing.Short() { // a Deployment passes
			w.passes(before, 2)
		}
		w.release("v3")
		w.until(rollouts.PhaseProgressing, 1)
		w.approve()
		w.until(rollouts.PhaseProgressing, 2)
		w.release("v4")
		w.until(rollouts.PhaseProgressing, 1)
		w.remove(before, "v4")
		c.stop()
		kills := 0
		for _, n := range c.killed {
			kills += n
		}
		if t.Logf("%d writes, killed: %v", c.writes, c.killed); kills < 10 {
			t.Errorf("%d kills are too few to say anything", kills)
		}
	})
	t.Run("held by the controller", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, "GameSet.v1."+gamesGroup, "replicas: 3\n  updateStrategy: {type: InplaceUpdate, rollingUpdate: {maxUnavailable: 1, partition: 0}}", gameSteps)
		w.runs()
		w.settled("v1")
		before := w.written()
		c := w.start(8, false)
		w.until(rollouts.PhaseHealthy, 0)
		w.permit()
		w.permitGames()
		w.plain("v2")
		w.until(rollouts.PhaseProgressing, 1)
		w.shows("get web", "Workload:  GameSet web, 3 pods", "revision 2 (canary)", "Service web-canary: 1 of 1 pod ready, v2", "revision 1 (stable), Service web: 2 of 2 pods ready, v1")
		w.does("GameSet web has the template of revision 1", "undo", "web")
		w.until(rollouts.PhaseHealthy, 0)
		w.same(before, "v1")

		w.plain("v3")
		w.until(rollouts.PhaseProgressing, 1)
		w.patch(rolloutKind, `{"spec":{"disabled":true}}`)
		w.until(rollouts.PhaseDisabled, 0)
		w.same(before, "v3")
		c.stop()
	})
}

// plain changes the image as an API server without the webhook of workloads stores it.
func (w *world) plain(image string) {
	w.Helper()
	w.patch(w.kind, `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"`+image+`"}]`)
}

// permitGames gives the operator what docs/rollouts.md says that a role for a kind that is named has beside.
func (w *world) permitGames() {
	w.Helper()
	meta := metav1.ObjectMeta{Namespace: w.namespace, Name: "games"}
	role := &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: []string{gamesGroup}, Resources: []string{"gamesets"}, Verbs: []string{"get", "patch"}}}}
	binding := &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "games"}, Subjects: []rbacv1.Subject{{Kind: "User", APIGroup: rbacv1.GroupName, Name: operator}}}
	for _, o := range []client.Object{role, binding} {
		if err := admin.Create(w.Context(), o); err != nil {
			w.Fatal(err)
		}
	}
}

// TestAKindThatCannotBeReleasedIsLeftAlone: of one that is not named, and of one without a partition, nothing is changed, and the
// Rollout says why.
func TestAKindThatCannotBeReleasedIsLeftAlone(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	t.Parallel()
	room := defineGames(t, "GameRoom", "partition:", "part:")
	defineGames(t, "GameHall")
	says := func(w *world, want string) {
		t.Helper()
		err := within(t.Context(), func() error {
			s, u, err := w.status()
			if err == nil && (!strings.Contains(s.Message, want) || s.Phase != rollouts.PhaseInitial || len(u.GetFinalizers()) > 0) {
				err = fmt.Errorf("the Rollout is %+v with the finalizers %v, want %q", s, u.GetFinalizers(), want)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	worlds := map[string]*world{}
	for kind, want := range map[string]string{
		"GameHall": "Weir's controller may not release objects of the kind GameHall.apps.example.com: if their pods are replaced by a partition, as those of a StatefulSet are, add the kind to rollouts.workloads in the values of Weir's chart (group: apps.example.com, kind: GameHall, resource: its plural)",
		"GameRoom": "A GameRoom cannot be released step by step, as its definition (gamerooms.apps.example.com, version v1) lacks spec.updateStrategy.rollingUpdate.partition: use",
	} {
		w := newWorld(t, kind+".v1."+gamesGroup, "replicas: 2", gameSteps)
		worlds[kind] = w
		w.runs()
		w.settled("v1")
		before := w.written()
		w.start(9, false)
		says(w, want)
		w.plain("v2")
		w.same(before, "v2") // at once, by its own controller
		says(w, want)
	}
	// Its next version can be: that is found without a change of anything else.
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(room), room); err != nil {
		t.Fatal(err)
	}
	of := room.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"].Properties["updateStrategy"].Properties["rollingUpdate"].Properties
	of["partition"] = of["part"]
	if err := admin.Update(t.Context(), room); err != nil {
		t.Fatal(err)
	}
	says(worlds["GameRoom"], "has no label controller-revision-hash, by which Services tell versions apart")
}
