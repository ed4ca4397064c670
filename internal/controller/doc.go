// Package controller is the control plane of a cluster. It translates the cluster's objects, feeds each Gateway's
// proxies, and converts objects between versions. The replica that leads also writes statuses and events and applies
// the objects that proxies need. "weir controller" runs it.
package controller
