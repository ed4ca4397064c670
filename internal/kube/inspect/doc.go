// Package inspect looks at what there is of Weir in a cluster (definitions, the controller and what it may do, proxies and
// what they run, statuses) and judges it. It changes nothing and needs no more than the right to read; what the user may
// not read is left out, and said so. "weir check" and "weir status" use it; the controller does not.
package inspect
