// Package release carries Rollouts out in a cluster. For each it observes the workload, the Services and the objects that
// route requests, asks internal/rollout what follows, makes the one change that was decided, and observes again. It keeps
// nothing: who takes over, or begins anew, finds everything in the objects.
//
// The status is stored before a change whose time counts, and else when nothing more follows: what is decided at once is one
// write. How many pods there are and what is awaited is told every two seconds at most.
package release
