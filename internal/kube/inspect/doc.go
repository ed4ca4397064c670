// Package inspect reads what exists of Weir in a cluster (definitions, the controller and its rights, proxies and what
// they run, statuses) and judges it. It changes nothing and needs only the right to read. It leaves out what the user
// may not read, and reports that. "weir check" and "weir status" use it; the controller does not.
package inspect
