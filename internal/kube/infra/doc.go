// Package infra gives each Gateway the proxies that serve it. Plan and Render are pure: from what the user wrote they
// make the Kubernetes objects of a Gateway (a Deployment of proxies with its ServiceAccount, ConfigMap, Services and
// PodDisruptionBudget). The Applier brings the cluster to that and keeps it there. Fleet corrects the statuses that the
// translator wrote by what really runs: the addresses that Services were given, the configuration that proxies serve.
//
// It does not decide what a Gateway serves (package dialect/gateway), does not bring it to the proxies (package feed) and
// writes no status.
package infra
