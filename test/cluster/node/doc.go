// Package node runs a whole Kubernetes on one machine: an API server, its controllers, and one node with real containers,
// in network, process and mount namespaces of its own. Nothing gets out of them, and all of it goes with their first process.
// It needs root and some Debian packages, but no images: those are made by package image.
//
// A process that starts a node starts itself again inside the namespaces: its main function must call Main before anything
// else. Tests therefore run as commands in a node of the cluster command, not the other way round.
package node
