package release

import (
	"context"
	"fmt"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube"
)

// Obstacle is why the Rollouts of a cluster are not carried out; empty if they are.
type Obstacle string

const (
	// OpenKruise means that its own controller is installed, and carries them out.
	OpenKruise Obstacle = "openkruise"
	// Undefined means that the API server does not have the kind.
	Undefined Obstacle = "undefined"
)

// Obstacles are all there are.
var Obstacles = []Obstacle{OpenKruise, Undefined}

// String is a sentence without an end; empty for none.
func (o Obstacle) String() string {
	switch o {
	case OpenKruise:
		return "OpenKruise Rollouts is installed, and carries them out: the API server has its kind BatchRelease"
	case Undefined:
		return "the definition of Rollouts is not installed"
	}
	return ""
}

// FindObstacle asks an API server.
func FindObstacle(ctx context.Context, c *kube.Client) (Obstacle, error) {
	kinds, err := c.Serves(ctx, rollouts.Group)
	switch {
	case err != nil:
		return "", err
	case kinds["BatchRelease"]:
		return OpenKruise, nil
	case kinds["Rollout"]:
		return "", nil
	}
	switch there, err := c.Lists(ctx, rolloutKind.GroupVersion().WithResource("rollouts")); {
	case err != nil:
		return "", err
	case there: // and OpenKruise may be, too
		return "", fmt.Errorf("the API server has just started, and does not tell of all kinds of %s yet", rollouts.Group)
	}
	return Undefined, nil
}
