package inspect

import (
	"context"
	"fmt"

	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/model"
)

// rollouts asks what keeps a controller from carrying Rollouts out that is to.
func (r *reader) rollouts(ctx context.Context) error {
	if c := r.out.Controller; c == nil || !c.Rollouts {
		return nil
	}
	why, err := release.FindObstacle(ctx, r.client)
	if err != nil && !r.refused("which kinds there are of OpenKruise Rollouts", err) {
		return fmt.Errorf("which kinds there are of OpenKruise Rollouts: %w", err)
	}
	r.out.Obstacle = why
	return nil
}

// rollouts reports that a controller carries no Rollouts out that is to.
func (j *judge) rollouts() {
	if j.Controller == nil {
		return
	}
	switch ref := (model.Ref{Kind: "CustomResourceDefinition"}); j.Obstacle {
	case release.OpenKruise:
		ref.Name = "batchreleases.rollouts.kruise.io"
		j.add(CodeRollouts, ref, "", "Weir's controller carries no Rollouts out: "+j.Obstacle.String(),
			"set rollouts.enabled of Weir's chart to false, or remove OpenKruise Rollouts together with this definition")
	case release.Undefined:
		ref.Name = "rollouts.rollouts.kruise.io"
		j.add(CodeRollouts, ref, "", "Weir's controller carries no Rollouts out: "+j.Obstacle.String(),
			"install the definitions of Weir's chart, or set rollouts.enabled to false")
	}
}

// RolloutSummary is whether the controller carries Rollouts out.
type RolloutSummary struct {
	Carried bool `json:"carried"`
	// Why it does not.
	Why string `json:"why,omitempty"`
}

// rolloutSummary is nil if the controller is not to carry any out.
func (c *Cluster) rolloutSummary() *RolloutSummary {
	if !c.Controller.Rollouts {
		return nil
	}
	return &RolloutSummary{Carried: c.Obstacle == "", Why: c.Obstacle.String()}
}

// String is one line.
func (s *RolloutSummary) String() string {
	if s.Carried {
		return "carried out by the leader"
	}
	return "not carried out: " + s.Why
}
