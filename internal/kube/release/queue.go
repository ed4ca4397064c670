package release

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// inARow is how many Rollouts of which somebody asks something come before one that waits for its turn.
const inARow = 8

// turns is the order in which Rollouts are worked on: those first of which somebody asks something, such as to go back, so
// that he does not wait until many others have gone on by themselves. Both are in the order in which they came.
type turns struct {
	mu sync.Mutex
	// asked are those of which somebody asks something, until they are in first or are worked on.
	asked       map[types.NamespacedName]bool
	first, rest []types.NamespacedName
	row         int // how many of first came since the last of rest
}

// newQueue is a queue whose Rollouts come in turns.
func newQueue(t *turns) workqueue.TypedRateLimitingInterface[types.NamespacedName] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](retryLeast, retryMost),
		workqueue.TypedRateLimitingQueueConfig[types.NamespacedName]{
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[types.NamespacedName]{
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[types.NamespacedName]{Queue: t}),
			}),
		})
}

// ask has a Rollout come early when it is added to the queue, which has to follow.
func (t *turns) ask(r types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asked[r] = true
}

// Push adds a Rollout that is in neither part.
func (t *turns) Push(r types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asked[r] {
		delete(t.asked, r)
		t.first = append(t.first, r)
		return
	}
	t.rest = append(t.rest, r)
}

// Touch is called in place of Push for a Rollout that is in one of the parts already.
func (t *turns) Touch(r types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.asked[r] {
		return
	}
	delete(t.asked, r)
	if i := slices.Index(t.rest, r); i >= 0 {
		t.rest = slices.Delete(t.rest, i, i+1)
		t.first = append(t.first, r)
	}
}

// Len is how many there are.
func (t *turns) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.first) + len(t.rest)
}

// Pop takes the next one; there has to be one.
func (t *turns) Pop() (r types.NamespacedName) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from := &t.first
	if t.row++; len(t.first) == 0 || t.row > inARow && len(t.rest) > 0 {
		from, t.row = &t.rest, 0
	}
	r, *from = (*from)[0], (*from)[1:]
	return r
}

// asks reports whether somebody asks something by an object that was not decided on yet: another version, to go back, to go
// on, to leave steps out.
func asks(o client.Object) bool {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return false
	}
	status, _ := u.Object["status"].(map[string]any)
	if observed, there := status["observedGeneration"].(int64); there && observed != u.GetGeneration() {
		return true
	}
	if u.GroupVersionKind().Group != rollouts.Group {
		return false
	}
	if u.GetDeletionTimestamp() != nil || u.GetAnnotations()[rollout.AbortAnnotation] != "" {
		return true
	}
	for _, part := range []any{status, status["canaryStatus"], status["blueGreenStatus"]} {
		part, _ := part.(map[string]any)
		at, _ := part["currentStepIndex"].(int64)
		next, there := part["nextStepIndex"].(int64)
		if part["currentStepState"] == string(rollouts.StepReady) || there && next > 0 && next != at+1 {
			return true
		}
	}
	return false
}
