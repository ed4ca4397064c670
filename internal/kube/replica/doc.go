// Package replica is what the replicas of the controller share through the API server: the lease by which one of them leads, the authority that
// signs their certificates, whom a proxy's token belongs to, and what the proxies that are connected to each of them run.
//
// It decides nothing about Gateways. internal/cli puts the parts together.
package replica
