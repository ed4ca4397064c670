// Package admission judges what is about to be stored, for API servers that ask: Rollouts answers whether a Rollout is
// valid, and may change as it does; Workloads holds a workload that a Rollout releases; Pods puts sidecars into pods. kube/webhook
// serves them and bounds what they cost.
//
// It decides nothing that a controller relies on: one may find a Rollout that nobody judged, or a pod that nobody injected,
// as the rules may be newer, or the webhook not installed.
package admission
