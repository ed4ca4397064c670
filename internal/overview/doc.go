// Package overview shows what there is and how it stands: Gateways, routes, splits and policies, each with its conditions and with what is wrong with it,
// and in a cluster the proxies. It is made of what others have read and judged; "weir status" prints it.
package overview
