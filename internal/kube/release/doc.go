// Package release carries Rollouts out in a cluster. For each it observes the workload, the Services and the objects that
// route requests, asks internal/rollout what follows, stores the status, makes the one change that was decided, and
// observes again. It keeps nothing: who takes over, or begins anew, finds everything in the objects.
package release
