// Package overview shows the objects and their state. It lists Gateways, routes, splits and policies, each with its
// conditions and its problems, and in a cluster the proxies. It builds on what other packages have read and judged;
// "weir status" prints it.
package overview
