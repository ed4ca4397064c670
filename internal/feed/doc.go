// Package feed carries the routing model from control planes to proxies. Each proxy gets the configuration of its owner,
// such as its Gateway, first all of it and then only changes, over the incremental (delta) variant of xDS with TLS. A
// Server publishes and knows what each proxy runs. A Client applies, acknowledges, and keeps the last good configuration
// in a file for the time when no control plane can be reached.
//
// It knows nothing of Kubernetes: the caller says who a token belongs to (Server.Authenticate), and where
// configurations come from. The function given to Client.Run serves a configuration.
package feed
