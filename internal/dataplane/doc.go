// Package dataplane is a data plane as a process: the proxy's server with its admin endpoint, its flags, its start,
// drain and handover. Its user supplies configurations: a control loop in the same process ("weir run"), or a
// controller's feed (Fed: "weir proxy" and weir-proxy). It knows nothing of Kubernetes.
package dataplane
