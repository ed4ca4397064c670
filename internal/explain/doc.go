// Package explain shows what happens to a request and why. It names the Gateway, listener and rule that take it and
// those that lost. It names invalid objects that would take it, the service that answers, the services that get copies,
// and what the proxy forwards. It uses the proxy's own reading of requests and the routing table's own matching. It
// sends nothing, and does not change its input. "weir explain" prints the result. An Explanation is plain data with a
// JSON form for other uses.
package explain
