// Package kube connects Weir to a Kubernetes API server: Source watches the objects of a resource.Set, Load reads them
// once, StatusWriter writes statuses, Recorder events, and Classes protects GatewayClasses that are in use.
//
// It does not judge what objects mean and starts no proxies (see kube/infra). The command line and the controller use
// it.
package kube
