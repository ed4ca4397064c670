// Package kube connects Weir to a Kubernetes API server. Source watches the objects of a resource.Set, and Load reads
// them once. StatusWriter writes statuses, Recorder events, and Classes protects GatewayClasses that are in use.
//
// The package does not judge the meaning of objects and starts no proxies (see kube/infra). The command line and the
// controller use it.
package kube
