// Package explain says what becomes of a request and why: which Gateway, listener and rule take it, what lost, what is left out that would take it, who
// answers, who gets copies, and what is forwarded. It asks the proxy's own reading of requests and the routing table's own matching, sends nothing, and
// changes nothing of what it is given. "weir explain" prints what it says; an Explanation is plain data with a JSON form for others.
package explain
