// Package probe does what the kubelet would do to a pod's containers, in its place: probes, and HTTP hooks of their
// lifecycle. A sidecar lets nobody pass in cleartext whom no policy lets pass, and no source address proves that a
// connection is the kubelet's. So the kubelet asks the sidecar by HTTP, and the sidecar asks the application as the
// kubelet would have: the same request, a TCP connection, or grpc.health.v1.
package probe
