// Package fed is data planes that get their configurations from a controller's feed: that of a Gateway, "weir proxy" and
// weir-proxy, and that beside a pod, "weir sidecar" and "weir-proxy sidecar". It is separate from dataplane, so that a
// data plane that serves files does not need the feed's protocol.
package fed
