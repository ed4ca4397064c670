package workload

import (
	"reflect"
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// withExtra is a cluster whose extra pods have metadata of their own.
func withExtra(t *testing.T) *cluster {
	c := newCluster(t)
	c.style = rollouts.ExtraPods
	c.extra = &rollouts.PodTemplateMetadata{Labels: map[string]string{"track": "canary"}, Annotations: map[string]string{"note": "canary"}}
	return c
}

func (c *cluster) scale(rs *appsv1.ReplicaSet, n int32) {
	rs.Spec.Replicas, rs.Status.Replicas, rs.Status.AvailableReplicas = &n, n, n
}

// finish does what the Deployment's own controller does with a Deployment that is let go.
func (c *cluster) finish(update *appsv1.ReplicaSet) {
	for _, rs := range c.sets {
		c.scale(rs, 0)
	}
	c.scale(update, 4)
	update.Annotations = map[string]string{numberAnnotation: "2"}
}

// TestExtraPodsWithMetadataAreOfAReplicaSetOfTheirOwn goes through a release: the revision has one name from its begin to its
// end, steps count and Services select the extra pods alone, and these are never taken for the stable version.
func TestExtraPodsWithMetadataAreOfAReplicaSetOfTheirOwn(t *testing.T) {
	c := withExtra(t)
	c.object["metadata"].(map[string]any)["annotations"] = map[string]any{numberAnnotation: "1", "kubernetes.io/change-cause": "test"}
	c.release("v2")
	before, update := c.written(), c.look().Update
	c.do(rollout.Action{Do: rollout.Hold})
	if got := c.tend(); got != "stable 4" {
		t.Errorf("before any step: %s", got)
	}
	c.do(rollout.Action{Do: rollout.Upgrade, Pods: 1})
	c.tend()
	if len(c.sets) != 3 {
		t.Fatalf("ReplicaSets: %s", c.tend())
	}
	own, extra := c.sets[1], c.sets[2]
	w := c.look()
	if got := c.tend(); got != "stable 4, "+update+" 0, "+w.UpdateHash+" 1" || hashLabel(extra) != w.UpdateHash || w.Update != update || w.UpdateHash == update || w.Updated != 1 || w.Ready != 1 || w.StableReady != 4 || w.Stable != "stable" {
		t.Fatalf("step 1: %s, %+v", got, w)
	}
	labels := map[string]string{"app": "shop", "track": "canary", "pod-template-hash": w.UpdateHash}
	if x := extra.Spec.Template; !reflect.DeepEqual(x.Labels, labels) || !reflect.DeepEqual(extra.Labels, labels) || !reflect.DeepEqual(x.Annotations, c.extra.Annotations) || x.Spec.Containers[0].Image != "v2" {
		t.Errorf("extra pods are %+v", x)
	}
	if x := own.Spec.Template; x.Labels["track"] != "" || x.Annotations != nil || ExtraOf(own) != "" {
		t.Errorf("the revision's own pods are %+v", x)
	}
	if a := extra.Annotations; a[numberAnnotation] != "" || a["kubernetes.io/change-cause"] != "test" || ExtraOf(extra) != update {
		t.Errorf("annotations %v", a)
	}
	c.do(rollout.Action{Do: rollout.Upgrade, Pods: 3})
	if got := c.tend(); got != "stable 4, "+update+" 0, "+w.UpdateHash+" 3" {
		t.Errorf("step 2: %s", got)
	}

	// Other metadata midway is for the next release; pods that came before the hold are not those of a step.
	c.extra.Labels["track"] = "other"
	c.scale(own, 1)
	if now := c.look(); now.UpdateHash != w.UpdateHash || now.Ready != 3 || now.Updated != 4 {
		t.Errorf("midway: %+v", now)
	}
	if got := c.tend(); got != "stable 4, "+update+" 0, "+w.UpdateHash+" 3" {
		t.Errorf("midway: %s", got)
	}
	c.extra.Labels["track"] = "canary"

	c.do(rollout.Action{Do: rollout.Resume})
	if !reflect.DeepEqual(c.object, before) {
		t.Errorf("resumed: %v, want %v", c.object, before)
	}
	c.scale(own, 2)
	c.scale(c.sets[0], 0)
	if w := c.look(); w.Update != update || w.Complete || w.Stable != "stable" || w.Updated != 5 || w.Ready != 5 {
		t.Errorf("while pods are replaced: %+v", w)
	}
	c.finish(own)
	if w := c.look(); !w.Complete || w.Update != update {
		t.Errorf("replaced: %+v", w)
	}
	c.do(rollout.Action{Do: rollout.Release})
	if w := c.look(); w.Stable != update || w.StableReady != 4 || w.Marked {
		t.Errorf("at the end: %+v", w)
	}
	c.scale(extra, 1) // its pod is on its way
	if w := c.look(); w.Stable != update || w.Complete {
		t.Errorf("one is left: %+v", w)
	}
}

// TestExtraPodsOfARevisionThatIsReplacedGo: another version comes midway.
func TestExtraPodsOfARevisionThatIsReplacedGo(t *testing.T) {
	c := withExtra(t)
	c.release("v2")
	c.do(rollout.Action{Do: rollout.Hold})
	c.do(rollout.Action{Do: rollout.Upgrade, Pods: 2})
	c.tend()
	first := c.look()
	c.release("v3")
	c.do(rollout.Action{Do: rollout.Hold})
	w := c.look()
	if got := c.tend(); got != "stable 4, "+first.Update+" 0, "+first.UpdateHash+" 2" || w.Stable != "stable" || w.Update == first.Update || w.UpdateHash == first.UpdateHash {
		t.Errorf("held: %s, %+v", got, w)
	}
	c.do(rollout.Action{Do: rollout.Upgrade, Pods: 1})
	if got := c.tend(); got != "stable 4, "+first.Update+" 0, "+first.UpdateHash+" 0, "+w.Update+" 0, "+w.UpdateHash+" 1" {
		t.Errorf("step 1: %s", got)
	}
	// Its user goes back, and then to the second version with other metadata.
	c.release("v1")
	c.do(rollout.Action{Do: rollout.Release})
	if w := c.look(); w.Update != "stable" || w.Stable != "stable" || w.Complete {
		t.Errorf("back: %+v", w)
	}
	for _, rs := range c.sets[1:] {
		c.scale(rs, 0)
	}
	c.extra = &rollouts.PodTemplateMetadata{Annotations: map[string]string{"note": "new"}}
	c.release("v2")
	c.do(rollout.Action{Do: rollout.Hold})
	c.do(rollout.Action{Do: rollout.Upgrade, Pods: 1})
	c.tend()
	last := c.sets[len(c.sets)-1]
	if w := c.look(); w.Update != first.Update || w.UpdateHash != hashLabel(last) || w.UpdateHash == first.UpdateHash || last.Spec.Template.Labels["track"] != "" || last.Spec.Template.Annotations["note"] != "new" || *last.Spec.Replicas != 1 {
		t.Errorf("with other metadata: %+v, %s", w, c.tend())
	}
}

// TestMetadataThatChangesNothingMakesNoReplicaSet holds the same of styles without extra pods.
func TestMetadataThatChangesNothingMakesNoReplicaSet(t *testing.T) {
	same := &rollouts.PodTemplateMetadata{Labels: map[string]string{"app": "shop"}}
	for _, of := range []struct {
		style rollouts.Style
		extra *rollouts.PodTemplateMetadata
	}{{rollouts.ExtraPods, same}, {rollouts.ExtraPods, nil}, {rollouts.Partition, withExtra(t).extra}} {
		c := newCluster(t)
		c.style, c.extra = of.style, of.extra
		c.release("v2")
		c.do(rollout.Action{Do: rollout.Hold})
		c.do(rollout.Action{Do: rollout.Upgrade, Pods: 1})
		c.tend()
		if w := c.look(); len(c.sets) != 2 || w.UpdateHash != w.Update || w.Ready != 1 {
			t.Errorf("%s, %+v: %d ReplicaSets, %+v", of.style, of.extra, len(c.sets), w)
		}
	}
}

// TestAReplicaSetOfExtraPodsBecomesARevision: its user writes the same labels and annotations into the template.
func TestAReplicaSetOfExtraPodsBecomesARevision(t *testing.T) {
	c := withExtra(t)
	c.release("v2")
	c.do(rollout.Action{Do: rollout.Hold})
	c.do(rollout.Action{Do: rollout.Upgrade, Pods: 1})
	c.tend()
	extra := c.sets[2]
	c.do(rollout.Action{Do: rollout.Release})
	c.finish(c.sets[1])
	meta := specOf(c.object)["template"].(map[string]any)["metadata"].(map[string]any)
	meta["labels"], meta["annotations"] = map[string]any{"app": "shop", "track": "canary"}, map[string]any{"note": "canary"}
	if w := c.look(); w.Update != hashLabel(extra) || w.UpdateHash != w.Update || w.Stable != hashLabel(c.sets[1]) {
		t.Errorf("its template: %+v", w)
	}
	c.finish(extra)
	c.release("v3")
	if w := c.look(); w.Stable != hashLabel(extra) || w.StableReady != 4 {
		t.Errorf("the version after it: %+v", w)
	}
}

func TestMetadataThatTheSelectorDoesNotMatchIsUnfit(t *testing.T) {
	c := withExtra(t)
	c.extra.Labels["app"] = "other"
	c.release("v2")
	want := "spec.strategy.canary.patchPodTemplateMetadata.labels[app]: Deployment shop selects pods by app=shop, so those with app=other would not be its own: use another label."
	if w := c.look(); w.Unfit != want {
		t.Errorf("%+v", w)
	}
}
