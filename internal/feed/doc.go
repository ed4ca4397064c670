// Package feed carries the routing model from control planes to proxies: each proxy gets the configuration of its own
// Gateway, whole at first and then only what changed, over the incremental (delta) variant of xDS with TLS. A Server
// publishes and knows what each proxy runs; a Client applies, acknowledges, and keeps the last good configuration in a
// file for the time when no control plane can be reached.
//
// It knows nothing of Kubernetes: who a token belongs to is the caller's to say (Server.Authenticate), as is where
// configurations come from. How a configuration is served is the business of the function given to Client.Run.
package feed
