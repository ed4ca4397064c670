package release

import (
	"context"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// Count asks how many requests came to two Services of a namespace.
type Count struct {
	Namespace, Stable, Canary string
	// Objects are what requests are routed by.
	Objects []*unstructured.Unstructured
	// Pods are those of the Services.
	Pods []string
	// Since is when the step was in force.
	Since time.Time
}

// count asks about a step that says which share the new version gets; nil if there is none, or nobody counts.
func (t *turn) count(ctx context.Context) (*rollout.Shared, error) {
	rel, w := t.r.Status.Release(), t.ways
	if t.Counted == nil || rel == nil || rel.CurrentStepState != rollouts.StepMetricsAnalysis || rel.LastUpdateTime == nil ||
		w.stable == nil || w.canary == nil || rel.CurrentStepIndex < 1 || int(rel.CurrentStepIndex) > len(w.plan.Steps) {
		return nil, nil
	}
	if _, weighs := rollout.ShareOf(&w.plan.Steps[rel.CurrentStepIndex-1]); !weighs {
		return nil, nil
	}
	c := Count{
		Namespace: t.name.Namespace, Stable: w.stable.GetName(), Canary: w.canary.GetName(),
		Since: rel.LastUpdateTime.Add(time.Second), // as it is stored, it lacks what is less than one
	}
	for i, u := range w.live {
		if p, ok := t.Providers.For(w.targets[i]); !ok || u == nil || sticks(u) || p.Name != "gateway" && p.Name != "smi" {
			return nil, nil
		}
		c.Objects = append(c.Objects, u)
	}
	for _, service := range []string{c.Stable, c.Canary} {
		list, err := t.slices(ctx, service)
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			for _, e := range list.Items[i].Endpoints {
				if e.TargetRef != nil && e.TargetRef.Kind == "Pod" {
					c.Pods = append(c.Pods, e.TargetRef.Name)
				}
			}
		}
	}
	shared, err := t.Counted(ctx, c)
	if err != nil && ctx.Err() == nil {
		t.unmeasured.Log(t.Logger, slog.LevelWarn, "", "it could not be measured how requests are shared out; trying again", "rollout", t.name.String(), "error", err)
		t.mu.Lock()
		t.stats.unmeasured++
		t.mu.Unlock()
	}
	if err != nil {
		shared = &rollout.Shared{Unknown: "Traffic Metrics cannot be read, and the log of Weir's controller says why"}
	}
	return shared, nil
}

// sticks reports whether a route keeps users with a version, so that shares are of users and not of requests.
func sticks(u *unstructured.Unstructured) bool {
	rules, _, _ := unstructured.NestedSlice(u.Object, "spec", "rules")
	for _, r := range rules {
		if rule, ok := r.(map[string]any); ok && rule["sessionPersistence"] != nil {
			return true
		}
	}
	return false
}
