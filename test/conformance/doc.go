// Package conformance runs the Gateway API's conformance suite, as it was released, against Weir in a cluster with real pods.
package conformance
