// Package kube is where Weir meets a Kubernetes API server: Source watches what a resource.Set holds, Load reads it once,
// StatusWriter writes statuses, Recorder events, and Classes keeps GatewayClasses that are in use.
//
// It does not judge what objects mean and starts no proxies (see kube/infra). Its user is the command line.
package kube
