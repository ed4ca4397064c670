// Package fed is a data plane whose configurations come from a controller's feed: "weir proxy" and weir-proxy. It is apart from dataplane, so that
// what serves files needs nothing of the feed's protocol.
package fed
