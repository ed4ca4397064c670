// Package scrape says which pods of a cluster a store of traffic reads (metrics/embedded), and where: those that proved
// to the controller that they are its proxies. It trusts no label and no annotation, and takes from a pod's report only
// what it observed itself. The controller uses it; it makes no requests of its own.
package scrape
