// Package e2e tests Weir the way a user runs it: installed from deploy/ into a cluster with real pods, told what to do by kubectl, and
// watched by requests to the addresses that its Gateways have. Its tests run in the network of a cluster of their own: "make test-cluster".
package e2e
