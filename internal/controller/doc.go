// Package controller is the control plane of a cluster: it translates what the cluster holds, feeds each Gateway's proxies, converts objects between
// versions, and, in the replica that leads, writes statuses and events and applies what proxies need. "weir controller" runs it.
package controller
