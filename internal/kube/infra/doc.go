// Package infra gives each Gateway the proxies that serve it. Plan and Render are pure: from the user's objects they
// make the Kubernetes objects of a Gateway (a Deployment of proxies with its ServiceAccount, ConfigMap, Services and
// PodDisruptionBudget). The Applier makes the cluster match them and keeps it so. Fleet corrects the statuses of the
// translator by the actual state: the addresses of Services, and the configuration that proxies serve.
//
// It does not decide what a Gateway serves (package dialect/gateway), does not send it to the proxies (package feed)
// and writes no status.
package infra
