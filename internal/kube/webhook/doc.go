// Package webhook is what API servers call of the controller: one server over TLS, the bounds of the reviews that they
// send, and the keeper of the certificates by which they trust it, in custom resource definitions (conversion), in
// APIServices (aggregated APIs) and in the configurations of admission webhooks.
//
// It knows nothing of what is asked: kube/conversion, kube/admission and kube/aggregated answer. The controller runs the
// server in every replica and Bundles in the leader.
package webhook
