package operate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/rollout/command"
)

const (
	// tries is how often a change is made anew because somebody else was faster, or the workload is not settled.
	tries = 20
	pause = 250 * time.Millisecond
)

// fieldOwner owns the fields that people change by commands. It is not the controller's: what that owns it takes for its own.
const fieldOwner = client.FieldOwner("kubectl-weir")

// Do carries out a command. It returns what follows, in sentences; the controller has yet to bring it about.
func (c *Cluster) Do(ctx context.Context, namespace, name string, what command.Command) (said string, err error) {
	away, err := c.away(ctx)
	if err != nil {
		return "", err
	}
	for n := range tries {
		if n > 0 {
			select {
			case <-ctx.Done():
				return "", ctx.Err()
			case <-time.After(pause):
			}
		}
		if said, err = c.try(ctx, namespace, name, what, away); !apierrors.IsConflict(err) && !errors.Is(err, command.ErrUnsettled) {
			return said, err
		}
	}
	return "", fmt.Errorf("given up after %d attempts: %w", tries, err)
}

func (c *Cluster) try(ctx context.Context, namespace, name string, what command.Command, away string) (said string, err error) {
	s, err := c.rollout(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	unread := c.workload(ctx, s)
	if unread != nil && (what.Verb == command.Undo || !apierrors.IsForbidden(unread)) {
		return "", unread
	}
	change, err := what.Change(s.facts(away))
	if err != nil {
		return "", err
	}
	return change.Said, c.make(ctx, s, change)
}

// make makes a change of what was read, or fails with a conflict if that is not the newest any more.
func (c *Cluster) make(ctx context.Context, s *seen, change command.Change) error {
	ctx, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	of, kind, patch := s.live, types.MergePatchType, any(change.Merge)
	if change.Of == command.Workload {
		// A merge would keep what the template before had beside.
		of, kind = s.object, types.JSONPatchType
		patch = []map[string]any{
			{"op": "replace", "path": "/metadata/resourceVersion", "value": of.GetResourceVersion()},
			{"op": "replace", "path": "/spec/template", "value": change.Template},
		}
	} else {
		meta, _ := change.Merge["metadata"].(map[string]any)
		if meta == nil {
			meta = map[string]any{}
			change.Merge["metadata"] = meta
		}
		meta["resourceVersion"] = of.GetResourceVersion()
	}
	text, err := json.Marshal(patch)
	if err != nil {
		return err
	}
	into := &unstructured.Unstructured{}
	into.SetGroupVersionKind(of.GroupVersionKind())
	into.SetNamespace(of.GetNamespace())
	into.SetName(of.GetName())
	if change.Of == command.Status {
		return c.plain(c.client.Status().Patch(ctx, into, client.RawPatch(kind, text), fieldOwner))
	}
	return c.plain(c.client.Patch(ctx, into, client.RawPatch(kind, text), fieldOwner))
}
