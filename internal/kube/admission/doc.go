// Package admission judges what is about to be stored, for API servers that ask: Rollouts answers whether a Rollout is
// valid, and may change as it does; Workloads holds a workload that a Rollout releases. kube/webhook serves it and bounds
// what it costs.
//
// It decides nothing that a controller relies on: one may find a Rollout that nobody judged, as the rules may be newer
// than the Rollout, or the webhook not installed.
package admission
