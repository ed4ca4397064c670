// Package rollouts tests that Rollouts are carried out on a real API server beside Kubernetes' own controllers of workloads.
// A kubelet without containers makes their pods ready.
package rollouts
