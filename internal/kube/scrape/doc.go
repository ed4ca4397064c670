// Package scrape says which pods of a cluster a store of traffic reads (metrics/embedded), and where: those that proved
// to the controller that they are a Gateway's proxies, and the sidecars of pods that proved which pod they are. It trusts
// no label and no annotation, and takes from a pod's report only what it observed itself. The controller uses it; it makes
// no requests of its own.
package scrape
