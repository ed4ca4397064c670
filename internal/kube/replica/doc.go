// Package replica is what the replicas of the controller share through the API server: the lease by which one of them
// leads, the authority that signs their certificates, the owner of a proxy's token, and what the proxies connected to
// each of them run.
//
// It decides nothing about Gateways. Package controller puts the parts together.
package replica
