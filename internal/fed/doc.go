// Package fed is a data plane that gets its configurations from a controller's feed: "weir proxy" and weir-proxy. It is
// separate from dataplane, so that a data plane that serves files does not need the feed's protocol.
package fed
